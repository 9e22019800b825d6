"""A loop program as C11 with OpenMP: one function, a header, the workspace formula."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..terms import Term, free_axes, reads, show, subterms
from .cexpr import C_TYPE, CExpr
from .cstream import fetch, print_marked
from .entered import entered
from .fold import const
from .loops import Buffer, Comment, Declare, If, Let, Loop, LoopProgram, Node, Store, Update, expressions, nodes
from .numa import collapsed, shared
from .work import uneven


@dataclass(frozen=True)
class CSource:
    c_text: str
    h_text: str


class CPrinter:
    def __init__(self, prog: LoopProgram) -> None:
        self.p = prog
        self.e = CExpr(prog.buffers)
        self.lines: list[str] = []
        self.depth = 0
        self.functions: list[str] = []  # register tiles
        self.tiles = 0
        self.in_tile = False

    def put(self, text: str) -> None:
        self.lines.append("    " * self.depth + text if text and not text.startswith("#") else text)

    # --- the function ---

    def parameters(self) -> list[str]:
        out = [f"const int64_t {s}" for s in self.p.sizes]
        for b in self.p.inputs:
            out.append(f"const {C_TYPE[b.dtype]} {'' if b.space == 'value' else '*MOARW_RESTRICT '}{b.name}")
        out += [f"{C_TYPE[b.dtype]} *MOARW_RESTRICT {b.name}" for b in self.p.outputs]
        return out

    def signature(self, name: str, parameters: Iterable[str]) -> str:
        return f"{name}({', '.join(parameters) or 'void'})"

    def source(self) -> CSource:
        p = self.p
        self.put('#include "moarw.h"')
        if any(isinstance(n, Loop) and n.kind == "numa" for n in nodes((*p.body, *p.touch))):
            self.put('#include "moarw_numa.h"')
        self.put(f'#include "{p.name}.h"')
        self.put("")
        self.put("// Stages are written before they are read: an obligation that was proved; compilers cannot see it through the tests of full tiles.")
        self.put('#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"')
        self.put("")
        for n in p.notes:
            self.put(f"// {n.rule}: {n.text}")
        self.put("")
        if p.workspaces:
            self.workspace_function()
        start = len(self.lines)
        self.put(f"int {self.signature(p.name, self.parameters())} {{")
        self.depth = 1
        self.unused()
        self.checks()
        if p.workspaces:
            self.allocate()
        self.block(p.body, parallel=False)
        if streams(p.body, regions=False):
            self.put("moarw_fence();")
        if p.workspaces:
            self.put("free(moarw_ws);")
        self.put("return 0;")
        self.depth = 0
        self.put("}")
        if p.touch:
            self.touch_function()
        self.lines[start:start] = self.functions
        return CSource("\n".join(self.lines) + "\n", self.header())

    def touch_function(self) -> None:
        """Writes to the outputs before there are values, each row in its domain."""
        self.put("")
        self.put(f"int {self.signature(self.p.name + '_touch', self.touch_parameters())} {{")
        self.depth = 1
        self.unmentioned(self.p.touch, self.p.outputs)
        self.checks()
        self.block(self.p.touch, parallel=False)
        self.put("return 0;")
        self.depth = 0
        self.put("}")

    def touch_parameters(self) -> list[str]:
        return [*self.parameters()[: len(self.p.sizes)], *self.parameters()[len(self.p.sizes) + len(self.p.inputs) :]]

    def unused(self) -> None:
        self.unmentioned(self.p.body, (*self.p.inputs, *self.p.outputs))

    def unmentioned(self, body: tuple[Node, ...], arrays: tuple[Buffer, ...]) -> None:
        """Parameters that a body does not mention, so that compilers do not warn."""
        used = self.mentioned(body)
        for b in arrays:
            if b.name not in used:
                self.put(f"(void){b.name};")
        for s in self.p.sizes:
            self.put(f"(void){s};")

    def mentioned(self, body: tuple[Node, ...]) -> set[str]:
        out: set[str] = set()
        for n in nodes(body):
            if isinstance(n, Store | Update):
                out.add(n.buffer)
            for e in expressions(n):
                out |= reads(e)
        return out

    def checks(self) -> None:
        """Sizes refused: negative, not as compiled in, against `where`, or arrays whose byte counts leave int64."""
        p = self.p
        if p.sizes:
            self.put(f"if ({' || '.join(f'{s} < 0' for s in p.sizes)}) return 1;")
        for s, v in sorted(p.fixed.items()):
            self.put(f"if ({s} != {v}) return 1;")
        arrays = [b for b in (*p.inputs, *p.outputs) if b.shape]
        if arrays:
            self.put("bool moarw_bad = false;")
            for b in arrays:
                self.put(f"(void){self.bytes(b)};")
            self.put("if (moarw_bad) return 1;")
        for w in p.where:
            self.put(f"if (!({self.e.text(w, 'bool')})) return 1;")

    def checked(self, t: Term) -> str:
        """An integer term over sizes whose overflow sets moarw_bad."""
        if t.op in ("add", "sub", "mul"):
            a, b = t.kids()
            return f"moarw_{t.op}({self.checked(a)}, {self.checked(b)}, &moarw_bad)"
        if t.op in ("max", "min"):
            a, b = t.kids()
            return f"moarw_{t.op}_i64({self.checked(a)}, {self.checked(b)})"
        if t.op == "idiv" and const(t.kids()[1]):
            a, b = t.kids()
            return f"moarw_fdiv_i64({self.checked(a)}, {self.checked(b)})"
        return self.e.text(t, "i64")

    def bytes(self, b: Buffer) -> str:
        count = "1"
        for e in b.shape:
            count = f"moarw_extent({count}, {self.checked(e)}, &moarw_bad)"
        return f"moarw_bytes({count}, (int64_t)sizeof({C_TYPE[b.dtype]}), &moarw_bad)"

    # --- workspaces: one block; the shared buffers, then the private ones of each thread ---

    def workspace_function(self) -> None:
        p = self.p
        self.put(f"int64_t {self.signature(p.name + '_workspace', [f'const int64_t {s}' for s in (*p.sizes, 'moarw_nt')])} {{")
        self.depth = 1
        for s in p.sizes:
            self.put(f"(void){s};")
        self.put("bool moarw_bad = false;")
        for kind in ("shared", "private"):
            self.put(f"int64_t moarw_{kind} = 0;")
            for b in p.workspaces:
                if b.space == kind:
                    self.put(f"moarw_{kind} = moarw_add(moarw_{kind}, {self.bytes(b)}, &moarw_bad);")
        self.put("const int64_t moarw_all = moarw_add(moarw_shared, moarw_mul(moarw_private, moarw_nt, &moarw_bad), &moarw_bad);")
        self.put("return moarw_bad ? -1 : moarw_all;")
        self.depth = 0
        self.put("}")
        self.put("")

    def allocate(self) -> None:
        p = self.p
        sizes = "".join(f"{s}, " for s in p.sizes)
        self.put(f"const int64_t moarw_total = {p.name}_workspace({sizes}moarw_threads());")
        self.put("if (moarw_total < 0 || (uint64_t)moarw_total > SIZE_MAX / 2) return 1;")
        self.put("char *const moarw_ws = aligned_alloc(64, moarw_total > 0 ? (size_t)moarw_total : 64);")
        self.put("if (moarw_ws == NULL) return 2;")
        self.put("int64_t moarw_at = 0;")
        for b in p.workspaces:
            if b.space == "shared":
                self.pointer(b, "moarw_at")
                self.put(f"moarw_at += {self.plain_bytes(b)};")
        if any(b.space == "private" for b in p.workspaces):
            total = " + ".join(self.plain_bytes(b) for b in p.workspaces if b.space == "private")
            self.put(f"const int64_t moarw_private = {total};")
        else:
            self.put("(void)moarw_at;")

    def plain_bytes(self, b: Buffer) -> str:
        extents = [self.e.text(e, "i64", 8) for e in b.shape]
        return f"({' * '.join([*extents, f'(int64_t)sizeof({C_TYPE[b.dtype]})'])} + 63) / 64 * 64"

    def pointer(self, b: Buffer, offset: str) -> None:
        ty = C_TYPE[b.dtype]
        self.put(f"{ty} *MOARW_RESTRICT const {b.name} = ({ty} *)__builtin_assume_aligned(moarw_ws + {offset}, 64);")

    # --- statements ---

    def block_plain(self, body: tuple[Node, ...]) -> None:
        """The nodes of a register tile, without looking for tiles."""
        self.in_tile = True
        self.block(body, parallel=True)
        self.in_tile = False

    def block(self, body: tuple[Node, ...], parallel: bool) -> None:
        """The nodes of a block. ``parallel``: inside a parallel region."""
        done = 0
        for k, n in enumerate(body):
            if k < done:
                continue
            end = 0 if self.in_tile else tile_end(body, k, self.p)
            if end:
                self.tile(body[k:end])
                done = end
                continue
            match n:
                case Comment(text):
                    self.put(f"// {text}")
                case Let(name, value):
                    self.put(f"const int64_t {name} = {self.e.text(value, 'i64')};")
                case Declare(buffer):
                    self.declare(self.p.buffers[buffer])
                case Store(buffer, index, value):
                    self.put(f"{self.e.access(buffer, index)} = {self.e.text(value, self.p.buffers[buffer].dtype)};")
                case Update(monoid, buffer, index, value):
                    self.update(monoid, buffer, index, value)
                case If(cond, then, other):
                    self.put(f"if ({self.e.text(cond, 'bool')}) {{")
                    self.nested(then, parallel)
                    if other:
                        self.put("} else {")
                        self.nested(other, parallel)
                    self.put("}")
                case Loop():
                    if n.kind in ("core", "numa") and not parallel:
                        self.region(n)
                    else:
                        self.loop(n, parallel)
                case _:
                    raise ValueError(n)

    def tile(self, body: tuple[Node, ...]) -> None:
        """A register tile as a function of its own: compilers keep the accumulators in registers there, not in the middle of a large function."""
        bound = {n.var for n in nodes(body) if isinstance(n, Loop)} | {n.name for n in nodes(body) if isinstance(n, Let)}
        own = {n.buffer for n in nodes(body) if isinstance(n, Declare)}
        free: set[str] = set()
        for n in nodes(body):
            for e in expressions(n):
                free |= free_axes(e) | sizes_in(e)
        buffers = [b for b in self.p.buffers.values() if b.name in self.mentioned(body) - own]
        for b in buffers:
            if b.space not in ("register", "stack"):
                for e in b.shape[1:]:
                    free |= sizes_in(e)
        written = {n.buffer for n in nodes(body) if isinstance(n, Store | Update)}
        scalars = sorted(free - bound)
        parameters = [f"const int64_t {v}" for v in scalars] + [self.tile_parameter(b, b.name in written) for b in buffers]
        self.tiles += 1
        name = f"{self.p.name}_tile{self.tiles}"
        outer, depth, self.lines, self.depth = self.lines, self.depth, [], 1
        self.block_plain(entered(body))
        inside, self.lines, self.depth = self.lines, outer, depth
        head = f"static MOARW_NOINLINE void {name}({', '.join(parameters)}) {{"
        self.functions += [head, *inside, "}", ""]
        arguments = [*scalars, *(self.argument(b, b.name in written) for b in buffers)]
        self.put(f"{name}({', '.join(arguments)});")

    def tile_parameter(self, b: Buffer, written: bool) -> str:
        ty = C_TYPE[b.dtype]
        const_ = "" if written else "const "
        if b.space == "value" or not b.shape:
            return f"const {ty} {b.name}"
        if b.space in ("register", "stack"):
            return f"{const_}{ty} {b.name}[restrict {const(b.shape[0])}]{''.join(f'[{const(e)}]' for e in b.shape[1:])}"
        return f"{const_}{ty} *restrict {b.name}"

    def argument(self, b: Buffer, written: bool) -> str:
        if b.space in ("register", "stack") and len(b.shape) > 1 and not written:  # C has no implicit conversion to an array of const
            return f"(const {C_TYPE[b.dtype]} (*){''.join(f'[{const(e)}]' for e in b.shape[1:])}){b.name}"
        return b.name

    def nested(self, body: tuple[Node, ...], parallel: bool) -> None:
        self.depth += 1
        self.block(body, parallel)
        self.depth -= 1

    def declare(self, b: Buffer) -> None:
        align = "_Alignas(64) " if b.shape else ""
        self.put(f"{align}{C_TYPE[b.dtype]} {b.name}{''.join(f'[{max(const(e) or 0, 1)}]' for e in b.shape)};")

    def update(self, monoid: str, buffer: str, index: tuple[Term, ...], value: Term) -> None:
        ty = self.p.buffers[buffer].dtype
        cell = self.e.access(buffer, index)
        if monoid in ("add", "mul") and ty != "bool":
            self.put(f"{cell} {'+' if monoid == 'add' else '*'}= {self.e.text(value, ty)};")
            return
        get = Term("get", buffer, Term("ix", *index))
        self.put(f"{cell} = {self.e.text(Term(monoid, get, value), ty)};")

    def loop(self, n: Loop, parallel: bool) -> None:
        if n.piece:
            print_marked(self, n)
            return
        if n.kind == "unroll" and n.trip is not None:
            if n.trip > 1:
                self.put(f"#pragma GCC unroll {n.trip}")
        elif n.unroll > 1:
            self.put(f"#pragma GCC unroll {n.unroll}")
        if n.kind == "simd" and not any(isinstance(u, Loop) for u in nodes(n.body)):  # on an outer loop the pragma makes gcc's code slow
            self.put("#pragma omp simd")
        self.put(f"for (int64_t {n.var} = 0; {n.var} < {self.e.text(n.extent, 'i64', 6)}; {n.var}++) {{")
        self.depth += 1
        for a in n.ahead:
            fetch(self, a)
        self.block(n.body, parallel)
        self.depth -= 1
        self.put("}")

    def region(self, n: Loop) -> None:
        """A parallel region: private workspaces, then the core loops, collapsed where they are perfectly nested; over domains, each thread's share of each."""
        where = f" if ({self.e.text(self.p.parallel_if, 'bool')})" if self.p.parallel_if is not None else ""
        self.put(f"#pragma omp parallel{' proc_bind(spread)' if n.kind == 'numa' else ''}{where}")
        self.put("{")
        self.depth += 1
        used = self.mentioned((n,))
        offset = "moarw_at + moarw_thread() * moarw_private"
        for b in self.p.workspaces:
            if b.space == "private":
                if b.name in used:
                    self.pointer(b, offset)
                offset += f" + {self.plain_bytes(b)}"
        if n.kind == "numa":
            self.domains(n)
        else:
            chain, lets, body = collapsed(n)
            collapse = f" collapse({len(chain)})" if len(chain) > 1 else ""
            schedule = "dynamic" if uneven((*lets, *body), frozenset(c.var for c in chain)) else "static"
            self.put(f"#pragma omp for{collapse} schedule({schedule})")
            for c in chain:
                self.put(f"for (int64_t {c.var} = 0; {c.var} < {self.e.text(c.extent, 'i64', 6)}; {c.var}++) {{")
                self.depth += 1
            self.block((*lets, *body), parallel=True)
            for _ in chain:
                self.depth -= 1
                self.put("}")
        if streams((n,)):
            self.put("moarw_fence();")
        self.depth -= 1
        self.put("}")

    def domains(self, n: Loop) -> None:
        """The domains a thread serves, and of each its share of the iterations."""
        first, second, lets, body = shared(n, lambda t: self.e.text(t, "i64"))
        for line in first:
            self.put(line)
        self.depth += 1
        self.block(tuple(lets), parallel=True)
        for line in second:
            self.put(line)
        self.nested(body, parallel=True)
        self.put("}")
        self.depth -= 1
        self.put("}")

    # --- the header ---

    def header(self) -> str:
        p = self.p
        guard = f"MOARW_{p.name.upper()}_H"
        docs = [f" * {b.name}: {_doc(b)}" for b in (*p.inputs, *p.outputs)]
        demands = [f" * Sizes must satisfy {show(w)}." for w in p.where] + [f" * {s} is compiled in as {v}." for s, v in sorted(p.fixed.items())]
        out = [
            f"#ifndef {guard}", f"#define {guard}", "", "#include <stdbool.h>", "#include <stdint.h>", "", "#ifndef MOARW_RESTRICT",
            "#define MOARW_RESTRICT __restrict", "#endif", "", "#ifdef __cplusplus", 'extern "C" {', "#endif", "",
            f"/* {p.name}: sizes, inputs, outputs. Arrays are contiguous and row-major; outputs must not overlap other arrays.", *docs, *demands,
            " * Returns 0, 1 when the sizes are refused (negative, overflowing or against a condition), 2 when out of memory. */",
            f"int {self.signature(p.name, self.parameters())};",
        ]  # fmt: skip
        if p.workspaces:
            out += ["", f"/* Bytes of workspace that {p.name} allocates with moarw_nt threads, -1 if the number overflows. */"]
            out += [f"int64_t {self.signature(p.name + '_workspace', [f'const int64_t {s}' for s in (*p.sizes, 'moarw_nt')])};"]
        if p.touch:
            out += ["", *_TOUCH, f"int {self.signature(p.name + '_touch', self.touch_parameters())};"]
        out += ["", "#ifdef __cplusplus", "}", "#endif", "", "#endif", ""]
        return "\n".join(out)


