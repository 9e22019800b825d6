"""What the cost model says of caches, pages, memory that grows, and sums that share probabilities: each against the same plan without it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from test_search import Machine

from moa_rewrite import lang, rules
from moa_rewrite.rules import psi_normalise
from moa_rewrite.search.algebra import extent_points
from moa_rewrite.search.candidate import cost_of
from moa_rewrite.search.cost import Cost, Entry, Model
from moa_rewrite.search.form import materialise, packs, rename_axes
from moa_rewrite.search.problem import build
from moa_rewrite.search.structure import Space, saturate
from moa_rewrite.search.tiles import replay

MODEL = Model.of(Machine)
RULES = rules.load()
PRODUCT = "kernel f(A: f32[n, k], B: f32[k, m]) -> f32[n, m] = A +.× B"


def space_of(text: str, packed: str = "", **sizes: int) -> Space:
    kernel = lang.elaborate(lang.load(text))
    dnf, _ = rename_axes(psi_normalise(kernel, RULES)[0], RULES)
    points = extent_points(dnf, sizes)
    copies = tuple(p for p in packs(materialise(dnf, RULES, points=points)[0]) if p.read.args[0] == packed)
    onf, _ = materialise(dnf, RULES, False, copies, points)
    return saturate(build(onf, sizes), RULES, MODEL, 8, 60000)


def priced(cost: Cost, plan: tuple) -> Entry:
    e = replay(plan, cost)
    assert e is not None
    return cost.closed(e)


def nest(leaf: int, *loops: tuple[str, str]) -> tuple:
    plan: tuple = ("leaf", leaf)
    for axis, place in reversed(loops):
        plan = ("for", axis, place, plan)
    return plan


def tiled(space: Space, **tiles: int) -> Cost:
    return cost_of(space, MODEL, {v.tile: tiles.get(v.axis.replace(".", "_"), 8) for v in space.lifts})


PANEL = nest(0, ("j.o", "seq"), ("i.o", "seq"), ("l", "seq"), ("i.i", "unroll"), ("j.i", "simd"))


@pytest.mark.parametrize(("pitch", "again"), [(1024, True), (1040, False)])
def test_rows_a_way_apart_fall_into_the_same_sets(pitch: int, again: bool) -> None:
    """A column of 64 floats of B is 64 * 256 bytes: it stays in 32 KiB of L1 unless all its rows start in the same set (rows of 4096 bytes)."""
    space = space_of(PRODUCT, n=256, k=64, m=pitch)
    cost = tiled(space, i=4, j=16)
    moved = priced(cost, PANEL).traffic[0, cost.index["B"]]
    once = 64 * pitch * 4.0
    assert moved == pytest.approx(once * (64 if again else 1), rel=0.02)  # 256 / 4 blocks of rows, or none after the first


def test_pages_beyond_the_first_tlb_are_looked_up_again() -> None:
    few, many = (tiled(space_of(PRODUCT, n=256, k=k, m=2048 + 16), i=4, j=16) for k in (32, 256))
    looked = [priced(c, PANEL).traffic[-1, c.index["B"]] for c in (few, many)]
    assert looked[1] > 16 * looked[0]  # eight times the rows; of 32 pages all are known to the TLB, of 256 none stays


def test_a_cache_that_is_a_little_too_small_loses_a_part() -> None:
    cost = tiled(space_of(PRODUCT, n=64, k=64, m=64))
    foot = np.full(len(cost.index), 1.0)
    shares = []
    for part in (0.9, 1.5, 3.0):
        foot[:] = part * cost.caps[0] / len(foot)
        shares.append(float(cost._spread(foot, foot)[1][0]))
    assert shares[0] == 0.0 and 0.4 < shares[1] < 0.6 and shares[2] == 1.0


def test_storage_that_grows_with_a_product_is_charged_most() -> None:
    """A copy of a panel of B, of a block that no size bounds, and of all B."""
    space = space_of(PRODUCT, "B", n=512, k=512, m=512)
    use = nest(1, ("i", "seq"), ("l", "seq"), ("j.i", "simd"))
    whole = ("seq", nest(0, ("l", "seq"), ("j.o", "seq"), ("j.i", "simd")), nest(1, ("i", "seq"), ("j.o", "seq"), ("l", "seq"), ("j.i", "simd")), ("Bp0",))
    column = ("for", "j.o", "seq", ("seq", nest(0, ("l", "seq"), ("j.i", "simd")), use, ("Bp0",)))
    cost = tiled(space, j=16)
    charges = [cost.charge(priced(cost, p)) for p in (column, whole)]
    assert 1.0 < charges[0] < charges[1] - 0.2
    steps = ("seq", nest(0, ("l.i", "seq"), ("j.i", "simd")), nest(1, ("i", "seq"), ("l.i", "seq"), ("j.i", "simd")), ("Bp0",))
    tile = ("for", "l.o", "seq", ("for", "j.o", "seq", steps))
    assert cost.charge(priced(cost, tile)) == 1.0


SUMS = """kernel f(S: f32[n, m], V: f32[m, e]) -> f32[n, e] where m >= 1 = (softmax Ω<1> S) +.× V"""


def test_sums_of_one_sequence_share_their_probabilities() -> None:
    from moa_rewrite.search import Options
    from moa_rewrite.search.optimize import _Search

    search = _Search(lang.elaborate(lang.load(SUMS)), RULES, Machine, {"n": 256, "m": 256, "e": 64}, Options(timeout=120))
    search.run()
    best = next(c for c in search.pool if len(c.cost.groups) == 1 and sum(x.monoid == "osm" for x in c.space.problem.leaves) == 2)
    cost = best.cost
    first, second = (k for k, x in enumerate(best.space.problem.leaves) if x.monoid == "osm")
    a, b = (cost.loop(best.space.problem.leaves[k].axes[-1], cost.leaf(k))[-1] for k in (first, second))
    together = cost.seq(a, b)
    assert together is not None and a.owed[0] > 0 and b.owed[0] > 0
    plain = cost.seq(replace(a, owed=(0.0,)), replace(b, owed=(0.0,)))
    assert plain is not None and together.cycles - plain.cycles == pytest.approx(max(a.owed[0], b.owed[0])) and together.owed == (0.0,)


def test_rows_read_in_halves_start_twice() -> None:
    """Sums of the columns of a tile of rows: the rows in two halves, one after the other, or whole."""
    space = space_of("kernel f(p: f32[n], V: f32[n, m]) -> f32[m] = p +.× V", n=4096, m=128)
    rows = []
    for lanes in (64, 128):
        cost = tiled(space, i=lanes, j=64)
        rows.append(priced(cost, nest(0, ("i.o", "seq"), ("j.i", "seq"), ("i.i", "simd"))).traffic[-2].sum())
    assert rows[0] > 1.8 * rows[1]


def test_more_rows_than_pointers_cost() -> None:
    space = space_of(PRODUCT, n=512, k=512, m=512)
    per = []
    for count in (12, 16):
        tiles = {v.tile: count if v.axis == "i" else 8 for v in space.lifts}
        per.append(priced(cost_of(space, replace(MODEL, registers=32), tiles), PANEL).cycles)
    assert per[1] > 1.05 * per[0]
