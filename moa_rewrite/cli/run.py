"""``moarw run PATH``: compile a program or a bundle, run it, compare with the reference interpreter, print error, time and memory."""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import OK, REFUTED, MoaError
from ..terms import parse_term
from . import bundle, check, options, pipeline, sizes

if TYPE_CHECKING:
    from ..terms import Kernel
    from .trial import Arrays

MOST = 2**10  # largest size that nobody asked for: a kernel may take the cube of it
EMULATED = 2**21  # product of all sizes by default when CUDA is emulated


def arguments(p: argparse.ArgumentParser) -> None:
    p.add_argument("file", metavar="PATH", help="a program (.moa), which is optimized first, or the directory of a bundle")
    p.add_argument("--input", metavar="NAME=FILE", action="append", default=[], help="an input from a .npy file; others are random (repeatable)")
    p.add_argument("--output", metavar="NAME=FILE", action="append", default=[], help="write an output to a .npy file (repeatable)")
    pipeline.arguments(p, "threads", "repeat", "json")


def run(args: argparse.Namespace) -> int:
    from .. import rules
    from . import trial

    j, b = None, None
    if Path(args.file).is_dir():
        b, kernel = opened(args.file)
        target, fixed = b.manifest["target"], b.manifest["sizes"]["fixed"]
    else:
        j = pipeline.job(args, MOST)
        kernel, target, fixed = j.kernel, j.target, j.fix
    outputs = trial.split(args.output, "--output", {o.name: o for o in kernel.outputs})
    given = trial.read_arrays(args.input, kernel)
    at = sizes_of_run(kernel, args, target, fixed, given)
    if j is not None:  # judged at the sizes of the run
        j = replace(j, sizes=at)
        b = pipeline.certified(j, pipeline.search(j, args), progress=pipeline.Progress(args)).bundle
    assert b is not None
    about = b.manifest
    arrays = trial.random_arrays(kernel, at, given, args.seed)
    with tempfile.TemporaryDirectory() as folder:
        if target == "cuda":
            ran = trial.emulated(b.contents, about, kernel, at, arrays, Path(folder))
        else:
            threads = args.threads or len(os.sched_getaffinity(0))
            ran = trial.native(b.contents, about, kernel, at, arrays, Path(folder), threads, args.repeat)
    for name, path in outputs:
        save(path, ran.outputs[name])
    normal, _ = rules.psi_normalise(kernel, rules.load())
    compared = trial.compare(trial.wanted(normal, arrays, at), ran.outputs)
    found = [{"name": c.name, "ok": c.verdict.ok, "error": c.verdict.error, "bound": c.verdict.bound, "cells": c.cells, "of": c.of, "text": c.verdict.text}
             for c in compared]  # fmt: skip
    ok = all(v["ok"] for v in found)
    result = {"kernel": kernel.name, "machine": about["machine"], "target": about["target"], "sizes": at, "ok": ok, "outputs": found, "threads": ran.threads,
              "median_s": ran.times.median if ran.times else None, "best_s": ran.times.best if ran.times else None,
              "worst_s": ran.times.worst if ran.times else None, "calls": ran.times.calls if ran.times else None, "extra_bytes": ran.extra,
              "note": ran.note, "seed": args.seed}  # fmt: skip
    print(json.dumps(result, indent=1) if args.json else text(result, sorted(given)))
    return OK if ok else REFUTED


def opened(path: str) -> tuple[bundle.Bundle, Kernel]:
    """A bundle from disk, whose program is elaborated again from the certificate's text; conditions on sizes are those of the emitted kernel."""
    b = bundle.read(Path(path))
    kernel, why = check.elaborated(b.certificate)
    if kernel is None:
        raise MoaError(757, f"{path}: {why or 'the certificate has no source'}", file="moarw")
    return b, replace(kernel, where=tuple(parse_term(w) for w in b.certificate["onf"]["where"]))


def sizes_of_run(kernel: Kernel, args: argparse.Namespace, target: str, fixed: Mapping[str, int], given: Arrays) -> dict[str, int]:
    """From -D, the compiled-in sizes and the shapes of given inputs, which must agree; the rest as usual."""
    from .trial import sizes_of

    known: dict[str, int] = {}
    place: dict[str, str] = {}
    found = [(n, v, "-D") for n, v in options.integers(args.define, "-D").items()] + [(n, v, "compiled in") for n, v in fixed.items()]
    for name, value, where in [*found, *[(n, v, w) for n, (v, w) in sizes_of(kernel, given).items()]]:
        if known.setdefault(name, value) != value:
            raise MoaError(758, f"size {name} is {known[name]} ({place[name]}) and {value} ({where})", file="moarw")
        place.setdefault(name, where)
    return sizes.complete(kernel, known, EMULATED if target == "cuda" else sizes.POINTS, MOST)


def save(path: str, value: Any) -> None:
    """Write a .npy file, whole or not at all."""
    import io

    import numpy as np

    from . import files

    data = io.BytesIO()
    np.save(data, value)
    files.write_all(Path(path).resolve().parent, {Path(path).name: data.getvalue()})


def text(r: Mapping[str, Any], given: list[str]) -> str:
    from ..report import units
    from ..report.table import labelled, paint

    rows: list[tuple[str, str]] = [
        ("kernel", f"{r['kernel']} for {r['machine']}, {r['target']}, at {', '.join(f'{n} = {v}' for n, v in r['sizes'].items())}"),
        ("inputs", f"{', '.join(given)} given, the others random" if given else f"random, seed {r['seed']}"),
    ]
    for o in r["outputs"]:
        share = "all cells" if o["cells"] == o["of"] else f"{o['cells']:,} of {o['of']:,} cells"
        word = paint("within its bound", "green") if o["ok"] else paint("OUTSIDE its bound", "red")
        rows.append((o["name"], f"{word}: {o['text']}, {share} compared"))
    if r["median_s"] is not None:
        spread = f"median of {r['calls']}, {units.seconds(r['best_s'])} to {units.seconds(r['worst_s'])}"
        rows.append(("time", f"{units.seconds(r['median_s'])} ({spread}), {units.count(r['threads'], 'thread')}"))
    if r["extra_bytes"] is not None:
        rows.append(("memory", f"{units.size(r['extra_bytes'])} at the peak beyond inputs and outputs"))
    return labelled([*rows, ("note", r["note"])])
