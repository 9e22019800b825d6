"""``moarw optimize --tune N``: the N plans that the model likes best are compiled and measured on this computer, and the fastest is taken."""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import __version__
from ..errors import FAULT, MoaError
from . import cache, emission, pipeline, planfile

if TYPE_CHECKING:
    from ..build.measured import Contender
    from ..search.optimize import Result

ROUNDS = 9
LEAST = 0.02  # seconds of one sample
PATIENCE = 120.0  # seconds until a call counts as endless
UNFIT = (651, 652, 653, 655)  # what rules out a plan, but not the next one: no proof, or values that are wrong in the trial


@dataclass
class Row:
    """A plan that was tried: its rank in the search, its name, seconds predicted and measured, the digest of its text; or ``why`` it is left out."""

    rank: int
    form: str
    packed: list[str]
    loops: str
    tiles: dict[str, int]
    predicted_s: float
    text: str = ""
    measured_s: float | None = None
    rounds: tuple[float, ...] = ()
    why: str = ""


@dataclass
class Tuning:
    """``order``: rows from the fastest on, those left out at the end. ``winner`` is filled in when a plan has passed all proofs."""

    rows: list[Row]
    threads: int
    compiler: str
    cached: bool = False
    winner: Row | None = None

    @property
    def order(self) -> list[Row]:
        return sorted(self.rows, key=lambda r: (r.measured_s is None or bool(r.why), r.measured_s or 0.0, r.rank))


def best(j: pipeline.Job, args: argparse.Namespace) -> tuple[pipeline.Outcome, Tuning]:
    """The fastest plan with its proofs and its text, and what was measured. MoaError 762 where this computer cannot measure the kernel, 765 if no plan
    could be measured."""
    must_run_here(j)
    key = cache.digest(question(j, args))
    with cache.locked(f"{key}.lock"):
        tuning = remembered(j, args, key)
        searched: Result | None = None
        if tuning is None:
            searched = pipeline.search(j, args, keep=args.tune)
            tuning = measured(j, args, searched)
            cache.write("tune", key, {**asdict(replace(tuning, winner=None)), "rows": [asdict(r) for r in tuning.rows]})
    refused: MoaError | None = None
    for row, result in plans(j, args, tuning, searched):
        progress = pipeline.Progress(args)
        try:
            done = pipeline.certified(j, result, args.stem, progress, None if args.no_trial else args.seed)
        except MoaError as e:
            if e.code not in UNFIT:
                raise
            refused, row.why = e, brief(e)
        else:
            tuning.winner = row
            return done, tuning
        finally:
            progress.done()
    if refused is not None:
        raise refused
    raise MoaError(765, f"no plan of {j.kernel.name} could be measured", file="moarw", notes=[f"{r.form}: {r.why}" for r in tuning.rows], exit_code=FAULT)


def must_run_here(j: pipeline.Job) -> None:
    """MoaError 762 unless the job's machine is this computer, and it has the compiler."""
    from .. import machine

    hint = "--tune off; on that machine --tune writes a plan, which --plan takes here" if j.target != "cuda" else "--tune off"
    if j.target == "cuda":
        raise MoaError(762, f"--tune measures on this computer, and does not run CUDA; {j.machine.name} is chosen by the model alone", file="moarw", hint=hint)
    here = machine.load("host")
    if (j.machine.model, j.machine.isa) != (here.model, here.isa):
        raise MoaError(762, f"--tune measures on this computer ({here.model}), and {j.machine.name} is another ({j.machine.model})", file="moarw", hint=hint)
    if emission.version(j.target) == emission.COMPILER[j.target]:
        raise MoaError(762, f"--tune compiles what it measures, and there is no {emission.COMPILER[j.target]} here", file="moarw", hint="--tune off")


def threads() -> int:
    return len(os.sched_getaffinity(0))


def question(j: pipeline.Job, args: argparse.Namespace) -> dict[str, Any]:
    """All that the measured times depend on."""
    return {
        "moarw": __version__, "compiler": emission.version(j.target), "target": j.target, "machine": repr(j.machine), "threads": threads(),
        "kernel": repr(j.kernel), "rules": [repr(r) for r in j.rules.values()], "sizes": j.sizes, "fix": j.fix, "plans": args.tune, "top": args.top,
        "seed": args.seed,
    }  # fmt: skip


def remembered(j: pipeline.Job, args: argparse.Namespace, key: str) -> Tuning | None:
    """What was measured before, if its plans still exist and give the same text."""
    from ..search.given import Named

    entry = cache.read("tune", key)
    if entry is None:
        return None
    rows = [Row(**{**r, "rounds": tuple(r["rounds"])}) for r in entry["rows"]]
    tuning = Tuning(rows, entry["threads"], entry["compiler"], True)
    first = tuning.order[0]
    try:
        r = planfile.planned(j, args, Named(first.form, tuple(first.packed), first.loops, first.tiles), "the cache")
    except MoaError as e:
        if e.code != 764:
            raise
        return None
    return tuning if planfile.text_digest(j, r) == first.text else None


def plans(j: pipeline.Job, args: argparse.Namespace, tuning: Tuning, searched: Result | None) -> Iterator[tuple[Row, Result]]:
    """The measured plans from the fastest on, each realised when it is asked for."""
    from ..search.given import Named
    from ..search.optimize import chosen

    order = [r for r in tuning.order if r.measured_s is not None]
    for row in order:
        if searched is None:
            yield row, planfile.planned(j, args, Named(row.form, tuple(row.packed), row.loops, row.tiles), "the cache")
            continue
        r = chosen(searched, row.rank, j.rules)
        for other in order:
            if other is not row and other.measured_s is not None and row.measured_s:
                r.plans[other.rank].reason = f"measured {other.measured_s / row.measured_s:.2f}x the time"
        yield row, r


