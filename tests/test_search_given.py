"""A plan is found again by its name: the same kernel, by the same steps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from moa_rewrite import lang, machine, rules
from moa_rewrite.search import Options
from moa_rewrite.search.given import Named, NoPlan, name, parse, planned
from moa_rewrite.search.optimize import Result, chosen, optimize, summary
from moa_rewrite.terms import Kernel

PROGRAMS = {"matmul": {"n": 200, "m": 170, "k": 150}, "softmax": {"n": 100, "m": 90}, "prefix_sum": {"n": 1000}, "rmsnorm": {"n": 50, "d": 300}}


def search(root: Path, file: str, target: str = "delta-cpu") -> tuple[Kernel, rules.RuleSet, object, Result, Options]:
    kernel, laws, m = lang.elaborate(lang.load_file(root / "examples" / f"{file}.moa")), rules.load(), machine.load(target)
    options = Options(keep=6, target="cuda" if m.kind == "gpu" else "c")
    return kernel, laws, m, optimize(kernel, laws, m, PROGRAMS[file], options), options


@pytest.mark.parametrize("file", PROGRAMS)
def test_every_ranked_plan_is_found_by_its_name(root: Path, file: str) -> None:
    kernel, laws, m, r, options = search(root, file)
    for k, c in enumerate(r.ranked):
        wanted, found = chosen(r, k, laws), planned(kernel, laws, m, PROGRAMS[file], options, name(c))
        assert found.kernel == wanted.kernel and found.steps == wanted.steps, summary(c.entry.plan, c)
        assert found.plans[0].predicted_s == pytest.approx(c.seconds) and found.dnf == r.dnf


def test_on_a_gpu_too(root: Path) -> None:
    kernel, laws, m, r, options = search(root, "softmax", "delta-a100")
    found = planned(kernel, laws, m, PROGRAMS["softmax"], options, name(r.ranked[0]))
    assert found.kernel == r.kernel and found.steps == r.steps


def test_names_that_no_plan_has(root: Path) -> None:
    kernel, laws, m, r, options = search(root, "matmul")
    n = next(n for n, c in enumerate(r.ranked) if not c.form.packed)
    good = name(r.ranked[n])
    loop = good.loops.split()[0]
    bad = {
        "no form is called 'folded'": replace(good, form="folded"),
        "does not read": replace(good, packed=("C[@i]",)),
        "there is no loop z": replace(good, loops=good.loops.replace(loop, "z", 1)),
        "runs over": replace(good, loops=" ".join(good.loops.split()[-1:])),
        "after the plan": replace(good, loops=good.loops + " }"),
        "its tiles are of": replace(good, tiles={}),
        "does not fit": replace(good, tiles=dict.fromkeys(good.tiles, 3)),
    }
    for why, named in bad.items():
        with pytest.raises(NoPlan, match=why):
            planned(kernel, laws, m, PROGRAMS["matmul"], options, named)
    assert planned(kernel, laws, m, PROGRAMS["matmul"], options, good).kernel == chosen(r, n, laws).kernel


def test_text_of_plans() -> None:
    leaves = ["S0", "out"]
    assert parse("out", leaves) == ("leaf", 1)
    assert parse("i.o j* k| out", leaves) == ("for", "i.o", "seq", ("for", "j", "unroll", ("for", "k", "simd", ("leaf", 1))))
    assert parse("{[S0] i' S0; out}", leaves) == ("seq", ("for", "i", "block", ("leaf", 0)), ("leaf", 1), ("S0",))
    assert parse("{S0; {out; S0}}", leaves)[2] == ("seq", ("leaf", 1), ("leaf", 0), ())
    for text in ("", "i", "{S0; out", "{S0 out}", "{S0}", "; out", "out }", "{[S0] [S0] S0; out}"):
        with pytest.raises(NoPlan):
            parse(text, leaves)


def test_a_name_says_only_what_matters(root: Path) -> None:
    """Tiles of axes that the plan does not lift are left out."""
    for c in search(root, "matmul")[3].ranked:
        named = name(c)
        assert isinstance(named, Named)
        assert all(f"{axis}.i" in named.loops or f"{axis}.o" in named.loops for axis in named.tiles)
