"""Random walks: whatever the laws of statements make of a program, in any order, it computes the same."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest
from onf import array, kernel, stage

from moa_rewrite import rules
from moa_rewrite.rules import RuleError, Step, apply_step, match
from moa_rewrite.semantics import run
from moa_rewrite.terms import I, Kernel, parse_term, positions, seq, show

R = rules.load()
LAWS = [R[n] for n in R.group("structure")]
SIZES = {"n": 3, "m": 4}
rng = np.random.default_rng(1)
DATA = {"A": rng.integers(-8, 9, (3, 4)) / 4, "b": rng.integers(-8, 9, 4) / 4}
INPUTS = [array("A", "f64", "n", "m"), array("b", "f64", "m")]


def softmax() -> Kernel:
    """Row softmax, fully materialised."""
    body = '''new("M", new("E", new("L", seq(for("i", n, "seq", for("j", m, "seq", emit("max", "M", <@i>, A[@i, @j]))),
        seq(for("i", n, "seq", for("j", m, "seq", emit("once", "E", <@i, @j>, exp(A[@i, @j] - M[@i])))),
        seq(for("i", n, "seq", for("j", m, "seq", emit("add", "L", <@i>, E[@i, @j]))),
        for("i", n, "seq", for("j", m, "seq", emit("once", "Y", <@i, @j>, E[@i, @j] / L[@i])))))))))'''
    return kernel("softmax", "n m", INPUTS, [array("Y", "f64", "n", "m")], body,
                  [stage("M", "f64", "i", "n", "max"), stage("E", "f64", "i j", "n; m", "once"), stage("L", "f64", "i", "n", "add")])  # fmt: skip


def weighted() -> Kernel:
    """exp-weighted row sums with the weights' maximum hidden in the stage, two outputs, a condition and a constant of all rows."""
    parts = [
        'for("j", m, "seq", emit("add", "C", <>, b[@j]))',
        'for("j", m, "seq", emit("osm", "W", <@i>, pair(A[@i, @j], b[@j] + 1.0)))',
        'emit("once", "Y", <@i>, select(@i < 2, W[@i] * C[], 0.0))',
        'for("j", m, "seq", guard(0 <= @i, guard(@j < 9, emit("add", "Z", <@j>, C[] + 1.0))))',
        'emit("once", "V", <@i>, snd(reduce("osm", "k", m, pair(A[@i, @k], 1.0))))',
        'emit("once", "X", <@i>, V[@i])',
    ]
    body = f'for("i", n, "seq", new("V", new("W", new("C", {show(seq(*map(parse_term, parts)))}))))'
    stages = [stage("W", "f64", "i", "n", "osm"), stage("V", "f64", "i", "n", "osm"), stage("C", "f64", "", "", "add")]
    return kernel("weighted", "n m", INPUTS, [array("X", "f64", "n"), array("Y", "f64", "n"), array("Z", "f64", "m")], body, stages)


def twice() -> Kernel:
    """The same stage filled in two places, and a reduction that is no loop yet."""
    one = 'new("T", seq(for("j", m, "seq", emit("max", "T", <>, b[@j])), emit("once", "%s", <>, T[] * %s)))'
    total = 'reduce("add", "k", m, b[@k])'
    rows = 'for("i", n, "seq", emit("once", "Y", <@i>, reduce("add", "k", m, A[@i, @k])))'
    body = f'seq({one % ("x", "2.0")}, seq({one % ("y", total)}, {rows}))'
    return kernel("twice", "n m", INPUTS, [array("x", "f64"), array("y", "f64"), array("Y", "f64", "n")], body, [stage("T", "f64", "", "", "max")])


def options(k: Kernel) -> list[Step]:
    """Every step that a law of statements allows."""
    out = []
    for path, u in positions(k.body):
        if u.op in ("for", "seq", "new", "guard", "emit"):
            for rule in LAWS:
                if u.op not in (rule.lhs.op, rule.rhs.op if rule.twoway else ""):
                    continue
                for forward in (True, False) if rule.twoway else (True,):
                    for params in [{"T": I(2)}, {"T": I(3)}] if rule.params else [{}]:
                        subst = match(rule, k, path, forward, params)
                        if subst is not None:
                            out.append(Step(rule.name, path, subst, forward))
    return out


used: Counter[str] = Counter()


@pytest.mark.parametrize("program", [softmax, weighted, twice], ids=lambda f: f.__name__)
@pytest.mark.parametrize("seed", range(8))
def test_random_walk(program, seed: int) -> None:
    k, r = program(), random.Random(seed)
    want = run(k, DATA, SIZES)
    for _ in range(25):
        steps = options(k)
        names = sorted({s.rule for s in steps if s.rule != "lift" or len(k.defs) < 3})
        name = min(r.sample(names, min(3, len(names))), key=lambda n: used[n])  # rare rules first
        step = r.choice([s for s in steps if s.rule == name])
        used[name] += 1
        k = apply_step(k, R, step)
        got = run(k, DATA, SIZES)
        for x in want:
            np.testing.assert_allclose(got[x], want[x], rtol=1e-12, atol=1e-12, err_msg=f"{step.rule} at {step.path}")


def test_walks_used_most_rules() -> None:
    assert len(used) >= len(LAWS) - 4, sorted({r.name for r in LAWS} - used.keys())


def test_refusals_do_not_change_the_kernel() -> None:
    k = softmax()
    before = k
    with pytest.raises(RuleError):
        apply_step(k, R, Step("lift", (), {}))
    assert k == before
