"""A loop program as Fortran 2008 with OpenMP: a module with one function that has the C ABI of the same kernel.

Row-major data of shape (s0, ..., sr) is an explicit-shape array with its dimensions reversed, A(0:sr-1, ..., 0:s0-1), and A[i, j] is A(j, i).
``layout_obligation`` states that these are the same offsets.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ..data import data_path
from ..terms import I, Term, axis, free_axes, reads, size, subterms
from .cprint import tile_end
from .entered import entered
from .fexpr import KIND, TYPE, FExpr
from .fold import const
from .loops import Buffer, Comment, Declare, If, Let, Loop, LoopProgram, Node, Store, Update, expressions, nodes

_SIGN = {"add": "+", "sub": "-", "mul": "*"}
WIDTH = 132
_BYTES = {"f32": 4, "f64": 8, "i32": 4, "i64": 8, "bool": 1}


@dataclass(frozen=True)
class FortranSource:
    f90_text: str


class FortranPrinter:
    def __init__(self, prog: LoopProgram) -> None:
        self.p = prog
        self.e = FExpr(prog.buffers)
        self.lines: list[str] = []
        self.depth = 0
        self.locals: list[str] = []  # declarations of the scope being printed
        self.tiles: list[str] = []  # register tiles, as procedures
        self.made = 0

    def put(self, text: str) -> None:
        self.lines.append("  " * self.depth + text)

    def source(self) -> FortranSource:
        p = self.p
        self.depth = 1
        self.function()
        body, self.lines, self.depth = self.lines, [], 0
        for n in p.notes:
            for part in _chunks(f"{n.rule}: {n.text}"):
                self.put(f"! {part}")
        self.put(f"module moarw_{p.name}")
        self.put(f"  use, intrinsic :: iso_c_binding, only: c_int, {', '.join(KIND.values())}")
        self.put("  !$ use omp_lib, only: omp_get_max_threads, omp_get_thread_num")
        self.put("  implicit none")
        self.put("  private")
        self.put(f"  public :: {p.name}")
        for k in range(1, self.made + 1):  # a public procedure of a shared object is not inlined
            self.put(f"  public :: {p.name}_tile{k}")
        self.constants([*body, *self.tiles])
        self.put("contains")
        lines = [*self.lines, "", *body, *self.tiles, *self.helpers(), f"end module moarw_{p.name}"]
        return FortranSource("\n".join(w for line in lines for w in wrap(line)) + "\n")

    def constants(self, body: list[str]) -> None:
        text = "\n".join(body)
        for ty, integer, inf, nan in (("f32", "c_int32_t", "7F800000", "7FC00000"), ("f64", "c_int64_t", "7FF0000000000000", "7FF8000000000000")):
            for name, bits in (("inf", inf), ("nan", nan)):
                if f"moarw_{name}_{ty}" in text:
                    self.put(f"  {TYPE[ty]}, parameter :: moarw_{name}_{ty} = transfer(int(z'{bits}', {integer}), 0.0_{KIND[ty]})")

    def helpers(self) -> Iterator[str]:
        """The runtime functions used, in the order of the runtime's text."""
        text = data_path("codegen", "fortran", "moarw.f90").read_text(encoding="utf-8")
        for m in re.finditer(r"^  pure elemental function (\w+)\(.*?^  end function \1\n", text, re.M | re.S):
            if m.group(1) in self.e.helpers:
                yield ""
                yield from m.group(0).splitlines()

    # --- the function ---

    def function(self) -> None:
        p = self.p
        names = [*p.sizes, *(b.name for b in (*p.inputs, *p.outputs))]
        self.put(f'function {p.name}({", ".join(names)}) bind(c, name="{p.name}") result(moarw_status)')
        self.depth += 1
        if p.sizes:
            self.put(f"integer(c_int64_t), value :: {', '.join(p.sizes)}")
        for b in (*p.inputs, *p.outputs):
            self.put(f"{TYPE[b.dtype]}, {'value' if b.space == 'value' else 'intent(in)' if b.space == 'input' else 'intent(inout)'} :: {self.shaped(b)}")
        self.put("integer(c_int) :: moarw_status")
        for b in p.workspaces:
            dims = [":"] * (len(b.shape) + (b.space == "private"))
            self.put(f"{TYPE[b.dtype]}, allocatable :: {_with(b.name, dims)}")
        if any(b.space == "private" for b in p.workspaces):
            self.put("integer(c_int64_t) :: moarw_thread, moarw_threads")
        if p.workspaces:
            self.put("integer :: moarw_error")
        start, self.lines = self.lines, []
        self.locals = []
        self.checks()
        self.body(p.body, parallel=False)
        made, self.lines = self.lines, start
        for d in grouped(self.locals):
            self.put(d)
        self.lines.append("")
        self.lines += made
        self.put("moarw_status = 0")
        self.depth -= 1
        self.put(f"end function {p.name}")

    def shaped(self, b: Buffer) -> str:
        return _with(b.name, self.bounds(b))

    def bounds(self, b: Buffer) -> list[str]:
        out = []
        for e in reversed(b.shape):
            n = const(e)
            out.append(f"0:{n - 1}" if n is not None else f"0:{self.e.text(e, 'i64', 5)} - 1")
        return out

    def checks(self) -> None:
        p = self.p
        self.put("moarw_status = 1")
        if p.sizes:
            self.put(f"if ({' .or. '.join(f'{s} < 0' for s in p.sizes)}) return")
        for s, v in sorted(p.fixed.items()):
            self.put(f"if ({s} /= {v}_c_int64_t) return")
        for b in (*p.inputs, *p.outputs, *p.workspaces):
            self.refuse_overflow(b)
        for w in p.where:
            self.flush(f"if (.not. ({self.e.text(w, 'bool')})) return")
        if any(b.space == "private" for b in p.workspaces):
            self.put("moarw_thread = 0")
            self.put("moarw_threads = 1")
            self.put("!$ moarw_threads = omp_get_max_threads()")
        if p.workspaces:
            self.put("moarw_status = 2")
        for b in p.workspaces:
            dims = [*self.bounds(b), *(["0:moarw_threads - 1"] if b.space == "private" else [])]
            self.put(f"allocate ({_with(b.name, dims)}, stat=moarw_error)")
            self.put("if (moarw_error /= 0) return")

    def refuse_overflow(self, b: Buffer) -> None:
        """Extents in floating point, since their product may leave int64; an extent of 0 does not hide the others."""
        symbolic = [e for e in b.shape if const(e) is None]
        if not symbolic:
            return
        fixed = _BYTES[b.dtype]
        for e in b.shape:
            fixed *= max(const(e) or 1, 1)
        parts = [f"max(1.0_c_double, {real_text(e)})" for e in symbolic]
        for e in symbolic:
            if e.op != "size":
                self.put(f"if ({real_text(e)} < 0) return")
        self.put(f"if ({' * '.join(parts)} * {fixed} > 9.2e18_c_double) return")

    # --- statements ---

    def scope(self, body: tuple[Node, ...], parallel: bool, first: tuple[str, ...] = (), own: tuple[str, ...] = ()) -> None:
        """A body with its declarations in a block construct, so that they are private to the iteration."""
        self.depth += 1
        outer, self.locals = self.locals, list(own)
        lines, self.lines = self.lines, []
        self.depth += 1
        for f in first:
            self.put(f)
        self.body(body, parallel)
        self.depth -= 1
        inside, self.lines = self.lines, lines
        declared, self.locals = self.locals, outer
        if declared:
            self.put("block")
            for d in grouped(declared):
                self.put("  " + d)
            self.lines += inside
            self.put("end block")
        else:
            self.lines += [line[2:] for line in inside]
        self.depth -= 1

    def flush(self, text: str) -> None:
        """A statement after those that its expressions need first."""
        for line in self.e.before:
            self.put(line)
        for name, ty in self.e.temporaries:
            self.local(f"{TYPE[ty]} :: {name}")
        self.e.before, self.e.temporaries = [], []
        self.put(text)

    def local(self, declaration: str) -> None:
        if declaration not in self.locals:
            self.locals.append(declaration)

    def body(self, body: tuple[Node, ...], parallel: bool) -> None:
        done = 0
        for k, n in enumerate(body):
            if k < done:
                continue
            if not self.e.in_tile and (end := tile_end(body, k, self.p)):
                self.tile(body[k:end])
                done = end
                continue
            match n:
                case Comment(text):
                    self.put(f"! {text}")
                case Let(name, value):
                    self.local(f"integer(c_int64_t) :: {name}")
                    self.flush(f"{name} = {self.e.text(value, 'i64')}")
                case Declare(buffer):
                    b = self.p.buffers[buffer]
                    dims = [f"0:{max(const(e) or 0, 1) - 1}" for e in reversed(b.shape)]
                    self.local(f"{TYPE[b.dtype]} :: {_with(b.name, dims)}")
                case Store(buffer, index, value):
                    self.assign(buffer, index, value)
                case Update(monoid, buffer, index, value):
                    self.assign(buffer, index, Term(monoid, Term("get", buffer, Term("ix", *index)), value))
                case If(cond, then, other):
                    self.flush(f"if ({self.e.text(cond, 'bool')}) then")
                    self.scope(then, parallel)
                    if other:
                        self.put("else")
                        self.scope(other, parallel)
                    self.put("end if")
                case Loop():
                    if n.kind == "core" and not parallel:
                        self.region(n)
                    else:
                        self.loop(n, parallel)
                case _:
                    raise ValueError(n)

    def tile(self, body: tuple[Node, ...]) -> None:
        """A register tile as a procedure: compilers keep the accumulators in registers there, not in the middle of a large function."""
        bound = {n.var for n in nodes(body) if isinstance(n, Loop)} | {n.name for n in nodes(body) if isinstance(n, Let)}
        own = {n.buffer for n in nodes(body) if isinstance(n, Declare)}
        written = {n.buffer for n in nodes(body) if isinstance(n, Store | Update)}
        terms = [e for n in nodes(body) for e in expressions(n)]
        used = written.union(*map(reads, terms)) - own
        buffers = [b for b in self.p.buffers.values() if b.name in used]
        shapes = [e for b in buffers for e in b.shape]
        free = frozenset().union(*map(free_axes, terms)) - bound
        scalars = sorted(free | {str(u.args[0]) for t in (*terms, *shapes) for u in subterms(t) if u.op == "size"})
        self.made += 1
        name = f"{self.p.name}_tile{self.made}"
        outer = self.lines, self.depth, self.locals
        self.lines, self.depth, self.locals, self.e.in_tile = [], 2, [], True
        self.body(entered(body), parallel=True)
        inside, declared = self.lines, self.locals
        self.lines, self.depth = [""], 1
        self.put(f"subroutine {name}({', '.join([*scalars, *(b.name for b in buffers)])})")
        self.depth = 2
        if scalars:
            self.put(f"integer(c_int64_t), value :: {', '.join(scalars)}")
        for b in buffers:
            how = "value" if not b.shape else f"intent({'inout' if b.name in written else 'in'})"
            self.put(f"{TYPE[b.dtype]}, {how} :: {self.shaped(b)}")
        for d in grouped(declared):
            self.put(d)
        self.tiles += [*self.lines, *inside, f"  end subroutine {name}"]
        (self.lines, self.depth, self.locals), self.e.in_tile = outer, False
        self.put(f"call {name}({', '.join([*scalars, *map(self.argument, buffers)])})")

    def argument(self, b: Buffer) -> str:
        """A buffer, or the part of it that belongs to the thread."""
        return _with(b.name, [*([":"] * len(b.shape)), "moarw_thread"]) if b.space == "private" else b.name

    def assign(self, buffer: str, index: tuple[Term, ...], value: Term) -> None:
        cell = self.e.access(buffer, index)
        self.flush(f"{cell} = {self.e.text(value, self.p.buffers[buffer].dtype)}")

    def loop(self, n: Loop, parallel: bool) -> None:
        head = self.head(n)
        if n.kind == "simd":
            self.simd(n)
        elif n.kind == "unroll" and n.trip is not None and n.trip > 1:
            self.put(f"!GCC$ unroll {n.trip}")
        elif n.unroll > 1:
            self.put(f"!GCC$ unroll {n.unroll}")
        self.put(head)
        self.scope(n.body, parallel)
        self.put("end do")

    def head(self, n: Loop) -> str:
        """The do statement; what its extent needs first is put out."""
        self.local(f"integer(c_int64_t) :: {n.var}")
        last = const(n.extent)
        top = f"{self.e.text(n.extent, 'i64', 5)} - 1" if last is None else str(last - 1)
        text = f"do {n.var} = 0, {top}"
        self.flush("")
        self.lines.pop()
        return text

    def simd(self, n: Loop) -> None:
        """The simd directive, where the loop is innermost."""
        if not any(isinstance(u, Loop) for u in nodes(n.body)):
            self.put("!$omp simd")

    def region(self, n: Loop) -> None:
        """A parallel loop, collapsed where core loops are perfectly nested."""
        chain, body = [n], n.body
        lets: list[Let] = []
        while True:
            early = [b for b in body if isinstance(b, Let)]
            rest = [b for b in body if not isinstance(b, Let)]
            if len(rest) != 1 or not isinstance(rest[0], Loop) or rest[0].kind != "core":
                break
            bound = {c.var for c in chain} | {b.name for b in (*lets, *early)}
            if free_axes(rest[0].extent) & bound:
                break
            lets += early
            chain.append(rest[0])
            body = rest[0].body
        heads = [self.head(c) for c in chain]
        collapse = f" collapse({len(chain)})" if len(chain) > 1 else ""
        where = f" if ({self.e.text(self.p.parallel_if, 'bool')})" if self.p.parallel_if is not None else ""
        private = any(b.space == "private" for b in self.p.workspaces)
        self.put(f"!$omp parallel do default(shared){' firstprivate(moarw_thread)' if private else ''}{collapse} schedule(static){where}")
        for h in heads:
            self.put(h)
            self.depth += 1
        self.depth -= 1
        self.scope((*lets, *body), True, ("!$ moarw_thread = omp_get_thread_num()",) if private else ())
        self.depth += 1
        for _ in chain:
            self.depth -= 1
            self.put("end do")


