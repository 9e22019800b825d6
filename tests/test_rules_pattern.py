"""Matching, instantiation, rule files and their mistakes, steps as JSON, and steps that are no instances of their rule."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from moa_rewrite import rules
from moa_rewrite.errors import MoaError
from moa_rewrite.rules import RuleError, Step, apply_step, match, psi_normalise, step_from_json, step_to_json
from moa_rewrite.rules.builtin import BUILTINS, PARAMS
from moa_rewrite.rules.load import load_file
from moa_rewrite.rules.meta import gamma, permute, unravel
from moa_rewrite.rules.pattern import instantiate, match_term
from moa_rewrite.semantics import run
from moa_rewrite.terms import Array, I, Kernel, Term, at, axis, ix, parse_term, positions, size

R = rules.load()


def t(text: str) -> Term:
    return parse_term(text)


def p(text: str) -> Term:
    return parse_term(text, pattern=True)


# --- matching ---------------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("pattern", "term", "subst"),
    [
        ("x + y", "@i + 2", {"x": axis("i"), "y": I(2)}),
        ("x + x", "@i + @i", {"x": axis("i")}),
        ("x + x", "@i + @j", None),
        ("x + 1", "@i + 2", None),
        ("@k + x", "@i + 2", {"k": "i", "x": I(2)}),
        ("@k + x", "n + 2", None),
        ("reduce(m, k, n, e)", 'reduce("add", "r", 3, @r)', {"m": "add", "k": "r", "n": I(3), "e": axis("r")}),
        ('reduce("max", k, n, e)', 'reduce("add", "r", 3, @r)', None),
        ("reduce(m, k, n, @k)", 'reduce("add", "r", 3, @s)', None),
        ("for(i.o, n, p, s)", 'for("a.o", 3, "seq", skip())', {"i": "a", "n": I(3), "p": "seq", "s": Term("skip")}),
        ("for(i.o, n, p, s)", 'for("a", 3, "seq", skip())', None),
        ("<F.., i>", "<1, 2, 3>", {"F": (I(1), I(2)), "i": I(3)}),
        ("<F.., i>", "<>", None),
        ("<F..>", "<>", {"F": ()}),
        ("psi(<F.., i, R..>, drop(#F, t, A))", 'psi(<1, 2, 3>, drop(1, 4, arr("B")))', {"F": (I(1),), "i": I(2), "R": (I(3),), "t": I(4), "A": t('arr("B")')}),
        ("psi(<F.., i, R..>, drop(#F, t, A))", 'psi(<1, 2, 3>, drop(3, 4, arr("B")))', None),
        ("psi(<F.., R..>, spread(#F, n, A))", 'psi(<1>, spread(1, 4, arr("B")))', {"F": (I(1),), "R": (), "n": I(4), "A": t('arr("B")')}),
        ("psi(<F..>, drop(#F, t, A))", 'psi(<1, 2>, drop(1, 4, arr("B")))', None),
        ("A[I.., j]", "B[1, 2]", {"A": "B", "I": (I(1),), "j": I(2)}),
        ("get(A, I)", "B[1, 2]", {"A": "B", "I": ix(I(1), I(2))}),
        ("bool(1)", "bool(1)", {}),
        ("bool(1)", "bool(0)", None),
    ],
)  # fmt: skip
def test_match(pattern: str, term: str, subst: dict | None) -> None:
    found = match_term(p(pattern), t(term))
    assert found == subst
    if subst is not None:
        assert instantiate(p(pattern), subst) is t(term)


def test_derived_names() -> None:
    assert repr(instantiate(p("for(i.o, n, p, @i.o + @i)"), {"i": "a", "n": I(2), "p": "seq"})) == 'for("a.o", 2, "seq", @a.o + @a)'


def test_meta_functions() -> None:
    i, s = ix(axis("i"), axis("j"), axis("k")), ix(size("a"), size("b"), size("c"))
    assert repr(gamma(i, s)) == "(@i * b + @j) * c + @k"
    assert repr(unravel(size("g"), s)) == "<g // (b * c), g // c % b, g % c>"
    assert repr(permute(i, ix(I(2), I(0), I(0)))) == "<@k, @i, @i>"
    assert gamma(ix(), ix()) is I(0) and unravel(I(0), ix()) is ix()
    for bad in (ix(I(3)), ix(I(-1)), ix(axis("i"))):
        with pytest.raises(RuleError):
            permute(i, bad)
    with pytest.raises(RuleError):
        gamma(i, ix(I(1)))


# --- rule files -------------------------------------------------------------------------------------------------------------------------
GOOD = 'rule "mine" { doc "d" x + 0 => x }\n'
MISTAKES = {
    "syntax": ('rule "a" { doc "d" x + => x }', 401, 1),
    "end": ('rule "a" { doc "d"\n x => x', 401, 2),
    "twice": (GOOD + 'rule "mine" { doc "d" x * 1 => x }', 402, 2),
    "taken": ('rule "psi-add" { doc "d" x * 1 => x }', 402, 1),
    "guard": ('rule "a" {\n doc "d"\n x + 0 => x\n when notni(x, x) }', 403, 4),
    "guard arguments": ('rule "a" { doc "d" x + 0 => x when noreads() , tile(x, x) }', 403, 1),
    "unbound": ('\nrule "a" { doc "d" x + 0 => y }', 404, 2),
    "unbound name": ('rule "a" { doc "d" x + 0 => reduce("add", k, x, x) }', 404, 1),
    "unbound guard": ('rule "a" { doc "d" x + 0 => x when notin(k, x) }', 404, 1),
    "unbound define": ('rule "a" { doc "d" x + 0 => x define @i = x }', 404, 1),
    "unbound backwards": ('rule "a" { doc "d" x * y <=> x }', 404, 1),
    "two kinds": ('rule "a" { doc "d" reduce(m, x, n, x) => x }', 404, 1),
    "two kinds in two sides": ('rule "a" { doc "d" reduce(m, k, n, x) => k }', 404, 1),
    "idle param": ('rule "a" { doc "d" param T x + 0 => x }', 404, 1),
    "define both ways": ('rule "a" { doc "d" for(i, n, p, s) <=> guard(bool(1), for(i, n, p, s)) define @i = n }', 406, 1),
    "no law": ('rule "a" { doc "d" }', 406, 1),
    "two laws": ('rule "a" { doc "d" x => x x + 0 => x }', 406, 1),
    "no doc": ('rule "a" { x + 0 => x }', 406, 1),
    "corollary": ('rule "a" { doc "d" corollary "b" x + 0 => x }', 406, 1),
    "schema": ('rule "a" for f in (exp, log) { doc "d" f(x) => x }', 406, 1),
    "operator": ('rule "a" { doc "d" expp(x) => x }', 407, 1),
    "arity": ('rule "a" { doc "d" exp(x, y) => x }', 407, 1),
    "meta on the left": ('rule "a" { doc "d" psi(permute(I, V), A) => psi(I, A) }', 407, 1),
    "meta in a two-way law": ('rule "a" { doc "d" psi(I, transpose(V, A)) <=> psi(permute(I, V), A) }', 407, 1),
    "builtin": ('rule "a" { doc "d" builtin }', 408, 1),
}


@pytest.mark.parametrize("kind", MISTAKES)
def test_mistakes_in_rule_files(kind: str, tmp_path: Path) -> None:
    text, code, line = MISTAKES[kind]
    file = tmp_path / "bad.moar"
    file.write_text(text)
    with pytest.raises(MoaError) as e:
        rules.load([file])
    assert (e.value.code, e.value.file, e.value.line) == (code, str(file), line), str(e.value)
    assert str(e.value).startswith(f"{file}:{line}:")


def test_missing_file_and_unknown_rule(tmp_path: Path) -> None:
    with pytest.raises(MoaError, match="cannot read rules") as e:
        rules.load([tmp_path / "none.moar"])
    assert e.value.code == 409
    with pytest.raises(MoaError, match='no rule "interchang" to leave out') as e:
        rules.load(without=["interchang"])
    assert e.value.code == 405 and "interchange" in e.value.hint


def test_load_adds_files_and_leaves_out(tmp_path: Path) -> None:
    file = tmp_path / "mine.moar"
    file.write_text(GOOD + 'rule "{f}-zero" for f in (sin, tanh) { doc "d" doc "e" source "s" f(0.0) => 0.0 }')
    mine = rules.load([file])
    assert [r.name for r in mine.values()] == [*R, "mine", "sin-zero", "tanh-zero"]
    assert (mine["mine"].group, mine["mine"].file, mine["mine"].line) == ("mine", str(file), 1)
    assert (mine["sin-zero"].doc, mine["sin-zero"].source, repr(mine["sin-zero"].lhs)) == ("d e", "s", "sin(0.0)")
    assert set(R) - set(rules.load(without=["lift", "commute"])) == {"lift", "commute"}
    gone = set(R) - set(rules.load(without=["dependent-reduction"]))
    assert gone == {n for n in R if n.startswith("dependent-reduction")} and len(gone) == 4  # its corollaries go with it
    assert set(R) - set(rules.load(without=["dependent-reduction-sum"])) == {"dependent-reduction-sum"}


def test_rules_are_in_order_and_documented() -> None:
    assert [r.group for r in R.values()] == sorted(r.group for r in R.values())
    assert all(r.doc and Path(r.file).name == f"{r.group}.moar" and r.line > 0 for r in R.values())
    assert {r.name for r in R.values() if r.builtin} == set(PARAMS) == set(BUILTINS)


def test_text_of_a_rule_is_the_rule(tmp_path: Path) -> None:
    """Printing a law and reading it again gives the same law."""
    for n, rule in enumerate(R.values()):
        if not rule.builtin:
            param = f"param {', '.join(rule.params)} " if rule.params else ""
            file = tmp_path / f"{n}.moar"
            file.write_text(f'rule "{rule.name}" {{ doc "d" {param}{rule} }}')
            (again,) = load_file(file)
            assert replace(again, doc=rule.doc, source=rule.source, corollary=rule.corollary, file=rule.file, line=rule.line) == rule


# --- steps ------------------------------------------------------------------------------------------------------------------------------
def sample() -> tuple[Kernel, list[Step]]:
    """A kernel and steps of many rules, with all kinds of values in their substitutions."""
    body = t('for("i", n, "seq", emit("once", "X", <@i>, psi(<@i>, red("add", 1, "k", m, mul(rotate(0, 1, n, arr("A")), transpose(<1, 0>, arr("B")))))))')
    inputs = (Array("A", "f64", (size("n"), size("m"))), Array("B", "f64", (size("m"), size("n"))))
    k = Kernel("t", ("n", "m"), (), inputs, (Array("X", "f64", (size("n"),)),), body)
    end, steps = psi_normalise(k, R)
    steps = list(steps)

    def do(rule: str, path: tuple[int, ...], params=None, forward: bool = True) -> None:
        nonlocal end
        subst = match(R[rule], end, path, forward, params)
        assert subst is not None, rule
        steps.append(Step(rule, path, subst, forward))
        end = apply_step(end, R, steps[-1])

    do("alpha", (3, 3), {"new": t('reduce("add", "q", m, A[(@i + 1) % n, @q] * B[@q, @i])')})
    do("ring", (3, 3, 3, 0, 1, 0, 0), {"new": t("1 + @i")})
    do("materialise", (), {"T": "T", "dtype": "f64", "axes": (axis("q"), axis("i")), "e": at(end.body, (3, 3, 3, 0))})
    do("layout", (), {"T": "T", "order": (I(1), I(0))})
    do("reduce-loop", (1, 1, 3))
    do("interchange", (1, 0))
    do("lift", (1, 1), {"T": I(8)})
    do("place", (1, 1), {"level": "core"})
    return k, steps


def replay(k: Kernel, steps: list[Step]) -> Kernel:
    for s in steps:
        k = apply_step(k, R, s)
    return k


def test_json_round_trip() -> None:
    k, steps = sample()
    data = json.loads(json.dumps([step_to_json(s) for s in steps]))
    again = [step_from_json(d) for d in data]
    assert again == steps
    assert replay(k, again) == replay(k, steps)
    assert {type(v) for s in steps for v in s.subst.values()} == {Term, str, tuple}
    for value in (I(-3), t("n - -3"), Term("neg", I(3)), Term("num", "-inf"), t("not (1 < 2)"), t("-(n + 1) * -@i")):
        step = Step("ring", (), {"new": value})
        assert step_from_json(json.loads(json.dumps(step_to_json(step)))) == step


@pytest.mark.parametrize(
    "change",
    [{"rule": 3}, {"path": [-1]}, {"path": ["0"]}, {"path": [True]}, {"path": 0}, {"subst": []}, {"subst": {"x": None}}, {"subst": {"x": {"term": "1 +"}}},
     {"subst": {"x": {"term": "foo(1)"}}}, {"subst": {"x": {"term": 1}}}, {"subst": {"x": [1]}}, {"subst": {"x": 1.5}}, {"forward": 1}, {"more": 1}],
    ids=str,
)  # fmt: skip
def test_what_is_no_step_is_refused(change: dict) -> None:
    good = {"rule": "psi-add", "path": [0], "subst": {"x": {"term": "1"}}, "forward": True}
    step_from_json(good)
    with pytest.raises(RuleError):
        step_from_json({**good, **change})


def mutations(k: Kernel, s: Step):
    """Changes of one step: another rule, place, direction, or value; a value more or less."""
    for name in R:
        if name != s.rule:
            yield replace(s, rule=name)
    yield replace(s, rule="no such rule")
    for path, _ in positions(k.body):
        if path != s.path:
            yield replace(s, path=path)
    yield replace(s, path=(*s.path, 99))
    yield replace(s, path=(-1,))
    yield replace(s, forward=not s.forward)
    yield replace(s, subst={**s.subst, "extra": I(1)})
    for v, value in s.subst.items():
        yield replace(s, subst={w: x for w, x in s.subst.items() if w != v})
        others = [I(7), "zz", 7, (I(7),), (), t("@zz"), Term("add", I(1)), Term("add", "x", "y"), Term("nonsense"), Term("reduce", "add", "q", I(1), "x")]
        if isinstance(value, tuple):
            others += [value[:-1], (*value, I(0)), value[::-1]]
        for other in others:
            if other != value:
                yield replace(s, subst={**s.subst, v: other})


def test_a_tampered_step_is_refused_or_harmless() -> None:
    """A changed step either is refused or is an instance of the rule it names, and then the kernel still computes the same."""
    rng = np.random.default_rng(11)
    data, sizes = {"A": rng.random((3, 2)), "B": rng.random((2, 3))}, {"n": 3, "m": 2}
    k, steps = sample()
    want = run(k, data, sizes)["X"]
    tried = refused = 0
    for s in steps:
        for other in mutations(k, s):
            tried += 1
            try:
                changed = apply_step(k, R, other)
            except RuleError:
                refused += 1
            else:
                np.testing.assert_allclose(run(changed, data, sizes)["X"], want, rtol=1e-12)
        k = apply_step(k, R, s)
    assert tried > 2000 and 0.97 * tried < refused < tried


def test_reasons() -> None:
    k = sample()[0]
    cases = {
        "unknown rule": Step("psi-ad", (3, 3), {}),
        "nothing at": Step("psi-red", (3, 9), {}),
        "no value for": Step("psi-red", (3, 3), {}),
        "no variable": Step("psi-scalar", (3, 3), {"x": I(1), "y": I(1)}),
        "is no term": Step("psi-scalar", (3, 3), {"x": "a"}),
        "not what stands": Step("psi-scalar", (3, 3), {"x": I(1)}),
        "from right to left": Step("psi-scalar", (3, 3), {"x": I(1)}, False),
    }
    for reason, step in cases.items():
        with pytest.raises(RuleError, match=reason):
            apply_step(k, R, step)
