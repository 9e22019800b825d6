"""Examples of a transformer against PyTorch, in both floating-point types, at sizes with tails. In CI PyTorch must be there."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from through_c import compiled

from moa_rewrite.build import LoadedKernel

try:
    import torch
except ImportError:
    torch = None  # type: ignore[assignment]
    if os.environ.get("CI"):
        raise

pytestmark = pytest.mark.skipif(torch is None, reason="PyTorch is not installed")
EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
TOLERANCE = {"f32": 2e-5, "f64": 1e-12}
NUMPY: dict[str, Any] = {"f32": np.float32, "f64": np.float64}


def normed(x: Any, gain: Any, bias: Any, eps: Any) -> Any:
    return torch.nn.functional.layer_norm(x, x.shape[-1:], gain, bias, float(eps))


def gated(x: Any, wg: Any, wu: Any, wd: Any) -> Any:
    return (torch.nn.functional.silu(x @ wg) * (x @ wu)) @ wd


# file -> PyTorch's function of the inputs in their order, and the inputs' shapes at sizes a, b, c, d
CASES: dict[str, tuple[Callable[..., Any], Callable[[int, int, int, int], list[tuple[int, ...]]]]] = {
    "attention": (lambda *t: torch.nn.functional.scaled_dot_product_attention(*t), lambda a, b, c, d: [(2, a, d), (2, b, d), (2, b, c)]),
    "softmax": (lambda x: torch.softmax(x, -1), lambda a, b, c, d: [(a, b)]),
    "layernorm": (normed, lambda a, b, c, d: [(d, a, b), (b,), (b,), ()]),
    "rmsnorm": (lambda x, gain, eps: torch.nn.functional.rms_norm(x, x.shape[-1:], gain, float(eps)), lambda a, b, c, d: [(a, b), (b,), ()]),
    "gated_mlp": (gated, lambda a, b, c, d: [(a, d), (d, b), (d, b), (b, d)]),
    "matmul": (lambda x, y: x @ y, lambda a, b, c, d: [(a, d), (d, b)]),
    "conv1d": (lambda x, w: torch.nn.functional.conv1d(x[None, None], w[None, None])[0, 0], lambda a, b, c, d: [(a + b,), (c,)]),
}


@functools.cache
def kernel(name: str, ty: str, folder: Path) -> LoadedKernel:
    text = (EXAMPLES / f"{name}.moa").read_text(encoding="utf-8")
    (folder / name / ty).mkdir(parents=True)  # a library of the same path would not be loaded twice
    return compiled(text.replace("f32", ty), folder / name / ty, name)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("torch")


@pytest.mark.parametrize("ty", ["f32", "f64"])
@pytest.mark.parametrize("name", CASES)
def test_against_pytorch(name: str, ty: str, folder: Path) -> None:
    theirs, shapes = CASES[name]
    ours = kernel(name, ty, folder)
    rng = np.random.default_rng(11)
    for sizes in ((37, 53, 19, 41), (1, 1, 1, 1), (130, 257, 65, 33)):
        inputs = [np.asarray(rng.standard_normal(s) if s else 1e-5).astype(NUMPY[ty]) for s in shapes(*sizes)]
        if name == "gated_mlp":
            inputs = [x / np.sqrt(x.shape[0]).astype(NUMPY[ty]) for x in inputs]
        want = theirs(*map(torch.from_numpy, inputs)).numpy()
        assert want.dtype == NUMPY[ty]
        got = ours(*inputs)
        np.testing.assert_allclose(got, want, rtol=TOLERANCE[ty], atol=TOLERANCE[ty] * max(1.0, float(np.abs(want).max())), err_msg=str(sizes))
