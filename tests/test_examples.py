"""Every kernel of examples/ goes the whole way: search, obligations for all sizes, C and Fortran, run at odd sizes, size 1 and size 0, in f32 and f64.

The CUDA of four of them is compiled for sm_80 and run for its values in the emulator. The oracle is the float64 interpreter of the DNF with its error bound,
which has tests of its own against NumPy.
"""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pytest
from test_search import Machine

from moa_rewrite import build, emit, lang, machine, proof, rules, search
from moa_rewrite.build import nvcc, simt
from moa_rewrite.build.call import NUMPY, evaluate
from moa_rewrite.build.fortran import compile_fortran
from moa_rewrite.emit.cuda import print_cuda
from moa_rewrite.emit.fortran import print_fortran
from moa_rewrite.emit.lower_cuda import lower_cuda
from moa_rewrite.semantics.reference import reference

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
SWAP = {"f32": "f64", "f64": "f32"}
LONG = {"attention_backward_causal", "attention_train", "attention_train_causal"}  # half a minute of search and more


def kernels() -> list[tuple[str, str]]:
    return [(p.stem, k) for p in sorted(EXAMPLES.glob("*.moa")) for k in lang.load_file(p).kernels]


def elaborated(file: str, kernel: str, other: bool):
    """The kernel, or the same with the other floating-point type."""
    if not other:
        return lang.elaborate(lang.load_file(EXAMPLES / f"{file}.moa"), kernel)
    text = (EXAMPLES / f"{file}.moa").read_text(encoding="utf-8")
    swapped = text.replace("f32", "f?").replace("f64", "f32").replace("f?", "f64")
    return lang.elaborate(lang.load(swapped), kernel)


@functools.cache
def optimized(file: str, kernel: str, other: bool, gpu: bool = False):
    k = elaborated(file, kernel, other)
    sizes = dict.fromkeys(k.sizes, 96)
    result = search.optimize(k, rules.load(), machine.load("delta-a100") if gpu else Machine, sizes, search.Options(timeout=300))
    limits = proof.Limits("cuda", 64, shared_bytes=machine.load("delta-a100").shared_bytes) if gpu else proof.Limits("c", 64)
    end = proof.replay(k, result.steps, rules.load())
    assert end.onf == result.kernel
    proved = proof.discharge(end.onf, end.dnf, limits)
    assert proved
    return k, result


def trial_sizes(kernel) -> list[dict[str, int]]:
    """Odd sizes with tails in every tile, ones and zeros: those that `where` and the shapes admit."""
    odd = dict(zip(kernel.sizes, (37, 53, 41, 19, 23, 29), strict=False))
    growing = {s: 3 + 2 * n for n, s in enumerate(kernel.sizes)}
    shrinking = {s: 71 - 6 * n for n, s in enumerate(kernel.sizes)}
    found = [odd, growing, shrinking, dict.fromkeys(kernel.sizes, 1), dict.fromkeys(kernel.sizes, 0)]
    for s in kernel.sizes:  # one axis empty, the others not
        found.append({**odd, s: 0})
    return [t for t in found if admitted(kernel, t)]


def admitted(kernel, sizes: dict[str, int]) -> bool:
    shapes = [evaluate(d, sizes) for a in (*kernel.inputs, *kernel.outputs) for d in a.shape]
    return all(evaluate(w, sizes) for w in kernel.where) and all(n >= 0 for n in shapes)


def data(kernel, sizes: dict[str, int]) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(7)
    out = {}
    for a in kernel.inputs:
        shape = [evaluate(d, sizes) for d in a.shape]
        x = rng.uniform(0.5, 1.5, shape) if a.name in ("edges", "rates", "eps") else rng.standard_normal(shape)
        if a.dtype in ("i32", "i64"):
            x = rng.integers(-2, 60, shape) if a.name == "label" else rng.integers(1583, 2400, shape)
        out[a.name] = np.sort(x).astype(NUMPY[a.dtype]) if a.name == "edges" else np.asarray(x).astype(NUMPY[a.dtype])
    return out


