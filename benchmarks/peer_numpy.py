"""NumPy as its users write it, with outputs and temporaries allocated beforehand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from cases import Case  # type: ignore[import-not-found]
from worker import Cannot, Run, aligned  # type: ignore[import-not-found]


def make(case: Case, a: dict[str, np.ndarray], peer: str, threads: int, folder: Path) -> Run:
    f32 = np.float32
    out: dict[str, np.ndarray] = {}

    def new(*shape: int) -> np.ndarray:
        return aligned(shape, case.dtype)

    def weights(q: np.ndarray, k: np.ndarray, s: np.ndarray, mask: np.ndarray | None) -> None:
        np.matmul(q, k.swapaxes(-1, -2), out=s)
        s *= f32(1 / np.sqrt(q.shape[-1]))
        if mask is not None:
            np.add(s, mask, out=s)
        s -= s.max(-1, keepdims=True)
        np.exp(s, out=s)
        s /= s.sum(-1, keepdims=True)

    match case.group:
        case "attention" | "attention_causal":
            q, k, v = a["Q"], a["K"], a["V"]
            s, o = new(q.shape[0], q.shape[1], k.shape[1]), new(*q.shape)
            mask = np.triu(np.full(s.shape[1:], -np.inf, f32), 1) if case.group == "attention_causal" else None

            def call() -> None:
                weights(q, k, s, mask)
                np.matmul(s, v, out=o)

            out["out"] = o
        case "attention_backward" | "attention_backward_causal" | "attention_train" | "attention_train_causal":
            q, k, v, do = a["Q"], a["K"], a["V"], a["dO"]
            h, n, d = q.shape
            s, g, t = (new(h, n, n) for _ in range(3))
            forward, causal = "train" in case.group, "causal" in case.group
            out = {x: new(h, n, d) for x in (("O", "dQ", "dK", "dV") if forward else ("dQ", "dK", "dV"))}
            mask = np.triu(np.full((n, n), -np.inf, f32), 1) if causal else None

            def call() -> None:
                weights(q, k, s, mask)
                if forward:
                    np.matmul(s, v, out=out["O"])
                np.matmul(do, v.swapaxes(-1, -2), out=g)
                np.multiply(s, g, out=t)
                g.__isub__(t.sum(-1, keepdims=True))
                np.multiply(s, g, out=t)
                t.__imul__(f32(1 / np.sqrt(d)))
                np.matmul(t, k, out=out["dQ"])
                np.matmul(t.swapaxes(-1, -2), q, out=out["dK"])
                np.matmul(s.swapaxes(-1, -2), do, out=out["dV"])
        case "decode":
            q, k, v = a["q"], a["K"], a["V"]
            s, o = new(k.shape[0], k.shape[1], 1), new(k.shape[0], 1, v.shape[2])

            def call() -> None:
                np.matmul(k, q[:, :, None], out=s)
                s.__imul__(f32(1 / np.sqrt(q.shape[-1])))
                s.__isub__(s.max(1, keepdims=True))
                np.exp(s, out=s)
                s.__itruediv__(s.sum(1, keepdims=True))
                np.matmul(s.swapaxes(-1, -2), v, out=o)

            out["out"] = o
        case "rmsnorm":
            x, gain, o = a["x"], a["gain"], new(*a["x"].shape)

            def call() -> None:
                np.multiply(x, x, out=o)
                r = 1 / np.sqrt(o.mean(-1, keepdims=True) + f32(case.scalars["eps"]))
                np.multiply(x, r, out=o)
                o.__imul__(gain)

            out["out"] = o
        case "softmax":
            x, o = a["x"], new(*a["x"].shape)

            def call() -> None:
                np.subtract(x, x.max(-1, keepdims=True), out=o)
                np.exp(o, out=o)
                o.__itruediv__(o.sum(-1, keepdims=True))

            out["out"] = o
        case "gated_mlp":
            x, wg, wu, wd = a["X"], a["Wg"], a["Wu"], a["Wd"]
            g, u, t = (new(x.shape[0], wg.shape[1]) for _ in range(3))
            o = new(*x.shape)

            def call() -> None:
                np.matmul(x, wg, out=g)
                np.matmul(x, wu, out=u)
                np.negative(g, out=t)
                np.exp(t, out=t)
                t.__iadd__(f32(1))
                np.divide(g, t, out=g)
                g.__imul__(u)
                np.matmul(g, wd, out=o)

            out["out"] = o
        case "matmul" | "matmul64" | "matmul_nt" | "matmul_tn" | "batched_matmul":
            x = a["A"].T if case.group == "matmul_tn" else a["A"]
            y = a["B"].T if case.group == "matmul_nt" else a["B"]
            o = new(*x.shape[:-1], y.shape[-1])

            def call() -> None:
                np.matmul(x, y, out=o)

            out["out"] = o
        case "stencil5":
            x, pair = a["A"], [new(*a["A"].shape) for _ in range(2)]

            def step(x: np.ndarray, y: np.ndarray) -> None:
                np.add(x[:-2], x[2:], out=y[1:-1])
                np.add(x[-1], x[1], out=y[0])
                np.add(x[-2], x[0], out=y[-1])
                y[:, 1:] += x[:, :-1]
                y[:, 0] += x[:, -1]
                y[:, :-1] += x[:, 1:]
                y[:, -1] += x[:, 0]
                y *= f32(0.25)

            def call() -> None:
                y = x
                for n in range(case.steps):
                    step(y, pair[n % 2])
                    y = pair[n % 2]

            out["out"] = pair[(case.steps - 1) % 2]
        case "stencil5_drop":
            x, o = a["A"], new(*(n - 2 for n in a["A"].shape))

            def call() -> None:
                np.add(x[:-2, 1:-1], x[2:, 1:-1], out=o)
                o.__iadd__(x[1:-1, :-2])
                o.__iadd__(x[1:-1, 2:])
                o.__imul__(f32(0.25))

            out["out"] = o
        case "stencil9":
            x = a["A"]
            r, t, o = new(x.shape[0] - 2, x.shape[1]), new(x.shape[0] - 2, x.shape[1]), new(x.shape[0] - 2, x.shape[1] - 2)

            def call() -> None:
                np.add(x[:-2], x[2:], out=r)
                np.multiply(x[1:-1], f32(2), out=t)
                r.__iadd__(t)
                np.multiply(r[:, 1:-1], f32(2), out=o)
                o.__iadd__(r[:, :-2])
                o.__iadd__(r[:, 2:])
                o.__imul__(f32(1 / 16))

            out["out"] = o
        case "sum":
            o, x = np.zeros((), f32), a["x"]

            def call() -> None:
                np.sum(x, out=o)

            out["out"] = o
        case "dot":
            o, x, y = np.zeros((), f32), a["x"], a["y"]

            def call() -> None:
                np.dot(x, y, out=o)

            out["out"] = o
        case "prefix_sum":
            o, x = new(*a["x"].shape), a["x"]

            def call() -> None:
                np.cumsum(x, out=o)

            out["out"] = o
        case "outer":
            o, x, y = new(a["x"].size, a["y"].size), a["x"], a["y"]

            def call() -> None:
                np.multiply.outer(x, y, out=o)

            out["out"] = o
        case "pairwise_distances":  # |x|² + |y|² - 2 x·y: the products go through BLAS; close points lose digits
            x, y, o = a["x"], a["y"], new(a["x"].shape[0], a["y"].shape[0])

            def call() -> None:
                np.matmul(x, y.T, out=o)
                o.__imul__(f32(-2))
                o.__iadd__(np.einsum("ij,ij->i", x, x)[:, None])
                o.__iadd__(np.einsum("ij,ij->i", y, y))

            out["out"] = o
        case "kernel_density":
            x, y, o, t, width = a["x"], a["samples"], new(*a["x"].shape), new(a["x"].size, a["samples"].size), case.scalars["width"]

            def call() -> None:
                np.subtract(x[:, None], y, out=t)
                np.multiply(t, t, out=t)
                t.__imul__(f32(-0.5 / width**2))
                np.exp(t, out=t)
                np.sum(t, axis=1, out=o)
                o.__imul__(f32(1 / (y.size * width * np.sqrt(2 * np.pi))))

            out["out"] = o
        case "cross_entropy":
            x, label, t, o = a["x"], a["label"], new(*a["x"].shape), new(a["x"].shape[0])
            rows = np.arange(x.shape[0])

            def call() -> None:
                top = x.max(1)
                np.subtract(x, top[:, None], out=t)
                np.exp(t, out=t)
                np.log(t.sum(1), out=o)
                o.__iadd__(top)
                o.__isub__(x[rows, label])

            out["out"] = o
        case "jacobi3d":
            u, i = a["u"], slice(1, -1)
            f, o = a["f"][i, i, i], new(*(n - 2 for n in a["u"].shape))

            def call() -> None:
                np.add(u[:-2, i, i], u[2:, i, i], out=o)
                for part in (u[i, :-2, i], u[i, 2:, i], u[i, i, :-2], u[i, i, 2:], f):
                    o.__iadd__(part)
                o.__imul__(1 / 6)

            out["out"] = o
        case "conv1d_stride2":  # the windows copied side by side, then one product
            x, w = a["x"], a["w"]
            (c, _), (filters, _, k), n = x.shape, w.shape, case.sizes["n"]
            t, o = new(c, k, n), new(filters, n)
            windows = np.lib.stride_tricks.sliding_window_view(x, k, axis=1)[:, ::2].transpose(0, 2, 1)

            def call() -> None:
                np.copyto(t, windows)
                np.matmul(w.reshape(filters, c * k), t.reshape(c * k, n), out=o)

            out["out"] = o
        case "mahalanobis":
            x, mean, p, o = a["x"], a["mean"], a["P"], new(a["x"].shape[0])
            s, t = (new(*x.shape) for _ in range(2))

            def call() -> None:
                np.subtract(x, mean, out=t)
                np.matmul(t, p, out=s)
                np.einsum("ij,ij->i", s, t, out=o)

            out["out"] = o
        case other:
            raise Cannot(f"{other} is not written for NumPy")
    return call, lambda: out
