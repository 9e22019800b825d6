"""Generated C: "moarw" works for all sizes, "moarw-fixed" has the sizes that a case names (a head's width, say) compiled in. Nothing else is given to it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from cases import Case  # type: ignore[import-not-found]
from worker import Cannot, Run, aligned  # type: ignore[import-not-found]

from moa_rewrite import build, lang, machine, rules, search
from moa_rewrite.build.call import NUMPY, evaluate
from moa_rewrite.cli import emission

ROOT = Path(__file__).resolve().parent.parent


class Timed:
    """The bare call of the shared object, with its arguments ready."""

    def __init__(self, function: Any, args: list[Any], about: dict[str, Any], kept: Any) -> None:
        self.function, self.args, self.about, self.kept = function, args, about, kept

    def __call__(self) -> None:
        code = 0
        for a in self.args:
            code |= self.function(*a)
        assert code == 0, f"returned {code}"


def make(case: Case, arrays: dict[str, np.ndarray], peer: str, threads: int, folder: Path) -> Run:
    if peer == "moarw-fixed" and not case.fixed:
        raise Cannot("no size to fix")
    fix = {s: case.sizes[s] for s in case.fixed} if peer == "moarw-fixed" else {}
    kernel = lang.elaborate(lang.load_file(ROOT / "examples" / f"{case.file}.moa"), case.kernel)
    # a plan is for the cores its worker may use; moarw.h is the name of the runtime header
    stem = f"{peer.replace('moarw', 'ours')}{threads}"
    made, about = folder / f"{stem}.json", {}
    if not made.exists():
        host = machine.detect()
        start = time.perf_counter()
        result = search.optimize(kernel, rules.load(), host, case.sizes, search.Options(fix=fix))
        about = {"optimize_s": time.perf_counter() - start, "predicted_s": result.plans[0].predicted_s, "plan": result.plans[0].summary}
        e = emission.emit(result.kernel, "c", stem, fix, host)
        about["symbol"] = e.lowered.name
        emission.build("c", e.files, e.source, folder, e.flags)
        made.write_text(json.dumps(about))
    about = json.loads(made.read_text())
    ours = build.load(folder / f"{stem}.so", kernel, about.pop("symbol"))
    scalars = {n: np.asarray(v, case.dtype) for n, v in case.scalars.items()}
    sizes, ready = ours.prepare(**arrays, **scalars, sizes=case.sizes)
    outputs = {a.name: aligned(tuple(evaluate(e, sizes) for e in a.shape), NUMPY[a.dtype]) for a in kernel.outputs}
    about["workspace"] = ours.workspace(sizes, threads)
    calls = []
    last = outputs
    if case.steps == case.each:
        calls.append((ready, outputs))
    else:  # from the input to one of two buffers, then back and forth between them
        first, second = kernel.inputs[0].name, kernel.outputs[0].name
        pair = [outputs[second], aligned(outputs[second].shape, outputs[second].dtype)]
        source = ready[first]
        for step in range(case.steps // case.each):
            calls.append(({**ready, first: source}, {second: pair[step % 2]}))
            source = pair[step % 2]
        last = {second: source}

    def arguments(given: dict[str, np.ndarray], into: dict[str, np.ndarray]) -> list[Any]:
        args: list[Any] = [sizes[s] for s in kernel.sizes]
        args += [given[a.name].ctypes.data if a.shape else given[a.name].item() for a in kernel.inputs]
        return args + [into[a.name].ctypes.data for a in kernel.outputs]

    return Timed(ours.function, [arguments(*c) for c in calls], about, calls), lambda: last
