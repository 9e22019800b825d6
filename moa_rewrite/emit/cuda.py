"""CUDA C++: one kernel per launch and a host function that checks sizes, allocates scratch and launches."""

from __future__ import annotations

from dataclasses import dataclass

from ..terms import Term, free_axes, show, subterms
from .cexpr import C_TYPE
from .cprint import CPrinter, _doc
from .cuda_program import Barrier, CudaProgram, Launch, Threads, every_node, mentions, terms_of
from .fold import const, nonneg
from .loops import Buffer, Loop, Store, Update


@dataclass(frozen=True)
class CudaSource:
    cu_text: str
    h_text: str


class CudaPrinter(CPrinter):
    def __init__(self, prog: CudaProgram) -> None:
        super().__init__(prog)  # type: ignore[arg-type]
        self.cuda = prog
        self.in_tile = True  # no functions for register tiles: a kernel is one function

    def source(self) -> CudaSource:  # type: ignore[override]
        p = self.cuda
        self.put('#include "moarw_cuda.cuh"')
        self.put("")
        for n in p.notes:
            self.put(f"// {n.rule}: {n.text}")
        for launch in p.launches:
            self.put("")
            self.kernel(launch)
        self.put("")
        self.host()
        return CudaSource("\n".join(self.lines) + "\n", self.header())

    # --- kernels ---

    def arguments(self, launch: Launch) -> tuple[list[str], list[Buffer]]:
        """(sizes, global buffers) that a launch mentions, in the order of the program."""
        p = self.cuda
        arrays, terms = mentions(launch.body)
        every = [*terms, *(e for _, e in launch.grid), *(e for b in launch.shared for e in b.shape)]
        every += [e for b in (*p.inputs, *p.outputs, *p.scratch) if b.name in arrays for e in b.shape[1:]]
        names = {str(u.args[0]) for t in every for u in subterms(t) if u.op == "size"}
        return [s for s in p.sizes if s in names], [b for b in (*p.inputs, *p.outputs, *p.scratch) if b.name in arrays]

    def kernel(self, launch: Launch) -> None:
        sizes, arrays = self.arguments(launch)
        written = {n.buffer for n in every_node(launch.body) if isinstance(n, Store | Update)}
        parameters = [f"const int64_t {s}" for s in sizes]
        for b in arrays:
            ty = C_TYPE[b.dtype]
            pointer = f"{ty} *" if b.name in written else f"const {ty} *__restrict__ "
            parameters.append(f"const {ty} {b.name}" if b.space == "value" else f"{pointer}{b.name}")
        self.put(f'extern "C" __global__ void __launch_bounds__({launch.threads}) {launch.name}({", ".join(parameters)}) {{')
        self.depth += 1
        self.carve(launch)
        if launch.grid:
            self.blocks(launch)
        else:
            self.block(launch.body, parallel=True)
        self.depth -= 1
        self.put("}")

    def carve(self, launch: Launch) -> None:
        """Pointers into dynamic shared memory, each 64-byte aligned relative to its start."""
        if not launch.shared:
            return
        self.put("extern __shared__ __align__(64) unsigned char moarw_shared[];")
        at = ""
        for n, b in enumerate(launch.shared):
            ty = C_TYPE[b.dtype]
            self.put(f"{ty} *const {b.name} = ({ty} *)(moarw_shared{f' + {at}' if at else ''});")
            if n + 1 < len(launch.shared):
                self.put(f"const int64_t moarw_at{n} = {f'{at} + ' if at else ''}{self.plain_bytes(b)};")
                at = f"moarw_at{n}"

    def blocks(self, launch: Launch) -> None:
        """The loops over blocks as one, strided by the number of blocks launched."""
        self.put(f"const int64_t moarw_blocks = {self.product([e for _, e in launch.grid])};")
        self.put("for (int64_t moarw_b = blockIdx.x; moarw_b < moarw_blocks; moarw_b += gridDim.x) {")
        self.depth += 1
        self.decode("moarw_b", [a for a, _ in launch.grid], [self.extent(e, False) for _, e in launch.grid], used_axes(launch.body))
        self.block(launch.body, parallel=True)
        self.depth -= 1
        self.put("}")

    def product(self, extents: list[Term]) -> str:
        return " * ".join(self.extent(e, False, 8 if len(extents) > 1 else 0) for e in extents)

    def extent(self, e: Term, narrow: bool, level: int = 8) -> str:
        """A number of iterations, never negative."""
        text = self.e.text(e, "i64", 8 if narrow else level) if nonneg(e) else f"moarw_max_i64(0, {self.e.text(e, 'i64')})"
        return f"(int){text}" if narrow and not text.isdigit() else text

    def decode(self, flat: str, names: list[str], extents: list[str], used: frozenset[str]) -> None:
        """Indices of a box from a flat one, the last fastest."""
        for n, a in enumerate(names):
            if a in used:
                inner = extents[n + 1 :]
                text = flat if not inner else f"{flat} / {inner[0]}" if len(inner) == 1 else f"{flat} / ({' * '.join(inner)})"
                self.put(f"const int64_t {a} = {f'{text} % {extents[n]}' if n else text};")

    def threads(self, n: Threads) -> None:
        if not n.loops:
            self.put("if (threadIdx.x == 0) {")
            self.nested(n.body, True)
            self.put("}")
            return
        ty = "int" if n.narrow and not n.wide else "int64_t"
        extents = [self.extent(e, ty == "int", 0) for _, e in n.loops]
        several = len(extents) > 1
        if several:
            self.put("{")
            self.depth += 1
            for k, e in enumerate(extents):
                if not e.isdigit():
                    self.put(f"const {ty} moarw_n{k} = {e};")
                    extents[k] = f"moarw_n{k}"
        if n.wide:
            start, stride = "(int64_t)blockIdx.x * blockDim.x + threadIdx.x", "(int64_t)gridDim.x * blockDim.x"
        else:
            start, stride = "threadIdx.x", "blockDim.x"
        self.put(f"for ({ty} moarw_t = {start}; moarw_t < {' * '.join(extents)}; moarw_t += {stride}) {{")
        self.depth += 1
        self.decode("moarw_t", [a for a, _ in n.loops], extents, used_axes(n.body))
        self.block(n.body, True)
        self.depth -= 1
        self.put("}")
        if several:
            self.depth -= 1
            self.put("}")

    def block(self, body, parallel: bool) -> None:
        for n in body:
            match n:
                case Threads():
                    self.threads(n)
                case Barrier(why):
                    self.put(f"__syncthreads();  // {why}")
                case _:
                    super().block((n,), parallel=True)

    def loop(self, n: Loop, parallel: bool) -> None:
        if n.kind == "unroll" and n.trip is not None:
            self.put("#pragma unroll")
        elif n.unroll > 1:
            self.put(f"#pragma unroll {n.unroll}")
        self.put(f"for (int64_t {n.var} = 0; {n.var} < {self.e.text(n.extent, 'i64', 6)}; {n.var}++) {{")
        self.nested(n.body, parallel)
        self.put("}")

    def declare(self, b: Buffer) -> None:
        self.put(f"{C_TYPE[b.dtype]} {b.name}{''.join(f'[{max(const(e) or 0, 1)}]' for e in b.shape)};")

    # --- host ---

    def host(self) -> None:
        p = self.cuda
        self.put(f'extern "C" int {self.signature(p.name, self.parameters())} {{')
        self.depth = 1
        self.unused()
        self.checks()
        for b in p.scratch:
            self.put(f"{C_TYPE[b.dtype]} *{b.name} = nullptr;")
        self.put("int moarw_status = 0;")
        if p.scratch:
            self.put("bool moarw_much = false;")
            for b in p.scratch:
                self.put(f"const int64_t moarw_{b.name} = {self.bytes(b).replace('moarw_bad', 'moarw_much')};")
            self.put("if (moarw_much) return 1;")
            for b in p.scratch:
                self.put(f"if (moarw_status == 0 && cudaMalloc(&{b.name}, (size_t)moarw_{b.name}) != cudaSuccess) moarw_status = 2;")
        for launch in p.launches:
            self.launch(launch)
        for b in p.scratch:
            self.put(f"(void)cudaFree({b.name});")
        self.put("return moarw_status;")
        self.depth = 0
        self.put("}")

    def unused(self) -> None:
        for b in (*self.cuda.inputs, *self.cuda.outputs):
            self.put(f"(void){b.name};")
        for s in self.cuda.sizes:
            self.put(f"(void){s};")

    def launch(self, launch: Launch) -> None:
        sizes, arrays = self.arguments(launch)
        wide = next((n for n in launch.body if isinstance(n, Threads) and n.wide and n.loops), None)
        if launch.grid:
            blocks = self.product([e for _, e in launch.grid])
        elif wide:
            blocks = f"({self.product([e for _, e in wide.loops])} + {launch.threads - 1}) / {launch.threads}"
        else:
            blocks = "1"
        self.put("if (moarw_status == 0) {")
        self.depth += 1
        self.put(f"const int64_t moarw_blocks = {blocks};")
        shared = "0"
        if launch.shared:
            self.put("bool moarw_much = false;")
            self.put("int64_t moarw_need = 0;")
            for b in launch.shared:
                self.put(f"moarw_need = moarw_add(moarw_need, {self.bytes(b).replace('moarw_bad', 'moarw_much')}, &moarw_much);")
            self.put(f"moarw_status = moarw_much ? 3 : moarw_allow_shared({launch.name}, moarw_need);")
            shared = "(size_t)moarw_need"
        self.put("if (moarw_status == 0 && moarw_blocks > 0) {")
        self.depth += 1
        arguments = ", ".join([*sizes, *(b.name for b in arrays)])
        self.put(f"{launch.name}<<<moarw_grid(moarw_blocks), {launch.threads}, {shared}>>>({arguments});")
        self.put("if (cudaGetLastError() != cudaSuccess) moarw_status = 4;")
        self.depth -= 1
        self.put("}")
        self.depth -= 1
        self.put("}")


    def header(self) -> str:
        p = self.cuda
        guard = f"MOARW_{p.name.upper()}_CUDA_H"
        docs = [f" * {b.name}: {_doc(b)}" for b in (*p.inputs, *p.outputs)]
        demands = [f" * Sizes must satisfy {show(w)}." for w in p.where] + [f" * {s} is compiled in as {v}." for s, v in sorted(p.fixed.items())]
        out = [
            f"#ifndef {guard}", f"#define {guard}", "", "#include <stdbool.h>", "#include <stdint.h>", "", "#ifndef MOARW_RESTRICT",
            "#define MOARW_RESTRICT __restrict", "#endif", "", "#ifdef __cplusplus", 'extern "C" {', "#endif", "",
            f"/* {p.name}: sizes, inputs, outputs. Pointers are device memory; arrays are contiguous and row-major, outputs overlap no other array.",
            *docs, *demands,
            " * Works in the default stream, without waiting for the result. Returns 0, 1 when the sizes are refused (negative, overflowing or against a",
            " * condition), 2 when out of memory, 3 when a block cannot have the shared memory that these sizes need, 4 when a launch fails. */",
            f"int {self.signature(p.name, self.parameters())};", "", "#ifdef __cplusplus", "}", "#endif", "", "#endif", "",
        ]  # fmt: skip
        return "\n".join(out)


def used_axes(body) -> frozenset[str]:
    return frozenset().union(*[free_axes(e) for n in every_node(body) for e in terms_of(n)])


def print_cuda(prog: CudaProgram) -> CudaSource:
    """CUDA text of a lowered kernel and the header of its host function."""
    return CudaPrinter(prog).source()

