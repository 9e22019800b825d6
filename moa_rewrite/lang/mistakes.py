"""Syntax mistakes that people make. An error is one of these if the parser stops in the same state as on an example."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mistake:
    code: int
    message: str
    hint: str
    examples: tuple[str, ...]


MISTAKES = (
    Mistake(
        103, "a bracket is not closed", "add the missing ) or ] or >",
        (
            "def f(x) = (x", "def f(x) = f(x", "def f(x) = <1, 2", "def f(x) = (x + 1 def g(x) = x", "def f(x) = f(x def g(x) = x",
            "kernel k(x: f32[n) -> f32 = x",
            "kernel k(x: f32[n", "kernel k(x: f32[n]", "def f(x) = <1, 2 def g(x) = x", "def f(x) = let a = (x in a", "def f(x) = x[1",
        ),
    ),
    Mistake(
        104, "a binding needs `in` before the result", "write `let x = ... in result`",
        ("def f(x) = let a = x", "def f(x) = let a = x let b = a", "def f(x) = def g(y) = y"),
    ),
    Mistake(
        105, "an expression is missing here", "an operator needs an operand on its right",
        (
            "def f(x) = ", "def f(x) = x +", "def f(x) = x × )", "def f(x) = let a = in a", "def f(x) = (x + )", "def f(x) = (", "def f(x) = f(x, )",
            "def f(x) = x ↑", "def f(x) = + red", "def f(x) = let a = x in", "def f(x) = x + def g(x) = x", "def f(x) = φ", "def f(x) = x Ω<1>",
        ),
    ),
    Mistake(
        106, "two expressions stand side by side", "put an operator between them, or call f(x); a `let` needs `in` before the result",
        (
            "def f(x) = x x", "def f(x) = x 1", "def f(x) = f x", "def f(x) = (x) (x)", "def f(x) = 1 x", "def f(x) = x (x)", "def f(x) = (x x)",
            "def f(x) = let a = x x in a", "def f(x) = f(x x)",
        ),
    ),
    Mistake(
        107, "a type is missing here", "for example `x: f32[n]`; a scalar is `eps: f32`",
        ("kernel k(x:) -> f32 = x", "kernel k(x: ) -> f32 = x", "def f(x:) = x"),
    ),
    Mistake(
        108, "a kernel needs `-> type` and `= body`", "for example `kernel dot(x: f32[n], y: f32[n]) -> f32 = x +.× y`",
        ("kernel k(x: f32) = x", "kernel k(x: f32) -> f32", "kernel k(x: f32) -> = x", "kernel k(x: f32) x"),
    ),
    Mistake(
        109, "Ω needs the ranks of its arguments", "write literal ranks, one per argument: `f Ω<1> x`, `x - Ω<1,0> m`",
        ("def f(x) = f Ω x", "def f(x) = f Ω<n> x", "def f(x) = f Ω(1) x", "def f(x) = x - Ω x", "def f(x) = f Ω<> x"),
    ),
    Mistake(
        110, "comparisons do not chain", "write `a < b and b < c`",
        ("def f(x) = x < x < x", "def f(x) = x <= x <= x", "def f(x) = x == x == x"),
    ),
)  # fmt: skip
