"""Every program of examples/ passes the tests inside it: by the interpreter of the source, and as an elaborated kernel."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from moa_rewrite import lang
from moa_rewrite.errors import MoaError
from moa_rewrite.lang.checks import Test
from moa_rewrite.semantics import run

ROOT = Path(__file__).resolve().parent.parent
FILES = sorted((ROOT / "examples").glob("*.moa"))
TESTS = [(f, t) for f in FILES for t in lang.load_file(f).tests()]


def close(got: np.ndarray, want: object, within: float) -> None:
    np.testing.assert_allclose(got, np.asarray(want, dtype=got.dtype).reshape(got.shape) if np.size(want) == 0 else want, rtol=within, atol=within)


@pytest.mark.parametrize(("file", "test"), TESTS, ids=[f"{f.stem}-{t.name}" for f, t in TESTS])
def test_in_source(file: Path, test: Test) -> None:
    program = lang.load_file(file)
    if test.error is not None:
        with pytest.raises(MoaError) as e:
            test.arguments(lang.elaborate(program, test.kernel))
        assert e.value.code == test.error
        return
    kernel = lang.elaborate(program, test.kernel)
    inputs, sizes = test.arguments(kernel)
    got = lang.interpret(program, test.kernel, inputs, sizes)
    assert got.keys() == {o.name for o in kernel.outputs}
    for name, want in test.expect.items():
        close(got[name], want, test.within)
    elaborated = run(kernel, inputs, sizes)
    for name, value in got.items():
        np.testing.assert_allclose(elaborated[name], value, rtol=1e-9, atol=1e-9)


def test_every_example_has_tests_with_expected_values() -> None:
    for f in FILES:
        program = lang.load_file(f)
        for k in program.kernels:
            assert any(t.expect for t in program.tests(k)), f"{f.name}: {k}"


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
def test_examples_are_in_canonical_text(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert lang.format(text) == text