def agrees(kernel, result, got, inputs, sizes) -> None:
    """Every cell of every output is within its bound of the reference."""
    outs = got if isinstance(got, dict) else dict(zip([a.name for a in kernel.outputs], got if isinstance(got, tuple) else (got,), strict=True))
    for name, (_, value, bound) in reference(result.dnf, inputs, sizes).items():
        verdict = build.verify(np.asarray(outs[name]), np.asarray(value), bound)
        assert verdict.ok, f"{name} at {sizes}: {verdict.text}"


def goes_the_whole_way(file: str, name: str, other: bool, tmp_path: Path) -> None:
    kernel, result = optimized(file, name, other)
    program = emit.lower(result.kernel, "c")
    source = emit.print_c(program)
    in_c = build.load(build.compile_c(source.c_text, source.h_text, tmp_path, name=program.name), kernel, program.name)
    printed = print_fortran(emit.lower(result.kernel, "fortran"))
    text = tmp_path / f"{program.name}.f90"
    text.write_text(printed.f90_text, encoding="utf-8")
    in_fortran = build.load(compile_fortran(text), kernel, program.name)
    for test in [] if other else lang.load_file(EXAMPLES / f"{file}.moa").tests(name):  # the values that the program itself expects
        if test.error is None:
            given, at = test.arguments(kernel)
            typed = {a.name: np.asarray(given[a.name]).astype(NUMPY[a.dtype]) for a in kernel.inputs}
            for f in (in_c, in_fortran):
                got = f(**typed, sizes=at)
                got = dict(zip([o.name for o in kernel.outputs], got if isinstance(got, tuple) else (got,), strict=True))
                for out, want in test.expect.items():
                    within = max(test.within, 1e-5 if got[out].dtype == np.float32 else 0.0)
                    np.testing.assert_allclose(got[out], np.asarray(want).reshape(got[out].shape), rtol=within, atol=within, err_msg=test.name)
    tried = trial_sizes(kernel)
    assert tried
    for sizes in tried:
        inputs = data(kernel, sizes)
        agrees(kernel, result, in_c(**inputs, sizes=sizes), inputs, sizes)
        agrees(kernel, result, in_fortran(**inputs, sizes=sizes), inputs, sizes)


@pytest.mark.parametrize(("file", "name"), [pytest.param(f, k, marks=[pytest.mark.slow] if f in LONG else []) for f, k in kernels()])
def test_c_and_fortran(file, name, tmp_path):
    goes_the_whole_way(file, name, False, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(("file", "name"), [k for k in kernels() if k[0] not in {"calendar", *LONG}])
def test_the_other_floating_point_type(file, name, tmp_path):
    goes_the_whole_way(file, name, True, tmp_path)


@pytest.mark.parametrize("name", ["attention", "matmul", "softmax", "stencil5_drop", "stencil5_rotate"])
def test_cuda(name, tmp_path):
    kernel, result = optimized(name, name, False, gpu=True)
    program = lower_cuda(result.kernel, emit.Options())
    printed = print_cuda(program)
    (tmp_path / f"{program.name}.h").write_text(printed.h_text, encoding="utf-8")
    file_cu = tmp_path / f"{program.name}.cu"
    file_cu.write_text(printed.cu_text, encoding="utf-8")
    nvcc.compile_cubin(file_cu, "sm_80")
    library = simt.build(printed.cu_text, tmp_path, program.name)
    for sizes in trial_sizes(result.kernel):
        inputs = data(kernel, sizes)
        outputs = [np.empty([evaluate(d, sizes) for d in a.shape], NUMPY[a.dtype]) for a in kernel.outputs]
        done = library.call(program.name, [sizes[s] for s in kernel.sizes], [inputs[a.name] for a in kernel.inputs], outputs)
        assert done.code == 0 and not any(done.unwritten), (sizes, done.messages)
        assert not done.faults and not done.leaked, done.messages
        agrees(kernel, result, tuple(done.outputs) if len(done.outputs) > 1 else done.outputs[0], inputs, sizes)
