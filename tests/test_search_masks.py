"""A causal mask reaches every product of attention's gradients, and outputs share what they can."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_search_cost import RULES, Machine

from moa_rewrite import lang
from moa_rewrite.search.form import nests
from moa_rewrite.search.optimize import Options, _Search
from moa_rewrite.search.problem import Problem, build
from moa_rewrite.terms import Kernel, parse_term, subterms

SIZES = {"h": 8, "n": 1024, "m": 1024, "d": 64, "e": 64}


def materialised(root: Path, name: str) -> tuple[Kernel, Problem]:
    """The cheapest form of an example by operations."""
    kernel = lang.elaborate(lang.load_file(root / "examples" / f"{name}.moa"))
    form = _Search(kernel, RULES, Machine, SIZES, Options()).normal_forms()[1][0]
    onf, _ = form.materialised(RULES, SIZES)
    return onf, build(onf, SIZES)


def exponentials(onf: Kernel) -> list[str]:
    return [str(leaf.args[1]) for _, _, _, leaf in nests(onf.body) if any(u.op == "exp" for u in subterms(leaf))]


def test_every_sum_of_causal_gradients_is_masked(root: Path) -> None:
    onf, problem = materialised(root, "attention_train_causal")
    sums = [x for x in problem.leaves if x.reduction]
    assert len(sums) >= 9 and all(x.mask is parse_term("@p <= @j + m - n") for x in sums), [(x.target, str(x.mask)) for x in sums]
    assert len(exponentials(onf)) == 1, "the weights are worked out once"
    products = [x for x in sums if len(x.axes) == 4]
    assert len(products) == 6, "scores, output, and one for each factor of both: nothing twice"
    stored = {s.name: s.monoid for s in onf.stages if len(s.axes) == 3 and {"j", "p"} <= set(s.axes)}
    assert len(stored) == 4 and set(stored.values()) == {"add"}, "scores, weights, and their gradients: tiles of all may be skipped"


@pytest.mark.parametrize("name", ["attention_train"])
def test_gradients_without_a_mask_need_six_products(root: Path, name: str) -> None:
    _, problem = materialised(root, name)
    assert sum(len(x.axes) == 4 for x in problem.leaves if x.reduction) == 6 and all(x.mask is None for x in problem.leaves)
