"""The programs shown in docs/language.md elaborate, pass their own tests, and agree with their elaboration."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from moa_rewrite import lang
from moa_rewrite.lang.builtins import CALLABLE
from moa_rewrite.lang.checks import Test
from moa_rewrite.lang.program import prelude
from moa_rewrite.semantics import run

PAGE = (Path(__file__).resolve().parent.parent / "docs" / "language.md").read_text(encoding="utf-8")
PROGRAMS = re.findall(r"```moa\n(.*?)```", PAGE, re.S)


@pytest.mark.parametrize("text", PROGRAMS)
def test_program(text: str) -> None:
    program = lang.load(text)
    kernel = lang.elaborate(program)
    random = Test("", kernel.name, program.kernel().pos, dict.fromkeys(kernel.sizes, 3))
    for test in [*program.tests(), random]:
        inputs, sizes = test.arguments(kernel)
        got = lang.interpret(program, None, inputs, sizes)
        for name, value in run(kernel, inputs, sizes).items():
            np.testing.assert_allclose(value, got[name], rtol=1e-9)
        for name, want in test.expect.items():
            np.testing.assert_allclose(got[name], want, atol=test.within)


def test_page_names_everything() -> None:
    for name in (*CALLABLE, *[d.name for d in prelude()]):
        assert re.search(rf"\b{name}\b", PAGE), name
