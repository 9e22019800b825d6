"""The laws of statements, run by the statement interpreter: where a rule applies it changes no output, and no guard can be left out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from rules_cases import BAD, GOOD

from moa_rewrite import rules
from moa_rewrite.rules import RuleError, Step, apply_step, match
from moa_rewrite.rules.step import apply_rule
from moa_rewrite.semantics import SemanticsError, run
from moa_rewrite.terms import Array, I, Kernel, Stage, Term, at, axis, ix, parse_term, show, size

R = rules.load()
SIZES = {"n": 5, "m": 4}
rng = np.random.default_rng(3)
INPUTS = {"A": rng.integers(1, 9, (5, 4)) / 4, "a": rng.integers(1, 9, 5) / 4, "b": rng.integers(1, 9, 4) / 4}


def t(text: str) -> Term:
    return parse_term(text)


def stage(text: str) -> Stage:
    """``T f64 add i:n j:m`` : name, type, monoid, axes with extents."""
    name, dtype, monoid, *axes = text.split()
    pairs = [a.split(":") for a in axes]
    return Stage(name, dtype, tuple(a for a, _ in pairs), tuple(t(n) for _, n in pairs), monoid, Term("num", "0.0"))


def kernel(body: str, stages: str = "", defs: str = "") -> Kernel:
    """Inputs A[n,m], a[n], b[m]; those of the outputs x[], X[n], Y[n], Z[n,m] that the body writes; stages separated by ``;``."""
    s = t(body)
    shapes = {"x": (), "X": (size("n"),), "Y": (size("n"),), "Z": (size("n"), size("m"))}
    written = rules.names.outer_writes(s)
    outputs = tuple(Array(o, "f64", shape) for o, shape in shapes.items() if o in written)
    inputs = (Array("A", "f64", (size("n"), size("m"))), Array("a", "f64", (size("n"),)), Array("b", "f64", (size("m"),)))
    pairs = tuple((d.split("=")[0].strip(), t(d.split("=")[1])) for d in defs.split(";") if d)
    return Kernel("t", ("n", "m"), (), inputs, outputs, s, tuple(stage(x.strip()) for x in stages.split(";") if x), pairs)


def outcome(k: Kernel) -> object:
    """What a kernel computes, or that it has no meaning."""
    try:
        return {name: v.tolist() for name, v in run(k, INPUTS, SIZES).items()}
    except (SemanticsError, ZeroDivisionError):
        return "undefined"


@pytest.mark.parametrize("name", GOOD)
def test_rule_changes_no_output(name: str) -> None:
    path, forward, params, body, stages = GOOD[name]
    k = kernel(body, stages)
    rule = R[name.split()[0]]
    subst = match(rule, k, path, forward, params)
    assert subst is not None
    after = apply_step(k, R, Step(rule.name, path, subst, forward))
    assert after.body is not k.body
    assert outcome(k) == outcome(after) != "undefined"
    if rule.twoway:  # and back again
        assert apply_step(after, R, Step(rule.name, path, subst, not forward)) == k


def test_every_structure_rule_is_run() -> None:
    assert {n.split()[0] for n in GOOD} == set(R.group("structure"))


@pytest.mark.parametrize("case", BAD, ids=" ".join)
def test_guard_is_needed(case: tuple[str, str]) -> None:
    """The rule is refused; without this one guard it would apply and change what the statement computes."""
    name, guard = case
    path, forward, params, body, stages, defs = BAD[case]
    k = kernel(body, stages, defs)
    rule = R[name]
    assert match(rule, k, path, forward, params) is None
    word = guard.split()[0].rstrip(":")
    which = [g for g in rule.guards if g.op == word]
    if len(which) > 1:
        which = [g for g in which if repr(g.args[0]) == guard.split()[1]]
    assert len(which) == 1, which
    rest = replace(rule, guards=tuple(g for g in rule.guards if g is not which[0]))
    subst = match(rest, k, path, forward, params)
    assert subst is not None, "another guard refuses as well"
    wrong = apply_rule(k, rest, Step(name, path, subst, forward))
    assert outcome(k) != "undefined"
    assert outcome(k) != outcome(wrong)
    with pytest.raises(RuleError, match=f"{name}: {word}.* does not hold"):
        apply_step(k, R, Step(name, path, subst, forward))


def test_every_guard_of_every_structure_rule_is_shown_needed() -> None:
    shown = {(n, g.split()[0].rstrip(":")) for n, g in BAD} | {("reduce-loop", "collects"), ("reduce-loop-osm", "collects_pairs")}
    assert {(n, g.op) for n in R.group("structure") for g in R[n].guards} == shown


def test_reduction_keeps_the_monoid_of_its_stage() -> None:
    """A stage declared to collect under max must not be emitted to under add: its cells start at -inf."""
    k = kernel('new("T", seq(emit("once", "T", <>, reduce("add", "k", n, a[@k])), emit("once", "x", <>, T[])))', "T f64 max")
    assert match(R["reduce-loop"], k, (1, 0)) is None
    assert match(R["reduce-loop"], replace(k, stages=(stage("T f64 add"),)), (1, 0)) is not None
    k = kernel('emit("once", "x", <>, snd(reduce("osm", "k", n, pair(a[@k], 1.0))))')
    assert match(R["reduce-loop-osm"], k, ()) is None  # an output has no hidden maximum beside it


def test_lift_twice_and_in_two_places() -> None:
    k = kernel('seq(for("i", n, "seq", emit("once", "X", <@i>, a[@i])), for("i", n, "seq", emit("once", "Y", <@i>, a[@i] * 2.0)))')
    one = apply_step(k, R, Step("lift", (0,), match(R["lift"], k, (0,), params={"T": I(2)})))
    assert one.defs == (("i", t("@i.o * 2 + @i.i")),)
    assert match(R["lift"], one, (1,), params={"T": I(3)}) is None  # i already stands for something else
    two = apply_step(one, R, Step("lift", (1,), match(R["lift"], one, (1,), params={"T": I(2)})))
    assert two.defs == one.defs
    three = apply_step(two, R, Step("lift", (1,), match(R["lift"], two, (1,), params={"T": I(2)})))
    assert three.defs == (*one.defs, ("i.o", t("@i.o.o * 2 + @i.o.i")))
    assert outcome(k) == outcome(one) == outcome(two) == outcome(three) != "undefined"


def test_lifted_axes_are_looked_through() -> None:
    """T is keyed by i, so by i.o; what reads @i is not independent of i.o."""
    defs = "i = @i.o*2 + @i.i"
    loop = 'for("i.o", (n + 1) // 2, "seq", for("i.i", min(2, n - @i.o*2), "seq", %s))'
    k = kernel('new("T", ' + loop % 'seq(emit("once", "T", <@i>, a[@i]), emit("once", "X", <@i>, T[@i]))' + ")", "T f64 once i:n", defs)
    want = outcome(k)
    assert want != "undefined"
    for steps in ([("scope", ()), ("scope", (3,))], [("fission", (1, 3)), ("fission", (1,))]):
        out = k
        for rule, path in steps:
            out = apply_step(out, R, Step(rule, path, match(R[rule], out, path)))
            assert outcome(out) == want
    bad = kernel(loop % 'new("T", seq(emit("once", "T", <>, a[@i]), emit("once", "X", <@i>, T[])))', "T f64 once", defs)
    assert match(R["hoist"], bad, (3,)) is None  # a mentions @i, defined from i.i


# --- builtins --------------------------------------------------------------------------------------------------------------------------
def test_place_and_layout() -> None:
    nest = 'for("i", n, "seq", for("j", m, "seq", emit("once", "%s", <@i, @j>, %s[@i, @j])))'
    k = kernel(f'new("T", seq({nest % ("T", "A")}, {nest % ("Z", "T")}))', "T f64 once i:n j:m")
    out = apply_step(k, R, Step("place", (1, 0), {"level": "core"}))
    assert at(out.body, (1, 0)).args[2] == "core" and outcome(out) == outcome(k)
    for path, level in (((1, 0), "simd"), ((1, 1), "warp"), ((1,), "core")):
        with pytest.raises(RuleError):
            apply_step(out, R, Step("place", path, {"level": level}))
    out = apply_step(k, R, Step("layout", (), {"T": "T", "order": (I(1), I(0))}))
    assert out.stages[0].layout == (1, 0) and outcome(out) == outcome(k)
    for path, name, order in (((), "T", (0, 0)), ((), "T", (0,)), ((), "U", (0, 1)), ((1,), "T", (0, 1))):
        with pytest.raises(RuleError):
            apply_step(k, R, Step("layout", path, {"T": name, "order": tuple(map(I, order))}))


def test_panel() -> None:
    nest = 'for("i", n, "seq", for("j", m, "seq", emit("once", "%s", <@i, @j>, %s[@i, @j])))'
    k = kernel(f'new("T", seq({nest % ("T", "A")}, {nest % ("Z", "T")}))', "T f64 once i:n j:m")
    out = apply_step(k, R, Step("panel", (), {"T": "T", "width": I(16)}))
    assert out.stages[0].panel == 16 and outcome(out) == outcome(k)
    for path, name, width in (((), "U", I(16)), ((1,), "T", I(16)), ((), "T", I(0)), ((), "T", size("n"))):
        with pytest.raises(RuleError):
            apply_step(k, R, Step("panel", path, {"T": name, "width": width}))


def test_admit() -> None:
    k = kernel('for("i", n, "seq", emit("once", "X", <@i>, a[@i]))')
    out = apply_step(k, R, Step("admit", (), {"c": t("n <= 5")}))
    assert out.where == (t("n <= 5"),) and out.body is k.body and outcome(out) == outcome(k)
    assert outcome(apply_step(k, R, Step("admit", (), {"c": t("n <= 4")}))) == "undefined"  # refused, not computed wrongly
    for path, c in (((3,), "n <= 5"), ((), "n + 5"), ((), "z <= 5"), ((), "@i <= 5"), ((), "a[0] <= 5.0")):
        with pytest.raises(RuleError):
            apply_step(k, R, Step("admit", path, {"c": t(c)}))


def materialise(k: Kernel, path, e: str, axes: str = "", name: str = "T", dtype: str = "f64") -> Kernel:
    return apply_step(k, R, Step("materialise", path, {"T": name, "dtype": dtype, "axes": tuple(axis(a) for a in axes.split()), "e": t(e)}))


def test_materialise() -> None:
    row = 'reduce("max", "k", m, A[@i, @k])'
    k = kernel(f'for("i", n, "seq", for("j", m, "seq", emit("once", "Z", <@i, @j>, A[@i, @j] - {row})))')
    top = materialise(k, (), row, "i")
    rest = 'for("i", n, "seq", for("j", m, "seq", emit("once", "Z", <@i, @j>, A[@i, @j] - T[@i])))'
    assert show(top.body) == f'new("T", seq(for("i", n, "seq", emit("once", "T", <@i>, {row})), {rest}))'
    assert top.stages == (Stage("T", "f64", ("i",), (size("n"),), "max", t(row)),)
    inside = materialise(k, (3,), row, "i")  # here i is constant
    assert show(inside.body).startswith(f'for("i", n, "seq", new("T", seq(emit("once", "T", <@i>, {row}), for("j"')
    deep = materialise(k, (3, 3), "A[@i, @k]", "k i")
    assert show(deep.body).startswith('for("i", n, "seq", for("j", m, "seq", new("T", seq(for("k", m, "seq", emit("once", "T", <@k, @i>, A[@i, @k]))')
    assert deep.stages[0].axes == ("k", "i") and deep.stages[0].shape == (size("m"), size("n")) and deep.stages[0].monoid == "once"
    assert outcome(k) == outcome(top) == outcome(inside) == outcome(deep) != "undefined"
    osm = materialise(kernel('emit("once", "x", <>, 2.0 * snd(reduce("osm", "k", n, pair(a[@k], 1.0))))'), (), 'snd(reduce("osm", "k", n, pair(a[@k], 1.0)))')
    assert osm.stages[0].monoid == "osm"


REFUSED = {
    "the name A is taken": {"name": "A"},
    "the position is not a statement's": {"path": (3, 3, 3)},
    "the key axes must be": {"axes": "i j"},
    "the definition is not of type f32": {"dtype": "f32"},
    "does not occur": {"e": 'reduce("min", "k", m, A[@i, @k])'},
}


@pytest.mark.parametrize("reason", REFUSED)
def test_materialise_refuses(reason: str) -> None:
    k = kernel('for("i", n, "seq", for("j", m, "seq", emit("once", "Z", <@i, @j>, A[@i, @j] - reduce("max", "k", m, A[@i, @k]))))')
    with pytest.raises(RuleError, match=reason):
        materialise(k, **{"path": (), "e": 'reduce("max", "k", m, A[@i, @k])', "axes": "i", **REFUSED[reason]})


def test_materialise_refuses_what_storage_cannot_hold() -> None:
    triangle = kernel('for("i", m, "seq", emit("add", "x", <>, reduce("add", "k", @i + 1, exp(A[@i, @k]))))')
    with pytest.raises(RuleError, match="extent @i \\+ 1 of axis k is not a function of sizes"):
        materialise(triangle, (), "exp(A[@i, @k])", "i k")
    two = kernel('seq(for("i", n, "seq", emit("once", "X", <@i>, exp(a[@i]))), for("i", m, "seq", emit("add", "x", <>, b[@i])))')
    with pytest.raises(RuleError, match="more than one extent"):
        materialise(two, (), "exp(a[@i])", "i")
    fed = kernel('new("U", seq(emit("once", "U", <>, 1.0), emit("once", "x", <>, exp(U[]))))', "U f64 once")
    with pytest.raises(RuleError, match="reads what the statement writes"):
        materialise(fed, (1,), "exp(U[])")
    with pytest.raises(RuleError, match="reads what the statement writes"):
        materialise(fed, (), "exp(U[])")
    assert outcome(materialise(fed, (1, 1), "exp(U[])")) == outcome(fed)
    again = kernel('for("i", n, "seq", seq(emit("once", "X", <@i>, exp(a[@i])), emit("add", "x", <>, reduce("add", "i", n, exp(a[@i])))))')
    with pytest.raises(RuleError, match="bound around the statement and again inside"):
        materialise(again, (3,), "exp(a[@i])", "i")
    assert outcome(materialise(again, (), "exp(a[@i])", "i")) == outcome(again)
    both = 'emit("once", "X", <@i>, exp(a[@i]) + 0.0*reduce("add", "i", n, a[@i]))'
    lifted = kernel(f'for("i.o", 3, "seq", for("i.i", min(2, n - @i.o*2), "seq", {both}))', "", "i = @i.o*2 + @i.i")
    with pytest.raises(RuleError, match="axis i is lifted"):
        materialise(lifted, (), "exp(a[@i])", "i")


def test_alpha() -> None:
    k = kernel('emit("once", "x", <>, reduce("add", "k", n, exp(a[@k] - reduce("max", "l", n, a[@l]))))')
    same = t('reduce("add", "k", n, exp(a[@k] - reduce("max", "k", n, a[@k])))')
    out = apply_step(k, R, Step("alpha", (3,), {"new": same}))
    assert outcome(out) == outcome(k) != "undefined"
    bad = {
        'reduce("add", "k", n, exp(a[@l] - reduce("max", "l", n, a[@l])))': "not equal",  # another free axis
        'reduce("add", "k", n, exp(a[@k] - reduce("max", "l", m, a[@l])))': "not equal",
        'reduce("max", "k", n, exp(a[@k] - reduce("max", "l", n, a[@l])))': "not equal",
    }
    for text, reason in bad.items():
        with pytest.raises(RuleError, match=reason):
            apply_step(k, R, Step("alpha", (3,), {"new": t(text)}))
    nested = kernel('emit("once", "x", <>, reduce("add", "k", m, reduce("add", "l", n, A[@l, @k])))')
    with pytest.raises(RuleError, match="not equal"):  # the inner k would capture the outer
        apply_step(nested, R, Step("alpha", (3,), {"new": t('reduce("add", "k", m, reduce("add", "k", n, A[@k, @k]))')}))
    two = kernel('seq(emit("once", "x", <>, reduce("add", "k", m, b[@k])), emit("once", "X", <0>, reduce("add", "l", n, a[@l])))')
    with pytest.raises(RuleError, match="more than one extent"):
        apply_step(two, R, Step("alpha", (1, 3), {"new": t('reduce("add", "k", n, a[@k])')}))
    lifted = kernel('for("i.o", 3, "seq", for("i.i", min(2, n - @i.o*2), "seq", emit("once", "X", <@i>, a[@i])))', "", "i = @i.o*2 + @i.i")
    with pytest.raises(RuleError, match=r"definition of a lifted axis uses i\.i"):  # @i would lose its meaning
        apply_step(lifted, R, Step("alpha", (3,), {"new": t('for("z", min(2, n - @i.o*2), "seq", emit("once", "X", <@i>, a[@i]))')}))


def test_ring() -> None:
    k = kernel('for("i", n, "seq", emit("once", "X", <@i>, a[@i - (1 - n) - n + 1 + (n - @i) * 0]))')
    out = apply_step(k, R, Step("ring", (3, 3, 1, 0), {"new": axis("i")}))
    assert outcome(out) == outcome(k) != "undefined"
    with pytest.raises(RuleError, match="different polynomials"):
        apply_step(k, R, Step("ring", (3, 3, 1, 0), {"new": t("@i + 1")}))
    f = kernel('emit("once", "x", <>, reduce("add", "k", n, a[@k] - a[@k]))')
    with pytest.raises(RuleError, match="not integer arithmetic"):  # inf - inf is not 0
        apply_step(f, R, Step("ring", (3, 3), {"new": I(0)}))


PARTED = 'reduce("max", "k", n, a[@k] - b[0])'


@pytest.mark.parametrize("parts", [1, 2, 3, 4, 5, 7])
@pytest.mark.parametrize("m", ["add", "max", "min", "mul"])
def test_parts(m: str, parts: int) -> None:
    """Also where the last parts are empty: 5 elements in 4 parts are 2, 2, 1 and 0."""
    k = kernel(f'for("i", n, "seq", emit("once", "X", <@i>, 2.0 * reduce("{m}", "k", m, b[@k] * A[@i, @k])))')
    out = apply_step(k, R, Step("parts", (3, 3, 1), {"a": "p", "b": "q", "D": parts}))
    assert outcome(out) == outcome(k) != "undefined"
    q = f"(m + {parts - 1}) // {parts}"
    inside = f'reduce("{m}", "q", min({q}, m - @p * ({q})), b[@p * ({q}) + @q] * A[@i, @p * ({q}) + @q])'
    assert at(out.body, (3, 3, 1)) is t(f'reduce("{m}", "p", {parts}, {inside})')


def test_parts_refuses() -> None:
    bad = {
        "not a reduction": ({}, 'emit("once", "x", <>, a[0] + reduce("add", "k", n, a[@k]))'),
        "not a reduction's under the monoid of a scalar": ({}, 'emit("once", "x", <>, reduce("osm", "k", n, pair(a[@k], 1.0)))'),
        "the name k is taken": ({"a": "k"}, f'emit("once", "x", <>, {PARTED})'),
        "the name A is taken": ({"b": "A"}, f'emit("once", "x", <>, {PARTED})'),
        "the name p is taken": ({"b": "p"}, f'emit("once", "x", <>, {PARTED})'),
        "not cut into 0 parts": ({"D": 0}, f'emit("once", "x", <>, {PARTED})'),
        "k is bound again": ({}, 'emit("once", "x", <>, reduce("add", "k", n, a[@k] + reduce("add", "k", n, a[@k])))'),
    }
    for reason, (params, body) in bad.items():
        with pytest.raises(RuleError, match=reason):
            apply_step(kernel(body), R, Step("parts", (3,), {"a": "p", "b": "q", "D": 2, **params}))
    triangle = kernel('for("i", n, "seq", emit("once", "X", <@i>, reduce("add", "k", @i + 1, a[@k])))')
    with pytest.raises(RuleError, match="must be known at entry"):
        apply_step(triangle, R, Step("parts", (3, 3), {"a": "p", "b": "q", "D": 2}))
    inner = 'reduce("add", "k", n, reduce("add", "j", @k + 1, a[@j]))'
    two = kernel(f'seq(emit("once", "x", <>, {inner}), for("k", n, "seq", emit("once", "X", <@k>, reduce("add", "j", @k + 1, a[@j]))))')
    with pytest.raises(RuleError, match="an extent inside depends on axis k"):
        apply_step(two, R, Step("parts", (0, 3), {"a": "p", "b": "q", "D": 2}))


def test_arguments_of_builtins_are_checked() -> None:
    k = kernel('for("i", n, "seq", emit("once", "X", <@i>, a[@i]))')
    bad = [("place", {}), ("place", {"level": "core", "x": 1}), ("place", {"level": I(1)}), ("alpha", {"new": "k"}), ("layout", {"T": "T", "order": ix()})]
    for rule, subst in bad:
        with pytest.raises(RuleError):
            apply_step(k, R, Step(rule, (), subst))
