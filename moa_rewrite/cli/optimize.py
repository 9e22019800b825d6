"""``moarw optimize FILE``: search, prove, emit, write the bundle, print the plan."""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import OK, MoaError
from ..terms import show
from . import files, pipeline, planfile, tune

if TYPE_CHECKING:
    from ..report.plan import Alternative
    from ..search.optimize import Result


def arguments(p: argparse.ArgumentParser) -> None:
    p.add_argument("file", metavar="FILE", help="a program (.moa)")
    pipeline.arguments(p, "output-dir", "stem", "tune", "plan", "no-trial", "json")


def run(args: argparse.Namespace) -> int:
    if args.stem is not None and not re.fullmatch(r"[A-Za-z0-9_-]+", args.stem):
        raise MoaError(753, f"--stem {args.stem}: a file name of letters, digits, _ and - is needed", file="moarw")
    if args.plan and args.tune:
        raise MoaError(753, "--tune looks for a plan, and --plan gives one", file="moarw", hint="one of the two")
    plan = planfile.load(args.plan) if args.plan else None
    if plan:
        planfile.fill_in(args, plan)
    j = pipeline.job(args)
    folder = Path(args.output_dir) if args.output_dir else Path("out") / f"{j.kernel.name}-{j.machine.name}"
    files.must_be_writable(folder)
    tuned = None
    if args.tune:
        done, tuned = tune.best(j, args)
    else:
        result = planfile.search(j, args, plan) if plan else pipeline.search(j, args)
        done = pipeline.certified(j, result, args.stem, pipeline.Progress(args), None if args.no_trial else args.seed)
    done.bundle.write(folder)
    kept = folder / f"{args.stem or j.kernel.name}.tuned.yaml"
    if tuned:
        files.write(kept, tune.plan_file(j, tuned).dump(Path(args.file).name, kept.name))
    if args.json:
        print(json.dumps(summary(done, folder) | ({"tuned": tune.summary(tuned), "plan": str(kept)} if tuned else {}), indent=1))
    else:
        print(report(done, folder, args.verbose, args.top))
        if tuned:
            print(f"{tune.table(tuned)}\nplan kept in {kept}: moarw optimize {args.file} --plan {kept}")
    return OK


def report(o: pipeline.Outcome, folder: Path, verbose: int, top: int) -> str:
    from ..report import plan
    from ..report.pretty import expression
    from ..search import numa

    r, j = o.result, o.job
    chosen = next(p for p in r.plans if p.chosen)
    notes = numa.whole(r.kernel, j.machine.numa_domains, j.machine.cores, j.sizes)
    notes += [] if o.compiled else [f"no {o.emitted.compiler} here: the text was not compiled"]
    text = plan.text(
        plan.Report(
            r.kernel, j.machine.name, j.target, j.sizes, chosen.predicted_s, binds(chosen.terms), chosen.moved, Counter(p.kind for p in o.proved), o.prove_s,
            len(r.steps), rejected(r)[:top], searched(r),
            f"{folder}: {', '.join(sorted(o.bundle.contents))}", notes,
            [expression(w) for w in r.kernel.where if w not in j.kernel.where], trials(o.tried),
        )
    )  # fmt: skip
    return text if not verbose else f"{text}\n\n{growth(r)}"


def trials(tried: list[dict[str, int]] | None) -> str:
    """At how many sizes the emitted text was called, and the largest value of each."""
    from ..report.units import count

    if tried is None:
        return ""
    if not tried:
        return "not at all: no compiler, or no sizes small enough"
    most = ", ".join(f"{n} = {max(at[n] for at in tried)}" for n in tried[0])
    return f"{count(len(tried), 'size')} up to {most}: all values within their bounds" if most else "all values within their bounds"


def binds(terms: dict[str, float]) -> str:
    """What the predicted time is spent on, the largest part first."""
    from ..report.units import seconds

    parts = sorted(terms.items(), key=lambda p: (-p[1], p[0]))
    return "bound by " + ", ".join([parts[0][0], *[f"{name} {seconds(s)}" for name, s in parts[1:] if s > 0]]) if parts else ""


def rejected(r: Result) -> list[Alternative]:
    """The best plan of every other form, and the next best of the chosen one."""
    from ..report.plan import Alternative

    best: dict[str, Alternative] = {}
    for p in r.plans:
        if not p.chosen:
            best.setdefault(p.label, Alternative(p.predicted_s, p.label, p.reason))
    return list(best.values())


def searched(r: Result) -> str:
    from ..report.units import count, seconds

    nodes = sum(rep.nodes for rep in r.reports.values())
    grew = Counter[str]()
    for rep in r.reports.values():
        grew.update(rep.matches)
    most = f"; most matches: {', '.join(f'{n} {c:,}' for n, c in grew.most_common(2))}" if grew else ""
    stopped = sorted({rep.stopped for rep in r.reports.values() if rep.stopped})
    return f"{count(nodes, 'e-node')} in {seconds(sum(r.seconds.values()))}{most}{'; stopped by ' + ', '.join(stopped) if stopped else ''}"


def growth(r: Result) -> str:
    """Per e-graph: size, rounds, and what each rule matched and cost."""
    from ..report.table import columns
    from ..report.units import count, seconds

    lines = []
    for name, rep in r.reports.items():
        lines.append(f"{name}: {count(rep.nodes, 'e-node')}, {count(rep.iterations, 'round')}, {seconds(rep.wall)}, {rep.stopped or 'saturated'}")
        most = sorted(rep.matches, key=lambda n: (-rep.matches[n], n))[:8]
        lines += ["  " + line for line in columns([[n, f"{rep.matches[n]:,}", seconds(rep.seconds.get(n, 0.0))] for n in most], right=frozenset([1, 2]))]
    lines += columns([[phase, f"{s:.3f} s"] for phase, s in r.seconds.items()], right=frozenset([1]))
    return "\n".join(lines)


def summary(o: pipeline.Outcome, folder: Path) -> dict[str, Any]:
    r, j = o.result, o.job
    return {
        "kernel": j.kernel.name, "machine": j.machine.name, "target": j.target, "sizes": j.sizes, "fixed": j.fix, "directory": str(folder),
        "narrowed": [show(w) for w in r.kernel.where if w not in j.kernel.where],
        "files": sorted(o.bundle.contents), "compiled": o.compiled, "tried": o.tried, "steps": len(r.steps), "proved": dict(Counter(p.kind for p in o.proved)),
        "search": {"seconds": r.seconds, "nodes": {name: rep.nodes for name, rep in r.reports.items()}},
        "plans": [
            {"rank": p.rank, "chosen": p.chosen, "label": p.label,
             "summary": p.summary, "predicted_s": p.predicted_s, "seconds": p.terms, "bytes": p.moved, "tiles": p.tiles,
             "reason": p.reason} for p in r.plans
        ],
    }  # fmt: skip
