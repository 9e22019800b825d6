"""Canonical text: tree to text to tree is the identity, in symbols and in ASCII; formatting is idempotent; comments stay."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from moa_rewrite import lang
from moa_rewrite.lang import builtins as B
from moa_rewrite.lang.formatter import WIDTH, unparse
from moa_rewrite.lang.parse import comments, parse
from moa_rewrite.lang.tree import (
    App,
    Body,
    Bool,
    Def,
    Expr,
    Fn,
    Fold,
    Hole,
    Inner,
    KernelDef,
    Let,
    Name,
    Num,
    Outer,
    Param,
    Part,
    Prim,
    Rank,
    Ref,
    Result,
    Tuple,
    Type,
    Vector,
)  # fmt: skip

ROOT = Path(__file__).resolve().parent.parent
FILES = [*sorted((ROOT / "examples").glob("*.moa")), ROOT / "moa_rewrite" / "lang" / "prelude.moa"]

MESSY = """
#first

# second
# third
def f(x: T[n]) = let e=exp(x-max red x) in e/+ red e   # trailing
def g(x) =
  # about y
  let y = x # yy
    def h(a,b)=a+b*
     # in the middle
     b
  in h(y,
    y)  # result
## test not one
kernel k ( x : f32[n,m] , eps:f32 )->(f32[n],y:f32[n , m])  where n>=1,m%4==0 and m>0
  # before the body
  = (+ red Ω<1> x, (2↑_)Ω<1>x + -1↓φ x - Ω<1,0> m)  # end
