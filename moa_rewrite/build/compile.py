"""Compiling emitted text into a shared object."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ..data import data_path
from ..errors import FAULT, MoaError

# -ffast-math is not among them: it changes exp, and a shared object built with it changes the caller's rounding of subnormals.
# Reordering of sums is done by the loops themselves; contraction to fused multiply-add is permitted and recorded.
C_FLAGS = ("-std=c11", "-O3", "-march=native", "-fopenmp", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast")
WARNINGS = ("-Wall", "-Wextra")
SANITIZE = ("-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


def find_compiler(cc: str) -> str:
    """Path of a compiler. MOA0601 when there is none."""
    path = shutil.which(cc)
    if path is None:
        raise MoaError(601, f"no compiler {cc!r} on the path", hint="install gcc (Debian: apt install gcc) or name another compiler", exit_code=FAULT)
    return path


def compile_c(
    c_text: str, h_text: str, outdir: Path | str, name: str = "kernel", cc: str = "gcc", flags: Sequence[str] = C_FLAGS, extra: Sequence[str] = (),
    main_text: str | None = None,
) -> Path:  # fmt: skip
    """Write ``name.c``, ``name.h`` and compile them to ``name.so`` (or, with ``main_text``, to the executable ``name``) in ``outdir``.

    All is made in a directory of its own and renamed, so that concurrent builds never see half a file.
    Raises MOA0601 without a compiler, MOA0602 when it fails.
    """
    compiler = find_compiler(cc)
    out = Path(outdir)
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out, suffix=".tmp") as d:
        sources = [f"{name}.c"] + ([f"{name}_main.c"] if main_text is not None else [])
        files = {f"{name}.c": c_text, f"{name}.h": h_text} | ({f"{name}_main.c": main_text} if main_text is not None else {})
        for file, text in files.items():
            (Path(d) / file).write_text(text, encoding="utf-8")
        product = f"{name}.so" if main_text is None else name
        shape = ("-shared", "-fPIC") if main_text is None else ()
        command = [compiler, *flags, *shape, *extra, "-I", str(data_path("codegen", "c").resolve()), "-I", ".", *sources, "-o", product, "-lm"]
        run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=d)
        if run.returncode != 0:
            raise MoaError(602, f"{cc} failed on {name}.c", notes=run.stderr.strip().splitlines()[:12], exit_code=FAULT)
        for file in (*files, product):
            os.replace(Path(d) / file, out / file)
    return out / product
