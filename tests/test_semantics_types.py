"""Element types: leaves decide, literals adapt, mixtures are refused."""

from __future__ import annotations

import pytest

from moa_rewrite.semantics import dtype, is_literal
from moa_rewrite.terms import Array, Kernel, Term, ix, parse_term, size

N = (size("n"),)
K = Kernel(
    "k",
    ("n",),
    (),
    (Array("A", "f32", N), Array("D", "f64", N), Array("E", "i32", N), Array("L", "i64", N), Array("M", "bool", N), Array("s", "f32", ())),
    (),
    Term("skip"),
)


@pytest.mark.parametrize(
    "text, want",
    [
        ("2", "i64"),
        ("0.5", "f64"),
        ("n", "i64"),
        ("@i", "i64"),
        ("A[@i]", "f32"),
        ("A[@i] * 0.5", "f32"),
        ("2 * A[@i]", "f32"),
        ("D[@i] + 1", "f64"),
        ("1 / 2 * A[@i]", "f32"),
        ("exp(1.0) * A[@i]", "f32"),
        ("@i * 2 + n", "i64"),
        ("E[@i] + 1", "i32"),
        ("E[@i] + n", "i64"),
        ("@i // 2 % n", "i64"),
        ("A[@i] < 0.0", "bool"),
        ("M[@i] and @i < n", "bool"),
        ("not M[@i]", "bool"),
        ("select(M[@i], A[@i], 0.0)", "f32"),
        ("select(M[@i], 1, 0)", "i64"),
        ('cast("f32", @i) * A[@i]', "f32"),
        ('reduce("add", "k", n, A[@k])', "f32"),
        ('reduce("add", "k", n, 1)', "i64"),
        ('reduce("and", "k", n, M[@k])', "bool"),
        ("pair(A[@i], 1.0)", "pair"),
        ("snd(pair(A[@i], D[@i]))", "f64"),
        ("fst(pair(A[@i], D[@i]))", "f32"),
        ('snd(reduce("osm", "k", n, pair(A[@k], 1.0)))', "f32"),
        ('reduce("osm", "k", n, pair(A[@k], 1.0))', "pair"),
        ("max(A[@i], 0)", "f32"),
        ('psi(<@i>, reverse(0, n, arr("A")))', "f32"),
        ('arr("E")', "i32"),
        ("iota(n)", "i64"),
        ('cat(0, n, arr("A"), fill(<3>, 0))', "f32"),
        ('gather(0, arr("s"), arr("A"))', None),
        ('red("max", 0, "k", n, arr("D"))', "f64"),
        ('scan("add", 0, "k", n, arr("E"))', "i32"),
        ('transpose(<0>, arr("L"))', "i64"),
        ("spread(0, n, 1.5)", "f64"),
        ("iota(n) < fill(<n>, 3)", "bool"),
        ('cast("i64", arr("A"))', "i64"),
        ("abs(-A[@i])", "f32"),
        ("floor(A[@i])", "f32"),
        ("A[@i] == A[@i]", "bool"),
        # mixtures
        ("A[@i] * @i", None),
        ("A[@i] + D[@i]", None),
        ("A[@i] * n", None),
        ('A[@i] * reduce("add", "k", n, 1)', None),
        ("0.5 * @i", None),
        ("M[@i] + 1", None),
        ("@i / n", None),
        ("A[@i] // 2", None),
        ("A[A[@i]]", None),
        ("A[@i] < n", None),
        ("select(@i, 1, 2)", None),
        ("sqrt(n)", None),
        ("not @i", None),
        ("fst(A[@i])", None),
        ("A[@i] and M[@i]", None),
        ('reduce("add", "k", n, M[@k])', None),
        ('reduce("or", "k", n, A[@k])', None),
        ('reduce("osm", "k", n, A[@k])', None),
        ("M[@i] < M[@i]", None),
        ('psi(<0.5>, arr("A"))', None),
        ("pair(A[@i], 1.0) + 1.0", None),
    ],
)
def test_dtype(text: str, want: str | None) -> None:
    if want is None:
        with pytest.raises(ValueError):
            dtype(parse_term(text), K)
    else:
        assert dtype(parse_term(text), K) == want


def test_literals_and_the_kernel_decides() -> None:
    assert is_literal(parse_term("1 / 3"), K) and not is_literal(parse_term("A[@i]"), K) and not is_literal(parse_term("n"), K)
    other = Kernel("k", ("n",), (), (Array("A", "f64", N),), (), Term("skip"))
    t = Term("add", Term("get", "A", ix(Term("axis", "i"))), Term("num", "1.0"))
    assert (dtype(t, K), dtype(t, other)) == ("f32", "f64")
