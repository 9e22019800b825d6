"""Lowering: an ONF kernel becomes a loop program. Each decision is a named lowering rule, noted for the trace.

    let          an axis defined by others is computed as soon as they are bound
    storage      a stage stores only the key axes whose loops lie inside its ``new``
    init         cells start at the identity of their monoid where their storage opens
    direct       ... unless one accumulation writes them whole
    accumulate   a reduction next to its emission runs in register accumulators, one per cell of the unroll and simd axes inside
    lanes        a reduction on simd lanes keeps one partial result per lane
    full-tile    loops of extent min(T, ...) get a version with constant trip count where the tile is full
    group, strip what is left of tiles that are not full keeps constant trip counts too, see remainders.py
    rejoin       seq loops over both parts of a lifted axis become one loop
    osm          see osm.py
    carry, wrap  see carry.py, wrap.py
    stream, prefetch, scan  see stream.py; C only
    blocks       see blocks.py; C only
    fill         a row of a stage is filled by the loop that sums over it
    shifted      see osm.py; rows, fuse: see rows.py
    hoist        quotients and remainders that a loop does not change are computed before it
"""

from __future__ import annotations

from dataclasses import replace

from ..terms import I, Kernel, Term, free_axes, get, num, reads, subterms
from . import numa
from .blocks import blocks
from .context import BYTES, STACK_BYTES, Ctx, Options, neutral
from .context import NOT_SUMMED as NOT_SUMMED
from .fold import bounded, const, fold
from .hoist import hoist
from .loops import Buffer, Declare, If, Let, Loop, LoopProgram, Node, Store, Update, expressions, nodes
from .nests import Nests
from .prepare import emissions, items
from .rows import rows, scoped
from .storage import Layout, loop_extents, rejoin
from .stream import scans, stream
from .work import worth_threads


