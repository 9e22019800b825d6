"""A C program around an emitted kernel: raw files in, raw files out. Every array is allocated exactly, so sanitizers see any access outside."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from ..emit import LoopProgram, print_c
from ..emit.cexpr import C_TYPE, CExpr
from ..emit.loops import Buffer
from ..errors import FAULT, MoaError
from ..terms import Kernel
from .call import NUMPY, as_input, bind_sizes, evaluate
from .compile import C_FLAGS, compile_c


def main_c(prog: LoopProgram) -> str:
    """``NAME size... input-file... output-file...``; exit status 0, 3 for a wrong number of arguments, 4 for files, else 10 + what the kernel returned."""
    e = CExpr(prog.buffers)

    def count(b: Buffer) -> str:
        return " * ".join(["(size_t)1", *(f"(size_t)({e.text(x, 'i64')})" for x in b.shape)])

    n = len(prog.sizes) + len(prog.inputs) + len(prog.outputs)
    lines = [
        "#include <stdio.h>", "#include <stdlib.h>", f'#include "{prog.name}.h"', "",
        "static void *moarw_read(const char *path, size_t bytes) {",
        "    char *p = malloc(bytes ? bytes : 1);",
        '    FILE *f = fopen(path, "rb");',
        "    if (!p || !f || fread(p, 1, bytes, f) != bytes) exit(4);",
        "    fclose(f);",
        "    return p;",
        "}", "",
        "static void moarw_write(const char *path, const void *p, size_t bytes) {",
        '    FILE *f = fopen(path, "wb");',
        "    if (!f || fwrite(p, 1, bytes, f) != bytes || fclose(f)) exit(4);",
        "}", "",
        "int main(int argc, char **argv) {",
        f"    if (argc != {n + 1}) return 3;",
    ]  # fmt: skip
    at = 1
    arguments = list(prog.sizes)
    for s in prog.sizes:
        lines.append(f"    const int64_t {s} = strtoll(argv[{at}], NULL, 10);")
        at += 1
    for b in prog.inputs:
        ty = C_TYPE[b.dtype]
        lines.append(f"    {ty} *{b.name} = moarw_read(argv[{at}], sizeof({ty}) * ({count(b)}));")
        arguments.append(f"*{b.name}" if b.space == "value" else b.name)
        at += 1
    for b in prog.outputs:
        ty = C_TYPE[b.dtype]
        lines.append(f"    {ty} *{b.name} = malloc(sizeof({ty}) * ({count(b)}) + ({count(b)} == 0));")
        arguments.append(b.name)
    lines += [f"    const int moarw_status = {prog.name}({', '.join(arguments)});", "    if (moarw_status) return 10 + moarw_status;"]
    for b in prog.outputs:
        lines.append(f"    moarw_write(argv[{at}], {b.name}, sizeof({C_TYPE[b.dtype]}) * ({count(b)}));")
        at += 1
    lines += [f"    free({b.name});" for b in (*prog.inputs, *prog.outputs)]
    lines += ["    return 0;", "}", ""]
    return "\n".join(lines)


class Standalone:
    """A kernel compiled with its own ``main``, run as a process: for sanitizers and for measuring memory."""

    def __init__(self, kernel: Kernel, prog: LoopProgram, outdir: Path | str, extra: Sequence[str] = (), flags: Sequence[str] = C_FLAGS) -> None:
        src = print_c(prog)
        self.kernel, self.prog = kernel, prog
        self.path = compile_c(src.c_text, src.h_text, outdir, prog.name, flags=flags, extra=extra, main_text=main_c(prog))

    def run(self, inputs: Mapping[str, np.ndarray], sizes: Mapping[str, int] | None = None, env: Mapping[str, str] | None = None) -> dict[str, np.ndarray]:
        """Outputs by name. MOA0618 with what the process printed when it fails."""
        k = self.kernel
        arrays = {a.name: as_input(a.name, a.dtype, len(a.shape), inputs[a.name]) for a in k.inputs}
        bound = bind_sizes(k, arrays, sizes or {})
        with tempfile.TemporaryDirectory() as d:
            files = [Path(d) / f"a{n}" for n in range(len(k.inputs) + len(k.outputs))]
            for a, f in zip(k.inputs, files, strict=False):
                arrays[a.name].tofile(f)
            command = [str(self.path), *(str(bound[s]) for s in k.sizes), *map(str, files)]
            done = subprocess.run(command, capture_output=True, text=True, check=False, env=None if env is None else dict(env))
            if done.returncode != 0:
                raise MoaError(618, f"{self.prog.name} ended with status {done.returncode}", notes=done.stderr.splitlines()[:10], exit_code=FAULT)
            out: dict[str, np.ndarray] = {}
            for o, f in zip(k.outputs, files[len(k.inputs) :], strict=True):
                out[o.name] = np.fromfile(f, NUMPY[o.dtype]).reshape(tuple(evaluate(e, bound) for e in o.shape))
            return out
