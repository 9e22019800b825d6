"""PyTorch: "torch" eager with preallocated outputs where an operator takes them (and scaled_dot_product_attention for attention), "torch-compile" the plain
formula through torch.compile, which allocates its result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from cases import Case  # type: ignore[import-not-found]
from worker import Cannot, Run  # type: ignore[import-not-found]

sdpa = F.scaled_dot_product_attention


def formula(case: Case, t: dict[str, Any]) -> Any:
    """The function to compile, over the inputs in order."""
    match case.group:
        case "attention" | "attention_causal":
            mask = torch.triu(torch.full((case.sizes["n"],) * 2, float("-inf")), 1) if case.group == "attention_causal" else None

            def attend(Q: Any, K: Any, V: Any) -> Any:
                s = Q @ K.transpose(-1, -2) / Q.shape[-1] ** 0.5
                return torch.softmax(s if mask is None else s + mask, -1) @ V

            return attend
        case "decode":
            return lambda q, K, V: (torch.softmax(q[:, None] @ K.transpose(-1, -2) / q.shape[-1] ** 0.5, -1) @ V)[:, 0]
        case "rmsnorm":
            return lambda x, gain: x * torch.rsqrt((x * x).mean(-1, keepdim=True) + case.scalars["eps"]) * gain
        case "softmax":
            return lambda x: torch.softmax(x, -1)
        case "gated_mlp":
            return lambda X, Wg, Wu, Wd: (F.silu(X @ Wg) * (X @ Wu)) @ Wd
        case "stencil5":

            def steps(A: Any) -> Any:
                for _ in range(case.steps):
                    A = 0.25 * (torch.roll(A, 1, 0) + torch.roll(A, -1, 0) + torch.roll(A, 1, 1) + torch.roll(A, -1, 1))
                return A

            return steps
        case "stencil5_drop":
            return lambda A: 0.25 * (A[:-2, 1:-1] + A[2:, 1:-1] + A[1:-1, :-2] + A[1:-1, 2:])
        case "stencil9":

            def nine(A: Any) -> Any:
                r = A[:-2] + 2 * A[1:-1] + A[2:]
                return (r[:, :-2] + 2 * r[:, 1:-1] + r[:, 2:]) / 16

            return nine
        case "sum":
            return lambda x: x.sum()
        case "dot":
            return lambda x, y: (x * y).sum()
        case "prefix_sum":
            return lambda x: torch.cumsum(x, 0)
        case "outer":
            return lambda x, y: x[:, None] * y[None]
        case "pairwise_distances":
            return lambda x, y: ((x[:, None] - y) ** 2).sum(-1)
        case "kernel_density":
            width = case.scalars["width"]
            height = 1 / (case.sizes["m"] * width * (2 * torch.pi) ** 0.5)
            return lambda x, samples: height * torch.exp(-0.5 * ((x[:, None] - samples) / width) ** 2).sum(-1)
        case "cross_entropy":
            return lambda x, label: F.cross_entropy(x, label.long(), reduction="none")
        case "jacobi3d":
            i = slice(1, -1)
            return lambda u, f: (u[:-2, i, i] + u[2:, i, i] + u[i, :-2, i] + u[i, 2:, i] + u[i, i, :-2] + u[i, i, 2:] + f[i, i, i]) / 6
        case "conv1d_stride2":
            return lambda x, w: F.conv1d(x[None], w, stride=2)[0]
        case "mahalanobis":

            def squared(x: Any, mean: Any, P: Any) -> Any:
                t = x - mean
                return (t @ P * t).sum(-1)

            return squared
        case other:
            raise Cannot(f"{other} compiles to the eager operator")


def eager(case: Case, t: dict[str, Any], kept: dict[str, Any]) -> Any:
    match case.group:
        case "attention" | "attention_causal":
            causal = case.group == "attention_causal"
            q, k, v = (t[x][None] for x in "QKV")
            return lambda: sdpa(q, k, v, is_causal=causal)
        case "decode":
            q, k, v = t["q"][None, :, None], t["K"][None], t["V"][None]
            return lambda: sdpa(q, k, v)
        case "rmsnorm":
            return lambda: F.rms_norm(t["x"], (t["x"].shape[-1],), t["gain"], case.scalars["eps"])
        case "softmax":
            out = torch.empty_like(t["x"])
            return lambda: torch.softmax(t["x"], -1, out=out)
        case "gated_mlp":
            out = torch.empty_like(t["X"])
            return lambda: torch.matmul(F.silu(t["X"] @ t["Wg"]).mul_(t["X"] @ t["Wu"]), t["Wd"], out=out)
        case "matmul" | "matmul64" | "batched_matmul" | "matmul_nt" | "matmul_tn":
            x = t["A"].T if case.group == "matmul_tn" else t["A"]
            y = t["B"].T if case.group == "matmul_nt" else t["B"]
            out = torch.matmul(x, y)
            return lambda: torch.matmul(x, y, out=out)
        case "sum":
            return lambda: t["x"].sum()
        case "dot":
            return lambda: torch.dot(t["x"], t["y"])
        case "prefix_sum":
            out = torch.empty_like(t["x"])
            return lambda: torch.cumsum(t["x"], 0, out=out)
        case "outer":
            out = torch.empty(t["x"].numel(), t["y"].numel())
            return lambda: torch.outer(t["x"], t["y"], out=out)
        case "pairwise_distances":  # its own operator, which goes through a product; the broadcast form is torch-compile's
            return lambda: torch.cdist(t["x"], t["y"], compute_mode="use_mm_for_euclid_dist").square_()
        case _:
            f = formula(case, t)
            inputs = list(t.values())
            return lambda: f(*inputs)


def gradients(case: Case, t: dict[str, Any], peer: str, kept: dict[str, Any]) -> Run:
    """Gradients of SDPA by autograd, or of the plain formula compiled. Of attention_backward the forward pass is not timed."""
    causal, forward = "causal" in case.group, "train" in case.group
    q, k, v, do = (t[x][None] for x in ("Q", "K", "V", "dO"))
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    if peer == "torch-compile":
        mask = torch.triu(torch.full((q.shape[2], k.shape[2]), float("-inf")), 1) if causal else None

        def plain(Q: Any, K: Any, V: Any) -> Any:
            s = Q @ K.transpose(-1, -2) / Q.shape[-1] ** 0.5
            return torch.softmax(s if mask is None else s + mask, -1) @ V

        attend = torch.compile(plain, dynamic=False)
    else:
        attend = lambda *x: sdpa(*x, is_causal=causal)  # noqa: E731
    once = None if forward else attend(*leaves)

    def call() -> None:
        y = attend(*leaves) if once is None else once
        if forward:
            kept["O"] = y.detach()
        kept.update(zip(("dQ", "dK", "dV"), torch.autograd.grad(y, leaves, do, retain_graph=not forward), strict=True))

    return call, lambda: {n: x.numpy()[0] for n, x in kept.items()}


def make(case: Case, arrays: dict[str, np.ndarray], peer: str, threads: int, folder: Path) -> Run:
    torch.set_num_threads(threads)
    t = {n: torch.from_numpy(a) for n, a in arrays.items()}
    kept: dict[str, Any] = {}
    if case.group.startswith(("attention_backward", "attention_train")):
        return gradients(case, t, peer, kept)
    if peer == "torch-compile":
        compiled = torch.compile(formula(case, t), dynamic=False)
        inputs = list(t.values())
        run = lambda: compiled(*inputs)  # noqa: E731
    else:
        run = eager(case, t, kept)

    def call() -> None:
        with torch.inference_mode():
            kept["out"] = run()

    return call, lambda: {"out": kept["out"].numpy().reshape(-1) if case.group in ("sum", "dot") else np.squeeze(kept["out"].numpy())}
