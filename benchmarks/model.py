"""The cost model against measurement: many schedules of each program, predicted and measured on one thread.

    python benchmarks/model.py [--only TEXT] [--count 48] [--rounds 7] [--again | --replay] [--json FILE] [--table FILE] [--worst FILE]

The schedules are the search's own: its first choices, the same plans with other tile sizes, and other plans over the range of predicted
times. Each is realised, emitted as C and compiled; all schedules of a program are measured in turns (moa_rewrite/build/measured.py), by the
clock of the process. A program's row says how well the predicted times order the measured ones (Kendall's tau; times closer than 3 % are
ties), and what the model's first choice costs over the best measured.

Compiled objects are kept by the digest of their text, so a run after a change of the model compiles only what is new. --again takes the
schedules of the last run and measures them anew; --replay takes their times too, and only predicts anew, which takes a second.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import pickle
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import cases  # type: ignore[import-not-found]  # noqa: E402
from ranks import regret, tau  # type: ignore[import-not-found]  # noqa: E402
from schedules import Schedule, sample, summary  # type: ignore[import-not-found]  # noqa: E402

from moa_rewrite import lang, machine, rules  # noqa: E402
from moa_rewrite.build.measured import Contender, Timed, interleaved  # noqa: E402
from moa_rewrite.cli import cache, emission  # noqa: E402
from moa_rewrite.errors import MoaError  # noqa: E402
from moa_rewrite.search.candidate import realise  # noqa: E402
from moa_rewrite.search.cost import Model  # noqa: E402
from moa_rewrite.search.optimize import _plan  # noqa: E402
from moa_rewrite.terms import Kernel  # noqa: E402

SAME = 0.03  # measured times closer than this are ties
WRONG = 1e-3  # error relative to the largest magnitude
MOST = 0.4  # seconds of one call, above which a schedule is left out
CACHE = cache.folder() / "benchmarks"

PROGRAMS = [
    cases.attention(4, 512, 64, False), cases.attention(4, 512, 64, True), cases.matmul(512, 512, 512), cases.gated_mlp(128, 512, 1408),
    cases.softmax(1024, 4096), cases.attention_backward(2, 512, 64), cases.rmsnorm(1024, 4096), cases.stencil9(1024, 4096),
]  # fmt: skip


@dataclass
class Record:
    """A schedule, its compiled text, and what came of it: seconds, or why there are none."""

    schedule: Schedule
    digest: str
    symbol: str
    measured: float | None = None
    rounds: tuple[float, ...] = ()
    why: str = ""


def compiled(s: Schedule, model: Model, laws: Any, host: Any) -> Record:
    """The schedule's object in the cache, made if it is not there. MoaError where it cannot be emitted or compiled."""
    c = s.candidate(model)
    assert c is not None
    placed, _ = realise(c, laws)
    e = emission.emit(placed, "c", "kernel", {}, host)
    text = b"\0".join(n.encode() + b"\0" + t for n, t in e.files.items())
    digest = hashlib.sha256(text + repr((e.compiler, e.flags)).encode()).hexdigest()[:20]
    at = CACHE / "objects" / f"{digest}.so"
    if not at.exists():
        at.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=at.parent) as d:
            os.replace(emission.build("c", e.files, e.source, Path(d), e.flags), at)
    return Record(s, digest, e.lowered.name)


def kernel_of(case: cases.Case) -> Kernel:
    return lang.elaborate(lang.load_file(HERE.parent / "examples" / f"{case.file}.moa"), case.kernel)


def sampled(case: cases.Case, args: argparse.Namespace, host: Any, model: Model, say: Callable[[str], None]) -> list[Record]:
    """Schedules of a program, compiled; those of equal text once."""
    laws = rules.load()
    found = sample(kernel_of(case), laws, host, case.sizes, args.count, args.seed)
    records: list[Record] = []
    for n, s in enumerate(found):
        say(f"{n} of {len(found)} compiled")
        try:
            r = compiled(s, model, laws, host)
        except MoaError as e:
            r = Record(s, "", "", why=e.message)
        if not r.digest or r.digest not in [x.digest for x in records]:
            records.append(r)
    return records