_TOUCH = (
    "/* Writes zeros to the outputs, so that their pages lie in the memory domain whose threads compute them: for outputs that were just allocated and not",
    " * written to. Call it with the sizes, environment and number of threads of the calls to come. Returns 0, or 1 when the sizes are refused. */",
)


def tile_end(body: tuple[Node, ...], k: int, p: LoopProgram) -> int:
    """The end of the register tile that starts at body[k], 0 if none does: accumulators of constant trip counts, up to their last use."""
    n = body[k]
    if not isinstance(n, Declare) or not p.buffers[n.buffer].shape or p.buffers[n.buffer].space != "register":
        return 0
    end, own = k + 1, {n.buffer}
    while end < len(body) and isinstance(other := body[end], Declare) and p.buffers[other.buffer].space == "register":
        own.add(other.buffer)
        end += 1
    for j in range(end, len(body)):
        inside = tuple(nodes((body[j],)))
        if any((isinstance(u, Store | Update) and u.buffer in own) or any(own & reads(e) for e in expressions(u)) for u in inside):
            end = j + 1
    tile = tuple(nodes(body[k:end]))
    own = {u.buffer for u in tile if isinstance(u, Declare)}
    lanes = [u.trip for u in tile if isinstance(u, Loop) and u.kind == "simd" and _updates(u, n.buffer)]
    if lanes and not any(lanes):
        return 0
    scalars = {u.buffer for u in tile if isinstance(u, Store | Update) and not p.buffers[u.buffer].shape}
    return 0 if scalars - own else end


def streams(body: tuple[Node, ...], regions: bool = True) -> bool:
    """Whether something in a body, parallel regions included or not, is stored past the caches: others see such stores after a fence."""
    for n in body:
        if isinstance(n, If) and (streams(n.then, regions) or streams(n.other, regions)):
            return True
        if isinstance(n, Loop) and (regions or n.kind not in ("core", "numa")) and (n.stream or streams(n.body, regions)):
            return True
    return False


def _updates(u: Loop, buffer: str) -> bool:
    return any(isinstance(v, Update) and v.buffer == buffer for v in u.body)


def sizes_in(t: Term) -> set[str]:
    return {str(u.args[0]) for u in subterms(t) if u.op == "size"}


def _doc(b: Buffer) -> str:
    role = {"input": "read", "value": "by value", "output": "written"}[b.space]
    return f"{b.dtype}[{', '.join(map(show, b.shape))}], {role}" if b.shape else f"{b.dtype}, {role}"


def print_c(prog: LoopProgram) -> CSource:
    """C text of a loop program and its header."""
    return CPrinter(prog).source()
