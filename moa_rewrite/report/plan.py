"""What ``moarw optimize`` ends with: the plan, its cost, what was proved, and what was rejected, on one screen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ..rules.explain import shorten
from ..terms import Kernel
from . import pretty, units
from .table import columns, labelled, paint

KINDS = {"admissible": "preconditions", "bounds": "bounds", "offset": "index range", "lemma": "lemmas", "cover": "outputs covered", "once": "exactly once",
           "defined": "defined before use", "race": "no race", "layout": "layouts", "capacity": "capacity", "touch": "first touch"}  # fmt: skip


@dataclass(frozen=True)
class Alternative:
    predicted_s: float
    text: str
    reason: str


@dataclass(frozen=True)
class Report:
    """Everything the plan table says. ``traffic``: bytes moved into each memory level, nearest first; ``binds``: what the predicted time is spent on."""

    kernel: Kernel
    machine: str
    target: str
    sizes: Mapping[str, int]
    predicted_s: float
    binds: str
    traffic: Mapping[str, float]
    proved: Mapping[str, int]  # obligations per kind
    prove_s: float
    steps: int
    rejected: Sequence[Alternative] = ()
    search: str = ""
    written: str = ""
    notes: Sequence[str] = field(default_factory=tuple)
    narrowed: Sequence[str] = ()  # conditions on sizes that the plan adds to the program's
    tried: str = ""  # where the emitted text was called


def text(r: Report) -> str:
    k = r.kernel
    at = ", ".join(f"{n} = {v}" for n, v in r.sizes.items())
    return labelled(
        [
            ("kernel", f"{k.name} for {r.machine}, {r.target}, judged at {at}" if at else f"{k.name} for {r.machine}, {r.target}"),
            ("sizes", f"only {', '.join(r.narrowed)}: the kernel checks it and refuses others" if r.narrowed else ""),
            ("plan", pretty.loop_lines(k)),
            ("stages", stages(k, r.sizes)),
            ("traffic", "   ".join(f"{level} {units.size(b)}" for level, b in r.traffic.items())),
            ("time", f"{units.seconds(r.predicted_s)} predicted, {r.binds}" if r.binds else f"{units.seconds(r.predicted_s)} predicted"),
            ("proved", paint(proofs(r.proved, r.prove_s), "green")),
            ("tried", r.tried),
            ("derived", f"{units.count(r.steps, 'step')}, every one a named rule (moarw explain)"),
            ("rejected", rejected(r.rejected)),
            ("search", r.search),
            ("note", list(r.notes)),
            ("written", r.written),
        ]
    )


def stages(k: Kernel, sizes: Mapping[str, int]) -> list[str]:
    """One line per stage: what it holds and how its cells are filled."""
    return columns([[s.name, f"{s.dtype}[{', '.join(s.axes)}]", "= " + shorten(pretty.expression(s.definition), 90)] for s in k.stages])


def proofs(counts: Mapping[str, int], seconds: float) -> str:
    listed = ", ".join(f"{label} {counts[kind]}" for kind, label in KINDS.items() if counts.get(kind))
    return f"{units.count(sum(counts.values()), 'obligation')} for all sizes: {listed} ({units.seconds(seconds)})"


def rejected(others: Iterable[Alternative]) -> list[str]:
    return columns([[units.seconds(a.predicted_s), a.reason, shorten(a.text, 50)] for a in others], right=frozenset([0]))
