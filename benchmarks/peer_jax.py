"""JAX: jit of the plain formula; results are allocated by it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from cases import Case  # type: ignore[import-not-found]
from worker import Cannot, Run  # type: ignore[import-not-found]

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_platforms", "cpu")


def attention(causal: bool) -> Any:
    def attend(Q: Any, K: Any, V: Any) -> Any:
        s = Q @ K.swapaxes(-1, -2) * np.float32(1 / Q.shape[-1] ** 0.5)
        if causal:
            s = jnp.where(jnp.tril(jnp.ones(s.shape[1:], bool)), s, -jnp.inf)
        return jax.nn.softmax(s, -1) @ V

    return attend


def formula(case: Case) -> Any:
    match case.group:
        case "attention" | "attention_causal":
            return attention("causal" in case.group)
        case "attention_backward" | "attention_backward_causal" | "attention_train" | "attention_train_causal":
            attend = attention("causal" in case.group)

            def gradients(Q: Any, K: Any, V: Any, dO: Any) -> Any:
                out, back = jax.vjp(attend, Q, K, V)
                return {**({"O": out} if "train" in case.group else {}), **dict(zip(("dQ", "dK", "dV"), back(dO), strict=True))}

            return gradients
        case "decode":
            return lambda q, K, V: jnp.einsum("hm,hme->he", jax.nn.softmax(jnp.einsum("hd,hmd->hm", q, K) * np.float32(1 / q.shape[-1] ** 0.5), -1), V)
        case "rmsnorm":
            return lambda x, gain: x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + np.float32(case.scalars["eps"])) * gain
        case "softmax":
            return lambda x: jax.nn.softmax(x, -1)
        case "gated_mlp":
            return lambda X, Wg, Wu, Wd: (jax.nn.silu(X @ Wg) * (X @ Wu)) @ Wd
        case "matmul" | "matmul64" | "batched_matmul":
            return lambda A, B: A @ B
        case "matmul_nt":
            return lambda A, B: A @ B.T
        case "matmul_tn":
            return lambda A, B: A.T @ B
        case "stencil5":

            def steps(A: Any) -> Any:
                for _ in range(case.steps):
                    A = np.float32(0.25) * (jnp.roll(A, 1, 0) + jnp.roll(A, -1, 0) + jnp.roll(A, 1, 1) + jnp.roll(A, -1, 1))
                return A

            return steps
        case "stencil5_drop":
            return lambda A: np.float32(0.25) * (A[:-2, 1:-1] + A[2:, 1:-1] + A[1:-1, :-2] + A[1:-1, 2:])
        case "stencil9":

            def nine(A: Any) -> Any:
                r = A[:-2] + 2 * A[1:-1] + A[2:]
                return (r[:, :-2] + 2 * r[:, 1:-1] + r[:, 2:]) / np.float32(16)

            return nine
        case "sum":
            return lambda x: x.sum()
        case "dot":
            return lambda x, y: jnp.dot(x, y)
        case "prefix_sum":
            return lambda x: jnp.cumsum(x)
        case "outer":
            return lambda x, y: x[:, None] * y[None]
        case "pairwise_distances":
            return lambda x, y: ((x[:, None] - y) ** 2).sum(-1)
        case "kernel_density":
            width = np.float32(case.scalars["width"])
            height = np.float32(1 / (case.sizes["m"] * width * np.sqrt(2 * np.pi)))
            return lambda x, samples: height * jnp.exp(np.float32(-0.5) * ((x[:, None] - samples) / width) ** 2).sum(-1)
        case "cross_entropy":
            return lambda x, label: jax.nn.logsumexp(x, -1) - jnp.take_along_axis(x, label[:, None], 1)[:, 0]
        case "jacobi3d":
            i = slice(1, -1)
            return lambda u, f: (u[:-2, i, i] + u[2:, i, i] + u[i, :-2, i] + u[i, 2:, i] + u[i, i, :-2] + u[i, i, 2:] + f[i, i, i]) / 6
        case "conv1d_stride2":
            return lambda x, w: jax.lax.conv_general_dilated(x[None], w, (2,), "VALID")[0]
        case "mahalanobis":
            return lambda x, mean, P: ((x - mean) @ P * (x - mean)).sum(-1)
        case other:
            raise Cannot(f"{other} is not written for JAX")


def make(case: Case, arrays: dict[str, np.ndarray], peer: str, threads: int, folder: Path) -> Run:
    f = jax.jit(formula(case))
    inputs = [jnp.asarray(a) for a in arrays.values()]
    kept: dict[str, Any] = {}

    def call() -> None:
        kept["out"] = jax.block_until_ready(f(*inputs))

    def outputs() -> dict[str, np.ndarray]:
        out = kept["out"] if isinstance(kept["out"], dict) else {"out": kept["out"]}
        return {n: np.asarray(x) for n, x in out.items()}

    return call, outputs
