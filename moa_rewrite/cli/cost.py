"""``moarw cost FILE``: the chosen plan's cost at the given sizes, level by level; nothing is proved or written."""

from __future__ import annotations

import argparse
import json

from ..errors import OK
from . import pipeline


def arguments(p: argparse.ArgumentParser) -> None:
    p.add_argument("file", metavar="FILE", help="a program (.moa)")
    pipeline.arguments(p, "json")


def run(args: argparse.Namespace) -> int:
    from ..report import pretty, units
    from ..report.table import columns, labelled

    j = pipeline.job(args)
    result = pipeline.search(j, args)
    chosen = next(p for p in result.plans if p.chosen)
    if args.json:
        print(json.dumps({"kernel": j.kernel.name, "machine": j.machine.name, "sizes": j.sizes, "predicted_s": chosen.predicted_s, "seconds": chosen.terms,
                          "bytes": chosen.moved, "tiles": chosen.tiles}, indent=1))  # fmt: skip
        return OK
    share = max(chosen.terms.values(), default=0.0)
    rows = [[name, units.seconds(s), "binds" if s == share else f"{s / share:.0%}"] for name, s in sorted(chosen.terms.items(), key=lambda p: (-p[1], p[0]))]
    moved = [[level, units.size(b), units.rate(b / chosen.predicted_s, "B/s") if chosen.predicted_s else ""] for level, b in chosen.moved.items()]
    print(
        labelled(
            [
                ("kernel", f"{j.kernel.name} for {j.machine.name}, {j.target}, at {', '.join(f'{n} = {v}' for n, v in j.sizes.items())}"),
                ("plan", pretty.loop_lines(result.kernel)),
                ("tiles", " ".join(f"{a} {t}" for a, t in chosen.tiles.items())),
                ("traffic", columns(moved, right=frozenset([1, 2]))),
                ("time", f"{units.seconds(chosen.predicted_s)} predicted"),
                ("spent on", columns(rows, right=frozenset([1]))),
            ]
        )
    )
    return OK
