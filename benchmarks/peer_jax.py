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


def formula(case: Case) -> Any:
    match case.group:
        case "attention" | "attention_causal":
            causal = case.group == "attention_causal"

            def attend(Q: Any, K: Any, V: Any) -> Any:
                s = Q @ K.swapaxes(-1, -2) * np.float32(1 / Q.shape[-1] ** 0.5)
                if causal:
                    s = jnp.where(jnp.tril(jnp.ones(s.shape[1:], bool)), s, -jnp.inf)
                return jax.nn.softmax(s, -1) @ V

            return attend
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
        case other:
            raise Cannot(f"{other} is not written for JAX")


def make(case: Case, arrays: dict[str, np.ndarray], peer: str, threads: int, folder: Path) -> Run:
    f = jax.jit(formula(case))
    inputs = [jnp.asarray(a) for a in arrays.values()]
    kept: dict[str, Any] = {}

    def call() -> None:
        kept["out"] = f(*inputs)
        kept["out"].block_until_ready()

    return call, lambda: {"out": np.asarray(kept["out"])}
