"""What keeps the search of larger programs short changes neither prices nor, by much, the plans found."""

from __future__ import annotations

from itertools import count

import numpy as np
import pytest
from test_search import Machine

from moa_rewrite import lang, rules
from moa_rewrite.rules import psi_normalise
from moa_rewrite.search import algebra, candidate, extract
from moa_rewrite.search.algebra import SHARE, Saturation, Work, extent_points
from moa_rewrite.search.cost import Cost, Model
from moa_rewrite.search.extract import Extractor
from moa_rewrite.search.form import materialise, rename_axes
from moa_rewrite.search.problem import build
from moa_rewrite.search.structure import Space, loop_axes, saturate
from moa_rewrite.search.tiles import assignments, refine, replay
from moa_rewrite.terms import Term, parse_term

MODEL = Model.of(Machine)
RULES = rules.load()


def space_of(k: int) -> Space:
    """The loop structures of k rectified products, each of the one before."""
    lets = "".join(f"let x{n} = max(0, {'X' if n == 1 else f'x{n - 1}'} +.× W) in " for n in range(1, k))
    last = f"x{k - 1}" if k > 1 else "X"
    kernel = lang.elaborate(lang.load(f"kernel f(X: f32[n, m], W: f32[m, m]) -> f32[n, m] = {lets}max(0, {last} +.× W)"))
    sizes = {"n": 512, "m": 512}
    dnf, _ = rename_axes(psi_normalise(kernel, RULES)[0], RULES)
    onf, _ = materialise(dnf, RULES, False, (), extent_points(dnf, sizes))
    return saturate(build(onf, sizes), RULES, MODEL, 8, 60000)


def cost_of(space: Space, n: int = 0) -> Cost:
    return Cost(space.problem, MODEL, loop_axes(space, assignments(space, MODEL, [])[n][1]))


def test_sequences_priced_together_have_the_price_of_their_entries():
    space = space_of(2)
    cost = cost_of(space)
    for e in Extractor(space, cost).root():
        fresh = replay(e.plan, cost_of(space))  # one sequence after the other
        assert fresh is not None
        fresh = cost.closed(fresh)
        traffic = float(np.vdot(fresh.traffic, cost.prices))
        assert e.price == pytest.approx((fresh.cycles + sum(fresh.owed) + traffic) * cost.charge(fresh), rel=1e-9)


def test_entries_have_one_number_only_if_they_touch_the_same():
    space = space_of(2)
    search = Extractor(space, cost_of(space))
    search.root()
    known: dict[int, tuple] = {}
    for e in (e for entries in search.memo.values() for e in entries):
        touched = (e.mask, e.foot.tobytes(), e.run.tobytes(), e.cold.tobytes())
        assert known.setdefault(e.bytes, touched) == touched
    assert len(set(known.values())) == len(known) > 10


def test_long_sequences_are_not_cut_in_the_middle(monkeypatch):
    space = space_of(8)
    assert len(space.problem.leaves) > extract.LONG

    def priced() -> tuple[int, float]:
        cost = cost_of(space)
        best = min(e.price for e in Extractor(space, cost, keep=1, kinds=2, pairs=2).root())
        return len(cost.joins), best

    few, near = priced()
    monkeypatch.setattr(extract, "LONG", 1000)
    many, best = priced()
    assert few < many
    assert near <= 1.03 * best


def test_rough_search_finds_the_tile_sizes_that_serve_best():
    space = space_of(4)
    starts = assignments(space, MODEL, [])
    assert len(starts) > candidate.FULL

    def best(tiles: dict[str, int]) -> float:
        cost = Cost(space.problem, MODEL, loop_axes(space, tiles))
        return min(cost.seconds(e)[0] * cost.charge(e) for e in Extractor(space, cost).root())

    form = candidate.Form(space.problem.kernel, (), "")
    picked = candidate.scouted(space, MODEL, starts, form)
    assert len(picked) == candidate.FULL
    assert min(best(t) for _, t in picked) <= 1.03 * min(best(t) for _, t in starts)


def test_refining_prices_only_the_parts_whose_tiles_change(monkeypatch):
    space = space_of(2)
    tiles = assignments(space, MODEL, [])[1][1]
    plan = min(Extractor(space, cost_of(space)).root(), key=lambda e: e.price)
    priced = []
    leaf = Cost.leaf
    monkeypatch.setattr(Cost, "leaf", lambda self, k: priced.append(k) or leaf(self, k))
    found, _, now, seconds = refine(plan, space, Cost, MODEL, tiles, 1.0)
    assert now != tiles
    assert len(priced) == len(space.problem.leaves)  # which have no tiles
    cost = Cost(space.problem, MODEL, loop_axes(space, now))
    fresh = replay(plan.plan, cost)
    assert fresh is not None
    fresh = cost.closed(fresh)
    assert (found.plan, found.price, seconds) == (fresh.plan, fresh.price, cost.seconds(fresh)[0])
    assert found.traffic.tobytes() == fresh.traffic.tobytes()


def test_work_counts_what_masks_leave_idle_by_its_share_unless_it_is_needed_elsewhere():
    work = Work({"i": 8.0, "j": 4.0})
    x = parse_term("exp(A[@i, @j])")
    masked = parse_term("select(@i <= @j, exp(A[@i, @j]), 0.0)")
    assert work([x]) == pytest.approx(32 * 12.4)
    assert work([masked]) == pytest.approx(32 * (2 + SHARE * 12.4))
    assert work([masked], frozenset([x])) == pytest.approx(32 * (2 + SHARE * 0.4))
    assert work([masked, x]) == work([x, masked]) == pytest.approx(32 * (2 + 12.4))
    assert work([Term("mul", masked, x)]) == pytest.approx(32 * (3 + SHARE * 12.4))  # a factor that is 0 where the mask says so
    assert work([Term("add", masked, x)]) == pytest.approx(32 * (3 + 12.4))


def test_texts_are_made_only_to_decide_between_forms_of_the_same_work(monkeypatch):
    source = parse_term("(A[@i] * B[@i]) * C[@i] / (A[@i] * 2.0)")
    kernel = lang.elaborate(lang.load("kernel f(A: f32[n], B: f32[n], C: f32[n]) -> f32[n] = A × B × C"))
    saturation, work = Saturation(kernel, source, [RULES["mul-div"], RULES["div-mul"]]), Work({"i": 8.0})
    found = saturation.forms(20, work)
    assert found == sorted(found, key=lambda t: (work([t]), repr(t)))
    assert len(found) > 3
    texts: list[Term] = []
    monkeypatch.setattr(algebra, "_text", lambda t: texts.append(t) or repr(t))
    assert saturation.forms(20, work) == found
    assert texts
    texts.clear()
    calls = count()
    assert len(saturation.forms(20, lambda terms, free: float(next(calls)))) == len(found)  # no two of the same work
    assert not texts