def grouped(declarations: list[str]) -> list[str]:
    """One line per type, types in order of first appearance."""
    names: dict[str, list[str]] = {}
    for d in declarations:
        ty, name = d.split(" :: ")
        names.setdefault(ty, []).append(name)
    return [f"{ty} :: {', '.join(n)}" for ty, n in names.items()]


def _with(name: str, dims: list[str]) -> str:
    return f"{name}({', '.join(dims)})" if dims else name


def real_text(t: Term) -> str:
    """An integer term over sizes in double precision."""
    match t.op:
        case "int":
            return f"{t.args[0]}.0_c_double"
        case "size":
            return f"real({t.args[0]}, c_double)"
        case "add" | "sub" | "mul":
            a, b = map(real_text, t.kids())
            return f"({a} {_SIGN[t.op]} {b})"
        case "max" | "min":
            a, b = map(real_text, t.kids())
            return f"{t.op}({a}, {b})"
        case "idiv":
            a, b = map(real_text, t.kids())
            return f"aint({a} / {b})"
    raise ValueError(f"{t.op} in an extent")


def wrap(line: str) -> list[str]:
    """A line within 132 columns, continued after a blank; directives repeat their sentinel, comments their sign."""
    if len(line) <= WIDTH:
        return [line]
    indent = re.match(r" *", line).group()  # type: ignore[union-attr]
    sentinel = "!$omp " if line.lstrip().startswith("!$omp") else "!$ " if line.lstrip().startswith("!$ ") else ""
    out, rest = [], line
    while len(rest) > WIDTH:
        at = rest.rfind(" ", len(indent) + len(sentinel) + 8, WIDTH - 2)
        out.append(rest[:at] + " &")
        rest = indent + (sentinel + "  " if sentinel else "    ") + rest[at + 1 :]
    return [*out, rest]