def measure(case: cases.Case, records: list[Record], args: argparse.Namespace) -> None:
    """Fills in the times of what was compiled, or why there are none."""
    ready = [r for r in records if r.digest]
    inputs = {**case.inputs(), **{n: np.asarray(v, case.dtype) for n, v in case.scalars.items()}}
    answer = case.reference({n: a.astype(np.float64) for n, a in inputs.items()})

    def accept(k: int, got: Any) -> str:
        error = max(float(np.abs(got[n] - want).max()) / float(np.abs(want).max()) for n, want in answer.items())
        return "" if error <= WRONG else f"wrong values: error {error:.2g}"  # NaN is wrong too

    kernel = kernel_of(case)
    contenders = [Contender(CACHE / "objects" / f"{r.digest}.so", kernel, r.symbol) for r in ready]
    with tempfile.TemporaryDirectory() as folder:
        times = interleaved(contenders, case.sizes, inputs, Path(folder), accept, rounds=args.rounds, least=args.least, most=MOST)
    for r, t in zip(ready, times, strict=True):
        r.measured, r.rounds, r.why = (t.seconds, t.rounds, "") if isinstance(t, Timed) else (None, (), t)


def judged(case: cases.Case, records: list[Record], model: Model) -> dict[str, Any]:
    """What the model says of the schedules, next to what was measured."""
    rows, out = [], []
    for r in records:
        c = r.schedule.candidate(model)
        if r.measured is None or c is None:
            plan = "" if c is None else summary(c.entry.plan, c)
            out.append({"role": r.schedule.role, "plan": plan, "tiles": used(r.schedule), "why": r.why or "the model has no such plan"})
            continue
        told = _plan(0, c, c)
        noise = (max(r.rounds) - min(r.rounds)) / r.measured
        rows.append({
            "role": r.schedule.role, "form": c.form.label, "plan": summary(c.entry.plan, c), "tiles": used(r.schedule), "predicted_s": float(told.predicted_s),
            "rank": float(c.rank), "terms": {k: float(v) for k, v in told.terms.items()}, "moved": told.moved, "measured_s": r.measured, "noise": noise,
            "digest": r.digest,
        })  # fmt: skip
    p, m = [x["predicted_s"] for x in rows], [x["measured_s"] for x in rows]
    middle = statistics.median(b / a for a, b in zip(p, m, strict=True))
    for x in rows:
        x["off"] = x["measured_s"] / x["predicted_s"] / middle
    chosen = [x["measured_s"] for x in rows if x["role"] == "chosen"]
    return {
        "program": case.name, "sizes": case.sizes, "schedules": len(rows), "plans": len({x["plan"] for x in rows}), "tau": tau(p, m, SAME),
        "regret": regret([x["rank"] for x in rows], m), "chosen": chosen[0] / min(m) if chosen else None, "best_s": min(m),
        "range": max(m) / min(m), "measured_over_predicted": middle, "rows": rows, "left_out": out,
    }  # fmt: skip


def used(s: Schedule) -> dict[str, int]:
    """The tile sizes that a plan depends on."""

    def loops(p: tuple) -> set[str]:
        return set() if p[0] == "leaf" else {p[1]} | loops(p[3]) if p[0] == "for" else loops(p[1]) | loops(p[2])

    names = loops(s.plan)
    return {k.removesuffix(".T"): v for k, v in s.tiles.items() if any(n.startswith(k.removesuffix(".T") + ".") for n in names)}


def table(found: list[dict[str, Any]]) -> str:
    """Markdown: one row per program."""
    lines = [
        "| program | schedules | different plans | slowest / fastest | tau | regret | measured / predicted |", "|---|---|---|---|---|---|---|",
        *[f"| {f['program']} | {f['schedules']} | {f['plans']} | {f['range']:.1f} | {f['tau']:.2f} | {f['regret']:.2f} | {f['measured_over_predicted']:.2f} |"
          for f in found],
    ]  # fmt: skip
    middle, worst = statistics.median(f["regret"] for f in found), max(f["regret"] for f in found)
    lines += ["", f"Regret: median {middle:.2f}, worst {worst:.2f}; least tau {min(f['tau'] for f in found):.2f}."]
    return "\n".join(lines)