def measured(j: pipeline.Job, args: argparse.Namespace, searched: Result) -> Tuning:
    """Up to ``--tune`` plans of different text, compiled, compared with the reference at the sizes of the job, and timed."""
    from ..build.measured import Timed, interleaved
    from ..semantics.env import SemanticsError
    from . import trial

    tuning = Tuning([], threads(), emission.version(j.target))
    told = pipeline.Progress(args)
    with tempfile.TemporaryDirectory() as d:
        ready = []
        for row, contender in contenders(j, args.tune, searched, Path(d), told):
            tuning.rows.append(row)
            if contender is not None:
                ready.append((row, contender))
        told.say("random inputs and their reference")
        arrays = trial.random_arrays(j.kernel, j.sizes, {}, args.seed)
        right = None
        with suppress(SemanticsError):  # the program has no meaning on these inputs, such as an index out of range
            right = trial.wanted(searched.dnf, arrays, j.sizes)

        def accept(k: int, outputs: Any) -> str:
            return "" if right is None else next((f"wrong values: {c.name}: {c.verdict.text}" for c in trial.compare(right, outputs) if not c.verdict.ok), "")

        told.say(f"measuring {len(ready)} plans")
        with cache.locked("measuring.lock"):  # two at a time would measure each other
            times = interleaved([c for _, c in ready], j.sizes, arrays, Path(d), accept, rounds=ROUNDS, least=LEAST, threads=tuning.threads, patience=PATIENCE)
    told.done()
    for (row, _), t in zip(ready, times, strict=True):
        if isinstance(t, Timed):
            row.measured_s, row.rounds = t.seconds, t.rounds
        else:
            row.why = t
    return tuning


def contenders(j: pipeline.Job, most: int, searched: Result, folder: Path, told: pipeline.Progress) -> Iterator[tuple[Row, Contender | None]]:
    """The best plans that differ in their text, each with its compiled object, or with the reason why it has none."""
    from ..build.measured import Contender
    from ..search.given import name
    from ..search.optimize import chosen

    seen: set[str] = set()
    for rank, candidate in enumerate(searched.ranked):
        if len(seen) >= most:
            return
        named = name(candidate)
        row = Row(rank, named.form, list(named.packed), named.loops, named.tiles, float(candidate.seconds))
        at = folder / str(rank)
        at.mkdir()
        try:
            kernel = chosen(searched, rank, j.rules).kernel
            e = emission.emit(kernel, j.target, j.kernel.name, j.fix, j.machine)
            row.text = planfile.digest_of(e)
            if row.text in seen:
                continue
            told.say(f"compiling plan {len(seen) + 1} of {most}")
            seen.add(row.text)
            built = emission.built(e, at)
            assert built is not None
            yield row, Contender(built, kernel, e.lowered.name)
        except MoaError as e:
            seen.add(row.text or f"plan {rank}")
            row.why = brief(e)
            yield row, None


def brief(e: MoaError) -> str:
    from ..rules.explain import shorten

    return shorten(f"MOA{e.code:04d} {e.message}" + (f": {e.witness or e.notes[0]}" if e.witness or e.notes else ""), 240)


def table(t: Tuning) -> str:
    """Every plan that was tried, the fastest first."""
    from ..report.table import columns, labelled
    from ..report.units import count, seconds
    from ..rules.explain import shorten

    lines = []
    for r in t.order:
        mark = "taken" if r is t.winner else "left out" if r.why else ""
        lines.append([seconds(r.measured_s) if r.measured_s is not None else "-", seconds(r.predicted_s), str(r.rank + 1), mark, shorten(r.form, 40), r.loops])
    head = [["measured", "predicted", "rank", "", "form", "plan"]]
    out = [f"{count(len(t.rows), 'plan')} on {count(t.threads, 'thread')}, {t.compiler}{', measured by an earlier run' if t.cached else ''}"]
    why = [f"left out: {r.form}, rank {r.rank + 1}: {r.why}" for r in t.order if r.why]
    return labelled([("tuned", [*out, *columns([*head, *lines], right=frozenset([0, 1, 2])), *why])])


def plan_file(j: pipeline.Job, t: Tuning) -> planfile.PlanFile:
    """The winner, with the measured times of all."""
    from ..search.given import Named

    w = t.winner
    assert w is not None
    rows = [{"form": r.form, "loops": r.loops, "predicted_us": _micro(r.predicted_s), "measured_us": _micro(r.measured_s), **({"why": r.why} if r.why else {})}
            for r in t.order]  # fmt: skip
    about = {"moarw": __version__, "compiler": t.compiler, "processor": j.machine.model, "threads": t.threads, "plans": rows}
    return planfile.PlanFile(j.kernel.name, j.machine.name, j.target, j.sizes, j.fix, Named(w.form, tuple(w.packed), w.loops, w.tiles), w.text, about)


def _micro(s: float | None) -> float | None:
    return None if s is None else round(s * 1e6, 2)


def summary(t: Tuning) -> dict[str, Any]:
    """For ``--json``."""
    rows = [{**{k: v for k, v in asdict(r).items() if k != "rounds"}, "taken": r is t.winner} for r in t.order]
    return {"threads": t.threads, "compiler": t.compiler, "cached": t.cached, "plans": rows}
