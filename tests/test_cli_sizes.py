"""Sizes from the command line against a kernel's conditions."""

from __future__ import annotations

import pytest

from moa_rewrite import lang
from moa_rewrite.cli import sizes
from moa_rewrite.errors import MoaError
from moa_rewrite.terms import Array, Kernel, parse_term, size


def kernel(names: str, *where: str) -> Kernel:
    """A kernel with one input of all its sizes' product."""
    shape = tuple(size(n) for n in names.split())
    return Kernel("k", tuple(names.split()), tuple(parse_term(w) for w in where), (Array("A", "f32", shape),), (), parse_term("skip()"))


@pytest.mark.parametrize(("names", "expected"), [("n", 2**20), ("n m", 2**11), ("n m d", 2**7), ("a b c d", 2**5), ("a b c d e", 2**4)])
def test_sizes_nobody_gave(names: str, expected: int) -> None:
    assert sizes.complete(kernel(names), {}) == dict.fromkeys(names.split(), expected)


def test_the_product_of_all_sizes_is_bounded_too() -> None:
    k = Kernel("k", ("n", "m", "d"), (), (Array("A", "f32", (size("n"), size("m"))),), (), parse_term("skip()"))
    assert sizes.complete(k, {}) == dict.fromkeys("nmd", 1024)
    assert sizes.complete(k, {"n": 1000, "m": 777})["d"] == 1024
    assert sizes.complete(k, {}, points=2**9) == dict.fromkeys("nmd", 8)


def test_given_sizes_stay() -> None:
    assert sizes.complete(kernel("n m"), {"m": 7}) == {"n": 2**19, "m": 7}
    assert sizes.complete(kernel("n m"), {"m": 2**40})["m"] == 2**40


@pytest.mark.parametrize(
    ("names", "where", "expected"),
    [
        ("n d", ("d <= 64",), {"n": 2048, "d": 64}),
        ("n", ("n % 3 == 0", "0 < n"), {"n": 3}),
        ("n m", ("n == 2 * m",), {"n": 2048, "m": 1024}),
        ("n", ("n == 0",), {"n": 0}),
        ("", (), {}),
    ],
)
def test_conditions_choose_smaller_ones(names: str, where: tuple[str, ...], expected: dict[str, int]) -> None:
    assert sizes.complete(kernel(names, *where), {}) == expected


def test_unknown_size() -> None:
    with pytest.raises(MoaError, match=r"has no size 'q'; its sizes are n, m\n  try: -D n 1000"):
        sizes.complete(kernel("n m"), {"q": 3})
    with pytest.raises(MoaError, match="it has none"):
        sizes.complete(kernel(""), {"q": 3})


def test_a_broken_condition_is_named_with_the_values() -> None:
    with pytest.raises(MoaError, match=r"kernel k asks for n < m\n  witness: m = 4, n = 5"):
        sizes.complete(kernel("n m d", "n < m", "d < n"), {"n": 5, "m": 4})


def test_no_usual_sizes() -> None:
    with pytest.raises(MoaError, match=r"no usual sizes meet .*n == 12345\n  try: -D n VALUE"):
        sizes.complete(kernel("n", "n == 12345"), {})


def test_typical_sizes_of_a_program():
    program = lang.load("kernel f(a: f32[n, m]) -> f32[n, m] = a\n\n## typical { n = 96, m = 7 }\n\nkernel g(a: f32[n]) -> f32[n] = a\n")
    assert program.typical("f") == {"n": 96, "m": 7} and program.typical("g") == {}
    kernel = lang.elaborate(program, "f")
    assert sizes.complete(kernel, {"m": 5}, typical=program.typical("f")) == {"n": 96, "m": 5}
    narrow = lang.elaborate(lang.load("kernel f(a: f32[n]) -> f32[n] where n <= 8 = a\n\n## typical { n = 96 }\n"))
    assert sizes.complete(narrow, {}, typical={"n": 96}) == {"n": 8}