# last
"""


@pytest.mark.parametrize("ascii", [False, True])
@pytest.mark.parametrize("text", [MESSY, *[f.read_text(encoding="utf-8") for f in FILES]], ids=["messy", *[f.stem for f in FILES]])
def test_format(text: str, ascii: bool) -> None:
    out = lang.format(text, ascii)
    assert parse(out, "") == parse(text, "")
    assert lang.format(out, ascii) == out
    assert sorted(c.text for c in comments(out)) == sorted(c.text for c in comments(text))
    assert not ascii or all(c.isascii() for line in out.splitlines() for c in line.split("#")[0])
    assert lang.format(lang.format(out, not ascii), ascii) == out


def test_comments_stay_where_they_were() -> None:
    lines = lang.format(MESSY).splitlines()
    assert lines[:5] == ["#first", "", "# second", "# third", "def f(x: T[n]) ="]
    assert "  in e ÷ (+ red e)  # trailing" in lines
    assert lines[lines.index("  # about y") + 1] == "  let y = x  # yy"
    assert lines[lines.index("  # before the body") + 1].startswith("  = (")
    assert lines[-1] == "# last"


def test_parentheses_stay_where_they_matter() -> None:
    for text in (
        "a - (b - c)", "a - b - c", "a ÷ (b × c)", "(a + b) × c", "-(a + b)", "-a + b", "- red x", "a - (- red x)", "(a ↓ x) - y", "a ↓ x - y", "(a < b) == c",
        "not a and b", "not (a and b)", "a or b and c", "(a or b) and c", "φ(a + b)", "φa + b", "1 ↓ 2 ↑ x", "(1 ↓ x) ↑ y", "-1 ↓ x", "-(1 ↓ x)", "f(x)[0]",
        "(a + b)[0]", "<1, 2> ψ a", "a ++ b ++ c", "a ++ (b ++ c)", "exp(-x)", "+ red (x × y)", "(+ red x) × y", "x •× (y •+ z)", "(x +.× y) +.× z",
        "(_ + 1) Ω<1> x", "f(_, 1) Ω<1> x", "x - Ω<1,0> (y - Ω<1,0> z)", "(x - Ω<1,0> y) - Ω<1,0> z", "a •<= b + c", "(a •<= b) and c", "--a", "a - -b",
    ):  # fmt: skip
        source = f"def q(a, b, c, x, y, z) = {text}\n"
        assert parse(lang.format(source), "") == parse(source, "")
        assert parse(lang.format(source, ascii=True), "") == parse(source, "")


def random_expr(r: random.Random, depth: int, holes: list[int] | None = None) -> Expr:
    if depth <= 0 or r.random() < 0.1:
        if holes is not None and r.random() < 0.5:
            holes.append(0)
            return Hole(len(holes) - 1)
        return r.choice([Name("a"), Name("b"), Num("2"), Num("0.5"), Bool(True), Name("pi")])
    kind = r.randrange(12)
    if kind == 0:
        return Vector(tuple(random_expr(r, depth - 1, holes) for _ in range(r.randrange(3))))
    if kind == 1:
        op = r.choice([*B.UNARY, *B.DTYPES])
        return App(Prim(op), (random_expr(r, depth - 1, holes),))
    if kind == 2:
        return App(Prim("select"), tuple(random_expr(r, depth - 1, holes) for _ in range(3)))
    if kind == 3:
        op = r.choice(list(B.STRUCTURAL))
        return App(Prim(op), tuple(random_expr(r, depth - 1, holes) for _ in range(r.choice(B.STRUCTURAL[op]))))
    if kind == 4:
        return App(Ref("f"), tuple(random_expr(r, depth - 1, holes) for _ in range(r.randrange(3))))
    if kind == 5:
        return App(Fold(r.choice(["red", "scan"]), r.choice([*B.MONOIDS, "sub", "div"])), (random_expr(r, depth - 1, holes),))
    if kind == 6:
        return App(Inner(r.choice(B.MONOIDS), r.choice(B.BINARY)), (random_expr(r, depth - 1, holes), random_expr(r, depth - 1, holes)))
    if kind == 7:
        return App(Outer(r.choice(B.BINARY)), (random_expr(r, depth - 1, holes), random_expr(r, depth - 1, holes)))
    if kind == 8:
        fn, n = random_fn(r, depth - 1)
        return App(Rank(fn, tuple(r.randrange(3) for _ in range(n))), tuple(random_expr(r, depth - 1, holes) for _ in range(n)))
    return App(Prim(r.choice(B.BINARY)), (random_expr(r, depth - 1, holes), random_expr(r, depth - 1, holes)))


def random_fn(r: random.Random, depth: int) -> tuple[Fn, int]:
    kind = r.randrange(6)
    if kind == 0:
        return Ref("f"), r.choice([1, 2, 3])
    if kind == 1:
        return Fold("red", r.choice(["add", "max", "sub"])), 1
    if kind == 2:
        return Prim(r.choice([u for u in B.UNARY if u not in ("neg", "not")])), 1
    if kind == 3:
        return Prim(r.choice([*B.ARITH, *B.ORDER, "cat", "take", "psi", "rotate"])), 2
    if kind == 4:
        return Inner("add", "mul"), 2
    holes: list[int] = []
    body = random_expr(r, depth, holes)
    if not holes or isinstance(body, Hole):
        return Prim("reverse"), 1
    return renumber(body), len(holes)


def renumber(body: Expr) -> Part:
    """Holes count from left to right in the text."""
    count = 0

    def go(e: Expr) -> Expr:
        nonlocal count
        match e:
            case Hole():
                count += 1
                return Hole(count - 1)
            case App(fn, args):
                return App(fn, tuple(go(a) for a in args))
            case Vector(items):
                return Vector(tuple(go(a) for a in items))
        return e

    renumbered = go(body)
    return Part(renumbered, count)


@pytest.mark.parametrize("seed", range(300))
def test_random_trees(seed: int) -> None:
    r = random.Random(seed)
    inner = Def("g", (Param("u", Type("T", (Name("n"),))), Param("v", Type("", (Name("n"), Num("2"))))), Body((), random_expr(r, 3)))
    pair = Let(("y", "z"), Body((Let(("w",), Body((), random_expr(r, 2))),), Name("w")))
    body = Body((Let(("x",), Body((), random_expr(r, 4))), inner, pair), random_expr(r, 5))
    params = (Param("a", Type("f32", (Name("n"),))), Param("b", Type("i32", ())))
    results = (Result("p", Type("f32", ())), Result("", Type("f64", (Num("3"),))))
    kernel = KernelDef("k", params, results, (App(Prim("ge"), (Name("n"), Num("1"))),), body)
    tree = (Def("f", (Param("x", None),), Body((), random_expr(r, 5))), kernel, Def("t", (), Body((), Tuple((Name("a"), random_expr(r, 3))))))
    for ascii in (False, True):
        text = unparse(tree, ascii)
        assert parse(text, "") == tree, text
        assert lang.format(text, ascii) == text


def test_long_lines_break_at_operators() -> None:
    text = "kernel f(x: f32[n]) -> f32[n] = " + " + ".join(f"x × {k}.25" for k in range(30))
    lines = lang.format(text).splitlines()
    assert len(lines) > 4 and max(map(len, lines)) <= WIDTH + 10
    assert parse("\n".join(lines), "") == parse(text, "")
