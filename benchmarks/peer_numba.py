"""Numba: loops as one would write them, in parallel, with fast-math (sums may be reordered) and preallocated outputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numba
import numpy as np
from cases import Case  # type: ignore[import-not-found]
from numba import njit, prange
from worker import Cannot, Run, aligned  # type: ignore[import-not-found]

fast = {"reassoc", "contract", "nsz", "arcp", "afn"}
jit = njit(parallel=True, fastmath=fast)
inf = np.float32(-np.inf)


@jit
def decode(q: Any, K: Any, V: Any, out: Any, scores: Any) -> None:
    scale = np.float32(1) / np.sqrt(np.float32(q.shape[1]))
    for h in prange(K.shape[0]):
        top = inf
        for l in range(K.shape[1]):
            t = np.float32(0)
            for j in range(K.shape[2]):
                t += q[h, j] * K[h, l, j]
            scores[h, l] = t * scale
            top = max(top, t * scale)
        total = np.float32(0)
        for l in range(K.shape[1]):
            scores[h, l] = np.exp(scores[h, l] - top)
            total += scores[h, l]
        for e in range(V.shape[2]):
            out[h, e] = 0
        for l in range(K.shape[1]):
            w = scores[h, l] / total
            for e in range(V.shape[2]):
                out[h, e] += w * V[h, l, e]


@jit
def rmsnorm(x: Any, gain: Any, eps: Any, out: Any) -> None:
    for i in prange(x.shape[0]):
        t = np.float32(0)
        for j in range(x.shape[1]):
            t += x[i, j] * x[i, j]
        r = np.float32(1) / np.sqrt(t / np.float32(x.shape[1]) + eps)
        for j in range(x.shape[1]):
            out[i, j] = x[i, j] * r * gain[j]


@jit
def softmax(x: Any, out: Any) -> None:
    for i in prange(x.shape[0]):
        top = inf
        for j in range(x.shape[1]):
            top = max(top, x[i, j])
        total = np.float32(0)
        for j in range(x.shape[1]):
            out[i, j] = np.exp(x[i, j] - top)
            total += out[i, j]
        r = np.float32(1) / total
        for j in range(x.shape[1]):
            out[i, j] *= r


@jit
def stencil5(x: Any, y: Any) -> None:
    n, m = x.shape
    for i in prange(n):
        up = x[i - 1 if i > 0 else n - 1]
        down = x[i + 1 if i + 1 < n else 0]
        for j in range(1, m - 1):
            y[i, j] = np.float32(0.25) * (up[j] + down[j] + x[i, j - 1] + x[i, j + 1])
        y[i, 0] = np.float32(0.25) * (up[0] + down[0] + x[i, m - 1] + x[i, 1])
        y[i, m - 1] = np.float32(0.25) * (up[m - 1] + down[m - 1] + x[i, m - 2] + x[i, 0])


@jit
def stencil5_drop(x: Any, y: Any) -> None:
    for i in prange(y.shape[0]):
        for j in range(y.shape[1]):
            y[i, j] = np.float32(0.25) * (x[i, j + 1] + x[i + 2, j + 1] + x[i + 1, j] + x[i + 1, j + 2])


@jit
def stencil9(x: Any, y: Any) -> None:
    for i in prange(y.shape[0]):
        for j in range(y.shape[1]):
            a = x[i, j] + np.float32(2) * x[i, j + 1] + x[i, j + 2]
            b = x[i + 1, j] + np.float32(2) * x[i + 1, j + 1] + x[i + 1, j + 2]
            c = x[i + 2, j] + np.float32(2) * x[i + 2, j + 1] + x[i + 2, j + 2]
            y[i, j] = (a + np.float32(2) * b + c) * np.float32(0.0625)


@jit
def total(x: Any) -> Any:
    t = np.float32(0)
    for i in prange(x.shape[0]):
        t += x[i]
    return t


@jit
def dot(x: Any, y: Any) -> Any:
    t = np.float32(0)
    for i in prange(x.shape[0]):
        t += x[i] * y[i]
    return t


@njit(fastmath=fast)
def prefix_sum(x: Any, y: Any) -> None:
    t = np.float32(0)
    for i in range(x.shape[0]):
        t += x[i]
        y[i] = t


@jit
def outer(x: Any, y: Any, out: Any) -> None:
    for i in prange(x.shape[0]):
        for j in range(y.shape[0]):
            out[i, j] = x[i] * y[j]


@jit
def batched_matmul(A: Any, B: Any, out: Any) -> None:
    for b in prange(A.shape[0]):
        for i in range(A.shape[1]):
            for j in range(B.shape[2]):
                out[b, i, j] = 0
            for k in range(A.shape[2]):
                for j in range(B.shape[2]):
                    out[b, i, j] += A[b, i, k] * B[b, k, j]


@jit
def pairwise_distances(x: Any, y: Any, out: Any) -> None:
    for i in prange(x.shape[0]):
        for j in range(y.shape[0]):
            t = np.float32(0)
            for k in range(x.shape[1]):
                t += (x[i, k] - y[j, k]) ** 2
            out[i, j] = t


@jit
def kernel_density(x: Any, samples: Any, width: Any, out: Any) -> None:
    height = np.float32(1 / (samples.shape[0] * width * np.sqrt(2 * np.pi)))
    for i in prange(x.shape[0]):
        total = np.float32(0)
        for j in range(samples.shape[0]):
            t = (x[i] - samples[j]) / width
            total += np.exp(np.float32(-0.5) * t * t)
        out[i] = height * total


@jit
def cross_entropy(x: Any, label: Any, out: Any) -> None:
    for i in prange(x.shape[0]):
        top = inf
        for j in range(x.shape[1]):
            top = max(top, x[i, j])
        total = np.float32(0)
        for j in range(x.shape[1]):
            total += np.exp(x[i, j] - top)
        out[i] = top + np.log(total) - x[i, label[i]]


@jit
def jacobi3d(u: Any, f: Any, out: Any) -> None:
    for i in prange(1, u.shape[0] - 1):
        for j in range(1, u.shape[1] - 1):
            for k in range(1, u.shape[2] - 1):
                around = u[i - 1, j, k] + u[i + 1, j, k] + u[i, j - 1, k] + u[i, j + 1, k] + u[i, j, k - 1] + u[i, j, k + 1]
                out[i - 1, j - 1, k - 1] = (around + f[i, j, k]) / 6


@jit
def conv1d_stride2(x: Any, w: Any, out: Any) -> None:
    for o in prange(w.shape[0]):
        for i in range(out.shape[1]):
            t = np.float32(0)
            for c in range(x.shape[0]):
                for j in range(w.shape[2]):
                    t += w[o, c, j] * x[c, 2 * i + j]
            out[o, i] = t


@jit
def mahalanobis(x: Any, mean: Any, p: Any, out: Any) -> None:
    for i in prange(x.shape[0]):
        t = x[i] - mean
        total = np.float32(0)
        for j in range(t.shape[0]):
            s = np.float32(0)
            for k in range(t.shape[0]):
                s += p[j, k] * t[k]
            total += t[j] * s
        out[i] = total


def make(case: Case, a: dict[str, np.ndarray], peer: str, threads: int, folder: Path) -> Run:
    numba.set_num_threads(threads)
    kept: dict[str, np.ndarray] = {}

    def new(*shape: int) -> np.ndarray:
        kept["out"] = aligned(shape, case.dtype)
        return kept["out"]

    def scalar(f: Any, *args: Any) -> Any:
        def call() -> None:
            kept["out"] = np.asarray(f(*args))

        return call

    match case.group:
        case "decode":
            q, k, v = a["q"], a["K"], a["V"]
            o, s = new(k.shape[0], v.shape[2]), aligned(k.shape[:2], np.float32)
            call = lambda: decode(q, k, v, o, s)  # noqa: E731
        case "rmsnorm":
            x, gain, eps, o = a["x"], a["gain"], np.float32(case.scalars["eps"]), new(*a["x"].shape)
            call = lambda: rmsnorm(x, gain, eps, o)  # noqa: E731
        case "softmax":
            x, o = a["x"], new(*a["x"].shape)
            call = lambda: softmax(x, o)  # noqa: E731
        case "stencil5":
            x = a["A"]
            pair = [new(*x.shape), new(*x.shape)]
            kept["out"] = pair[(case.steps - 1) % 2]

            def call() -> None:
                y = x
                for n in range(case.steps):
                    stencil5(y, pair[n % 2])
                    y = pair[n % 2]
        case "stencil5_drop" | "stencil9":
            x, o, f = a["A"], new(*(n - 2 for n in a["A"].shape)), stencil9 if case.group == "stencil9" else stencil5_drop
            call = lambda: f(x, o)  # noqa: E731
        case "sum":
            call = scalar(total, a["x"])
        case "dot":
            call = scalar(dot, a["x"], a["y"])
        case "prefix_sum":
            x, o = a["x"], new(*a["x"].shape)
            call = lambda: prefix_sum(x, o)  # noqa: E731
        case "outer":
            x, y, o = a["x"], a["y"], new(a["x"].size, a["y"].size)
            call = lambda: outer(x, y, o)  # noqa: E731
        case "batched_matmul":
            x, y, o = a["A"], a["B"], new(*a["A"].shape[:-1], a["B"].shape[-1])
            call = lambda: batched_matmul(x, y, o)  # noqa: E731
        case "pairwise_distances":
            x, y, o = a["x"], a["y"], new(a["x"].shape[0], a["y"].shape[0])
            call = lambda: pairwise_distances(x, y, o)  # noqa: E731
        case "kernel_density":
            x, y, o, width = a["x"], a["samples"], new(*a["x"].shape), np.float32(case.scalars["width"])
            call = lambda: kernel_density(x, y, width, o)  # noqa: E731
        case "cross_entropy":
            x, y, o = a["x"], a["label"], new(a["x"].shape[0])
            call = lambda: cross_entropy(x, y, o)  # noqa: E731
        case "jacobi3d":
            x, y, o = a["u"], a["f"], new(*(n - 2 for n in a["u"].shape))
            call = lambda: jacobi3d(x, y, o)  # noqa: E731
        case "conv1d_stride2":
            x, y, o = a["x"], a["w"], new(a["w"].shape[0], case.sizes["n"])
            call = lambda: conv1d_stride2(x, y, o)  # noqa: E731
        case "mahalanobis":
            x, y, p, o = a["x"], a["mean"], a["P"], new(a["x"].shape[0])
            call = lambda: mahalanobis(x, y, p, o)  # noqa: E731
        case other:
            raise Cannot(f"{other} is not written for Numba")
    return call, lambda: kept
