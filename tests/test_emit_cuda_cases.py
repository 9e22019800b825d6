"""The cases of the C printer as CUDA: placements for CPUs run in sequence or are spread over threads, and give the same values."""

from __future__ import annotations

import numpy as np
import pytest
from test_emit_c import CASES, NUMPY, values

from moa_rewrite.build import evaluate, simt
from moa_rewrite.emit.cuda import print_cuda
from moa_rewrite.emit.lower_cuda import lower_cuda
from moa_rewrite.semantics.statements import run


@pytest.mark.parametrize("n", range(len(CASES)), ids=[f"{k.name}-{n}" for n, (k, _) in enumerate(CASES)])
def test_values(n, tmp_path):
    k, cases = CASES[n]
    program = lower_cuda(k)
    lib = simt.build(print_cuda(program).cu_text, tmp_path)
    for case in cases:
        sizes = dict(zip(k.sizes, case, strict=True))
        arrays = values(k, sizes)
        inputs = [arrays[a.name] if a.shape else NUMPY[a.dtype](arrays[a.name]) for a in k.inputs]
        outputs = [np.empty(tuple(evaluate(e, sizes) for e in a.shape), NUMPY[a.dtype]) for a in k.outputs]
        r = lib.call(program.name, list(case), inputs, outputs)
        assert r.code == 0 and not r.faults and not any(r.unwritten) and not r.leaked, (case, r.code, r.faults, r.messages)
        for a, got, wanted in zip(k.outputs, r.outputs, run(k, arrays, sizes).values(), strict=True):
            eps = {"f": 3e-5, "d": 1e-12}.get(got.dtype.char, 0)
            np.testing.assert_allclose(got.astype(float), np.asarray(wanted, float), rtol=eps, atol=eps, err_msg=f"{a.name} {case}")