class Lower(Nests):
    again: tuple[Buffer, ...] = ()  # workspaces of another version, of which one runs

    def run(self) -> LoopProgram:
        k, names = self.k, self.names
        kernel_name = names.function(k.name)
        sizes = tuple(names.of("size", s) for s in k.sizes)
        inputs = tuple(self.parameter(a.name, a.dtype, a.shape, "input" if a.shape else "value") for a in k.inputs)
        outputs = tuple(self.parameter(a.name, a.dtype, a.shape, "output") for a in k.outputs)
        lines = self.version()
        threads = worth_threads(lines)
        if self.options.plain_c:
            lines, marked = scans(lines, self.buffers, self.piece)
            self.note_all(marked)
        if self.options.cache_bytes:
            lines = self.past_caches(lines)
        touch = numa.with_parts(self.touch(), names.fresh) if self.k.touches else ()
        lines = numa.with_parts(lines, names.fresh)
        return LoopProgram(
            kernel_name, sizes, tuple(map(self.expr, self.source.where)), inputs, outputs, tuple(self.workspaces), dict(self.buffers), lines,
            {names.of("size", s): v for s, v in self.options.fix.items()},
            threads if self.options.parallel_if is None else self.expr(self.options.parallel_if),
            tuple(self.notes), {n: i for (_, n), i in self.names.given.items()}, touch,
        )  # fmt: skip

    def version(self) -> tuple[Node, ...]:
        """The body lowered, with what sets outputs that are summed to."""
        body = self.statement(self.k.body, Ctx())
        first: list[Node] = []
        for a in self.k.outputs:
            if a.name in self.needs_init:
                first += self.initialise(a.name)
        lines, moved = hoist(prune((*first, *body)), self.names.fresh)
        self.note("hoist", *moved)
        if self.options.plain_c:
            lines, cut = blocks(lines, self.buffers, self.names.fresh, self.partial)
            self.note("blocks", *cut)
        return lines

    def partial(self, b: Buffer) -> Buffer:
        return self.new_buffer("part", b.dtype, b.shape, "register", f"{b.source}, of a block")

    def past_caches(self, plain: tuple[Node, ...]) -> tuple[Node, ...]:
        """Row by row and past the caches where that pays, as plain elsewhere."""
        before = list(self.notes), dict(self.buffers), list(self.workspaces)
        body, turned = rows(self.plain)
        self.note_all(turned)
        body, joined = rejoin(self.plain.with_body(scoped(body)))
        self.note("rejoin", *joined)
        self.k = self.plain.with_body(body)
        self.extents = loop_extents(body, self.k) | numa.extents(self.k)
        self.again, self.stack_left, self.needs_init = tuple(self.workspaces), STACK_BYTES, set()
        found = stream(self.version(), self.buffers, self.options.cache_bytes, self.piece)
        if found is None:
            self.notes, self.buffers, self.workspaces = before
            return plain
        lines, large, marked = found
        self.note_all(marked)
        return (If(large, lines, plain),)

    def note_all(self, notes: list[tuple[str, str]]) -> None:
        for rule, text in notes:
            self.note(rule, text)

    def piece(self, ty: str, n: int) -> Buffer:
        return self.new_buffer("piece", ty, (I(n),), "stack", "values on their way to an output")

    # --- statements ---

    def statement(self, t: Term, ctx: Ctx) -> list[Node]:
        match t.op:
            case "skip":
                return []
            case "seq":
                return self.sequence(items(t), ctx.into("seq"))
            case "guard":
                body = self.statement(t.args[1], ctx.into("guard"))  # type: ignore[arg-type]
                return [If(self.expr(fold(t.args[0])), tuple(body))] if body else []  # type: ignore[arg-type]
            case "new":
                return self.new(str(t.args[0]), t.args[1], ctx)  # type: ignore[arg-type]
            case "emit":
                return self.emission(t, ctx)
            case "for":
                chain = self.chain(t)
                return self.nest(chain, ctx) if chain else self.loop(t, ctx, lambda c: self.statement(t.args[3], c))  # type: ignore[arg-type]
        raise ValueError(f"{t.op} is no statement")

    def sequence(self, parts: list[Term], ctx: Ctx) -> list[Node]:
        out: list[Node] = []
        done = 0
        for n, s in enumerate(parts):
            if n >= done:
                both = self.filled(s, parts[n + 1], ctx) if n + 1 < len(parts) else None
                out += self.statement(s, ctx) if both is None else both
                done = n + (1 if both is None else 2)
        return out

    def filled(self, a: Term, b: Term, ctx: Ctx) -> list[Node] | None:
        """A loop that fills a row of a stage and the next, which sums over it, as one; None where they are not such loops."""
        fill, sums = self.chain(a), self.chain(b)
        if fill is None or sums is None or len(fill.loops) != 1 or len(sums.loops) != 1 or fill.emit.args[0] != "once" or sums.emit.args[0] in NOT_SUMMED:
            return None
        f, g = fill.loops[0], sums.loops[0]
        _, x, at, value = fill.emit.args
        cell = Term("get", x, at)  # type: ignore[arg-type]
        if f.args[:3] != g.args[:3] or f.args[2] != "simd" or bounded(f.args[1])[0] is not None:  # type: ignore[arg-type]
            return None
        if x not in self.layouts or self.k.stage(str(x)).panel:
            return None
        places = [u for u in subterms(sums.emit.args[3]) if u.op == "get" and u.args[0] == x]  # type: ignore[arg-type]
        if places != [cell] or sums.emit.args[1] in reads(value):  # type: ignore[arg-type]
            return None
        store = Store(self.array_of[str(x)], self.index(str(x), at), self.expr(fold(value)))  # type: ignore[arg-type]
        self.note("fill", f"{x} is filled where {sums.emit.args[1]} sums over it")
        return list(before_updates(tuple(self.nest(sums, ctx)), store))

    def new(self, name: str, body: Term, ctx: Ctx) -> list[Node]:
        stage = self.k.stage(name)
        layout = self.layouts[name] = Layout(self.k, stage, loop_extents(body, self.k))
        shape = tuple(self.expr(e) for e in layout.shape)
        sizes = [const(e) for e in shape]
        if all(s is not None for s in sizes):
            n = BYTES[stage.dtype]
            for s in sizes:
                n *= s  # type: ignore[operator]
            space = "register" if not shape else "stack" if n <= self.stack_left else None
            if space == "stack":
                self.stack_left -= n
        else:
            space = None
        if space is None:
            space = "private" if ctx.parallel else "shared"
        like = (name, stage.dtype, shape, space)
        buffer = next((b for b in self.again if (b.source, b.dtype, b.shape, b.space) == like), None) or self.new_buffer(name, stage.dtype, shape, space, name)
        self.array_of[name] = buffer.name
        self.note("storage", f"{name}[{', '.join(stage.axes)}] is {buffer.name}[{', '.join(map(str, shape))}], {space}")
        inner = self.statement(body, ctx.into("new", name))
        first: list[Node] = [Declare(buffer.name)] if space in ("register", "stack") else []
        if name in self.needs_init:
            self.needs_init.discard(name)
            first += self.initialise(name)
        return first + inner

    def initialise(self, name: str) -> list[Node]:
        """Loops that set every cell of an array to the identity of its monoid."""
        b = self.buffers[self.array_of[name]]
        summed = (str(e.args[0]) for e in emissions(self.k.body) if e.args[1] == name and e.args[0] not in NOT_SUMMED)
        monoid = next(summed, None) or self.k.stage(name).monoid
        self.note("init", f"{name} starts at {neutral(monoid, b.dtype)}")
        return list(self.cells(name, neutral(monoid, b.dtype)))

    def cells(self, name: str, value: Term) -> tuple[Node, ...]:
        """Loops that store a value in every cell of an array, row by row in the domains where it has any."""
        b = self.buffers[self.array_of[name]]
        t = next((t for t in self.k.touches if t.array == name and b.space in ("output", "shared")), None)
        layout = self.layouts.get(name)
        order = layout.order if layout else list(range(len(b.shape)))
        if t is None or t.axis not in order:
            return (numa.filled(b, value, self.names.fresh),)
        row = order.index(t.axis) + (1 if layout and layout.panel else 0)  # panels are slowest
        return (numa.filled(b, value, self.names.fresh, t, row, self.expr(fold(t.rows))),)

    def touch(self) -> tuple[Node, ...]:
        """A body that writes zeros to all outputs."""
        zero = {"bool": Term("bool", 0), "f32": num("0.0"), "f64": num("0.0")}
        return tuple(n for a in self.k.outputs for n in self.cells(a.name, zero.get(a.dtype, I(0))))