def _chunks(text: str) -> Iterator[str]:
    while len(text) > WIDTH - 4:
        at = text.rfind(" ", 0, WIDTH - 4)
        at = at if at > 0 else WIDTH - 4
        yield text[:at]
        text = text[at:].lstrip()
    yield text


def layout_obligation(rank: int) -> tuple[Term, Term]:
    """(gamma_row(i; s), gamma_col(reverse i; reverse s)) over axes i0.. and sizes s0..: equal, so the reversed array is the row-major one.

    gamma_row is the offset of [i0, ..., ir] in row-major storage of shape (s0, ..., sr); gamma_col the offset of A(j0, ..., jr) in storage of
    shape (t0, ..., tr) with the first index fastest, as the Fortran standard orders array elements.
    """
    index, shape = [axis(f"i{k}") for k in range(rank)], [size(f"s{k}") for k in range(rank)]
    row: Term = I(0)
    for i, s in zip(index, shape, strict=True):
        row = Term("add", Term("mul", row, s), i)
    column: Term = I(0)
    step: Term = I(1)
    for i, s in zip(reversed(index), reversed(shape), strict=True):
        column, step = Term("add", column, Term("mul", i, step)), Term("mul", step, s)
    return row, column


def print_fortran(prog: LoopProgram) -> FortranSource:
    """Fortran text of a loop program."""
    return FortranPrinter(prog).source()


