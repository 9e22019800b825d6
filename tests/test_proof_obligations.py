"""Obligations of hand-written operational forms: right ones are proved, wrong ones refuted with a witness, both in agreement with running them."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest
from proof_forms import (
    RIGHT,
    Form,
    P,
    Run,
    array,
    attention,
    cat,
    dot,
    form,
    gather,
    guarded,
    matmul,
    nest,
    scan,
    softmax,
    stage,
    stencil,
    transpose,
    triangle,
    two_levels,
)

from moa_rewrite.errors import MoaError
from moa_rewrite.proof import Limits, obligations, prove_all
from moa_rewrite.terms import Kernel, Term, at, positions, put


def verdicts(f: Form, limits: Limits = Limits()) -> dict[str, tuple[str, str]]:
    items = obligations(f.onf, limits, f.dnf)
    return {f"{o.kind} {o.name}": (v.status, v.witness) for o, v in zip(items, prove_all(items), strict=True)}


def refuted(f: Form, limits: Limits = Limits()) -> dict[str, str]:
    found = verdicts(f, limits)
    assert all(s in ("proved", "refuted") for s, _ in found.values()), found
    return {k: w for k, (s, w) in found.items() if s == "refuted"}


def mistakes(f: Form, most: int = 7) -> set[str]:
    """What running the form shows, over all sizes up to a bound (fewer sizes when there are many)."""
    k, out = f.onf, set()
    for values in itertools.product(range(most if len(k.sizes) < 3 else 4), repeat=len(k.sizes)):
        sizes = dict(zip(k.sizes, values, strict=True))
        out |= Run(f, sizes, {a.name: [(7 * i) % 5 - 1 for i in range(20)] for a in k.inputs}).wrong
    return out


def at_witness(f: Form, witness: str) -> set[str]:
    """What running the form shows at the sizes of a witness; data E is all the last number of the witness, an index."""
    numbers = [int(p.split(" = ")[1]) for p in witness.split(":")[0].split(", ")]
    return Run(f, dict(zip(f.onf.sizes, numbers, strict=False)), {"E": [numbers[-1]] * 20}).wrong


@pytest.mark.parametrize("name", RIGHT)
def test_right_forms_are_proved(name: str) -> None:
    f = RIGHT[name]()
    assert {k: v for k, v in verdicts(f).items() if v[0] != "proved"} == {}
    assert mistakes(f) == set()


# (form, kind that must be refuted, text in its witness)
WRONG = {
    "one too many": (lambda: matmul().but("min(4, n - @i.o * 4)", "4"), "bounds", "A[i, l] is outside A of shape (n, k)"),
    "off by one": (lambda: scan().but('for("k", @i + 1', 'for("k", @i + 2'), "bounds", "X[k] is outside X of shape (n)"),
    "no remainder": (lambda: matmul().but("(n + 4 - 1) // 4", "n // 4"), "cover", "no iteration of for i.o, j.o, l.o, i.i, l.i, j.i reaches it"),
    "no remainder of a reduction": (lambda: matmul().but("(k + 2 - 1) // 2", "k // 2"), "cover", "no iteration of for i.o, j.o, l.o, i.i, l.i, j.i reaches it"),
    "no remainder of a stage": (lambda: attention().but("(m + 2 - 1) // 2", "m // 2"), "defined", "is read before it is complete"),
    "a tile too few": (lambda: triangle().but("@i.o * 3 + 2 -", "@i.o * 3 + 1 -"), "defined", "S[i, j] is read before it is complete"),
    "needed after all": (lambda: triangle().but("select(@j <= @i, S", "select(@j <= @i + 3, S"), "defined", "S[i, j] is read before it is complete"),
    "written twice": (lambda: form(transpose().dnf, nest("t:2 j:m i:n", 'emit("once", "Y", <@j, @i>, X[@i, @j])')), "once", "two iterations contribute"),
    "counted twice": (lambda: form(dot().dnf, nest("t:2 k:n", 'emit("add", "Z", <>, X[@k] * Y[@k])'), Z=[("k", "n")]), "once", "two iterations contribute"),
    "overlapping tiles": (lambda: matmul().but("min(4, n - @i.o * 4)", "min(5, n - @i.o * 4)"), "once", "two iterations contribute the same to C[i, j]"),
    "both branches": (lambda: guarded().but("not (@i < n)", "n <= @i + 1"), "once", "two iterations contribute"),
    "race on a reduction": (lambda: matmul().but('for("l.o", (k + 2 - 1) // 2, "seq"', 'for("l.o", (k + 2 - 1) // 2, "core"'), "race", "the same cell of C"),
    "race through a stage": (lambda: softmax().but('"seq", emit("max"', '"core", emit("max"'), "race", "touch the same cell of M"),
    "read before write": (lambda: _read_first(), "defined", "M[i] is read before it is complete"),
    "read in the reduction": (lambda: _read_inside(), "defined", "M[i] is read before it is complete"),
    "short stage": (lambda: softmax().but('for("j", m, "seq", emit("max"', 'for("j", m - 1, "seq", emit("max"'), "defined", "M[i] is read before"),
    "stage one too long": (lambda: _count_one_more(), "bounds", "the reduction"),
    "missing half": (lambda: form(cat().dnf, nest("i:n", 'emit("once", "Z", <@i>, X[@i])')), "cover", "no iteration of for i reaches it"),
    "nothing": (lambda: form(cat().dnf, "skip()"), "cover", "no iteration"),
    "rotation without mod": (lambda: stencil().but("(@i + 1) % n", "@i + 1"), "bounds", "X[i + 1, j] is outside X"),
    "guard turned": (lambda: cat().but("select(@i < n", "select(@i <= n"), "bounds", "X[i] is outside X"),
    "unguarded data": (lambda: gather().but("E[@i] < m", "E[@i] <= m"), "bounds", "X[E[i]] is outside X"),
    "swapped indices": (lambda: transpose().but("X[@i, @j]", "X[@j, @i]"), "bounds", "X[j, i] is outside X"),
}  # fmt: skip


def _read_first() -> Form:
    f = softmax()
    t = f.onf.body
    path = next(p for p, u in positions(t) if u.op == "seq")
    first, rest = at(t, path).args
    return replace(f, onf=f.onf.with_body(put(t, path, Term("seq", at(t, (*path, 1, 0)), Term("seq", first, rest.args[1])))))


def _read_inside() -> Form:
    f = softmax()
    body = nest("i:n", f'''new("M", new("S", seq({nest("j:m", """seq(emit("max", "M", <@i>, X[@i, @j]), emit("add", "S", <@i>, exp(X[@i, @j] - M[@i])))""")},
        {nest("j:m", 'emit("once", "Y", <@i, @j>, exp(X[@i, @j] - M[@i]) / S[@i])')})))''')
    return replace(f, onf=f.onf.with_body(P(body)))


def _count_one_more() -> Form:
    dnf = Kernel("count", ("n",), (), (), (array("Z"),), P('emit("once", "Z", <>, reduce("add", "k", n, 1.0))'))
    return form(dnf, nest("k:n+1", 'emit("add", "Z", <>, 1.0)'), Z=[("k", "n")])


@pytest.mark.parametrize("name", WRONG)
def test_wrong_forms_are_refuted(name: str) -> None:
    make, kind, text = WRONG[name]
    f = make()
    found = refuted(f)
    assert any(k.startswith(kind) and text in w for k, w in found.items()), found
    assert all(" = " in w.split(":")[0] for w in found.values()), found
    for k, w in found.items():
        assert k.split()[0] in at_witness(f, w), (k, w)


def test_witness_of_a_tile_without_remainder_is_a_lost_cell() -> None:
    """for i < n with tiles n // 4 of 4: the numbers printed name a cell that no iteration writes."""
    f = form(transpose().dnf, nest("j:m i.o:n//4 i.i:4", 'emit("once", "Y", <@j, @i>, X[@i, @j])'), (), (("i", P("@i.o*4+@i.i")),))
    (text,) = refuted(f).values()
    numbers = dict(part.split(" = ") for part in text.split(":")[0].split(", "))
    n, i = int(numbers["n"]), int(numbers["i"])
    assert i < n and i not in [o * 4 + r for o in range(n // 4) for r in range(4)]
    assert text.endswith("no iteration of for j, i.o, i.i reaches it")


def test_where_is_used_and_must_be_satisfiable() -> None:
    f = form(transpose().dnf, nest("j:m i.o:n//4 i.i:4", 'emit("once", "Y", <@j, @i>, X[@i, @j])'), (), (("i", P("@i.o*4+@i.i")),))
    given = replace(f, onf=replace(f.onf, where=(P("n % 4 == 0"),)))
    assert refuted(given) == {}
    never = replace(f, onf=replace(f.onf, where=(P("n % 4 == 0"), P("n < m"), P("m < n"))))
    assert refuted(never) == {"admissible where": "no sizes satisfy where"}


def test_sizes_zero_are_admitted() -> None:
    """No obligation of a right form is vacuous because sizes are positive: zero is among the sizes, and where n > 0 is needed it is found missing."""
    dnf = Kernel("mean", ("n",), (), (array("X", "n"),), (array("Z"),), P('emit("once", "Z", <>, X[0])'))
    assert "n = 0" in refuted(form(dnf, 'emit("once", "Z", <>, X[0])'))["bounds X[0] in emit Z"]
    assert refuted(form(replace(dnf, where=(P("0 < n"),)), 'emit("once", "Z", <>, X[0])')) == {}


def test_divisors_must_be_positive() -> None:
    dnf = Kernel("wrap", ("n", "m"), (), (array("X", "n"),), (array("Y", "m"),), P(nest("i:m", 'emit("once", "Y", <@i>, X[@i % n])')))
    found = verdicts(form(dnf, nest("i:m", 'emit("once", "Y", <@i>, X[@i % n])')))
    assert found["bounds divisor n in emit Y"][0] == "refuted" and "n = 0" in found["bounds divisor n in emit Y"][1]
    assert found["bounds X[i % n] in emit Y"][0] == "undecided"  # what i % 0 is, nobody says
    assert refuted(form(replace(dnf, where=(P("0 < n"),)), nest("i:m", 'emit("once", "Y", <@i>, X[@i % n])'))) == {}
    where = replace(dnf, where=(P("m % n == 0"), P("0 < n")))
    assert "n = 0" in verdicts(form(where, nest("i:m", 'emit("once", "Y", <@i>, X[@i % n])')))["bounds divisor n in m % n == 0"][1]


# --- index type ----------------------------------------------------------------------------------------------------------------------
def _copy(*where: str) -> Form:
    loops, ix = "t:n a:h e:d", "<@t, @a, @e>"
    dnf = Kernel("copy", ("n", "h", "d"), tuple(map(P, where)), (array("X", "n", "h", "d"),), (array("Y", "n", "h", "d"),),
                 P(nest(loops, f'emit("once", "Y", {ix}, X[@t, @a, @e])')))  # fmt: skip
    return form(dnf, nest(loops, f'emit("once", "Y", {ix}, X[@t, @a, @e])'))


def test_int32_offsets_are_refuted_with_a_witness() -> None:
    """The shape of flash-attention issue 2611: (410923, 16, 96) has 631 177 728 elements, and with 64 heads 2 524 710 912 > 2^31."""
    small = Limits(index_bits=32)
    fits = _copy("n <= 410923", "h == 16", "d == 96")
    assert refuted(fits, small) == {}
    found = refuted(_copy("n <= 410923", "h == 64", "d == 96"), small)
    assert sorted(found) == ["offset X of shape (n, h, d)", "offset Y of shape (n, h, d)"]
    text = found["offset X of shape (n, h, d)"]
    v = {k: int(x) for k, x in (part.split(" = ") for part in text.split(":")[0].split(", "))}
    assert (v["index 0"] * v["h"] + v["index 1"]) * v["d"] + v["index 2"] == v["offset"] > 2**31 - 1
    assert v["index 0"] < v["n"] and v["index 1"] < v["h"] and v["index 2"] < v["d"]
    assert refuted(_copy("n <= 410923", "h == 64", "d == 96")) == {}
    assert refuted(_copy()) == {}


# --- storage -------------------------------------------------------------------------------------------------------------------------
def test_shared_memory_is_a_limit_on_gpus() -> None:
    f = attention(64, 32, "grid")
    found = refuted(f, Limits("cuda"))
    assert {k for k in found if k.startswith("capacity")} == {"capacity W in shared memory", "capacity L in shared memory", "capacity S in shared memory"}
    assert "more than the 49152 bytes of shared memory" in found["capacity W in shared memory"]
    for d, good in ((64, True), (128, False)):
        bounded = replace(f, onf=replace(f.onf, where=(P(f"d <= {d}"),)))
        # W: 64 rows of d pairs of floats, L: 64 pairs, S: 64 x 32 floats
        assert (64 * d * 8 + 64 * 8 + 64 * 32 * 4 <= 49152) == good
        assert (refuted(bounded, Limits("cuda")) == {}) == good


def test_layout_must_be_a_permutation() -> None:
    f = attention()
    for layout, good in (((2, 0, 1), True), ((0, 0, 1), False), ((0, 1), False), ((1, 2, 3), False)):
        stages = tuple(replace(s, layout=layout) if s.name == "S" else s for s in f.onf.stages)
        assert ("layout S" in refuted(replace(f, onf=replace(f.onf, stages=stages)))) == (not good)


def test_local_storage_is_what_loops_inside_reach() -> None:
    from moa_rewrite.proof.storage import entry_checks, storages

    f = attention(3, 2)
    found = {s.stage.name: s for s in storages(f.onf, Limits())}
    assert [repr(e) for e in found["S"].extents] == ["1", "3", "2"] and found["S"].memory == "stack"
    assert [repr(e) for e in found["W"].extents] == ["1", "3", "d"] and found["W"].memory == "heap"
    assert repr(found["W"].outer[1]) == "@i.o * 3"
    assert [n for n, _ in entry_checks(f.onf, Limits())] == ["Q", "K", "V", "O", "W"]
    (t,) = storages(two_levels().onf, Limits())
    assert [repr(e) for e in t.extents] == ["6"]


def test_a_stage_read_outside_its_local_storage_is_refuted() -> None:
    f = two_levels().but("T[@i] * 2.0", "T[(@i + 1) % n] * 2.0")
    assert any("local storage" in w for w in refuted(f).values())


# --- ill-formed ------------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("body", "message"),
    [
        (nest("i:n", 'emit("once", "Z", <@j>, X[@i])'), "axis j is bound by no loop"),
        (nest("i:n i:n", 'emit("once", "Z", <@i>, X[@i])'), "axis i is bound twice"),
        (nest("i:n", 'emit("once", "X", <@i>, X[@i])'), "X is an input"),
        (nest("i:n", 'emit("once", "T", <@i>, X[@i])'), "stage T is used outside its new"),
        (nest("i:n", 'emit("once", "Q", <@i>, X[@i])'), "no array Q"),
        (nest("i:n", 'emit("once", "Z", <@i, 0>, X[@i])'), "has 2 indices, the array 1 axes"),
        (f'new("T", {nest("i:n", """emit("max", "T", <@i>, X[@i])""")})', "emission under max to a stage under add"),
        (f'new("T", new("T", {nest("i:n", """emit("once", "T", <@i>, X[@i])""")}))', "new(T) inside itself"),
    ],
)
def test_ill_formed_programs_are_refused(body: str, message: str) -> None:
    with pytest.raises(MoaError) as e:
        obligations(form(cat().dnf, body, (stage("T", "i", "n", "add", "X[@i]"),)).onf, Limits(), cat().dnf)
    assert message in str(e.value) and e.value.exit_code == 2


def test_a_reduction_may_hide_a_loop() -> None:
    """A reduction in an expression named like a loop around it: the loop still counts where iterations are compared."""
    dnf = Kernel("hide", ("n",), (), (array("X", "n"),), (array("Y", "n"),), P(nest("i:n", 'emit("once", "Y", <@i>, exp(reduce("add", "i", n, X[@i])))')))
    stages = (stage("T", "i", "n", "once", "X[@i]"),)
    value = 'exp(reduce("add", "i", n, T[@i]))'
    fill, use = nest("i:n", 'emit("once", "T", <@i>, X[@i])'), nest("i:n:core", f'emit("once", "Y", <@i>, {value})')
    whole = form(dnf, f'new("T", seq({fill}, {use}))', stages)
    assert refuted(whole) == {}
    # T is filled and read in one iteration of i: only T[i] of the loop's i is there, not that of the reduction's
    early = form(dnf, f'new("T", {nest("i:n", f"""seq(emit("once", "T", <@i>, X[@i]), emit("once", "Y", <@i>, {value}))""")})', stages)
    assert [k for k in refuted(early) if k.startswith("defined")] == ["defined T[i] in emit Y"]
    # and with the loop on cores, an iteration reads what others write
    cores = form(dnf, f'new("T", {nest("i:n:core", f"""seq(emit("once", "T", <@i>, X[@i]), emit("once", "Y", <@i>, {value}))""")})', stages)
    assert any(k.startswith("race core i") and "T[i]" in k for k in refuted(cores))


def test_division_by_data_proves_nothing() -> None:
    inputs, body = (array("X", "n"), array("E", "n", dtype="i64")), P(nest("i:n", 'emit("once", "Y", <@i>, X[0])'))
    dnf = Kernel("data", ("n",), (P("0 < n"),), inputs, (array("Y", "n"),), body)
    found = verdicts(form(dnf, nest("i:n", 'emit("once", "Y", <@i>, select(E[@i] == n, X[3 % E[@i] % n], X[@i % E[@i]]))')))
    assert found["bounds X[i % E[i]] in emit Y"][0] != "proved" and found["bounds X[3 % E[i] % n] in emit Y"][0] == "proved"


def test_an_output_collects_under_the_monoid_of_its_definition() -> None:
    f = dot().but('emit("add", "Z"', 'emit("max", "Z"')
    with pytest.raises(MoaError, match="no such reduction"):
        obligations(f.onf, Limits(), f.dnf)


def test_two_engines_can_be_asked() -> None:
    f = matmul()
    items = obligations(f.onf, Limits(), f.dnf)
    assert {v.status for v in prove_all(items, second=True)} == {"proved"}


def test_verdicts_and_texts_repeat() -> None:
    f = attention()
    first, again = [obligations(f.onf, Limits(), f.dnf) for _ in range(2)]
    assert [o.smt for o in first] == [o.smt for o in again]
    assert [(v.status, v.rlimit) for v in prove_all(first)] == [(v.status, v.rlimit) for v in prove_all(again)]


# --- agreement with execution under random damage ------------------------------------------------------------------------------------------
def _damage(t: Term, rng: random.Random) -> Term:
    """One random change of a statement: a number, an operator, an axis, a place, an order, a loop."""
    spots = [(p, u) for p, u in positions(t) if u.op in ("int", "axis", "add", "sub", "min", "lt", "for", "seq", "guard", "idiv")]
    path, u = rng.choice(spots)
    axes = sorted({str(v.args[0]) for _, v in positions(t) if v.op == "for"})
    match u.op:
        case "int":
            new = Term("int", max(1, u.args[0] + rng.choice((-1, 1))))
        case "axis":
            new = Term("axis", rng.choice(axes))
        case "add" | "sub":
            new = Term("sub" if u.op == "add" else "add", *u.args)
        case "min":
            new = rng.choice(u.kids())
        case "lt":
            new = Term("le", *u.args)
        case "idiv":
            new = Term("add", u, Term("int", 1))
        case "for" if rng.random() < 0.6:
            new = Term("for", *u.args[:2], rng.choice(("core", "seq", "simd")), u.args[3])
        case "for":
            new = u.args[3] if rng.random() < 0.3 else Term("for", u.args[0], Term("sub", u.args[1], Term("int", 1)), *u.args[2:])
        case "seq":
            new = Term("seq", u.args[1], u.args[0]) if rng.random() < 0.7 else u.args[0]
        case "guard":
            new = u.args[1]
    return put(t, path, new)


@pytest.mark.parametrize("seed", range(12))
def test_what_is_proved_of_damaged_forms_holds_when_they_run(seed: int) -> None:
    """Proved must mean right for every size tried; refuted must mean wrong when run at the sizes of a witness."""
    rng = random.Random(seed)
    kept = 0
    for name in sorted(RIGHT):
        f = RIGHT[name]()
        f = replace(f, onf=f.onf.with_body(_damage(f.onf.body, rng)))
        try:
            found = verdicts(f)
        except MoaError:
            continue
        status = {s for s, _ in found.values()}
        if status == {"proved"}:
            assert mistakes(f, 6) == set(), (name, repr(f.onf.body))
            kept += 1
        elif "refuted" in status and name != "gather":
            witnesses = {k: w for k, (s, w) in found.items() if s == "refuted"}
            runs = [at_witness(f, w) for w in witnesses.values()]
            assert all(runs), (name, witnesses, repr(f.onf.body))


def test_what_is_multiplied_by_zero_may_be_missing() -> None:
    f = triangle().but("select(@j <= @i, S[@i, @j], 0.0)", "select(@j <= @i, 1.0, 0.0) * S[@i, @j]")
    assert {s for s, _ in verdicts(f).values()} == {"proved"}
    for g in (f.but("@i.o * 3 + 2 -", "@i.o * 3 + 1 -"), f.but("select(@j <= @i, 1.0, 0.0)", "select(@j <= @i, 1.0, 2.0)")):
        assert any(name.startswith("defined") for name in refuted(g))
