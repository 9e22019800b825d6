"""Copies of inputs: which are worth a try, and that one nest may read a copy while others read the input."""

from __future__ import annotations

import numpy as np
import pytest
from test_search_cost import RULES, Machine

from moa_rewrite import lang
from moa_rewrite.rules import psi_normalise
from moa_rewrite.search import Options
from moa_rewrite.search.form import materialise, nests, packs, rename_axes
from moa_rewrite.search.optimize import _Search
from moa_rewrite.search.problem import build
from moa_rewrite.semantics import run
from moa_rewrite.terms import Kernel, subterms

BOTH = "kernel f(A: f32[n, k], B: f32[n, k]) -> (X: f32[n, n], Y: f32[k, k], Z: f32[n, k]) = (A +.× ⍉B, ⍉A +.× B, A - B)"
TWO = """kernel f(A: f32[n, k], B: f32[m, k], C: f32[n, l], D: f32[m, l]) -> f32[n, m] where m >= 1
  = (softmax Ω<1> (A +.× ⍉B)) × (softmax Ω<1> (C +.× ⍉D))"""


def dnf(text: str) -> Kernel:
    return rename_axes(psi_normalise(lang.elaborate(lang.load(text)), RULES)[0], RULES)[0]


@pytest.mark.parametrize("target", ["X", "Y"])
def test_one_nest_reads_the_copy(target: str) -> None:
    kernel = dnf(BOTH)
    plain, _ = materialise(kernel, RULES)
    copies = [p for p in packs(plain) if p.target == target and p.read.args[0] == "A"]
    assert len(copies) == 1
    packed, _ = materialise(kernel, RULES, packed=tuple(copies))
    reads = {str(leaf.args[1]): {str(u.args[0]) for u in subterms(leaf.args[3]) if u.op == "get"} for _, _, _, leaf in nests(packed.body)}
    other = "Y" if target == "X" else "X"
    assert reads == {"Ap0": {"A"}, target: {"Ap0", "B"}, other: {"A", "B"}, "Z": {"A", "B"}}
    sizes, rng = {"n": 4, "k": 3}, np.random.default_rng(0)
    data = {x: rng.standard_normal((4, 3)) for x in "AB"}
    want, got = run(kernel, data, sizes), run(packed, data, sizes)
    assert all(np.array_equal(want[x], got[x]) for x in "XYZ")


def test_copies_are_of_what_a_reduction_uses_again() -> None:
    found = packs(materialise(dnf(BOTH), RULES)[0])
    assert [(p.read.args[0], p.target) for p in found] == [("A", "X"), ("B", "X"), ("A", "Y"), ("B", "Y")]
    assert str(found[1]) == "B[@j, @l] for X"


def test_axes_that_suit_lanes() -> None:
    p = build(materialise(dnf(BOTH), RULES)[0], {"n": 64, "k": 64})
    assert {x.target: p.lanes(x) for x in p.leaves} == {"X": [], "Y": ["p"], "Z": ["l"]}


def test_every_nest_without_lanes_gets_its_copy() -> None:
    s = _Search(lang.elaborate(lang.load(TWO)), RULES, Machine, {"n": 256, "m": 256, "k": 64, "l": 96}, Options(top=1, timeout=120))
    best = s.run().ranked[0]
    problem = best.space.problem
    assert {p.read.args[0] for p in best.form.packed} in ({"A", "C"}, {"A", "D"}, {"B", "C"}, {"B", "D"})
    assert len(problem.leaves) > 6 and all(problem.lanes(x) for x in problem.leaves if not x.target.endswith("p0"))
