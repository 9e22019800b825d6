"""What is measured: a program of examples/, sizes, the float64 answer, and the work it must do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Case:
    """``file`` and ``kernel`` name the program; ``fixed`` sizes are compiled into a second variant; ``steps`` calls in a row, output to input, are one run.

    ``flops`` and ``read``/``written`` (bytes) are the least any form must do: a causal mask counts its pairs once, every array moves once.
    ``bound`` says what the share is taken of: "f32" or "f64" arithmetic, "copy" or "read" bandwidth.
    """

    name: str
    file: str
    kernel: str
    sizes: dict[str, int]
    shapes: dict[str, tuple[int, ...]]
    reference: Callable[[Arrays], Arrays]
    flops: float
    read: float
    written: float
    bound: str
    fixed: tuple[str, ...] = ()
    steps: int = 1
    dtype: str = "float32"
    scalars: dict[str, float] = field(default_factory=dict)

    @property
    def group(self) -> str:
        return self.name.split()[0]

    def inputs(self) -> Arrays:
        rng = np.random.default_rng(0)
        return {n: rng.standard_normal(s).astype(self.dtype) for n, s in self.shapes.items()}


def softmax_rows(s: np.ndarray) -> np.ndarray:
    s = np.exp(s - s.max(-1, keepdims=True))
    return s / s.sum(-1, keepdims=True)


def weights(q: np.ndarray, k: np.ndarray, causal: bool) -> np.ndarray:
    s = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    if causal:
        n, m = s.shape[-2:]
        s = np.where(np.arange(n)[:, None] + (m - n) >= np.arange(m), s, -np.inf)
    return softmax_rows(s)


def attention(h: int, n: int, d: int, causal: bool) -> Case:
    def reference(a: Arrays) -> Arrays:
        return {"out": weights(a["Q"], a["K"], causal) @ a["V"]}

    name = "attention_causal" if causal else "attention"
    pairs = n * (n + 1) / 2 if causal else n * n
    each = (h, n, d)
    return Case(f"{name} {h}x{n}x{d}", name, name, {"h": h, "n": n, "m": n, "d": d, "e": d}, {"Q": each, "K": each, "V": each}, reference,
                4.0 * h * pairs * d, 12.0 * h * n * d, 4.0 * h * n * d, "f32", ("d", "e"))  # fmt: skip


def attention_backward(h: int, n: int, d: int) -> Case:
    def reference(a: Arrays) -> Arrays:
        p = weights(a["Q"], a["K"], False)
        g = a["dO"] @ a["V"].swapaxes(-1, -2)
        s = p * (g - (p * g).sum(-1, keepdims=True)) / np.sqrt(d)
        return {"dQ": s @ a["K"], "dK": s.swapaxes(-1, -2) @ a["Q"], "dV": p.swapaxes(-1, -2) @ a["dO"]}

    each = (h, n, d)
    name = "attention_backward"
    return Case(f"{name} {h}x{n}x{d}", name, name, {"h": h, "n": n, "m": n, "d": d, "e": d}, {"Q": each, "K": each, "V": each, "dO": each}, reference,
                10.0 * h * n * n * d, 16.0 * h * n * d, 12.0 * h * n * d, "f32", ("d", "e"))  # fmt: skip


def decode(h: int, m: int, d: int) -> Case:
    def reference(a: Arrays) -> Arrays:
        return {"out": (weights(a["q"][:, None], a["K"], False) @ a["V"])[:, 0]}

    return Case(f"decode {h}x{m}x{d}", "decode", "decode", {"h": h, "m": m, "d": d, "e": d}, {"q": (h, d), "K": (h, m, d), "V": (h, m, d)}, reference,
                4.0 * h * m * d, 8.0 * h * m * d, 4.0 * h * d, "read", ("d", "e"))  # fmt: skip


def matmul(n: int, m: int, k: int, kind: str = "", dtype: str = "float32") -> Case:
    """``kind`` "" (A B), "nt" (A Bᵀ) or "tn" (Aᵀ B)."""

    def reference(a: Arrays) -> Arrays:
        return {"out": (a["A"].T if kind == "tn" else a["A"]) @ (a["B"].T if kind == "nt" else a["B"])}

    bits = 64 if dtype == "float64" else 32
    kernel = f"matmul_{kind}" if kind else "matmul64" if bits == 64 else "matmul"
    shapes = {"A": (k, n) if kind == "tn" else (n, k), "B": (m, k) if kind == "nt" else (k, m)}
    size = f"{n}" if n == m == k else f"{n}x{k}x{m}"
    return Case(f"{kernel} {size}", "matmul_variants" if kind else "matmul", kernel, {"n": n, "m": m, "k": k}, shapes, reference,
                2.0 * n * m * k, bits / 8 * (n * k + k * m), bits / 8 * n * m, f"f{bits}", (), dtype=dtype)  # fmt: skip


def batched_matmul(b: int, n: int) -> Case:
    return Case(f"batched_matmul {b}x{n}", "batched_matmul", "batched_matmul", {"b": b, "n": n, "k": n, "m": n}, {"A": (b, n, n), "B": (b, n, n)},
                lambda a: {"out": a["A"] @ a["B"]}, 2.0 * b * n**3, 8.0 * b * n * n, 4.0 * b * n * n, "copy", ("n", "k", "m"))  # fmt: skip


def gated_mlp(n: int, d: int, f: int) -> Case:
    def reference(a: Arrays) -> Arrays:
        gate = a["X"] @ a["Wg"]
        return {"out": (gate / (1 + np.exp(-gate)) * (a["X"] @ a["Wu"])) @ a["Wd"]}

    shapes = {"X": (n, d), "Wg": (d, f), "Wu": (d, f), "Wd": (f, d)}
    return Case(f"gated_mlp {n}x{d}x{f}", "gated_mlp", "gated_mlp", {"n": n, "d": d, "f": f}, shapes, reference,
                6.0 * n * d * f, 4.0 * (n * d + 3 * d * f), 4.0 * n * d, "f32", ("d", "f"))  # fmt: skip


def rmsnorm(n: int, d: int) -> Case:
    def reference(a: Arrays) -> Arrays:
        return {"out": a["gain"] * a["x"] / np.sqrt((a["x"] ** 2).mean(-1, keepdims=True) + 1e-6)}

    return Case(f"rmsnorm {n}x{d}", "rmsnorm", "rmsnorm", {"n": n, "d": d}, {"x": (n, d), "gain": (d,)}, reference, 4.0 * n * d, 4.0 * n * d, 4.0 * n * d,
                "copy", (), scalars={"eps": 1e-6})  # fmt: skip


def softmax(n: int, m: int) -> Case:
    return Case(f"softmax {n}x{m}", "softmax", "softmax", {"n": n, "m": m}, {"x": (n, m)}, lambda a: {"out": softmax_rows(a["x"])}, 4.0 * n * m, 4.0 * n * m,
                4.0 * n * m, "copy")  # fmt: skip


def stencil5(n: int, m: int, steps: int) -> Case:
    def reference(a: Arrays) -> Arrays:
        x = a["A"]
        for _ in range(steps):
            x = 0.25 * (np.roll(x, 1, 0) + np.roll(x, -1, 0) + np.roll(x, 1, 1) + np.roll(x, -1, 1))
        return {"out": x}

    return Case(f"stencil5 {n}x{m} {steps} step{'s' * (steps > 1)}", "stencil5_rotate", "stencil5_rotate", {"n": n, "m": m}, {"A": (n, m)}, reference,
                4.0 * n * m * steps, 4.0 * n * m * steps, 4.0 * n * m * steps, "copy", (), steps)  # fmt: skip


def stencil5_drop(n: int, m: int) -> Case:
    def reference(a: Arrays) -> Arrays:
        x = a["A"]
        return {"out": 0.25 * (x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:])}

    return Case(f"stencil5_drop {n}x{m}", "stencil5_drop", "stencil5_drop", {"n": n, "m": m}, {"A": (n, m)}, reference, 4.0 * n * m, 4.0 * n * m, 4.0 * n * m,
                "copy")  # fmt: skip


def stencil9(n: int, m: int) -> Case:
    def reference(a: Arrays) -> Arrays:
        r = a["A"][:-2] + 2 * a["A"][1:-1] + a["A"][2:]
        return {"out": (r[:, :-2] + 2 * r[:, 1:-1] + r[:, 2:]) / 16}

    return Case(f"stencil9 {n}x{m}", "stencil9", "stencil9", {"n": n, "m": m}, {"A": (n, m)}, reference, 9.0 * n * m, 4.0 * n * m, 4.0 * n * m, "copy")


def vector(name: str, n: int) -> Case:
    """sum, dot and prefix_sum of vectors of length n."""
    answers: dict[str, Callable[[Arrays], Arrays]] = {
        "sum": lambda a: {"out": a["x"].sum()}, "dot": lambda a: {"out": a["x"] @ a["y"]}, "prefix_sum": lambda a: {"out": np.cumsum(a["x"])},
    }  # fmt: skip
    shapes: dict[str, tuple[int, ...]] = {"x": (n,), "y": (n,)} if name == "dot" else {"x": (n,)}
    written = 4.0 * n if name == "prefix_sum" else 4.0
    return Case(f"{name} {n}", name, name, {"n": n}, shapes, answers[name], len(shapes) * 1.0 * n, 4.0 * n * len(shapes), written,
                "copy" if name == "prefix_sum" else "read")  # fmt: skip


def outer(n: int, m: int) -> Case:
    return Case(f"outer {n}x{m}", "outer", "outer_product", {"n": n, "m": m}, {"x": (n,), "y": (m,)}, lambda a: {"out": np.outer(a["x"], a["y"])}, 1.0 * n * m,
                4.0 * (n + m), 4.0 * n * m, "copy")  # fmt: skip


HEADS = ((8, 512, 64), (8, 1024, 64), (4, 2048, 64), (1, 4096, 128))

REGULAR = [
    *(attention(*s, causal) for causal in (False, True) for s in HEADS),
    *(attention_backward(*s) for s in HEADS),
    decode(32, 4096, 128), rmsnorm(4096, 4096), softmax(4096, 4096), gated_mlp(128, 1024, 2816), gated_mlp(512, 1024, 2816),
    *(matmul(n, n, n) for n in (512, 1024, 2048)), *(matmul(n, n, n, dtype="float64") for n in (512, 1024, 2048)),
    matmul(1024, 1024, 1024, "nt"), matmul(1024, 1024, 1024, "tn"), batched_matmul(4096, 16), stencil5(4096, 4096, 1), stencil5(4096, 4096, 10),
    stencil5_drop(4096, 4096), stencil9(4096, 4096), vector("sum", 2**24), vector("dot", 2**24), vector("prefix_sum", 2**24), outer(4096, 4096),
]  # fmt: skip

ODD = [
    *(attention(*s, causal) for causal in (False, True) for s in ((8, 500, 59), (8, 1000, 80), (4, 2047, 96))),
    decode(31, 4001, 96), rmsnorm(4001, 4003), softmax(4001, 4003), gated_mlp(127, 1000, 2801), gated_mlp(500, 1000, 2801),
    *(matmul(n, n, n) for n in (1000, 1023)), *(matmul(n, n, n, dtype="float64") for n in (1000, 1023)), batched_matmul(4000, 15), stencil5(4001, 4003, 1),
    stencil5(4001, 4003, 10), stencil9(4001, 4003), vector("sum", 2**24 - 7), vector("dot", 2**24 - 7), vector("prefix_sum", 2**24 - 7), outer(4001, 4003),
]  # fmt: skip

CASES = {c.name: c for c in [*REGULAR, *ODD]}