def worst(f: dict[str, Any], count: int = 4) -> str:
    """The best measured, the model's first choice, and the schedules that the model is most wrong about, as text."""
    rows = f["rows"]
    order = sorted(rows, key=lambda x: x["off"])
    wanted = {"best measured": min(rows, key=lambda x: x["measured_s"]), "model's first": min(rows, key=lambda x: x["rank"])}
    lines = [f"### {f['program']}: tau {f['tau']:.2f}, regret {f['regret']:.2f}, measured/predicted (median) {f['measured_over_predicted']:.2f}", ""]
    for what, x in [*wanted.items(), *[("faster than predicted", x) for x in order[:count]], *[("slower than predicted", x) for x in order[: -count - 1 : -1]]]:
        terms = ", ".join(f"{k} {v * 1e3:.2f}" for k, v in x["terms"].items() if v > 0)
        tiles = " ".join(f"{k}={v}" for k, v in x["tiles"].items())
        lines += [f"* {what}, {x['off']:.2f} of the usual ratio: measured {x['measured_s'] * 1e3:.2f} ms, predicted {x['predicted_s'] * 1e3:.2f} ({terms})",
                  f"  [{x['form']}; {x['role']}] `{x['plan']}`  tiles {tiles}  object {x['digest']}"]  # fmt: skip
    for x in f["left_out"]:
        lines.append(f"* left out: {x['why']} [{x['role']}] `{x['plan']}` {x['tiles']}")
    return "\n".join(lines) + "\n"


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--only", action="append", default=[], help="programs whose name starts with this (repeatable)")
    p.add_argument("--count", type=int, default=48, help="schedules of a program, before those of equal text are dropped")
    p.add_argument("--rounds", type=int, default=7)
    p.add_argument("--least", type=float, default=0.002, help="seconds of a sample")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--again", action="store_true", help="take the schedules of the last run, and measure them anew")
    p.add_argument("--replay", action="store_true", help="take schedules and times of the last run")
    p.add_argument("--json", type=Path)
    p.add_argument("--table", type=Path, help="Markdown: the table")
    p.add_argument("--worst", type=Path, help="Markdown: what is most wrong")
    args = p.parse_args()
    host = replace(machine.detect(), cores=1)
    model = Model.of(host)
    found = []
    for case in PROGRAMS:
        if args.only and not any(case.name.startswith(o) for o in args.only):
            continue
        at = CACHE / "model" / f"{case.name.replace(' ', '_')}.pickle"
        start = time.monotonic()

        def say(text: str, name: str = case.name, start: float = start) -> None:
            if sys.stderr.isatty():
                print(f"\r\x1b[K{name}: {text} ({time.monotonic() - start:.0f} s)", end="", file=sys.stderr, flush=True)

        if (args.replay or args.again) and not at.exists():
            continue
        records = pickle.loads(at.read_bytes()) if args.replay or args.again else sampled(case, args, host, model, say)
        if not args.replay:
            say("measuring")
            measure(case, records, args)
            at.parent.mkdir(parents=True, exist_ok=True)
            at.with_suffix(".new").write_bytes(pickle.dumps(records))
            os.replace(at.with_suffix(".new"), at)
        found.append(judged(case, records, model))
        f = found[-1]
        print(f"{f['program']:30s} {f['schedules']:3d} schedules  tau {f['tau']:5.2f}  regret {f['regret']:.2f}  left out {len(f['left_out'])}", flush=True)
        if args.json:
            args.json.write_text(json.dumps({"machine": host.model, "programs": found}, indent=1))
        if args.worst:
            args.worst.write_text("\n".join([table(found), "", *map(worst, found)]))
    if args.table:
        args.table.write_text(table(found) + "\n")
    print(table(found))


if __name__ == "__main__":
    main()
