"""Sizes from the command line against a kernel's conditions."""

from __future__ import annotations

import pytest

from moa_rewrite.cli import sizes
from moa_rewrite.errors import MoaError
from moa_rewrite.terms import Kernel, parse_term


def kernel(names: str, *where: str) -> Kernel:
    return Kernel("k", tuple(names.split()), tuple(parse_term(w) for w in where), (), (), parse_term("skip()"))


def test_given_sizes_stay_and_the_rest_is_usual() -> None:
    assert sizes.complete(kernel("n m"), {"m": 7}) == {"n": 1024, "m": 7}


@pytest.mark.parametrize(
    ("names", "where", "expected"),
    [
        ("n d", ("d <= 64",), {"n": 1024, "d": 64}),
        ("n", ("n % 3 == 0", "0 < n"), {"n": 3}),
        ("n m", ("n == 2 * m",), {"n": 1024, "m": 512}),
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
