"""Wrong programs (tests/bad): each is refused with one clear error, whose code its first line says."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from moa_rewrite import lang
from moa_rewrite.errors import MoaError

BAD = sorted((Path(__file__).parent / "bad").glob("*.moa"))
TWO_PLACES = (204, 301, 302, 303, 304, 305, 306, 307, 308, 310)  # what disagrees stands at two places


def refuse(path: Path) -> MoaError:
    with pytest.raises(MoaError) as e:
        program = lang.load_file(path)
        program.tests()
        for name in [*program.kernels] or [None]:
            lang.elaborate(program, name)
    return e.value


@pytest.mark.parametrize("path", BAD, ids=lambda p: p.stem)
def test_bad_program(path: Path) -> None:
    want = int(path.read_text(encoding="utf-8")[5:9])
    error = refuse(path)
    text = str(error)
    assert error.code == want, text
    assert error.exit_code == 1
    assert text.count("error[MOA") == 1
    assert len(text.splitlines()) <= 8
    if want != 213:
        assert re.match(rf".*{path.stem}\.moa:\d+:\d+: error\[MOA{want:04d}\]: ", text), text
    if want in TWO_PLACES and "promises" not in text and "diagonal" not in path.stem:
        assert sum(bool(re.search(r":\d+:\d+$|:\d+:\d+ has", n)) for n in error.notes) >= 2, text
    if want < 111 and want != 107:  # syntax: the line and a caret below it
        assert error.notes[1].lstrip() == "^" or error.notes[1] == "^"
        assert len(error.notes[1]) == error.col
    assert error.hint or want == 101, "what to try is missing"


@pytest.mark.parametrize(("stem", "witness"), [("shapes_differ", "m = 0, n = 1"), ("over_take", "n = 0"), ("index_out_of_range", "n = 0"),
                                               ("inner_lengths", "k = 0, m = 1"), ("reshape_count", "n = 1"), ("promised_shape", "m = 0, n = 1")])  # fmt: skip
def test_witness(stem: str, witness: str) -> None:
    assert refuse(Path(__file__).parent / "bad" / f"{stem}.moa").witness == witness


def test_every_kind_of_mistake_has_a_program() -> None:
    codes = {int(p.read_text(encoding="utf-8")[5:9]) for p in BAD}
    assert codes >= {*range(101, 112), *range(201, 210), 211, 212, 213, *range(301, 312)}


def test_message_in_full() -> None:
    with pytest.raises(MoaError) as e:
        lang.elaborate(lang.load("kernel f(A: f32[n, k], B: f32[m, k]) -> f32[n, m]\n  = A +.× B", "f.moa"))
    assert str(e.value) == (
        "f.moa:2:7: error[MOA0303]: inner product over axes of length k and m\n"
        "  <n, k> at f.moa:2:5\n"
        "  <m, k> at f.moa:2:11\n"
        "  witness: k = 0, m = 1\n"
        "  try: the last axis of the left meets the first axis of the right; transpose one of them?"
    )


def test_a_mistake_inside_the_prelude_is_shown_where_it_was_made() -> None:
    with pytest.raises(MoaError) as e:
        lang.elaborate(lang.load("kernel f(x: f32[n], w: f32[k]) -> f32[n]\n  = windows(x, k + 1) +.× w", "f.moa"))
    assert (e.value.file, e.value.line, e.value.col) == ("f.moa", 2, 5)
    assert any(n.startswith("found at prelude.moa:") for n in e.value.notes)


def test_where_makes_it_right() -> None:
    for source in (
        "kernel f(x: f32[n]) -> f32[3] where n >= 3 = 3 ↑ x",
        "kernel f(x: f32[n], y: f32[m]) -> f32[n] where n == m = x + y",
        "kernel f(x: f32[n], y: f32[m]) -> f32[n] where n > m = (m ↓ x) ++ (m ↑ x)",
        "kernel f(x: f32[n]) -> f32 where n % 4 == 0, n > 0 = x[3]",
        "kernel f(x: f32[n]) -> f32[n - 1, 2] where n == 2 = <n - 1, n> ρ̂ x",
        "kernel f(x: f32[n]) -> f32[n // 2, 2] where n % 2 == 0 = <n // 2, 2> ρ̂ x",
    ):
        lang.elaborate(lang.load(source))
        with pytest.raises(MoaError):
            lang.elaborate(lang.load(re.sub(r"where .*? = ", "= ", source)))


def test_call_with_wrong_shapes() -> None:
    kernel = lang.elaborate(lang.load("kernel f(x: f32[n, m], y: f32[n + 1], z: f32[2 * k]) -> f32[k] where k >= 1 = k ↑ z"))
    good = {"x": np.ones((2, 5)), "y": np.ones(3), "z": np.ones(8)}
    assert lang.bind_sizes(kernel, good) == {"n": 2, "m": 5, "k": 4}
    for change, code in (({"y": np.ones(4)}, 312), ({"z": np.ones(7)}, 313), ({"x": np.ones(2)}, 312), ({"w": np.ones(2)}, 312)):
        with pytest.raises(MoaError) as e:
            lang.bind_sizes(kernel, {**good, **change})
        assert e.value.code == code
    with pytest.raises(MoaError) as e:
        lang.bind_sizes(kernel, {"x": np.ones((2, 5))})
    assert e.value.code == 312
    with pytest.raises(MoaError) as e:
        lang.check_where(kernel, {"n": 2, "m": 5, "k": 0})
    assert e.value.code == 314 and e.value.witness == "k = 0"


def test_a_constraint_that_divides_by_zero_is_not_met() -> None:
    kernel = lang.elaborate(lang.load("kernel f(x: f32[n], y: f32[m]) -> f32[n] where n % m == 0 = x"))
    lang.check_where(kernel, {"n": 6, "m": 3})
    for sizes in ({"n": 6, "m": 4}, {"n": 6, "m": 0}):
        with pytest.raises(MoaError) as e:
            lang.check_where(kernel, sizes)
        assert e.value.code == 314
    quotient = lang.elaborate(lang.load("kernel f(x: f32[n], y: f32[m], z: f32[n // m]) -> f32[n] = x"))
    with pytest.raises(MoaError) as e:
        lang.bind_sizes(quotient, {"x": np.ones(3), "y": np.ones(0), "z": np.ones(1)})
    assert e.value.code == 314


def test_files() -> None:
    with pytest.raises(MoaError) as e:
        lang.load_file("no such file.moa")
    assert e.value.code == 100
