"""Programs of many statements, one inside the other."""

from __future__ import annotations

import pytest

from moa_rewrite import lang, rules
from moa_rewrite.rules import psi_normalise
from moa_rewrite.search.algebra import alternatives
from moa_rewrite.search.form import rename_axes


@pytest.mark.parametrize("depth", [1, 13, 40])
def test_forms_of_deep_scalars(depth: int) -> None:
    """However deep a term is, the one that was written is among its forms."""
    lets = "".join(f"let y{k + 1} = max(0, y{k} × a) " for k in range(depth)).replace("y0", "x")
    program = f"kernel deep(x: f32[n], a: f32[n]) -> f32[n] = {lets} in y{depth}"
    laws = rules.load()
    dnf, _ = rename_axes(psi_normalise(lang.elaborate(lang.load(program)), laws)[0], laws)
    names = [r.name for r in laws.values() if r.group == "algebra"]
    found, _ = alternatives(dnf, laws, names, {"n": 64}, 4)
    assert dnf in [k for k, _ in found]
