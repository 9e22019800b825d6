"""Lowering: an ONF kernel becomes a loop program. Each decision is a named lowering rule, noted for the trace.

    let          an axis defined by others is computed as soon as they are bound
    storage      a stage stores only the key axes whose loops lie inside its ``new``
    init         cells start at the identity of their monoid where their storage opens
    direct       ... unless one accumulation writes them whole
    accumulate   a reduction next to its emission runs in register accumulators, one per cell of the unroll and simd axes inside
    lanes        a reduction on simd lanes keeps one partial result per lane
    full-tile    loops of extent min(T, ...) get a version with constant trip count where the tile is full
    rejoin       seq loops over both parts of a lifted axis become one loop
    osm          see osm.py
    carry, wrap  see carry.py, wrap.py
    hoist        quotients and remainders that a loop does not change are computed before it
"""

from __future__ import annotations

import itertools
from dataclasses import replace

from ..terms import I, Kernel, Term, free_axes, num
from . import numa
from .context import BYTES, Ctx, Options, neutral
from .context import NOT_SUMMED as NOT_SUMMED
from .fold import const, fold
from .hoist import hoist
from .loops import Declare, If, Let, Loop, LoopProgram, Node, expressions, nodes
from .nests import Nests
from .prepare import emissions, items
from .storage import Layout, loop_extents
from .work import worth_threads


class Lower(Nests):
    def run(self) -> LoopProgram:
        k, names = self.k, self.names
        kernel_name = names.function(k.name)
        sizes = tuple(names.of("size", s) for s in k.sizes)
        inputs = tuple(self.parameter(a.name, a.dtype, a.shape, "input" if a.shape else "value") for a in k.inputs)
        outputs = tuple(self.parameter(a.name, a.dtype, a.shape, "output") for a in k.outputs)
        body = self.statement(k.body, Ctx())
        first: list[Node] = []
        for a in k.outputs:
            if a.name in self.needs_init:
                first += self.initialise(a.name)
        lines, moved = hoist(prune((*first, *body)), names.fresh)
        self.note("hoist", *moved)
        touch = numa.with_parts(self.touch(), names.fresh) if self.k.touches else ()
        lines, work = numa.with_parts(lines, names.fresh), worth_threads(lines)
        return LoopProgram(
            kernel_name, sizes, tuple(map(self.expr, self.source.where)), inputs, outputs, tuple(self.workspaces), dict(self.buffers), lines,
            {names.of("size", s): v for s, v in self.options.fix.items()},
            work if self.options.parallel_if is None else self.expr(self.options.parallel_if),
            tuple(self.notes), {n: i for (_, n), i in self.names.given.items()}, touch,
        )  # fmt: skip

    # --- statements ---

    def statement(self, t: Term, ctx: Ctx) -> list[Node]:
        match t.op:
            case "skip":
                return []
            case "seq":
                return list(itertools.chain.from_iterable(self.statement(s, ctx.into("seq")) for s in items(t)))
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
        buffer = self.new_buffer(name, stage.dtype, shape, space, name)
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


def lower(kernel: Kernel, target: str = "c", options: Options | None = None) -> LoopProgram:
    """The loop program of an ONF kernel. ``target``: c, fortran or cuda."""
    assert target in ("c", "fortran", "cuda"), target
    kernel = kernel if target == "c" else numa.joined(kernel)
    return Lower(kernel, replace(options or Options(), exp_nonpositive=target == "c")).run()

