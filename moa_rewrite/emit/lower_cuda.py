"""Lowering for CUDA: the same rules as ``lower.py``, with blocks, threads and shared memory.

    launch      each nest at the top of the kernel is one launch; stages opened there are in global memory
    grid        loops placed "grid", outermost and perfectly nested, become blocks
    threads     the "block" loops of a nest, and key loops next to them whose iterations are independent, are strided over the threads of a block
    uniform     loops around such nests are run by all threads of the block alike; a nest without block loops by one thread
    shared      a stage opened between the grid and the threads is in shared memory; one opened inside a nest belongs to its thread
    barrier     see barriers.py

Placement is advice: a grid or block loop at another place runs in sequence, which is noted.
"""

from __future__ import annotations

import math
from dataclasses import replace

from ..errors import MoaError
from ..terms import I, Kernel, Term, axis, free_axes, reads, subterms
from .barriers import Placer
from .cuda_program import CudaNode, CudaProgram, Launch, Threads, mentions, steps, terms_of
from .fold import bounded, const, fold
from .fuse import fuse, registers
from .loops import Buffer, Declare, If, Let, Loop, Node, Store
from .lower import BYTES, NOT_SUMMED, Ctx, Lower, Options, neutral
from .numa import joined
from .prepare import emissions, items
from .storage import Layout, loop_extents

MAX_THREADS = 256  # per block, unless a nest has fewer indices
LOCAL_BYTES = 1024  # of one thread's arrays
MAX_UNROLL = 16


