"""Reductions that leave cores idle, in parts: where fewer cells are reduced to than the machine has cores, each reduction becomes one of D shorter ones
(the law ``parts``), which become a stage with D cells like any inner reduction. So a sum of one vector runs on all cores, its parts are added in order, and the
result is the same at every number of threads."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from ..rules import RuleSet, Step, apply_step
from ..rules.names import extents
from ..terms import Kernel, Path, Term, free_axes
from .algebra import extent_points
from .candidate import Form
from .form import nests, rename_axes

EACH = 8  # parts for each core, so that the last ones to finish do not wait long for each other
LEAST = 4096  # points of a part: below, a core spends its time on being started


def parted(form: Form, rules: RuleSet, cores: int, sizes: dict[str, int]) -> Form | None:
    """The form with such reductions in parts; None where there are none."""
    kernel, steps = form.kernel, list[Step]()
    if "parts" not in rules:
        return None
    for path, t in list(_reductions(form.kernel)):
        d = _members(t, extent_points(form.kernel, sizes), cores)
        if d > 1:
            a, b = _fresh(kernel)
            steps.append(Step("parts", path, {"a": a, "b": b, "D": d}))
            kernel = apply_step(kernel, rules, steps[-1])
    if not steps:
        return None
    kernel, alpha = rename_axes(kernel, rules)  # so that equal reductions are equal again
    return replace(form, kernel=kernel, steps=(*form.steps, *steps, *alpha), label=f"{form.label}; in parts")


def _reductions(kernel: Kernel) -> Iterator[tuple[Path, Term]]:
    """The reductions of every output with their positions, inner ones first."""

    def walk(t: Term, path: Path) -> Iterator[tuple[Path, Term]]:
        for n, a in enumerate(t.args):
            if isinstance(a, Term):
                yield from walk(a, (*path, n))
        if t.op == "reduce":
            yield path, t

    for _, _, path, leaf in nests(kernel.body):
        yield from walk(leaf.args[3], (*path, 3))  # type: ignore[arg-type]


def _members(t: Term, points: dict[str, float], cores: int) -> int:
    """How many parts a reduction is worth: 1 where its cells keep the cores busy, or where the parts would be short."""
    m, k, n, body = t.args
    cells = math.prod(points.get(a, 1.0) for a in sorted(free_axes(t)))
    if m == "osm" or free_axes(n) or cells >= cores:  # type: ignore[arg-type]
        return 1
    inside = 1.0
    while body.op == "reduce":  # type: ignore[union-attr]
        inside, body = inside * points[str(body.args[1])], body.args[3]  # type: ignore[union-attr]
    return int(min(EACH * cores, points[str(k)], points[str(k)] * inside // LEAST))


def _fresh(kernel: Kernel) -> tuple[str, str]:
    """Names for the axis of the parts and for that inside a part."""
    taken = {*kernel.sizes, *(x.name for x in (*kernel.inputs, *kernel.outputs)), *extents(kernel.body)}
    q, r = (next(x for n in range(len(taken) + 1) if (x := f"{letter}{n}") not in taken) for letter in "qr")
    return q, r