def prune(body: tuple[Node, ...]) -> tuple[Node, ...]:
    """Without the Lets that nothing uses and the loops and tests that hold nothing."""

    def uses(n: Node) -> frozenset[str]:
        out: frozenset[str] = frozenset()
        for u in nodes((n,)):
            for e in expressions(u):
                out |= free_axes(e)
        return out

    out: list[Node] = []
    needed: frozenset[str] = frozenset()
    for n in reversed(body):
        if isinstance(n, Let) and n.name not in needed:
            continue
        if isinstance(n, Loop):
            n = replace(n, body=prune(n.body))
            if not n.body:
                continue
        elif isinstance(n, If):
            n = replace(n, then=prune(n.then), other=prune(n.other))
            if not n.then and not n.other:
                continue
        needed |= uses(n)
        out.append(n)
    return tuple(reversed(out))


def before_updates(body: tuple[Node, ...], store: Store) -> tuple[Node, ...]:
    """The body with a store before each update that reads what it stores."""
    cell = get(store.buffer, *store.index)
    out: list[Node] = []
    for n in body:
        match n:
            case Loop():
                n = replace(n, body=before_updates(n.body, store))
            case If():
                n = replace(n, then=before_updates(n.then, store), other=before_updates(n.other, store))
            case Update(value=v) if cell in subterms(v):
                out.append(store)
        out.append(n)
    return tuple(out)


def lower(kernel: Kernel, target: str = "c", options: Options | None = None) -> LoopProgram:
    """The loop program of an ONF kernel. ``target``: c, fortran or cuda."""
    assert target in ("c", "fortran", "cuda"), target
    options = options or Options()
    c = target == "c"
    kernel = kernel if c else numa.joined(kernel)
    return Lower(kernel, replace(options, plain_c=c, cache_bytes=options.cache_bytes if c else 0)).run()