class LowerCuda(Lower):
    partial_tiles = False  # a thread's tile is cut by tests, see ``loop``

    def __init__(self, kernel: Kernel, options: Options) -> None:
        super().__init__(kernel, options)
        self.launches: list[Launch] = []
        self.shared: list[Buffer] = []  # of the launch being made
        self.grid: tuple[tuple[str, Term], ...] = ()
        self.uniform_level = False  # whether ``new`` opens shared memory

    def cuda(self) -> CudaProgram:
        k, names = self.k, self.names
        name = names.fresh(k.name)
        sizes = tuple(names.of("size", s) for s in k.sizes)
        inputs = tuple(self.parameter(a.name, a.dtype, a.shape, "input" if a.shape else "value") for a in k.inputs)
        outputs = tuple(self.parameter(a.name, a.dtype, a.shape, "output") for a in k.outputs)
        self.name = name
        self.top(k.body, Ctx())
        made, self.launches = self.launches, []
        for a in k.outputs:
            if a.name in self.needs_init:
                self.fill_launch(a.name)
        return CudaProgram(
            name, sizes, tuple(map(self.expr, self.source.where)), inputs, outputs, tuple(self.workspaces), dict(self.buffers), (*self.launches, *made),
            {names.of("size", s): v for s, v in self.options.fix.items()}, tuple(self.notes), {n: i for (_, n), i in names.given.items()},
        )  # fmt: skip

    # --- launches ---

    def top(self, t: Term, ctx: Ctx) -> None:
        """What lies outside all loops: sequences and the stages that several launches share."""
        match t.op:
            case "seq" | "skip":
                for s in items(t):
                    self.top(s, ctx.into("seq"))
            case "new":
                name, body = str(t.args[0]), t.args[1]
                assert isinstance(body, Term)
                stage = self.k.stage(name)
                layout = self.layouts[name] = Layout(self.k, stage, loop_extents(body, self.k))
                buffer = self.new_buffer(name, stage.dtype, tuple(self.expr(e) for e in layout.shape), "shared", name)
                self.array_of[name] = buffer.name
                self.note("storage", f"{name} is {buffer.name}[{', '.join(map(str, buffer.shape))}], global")
                at = len(self.launches)
                self.top(body, ctx.into("new", name))
                if name in self.needs_init:
                    self.needs_init.discard(name)
                    after, self.launches = self.launches[at:], self.launches[:at]
                    self.fill_launch(name)
                    self.launches += after
            case _:
                self.launch(t, ctx)

    def launch(self, t: Term, ctx: Ctx) -> None:
        self.shared, self.grid = [], ()
        lets: list[CudaNode] = []
        while t.op == "for" and t.args[2] == "grid":
            a, extent, _, body = t.args
            assert isinstance(extent, Term) and isinstance(body, Term)
            if self.k.base_axes(free_axes(extent)):
                break
            self.grid = (*self.grid, (self.names.of("axis", str(a)), self.expr(fold(extent))))
            ctx, more = self.bind(str(a), ctx)
            ctx, lets, t = ctx.into("parallel", str(a)), [*lets, *more], body
        self.finish((*lets, *self.uniform(t, ctx)))

    def finish(self, body: tuple[CudaNode, ...], what: str = "") -> None:
        body = prune(body)
        if not any(isinstance(n, Threads) for n in steps(body)):
            return
        grid = frozenset(a for a, _ in self.grid)
        placer = Placer(self.common, self.variables, grid)
        body = registers(fuse(body, placer), self.shared, placer, self.own_register)
        self.shared = [b for b in self.shared if b.name in mentions(body)[0]]
        body = placer.place(body, frozenset(b.name for b in self.shared) if grid else frozenset())
        if not self.grid and not self.shared and len(body) == 1 and isinstance(body[0], Threads):
            body = (replace(body[0], wide=True),)
        name = self.names.fresh(f"{self.name}_{what or f'k{len(self.launches)}'}")
        self.launches.append(Launch(name, self.grid, body, tuple(self.shared), self.block_size(body)))
        self.note("launch", f"{name}: grid {', '.join(a for a, _ in self.grid) or '1'}, {self.launches[-1].threads} threads")

    def own_register(self, b: Buffer) -> Buffer:
        self.note("register", f"{b.source}: each thread keeps its cell of {b.name}")
        return self.new_buffer(b.name, b.dtype, (), "register", b.source)

    def fill_launch(self, name: str) -> None:
        self.shared, self.grid = [], ()
        self.finish(tuple(self.fill(name)), f"init_{name}")

    def block_size(self, body: tuple[CudaNode, ...]) -> int:
        """Whole warps enough for the largest nest of the block, as far as extents have constant bounds."""
        most = 1
        for n in steps(body):
            if isinstance(n, Threads):
                tops = [bounded(e)[0] for _, e in n.loops]
                most = max(most, MAX_THREADS if n.wide or None in tops else math.prod(t for t in tops if t is not None))
        return min(MAX_THREADS, -(-most // 32) * 32)

    def common(self, buffer: str) -> bool:
        return self.buffers[buffer].space in ("private", "shared", "output")

    def variables(self, e: Term) -> frozenset[str]:
        """The loop variables an expression depends on, by the names they have in the program."""
        back = {i: n for (kind, n), i in self.names.given.items() if kind == "axis"}
        own = frozenset(back.get(a, a) for a in free_axes(e))
        return frozenset(self.names.given.get(("axis", a), a) for a in self.k.base_axes(own))

    # --- code that all threads of a block run alike ---

    def uniform(self, t: Term, ctx: Ctx) -> list[CudaNode]:
        match t.op:
            case "skip":
                return []
            case "seq":
                return [n for s in items(t) for n in self.uniform(s, ctx.into("seq"))]
            case "new":
                return self.open_shared(str(t.args[0]), t.args[1], ctx)  # type: ignore[arg-type]
            case "emit":
                return self.threads(t, ctx)
            case "guard":
                if not self.cooperates(t):
                    return self.threads(t, ctx)
                inner = self.uniform(t.args[1], ctx.into("guard"))  # type: ignore[arg-type]
                return [If(self.expr(fold(t.args[0])), tuple(inner))]  # type: ignore[arg-type]
            case "for":
                a, extent, place, body = t.args
                if place == "block" or self.spreads(t, t) or not self.cooperates(t):
                    return self.threads(t, ctx)
                if place == "grid":
                    self.note("uniform", f"grid loop {a} is not outermost: it runs in sequence")
                inner_ctx, lets = self.bind(str(a), ctx)
                inner = self.uniform(body, inner_ctx)  # type: ignore[arg-type]
                return [Loop(self.names.of("axis", str(a)), self.expr(fold(extent)), "seq", (*lets, *inner))]  # type: ignore[arg-type]
        raise ValueError(f"{t.op} is no statement")

    def cooperates(self, t: Term) -> bool:
        """Whether some part of a statement can use several threads."""
        if t.op == "for":
            return t.args[2] == "block" or self.spreads(t, t) or self.cooperates(t.args[3])  # type: ignore[arg-type]
        return any(self.cooperates(a) for a in t.kids()) if t.op in ("seq", "new", "guard") else False

    def open_shared(self, name: str, body: Term, ctx: Ctx) -> list[CudaNode]:
        stage = self.k.stage(name)
        layout = self.layouts[name] = Layout(self.k, stage, loop_extents(body, self.k))
        buffer = self.new_buffer(name, stage.dtype, tuple(self.expr(e) for e in layout.shape), "private", name)
        self.workspaces.remove(buffer)
        self.shared.append(buffer)
        self.array_of[name] = buffer.name
        self.note("shared", f"{name}[{', '.join(stage.axes)}] is {buffer.name}[{', '.join(map(str, buffer.shape))}]")
        inner = self.uniform(body, ctx.into("new", name))
        if name not in self.needs_init:
            return inner
        self.needs_init.discard(name)
        return [*self.fill(name), *inner]

    def fill(self, name: str) -> list[CudaNode]:
        """Every cell of a buffer set to the identity of its monoid, by the threads together."""
        b = self.buffers[self.array_of[name]]
        summed = (str(e.args[0]) for e in emissions(self.k.body) if e.args[1] == name and e.args[0] not in NOT_SUMMED)
        monoid = next(summed, None) or self.k.stage(name).monoid
        at = tuple(axis(self.names.fresh(f"c{n}")) for n in range(len(b.shape)))
        box = tuple((str(i.args[0]), e) for i, e in zip(at, b.shape, strict=True))
        self.note("init", f"{name} starts at {neutral(monoid, b.dtype)}")
        return [Threads(box, (Store(b.name, at, neutral(monoid, b.dtype)),), self.narrow([e for _, e in box]))]

    # --- nests ---

    def spreads(self, f: Term, nest: Term) -> bool:
        """Whether the iterations of a loop in a nest without further block loops are independent, so that it may be spread over threads.

        So it is when every array written below it (but stages opened below) has the axis among its keys and is read there at the cell written only.
        """
        a = str(f.args[0])
        below: Term = f.args[3]  # type: ignore[assignment]
        while below.op == "for" and (below.args[2] == "block" or a != below.args[0]):
            below = below.args[3]  # type: ignore[assignment]
        if any(t.op == "for" and t.args[2] == "block" for t in statements(below)):
            return False
        return self.independent(a, f.args[3])  # type: ignore[arg-type]

    def independent(self, a: str, s: Term) -> bool:
        own = {str(t.args[0]): t for t in statements(s) if t.op == "new"}
        if not all(self.fits_thread(x, t.args[1]) for x, t in own.items()):  # type: ignore[arg-type]
            return False
        cells: dict[str, set[Term]] = {}
        for e in emissions(s):
            x, at = str(e.args[1]), e.args[2]
            if x in own:
                continue
            if not self.is_key(a, self.k.base_axes(free_axes(at))):  # type: ignore[arg-type]
                return False
            cells.setdefault(x, set()).add(at)  # type: ignore[arg-type]
        if any(len(c) > 1 for c in cells.values()):
            return False
        for e in emissions(s):
            value: Term = e.args[3]  # type: ignore[assignment]
            if reads(value) & cells.keys() and any(u.op == "get" and u.args[0] in cells and u.args[1] not in cells[str(u.args[0])] for u in subterms(value)):
                return False
        return True

    def threads(self, t: Term, ctx: Ctx) -> list[CudaNode]:
        """A nest: its leading block loops and independent key loops as one box, the rest in each thread."""
        box: list[tuple[str, Term]] = []
        body: list[Node] = []
        axes: list[str] = []
        while t.op == "for" and (t.args[2] == "block" or self.spreads(t, t)):
            a, extent, place, inner = t.args
            assert isinstance(extent, Term) and isinstance(inner, Term)
            if self.k.base_axes(free_axes(extent)) & set(axes):
                break
            if place != "block":
                self.note("threads", f"{a}: independent iterations, spread over threads")
            box.append((self.names.of("axis", str(a)), self.expr(fold(extent))))
            axes.append(str(a))
            ctx, lets = self.bind(str(a), ctx)
            ctx, t = ctx.into("parallel", str(a)), inner
            body += lets
        self.refuse_races(t, ctx)
        if any(u.op == "for" and u.args[2] in ("block", "grid") for u in statements(t)):
            self.note("threads", f"block or grid loops inside {', '.join(axes) or 'one thread'} run in sequence")
        body += self.statement(t, ctx)
        return [Threads(tuple(box), tuple(body), self.narrow([e for _, e in box]))] if body else []

    @staticmethod
    def narrow(extents: list[Term]) -> bool:
        tops = [bounded(e)[0] for e in extents]
        return all(t is not None for t in tops) and math.prod(t for t in tops if t is not None) < 2**31

    def refuse_races(self, t: Term, ctx: Ctx) -> None:
        """Every parallel axis since an array's storage opened must be among the keys of its emissions."""
        own = {str(u.args[0]) for u in statements(t) if u.op == "new"}
        for e in emissions(t):
            x, at = str(e.args[1]), e.args[2]
            if x in own:
                continue
            start = max((n + 1 for n, (kind, name) in enumerate(ctx.path) if kind == "new" and name == x), default=0)
            keys = self.k.base_axes(free_axes(at))  # type: ignore[arg-type]
            for kind, a in ctx.path[start:]:
                if kind == "parallel" and not self.is_key(a, keys) and const(fold(self.extents[a])) != 1:
                    raise MoaError(731, f"threads that differ in {a} only would write the same cell of {x}", notes=[f"emission: {e}"],
                                   hint=f"place {a} on no machine level, or key {x} by it")  # fmt: skip

    def new(self, name: str, body: Term, ctx: Ctx) -> list[Node]:
        """A stage of one thread: registers or a small local array."""
        stage = self.k.stage(name)
        layout = self.layouts[name] = Layout(self.k, stage, loop_extents(body, self.k))
        shape = tuple(self.expr(e) for e in layout.shape)
        if not self.fits_thread(name, body):
            raise MoaError(732, f"stage {name} inside the threads of a block has no small constant size", notes=[f"extents: {', '.join(map(str, shape))}"],
                           hint="open it outside the block loops (shared memory), or tile its axes")  # fmt: skip
        buffer = self.new_buffer(name, stage.dtype, shape, "stack" if shape else "register", name)
        self.array_of[name] = buffer.name
        inner = self.statement(body, ctx.into("new", name))
        first: list[Node] = [Declare(buffer.name)]
        if name in self.needs_init:
            self.needs_init.discard(name)
            first += self.initialise(name)
        return first + inner

    def padded(self, e: Term, a: str, lanes: int) -> bool:
        """No thread computes beyond an extent: it would read what nobody wrote."""
        return False

    def fits_thread(self, name: str, body: Term) -> bool:
        """Whether the storage of a stage opened around ``body`` has a small constant size."""
        extents = [const(e) for e in Layout(self.k, self.k.stage(name), loop_extents(body, self.k)).shape]
        return None not in extents and math.prod(e for e in extents if e is not None) * BYTES[self.k.stage(name).dtype] <= LOCAL_BYTES

    def loop(self, f: Term, ctx: Ctx, body, kind: str = "", trip: int | None = None, unroll: int = 0) -> list[Node]:
        """Inside a thread every loop runs in sequence. An unrolled loop of extent min(T, ...) runs T times with a test, so that accumulators
        indexed by it stay in registers."""
        place, extent = kind or str(f.args[2]), fold(f.args[1])  # type: ignore[arg-type]
        top, others = bounded(extent)
        if place == "unroll" and trip is None and others and top is not None and top <= MAX_UNROLL:
            v = self.names.of("axis", str(f.args[0]))
            inner, lets = self.bind(str(f.args[0]), ctx)
            return [Loop(v, I(top), "unroll", (If(Term("lt", axis(v), self.expr(extent)), (*lets, *body(inner))),), top)]
        return super().loop(f, ctx, body, place if place == "unroll" else "seq", trip, unroll)


def statements(t: Term):
    """Every statement node, parents first."""
    yield t
    if t.op in ("for", "seq", "new", "guard"):
        for a in t.kids():
            if a.op in ("for", "seq", "new", "guard", "emit", "skip"):
                yield from statements(a)


def prune(body: tuple[CudaNode, ...]) -> tuple[CudaNode, ...]:
    """Without the Lets that nothing uses and the uniform loops and conditions that hold nothing."""
    out: list[CudaNode] = []
    needed: frozenset[str] = frozenset()
    for n in reversed(body):
        match n:
            case Let() if n.name not in needed:
                continue
            case Loop():
                n = replace(n, body=prune(n.body))  # type: ignore[arg-type]
                if not n.body:
                    continue
            case If():
                n = replace(n, then=prune(n.then), other=prune(n.other))  # type: ignore[arg-type]
                if not n.then and not n.other:
                    continue
            case Threads():
                n = replace(n, body=prune(n.body))  # type: ignore[arg-type]
        needed |= mentioned(n)
        out.append(n)
    return tuple(reversed(out))


def mentioned(n: CudaNode) -> frozenset[str]:
    """Loop variables and Lets that a node uses."""
    inner = n.body if isinstance(n, Loop | Threads) else (*n.then, *n.other) if isinstance(n, If) else ()
    return frozenset().union(*map(free_axes, terms_of(n)), *map(mentioned, inner))


def lower_cuda(kernel: Kernel, options: Options | None = None) -> CudaProgram:
    """The launches of an ONF kernel. MoaError where a placement would make threads race or needs storage a thread does not have."""
    return LowerCuda(joined(kernel), options or Options()).cuda()

