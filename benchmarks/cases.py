"""What is measured: a program of examples/, sizes, the float64 answer, and the work it must do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Case:
    """``file`` and ``kernel`` name the program; ``fixed`` sizes are compiled into a second variant; ``steps`` in a row, output to input, are one run, and the
    program makes ``each`` of them in one call.

    ``flops`` and ``read``/``written`` (bytes) are the least any form must do: a causal mask counts its pairs once, every array moves once.
    ``bound`` says what the share is taken of: "f32" or "f64" arithmetic, "copy" or "read" bandwidth. ``tags`` select cases beside their names.
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
    each: int = 1
    dtype: str = "float32"
    scalars: dict[str, float] = field(default_factory=dict)
    below: dict[str, int] = field(default_factory=dict)  # inputs of integers from 0 to less than this
    tags: tuple[str, ...] = ()

    @property
    def group(self) -> str:
        return self.name.split()[0]

    def inputs(self) -> Arrays:
        rng = np.random.default_rng(0)

        def one(name: str, shape: tuple[int, ...]) -> np.ndarray:
            if name in self.below:
                return rng.integers(0, self.below[name], shape).astype(np.int32)
            return rng.standard_normal(shape).astype(self.dtype)

        return {n: one(n, s) for n, s in self.shapes.items()}


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


def gradients(a: Arrays, causal: bool) -> Arrays:
    """The output of attention and the gradients for the gradient dO of it."""
    p = weights(a["Q"], a["K"], causal)
    g = a["dO"] @ a["V"].swapaxes(-1, -2)
    s = p * (g - (p * g).sum(-1, keepdims=True)) / np.sqrt(a["Q"].shape[-1])
    return {"O": p @ a["V"], "dQ": s @ a["K"], "dK": s.swapaxes(-1, -2) @ a["Q"], "dV": p.swapaxes(-1, -2) @ a["dO"]}


def attention_backward(h: int, n: int, d: int, causal: bool = False, forward: bool = False) -> Case:
    """Gradients; with ``forward`` the output as well, by one kernel."""

    def reference(a: Arrays) -> Arrays:
        all_ = gradients(a, causal)
        return all_ if forward else {x: y for x, y in all_.items() if x != "O"}

    each = (h, n, d)
    name = ("attention_train" if forward else "attention_backward") + "_causal" * causal
    pairs = n * (n + 1) / 2 if causal else n * n
    return Case(f"{name} {h}x{n}x{d}", name, name, {"h": h, "n": n, "m": n, "d": d, "e": d}, {"Q": each, "K": each, "V": each, "dO": each}, reference,
                (12.0 if forward else 10.0) * h * pairs * d, 16.0 * h * n * d, (16.0 if forward else 12.0) * h * n * d, "f32", ("d", "e"),
                tags=("training",) * forward)  # fmt: skip


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

    each = 2 if steps % 2 == 0 else 1  # two steps in one pass over memory
    program, moved = "stencil5_steps" if each == 2 else "stencil5_rotate", 4.0 * n * m * steps / each
    return Case(f"stencil5 {n}x{m} {steps} step{'s' * (steps > 1)}", program, program, {"n": n, "m": m}, {"A": (n, m)}, reference, 4.0 * n * m * steps,
                moved, moved, "copy", (), steps, each)  # fmt: skip


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


# --- programs of other fields, which no part of the search was made for -------------------------------------------------------------------
UNTUNED = ("untuned",)


def pairwise_distances(n: int, m: int, d: int) -> Case:
    def reference(a: Arrays) -> Arrays:
        return {"out": np.stack([((p - a["y"]) ** 2).sum(-1) for p in a["x"]])}

    return Case(f"pairwise_distances {n}x{m}x{d}", "pairwise_distances", "pairwise_distances", {"n": n, "m": m, "d": d}, {"x": (n, d), "y": (m, d)}, reference,
                3.0 * n * m * d, 4.0 * (n + m) * d, 4.0 * n * m, "f32", tags=UNTUNED)  # fmt: skip


def kernel_density(n: int, m: int) -> Case:
    """An exponential counts as ten operations: that is about what a polynomial of its accuracy takes."""
    width = 0.25

    def reference(a: Arrays) -> Arrays:
        bells = [np.exp(-0.5 * ((x - a["samples"]) / width) ** 2).mean() for x in a["x"]]
        return {"out": np.array(bells) / (width * np.sqrt(2 * np.pi))}

    return Case(f"kernel_density {n}x{m}", "kernel_density", "kernel_density", {"n": n, "m": m}, {"x": (n,), "samples": (m,)}, reference,
                14.0 * n * m, 4.0 * (n + m), 4.0 * n, "f32", scalars={"width": width}, tags=UNTUNED)  # fmt: skip


def cross_entropy(n: int, m: int) -> Case:
    def reference(a: Arrays) -> Arrays:
        x, top = a["x"], a["x"].max(-1)
        return {"out": top + np.log(np.exp(x - top[:, None]).sum(-1)) - x[np.arange(n), a["label"].astype(int)]}

    return Case(f"cross_entropy {n}x{m}", "cross_entropy", "cross_entropy", {"n": n, "m": m}, {"x": (n, m), "label": (n,)}, reference,
                13.0 * n * m, 4.0 * n * m, 4.0 * n, "read", below={"label": m}, tags=UNTUNED)  # fmt: skip


def jacobi3d(n: int, m: int, k: int) -> Case:
    def reference(a: Arrays) -> Arrays:
        u, i = a["u"], slice(1, -1)
        around = u[:-2, i, i] + u[2:, i, i] + u[i, :-2, i] + u[i, 2:, i] + u[i, i, :-2] + u[i, i, 2:]
        return {"out": (around + a["f"][i, i, i]) / 6}

    each = (n, m, k)
    return Case(f"jacobi3d {n}x{m}x{k}", "jacobi3d", "jacobi3d", {"n": n, "m": m, "k": k}, {"u": each, "f": each}, reference,
                7.0 * n * m * k, 16.0 * n * m * k, 8.0 * n * m * k, "copy", dtype="float64", tags=UNTUNED)  # fmt: skip


def conv1d_stride2(c: int, o: int, n: int, k: int) -> Case:
    def reference(a: Arrays) -> Arrays:
        return {"out": sum(a["w"][:, :, j] @ a["x"][:, j : j + 2 * n - 1 : 2] for j in range(k))}

    return Case(f"conv1d_stride2 {c}x{o}x{n}x{k}", "conv1d_stride2", "conv1d_stride2", {"c": c, "o": o, "n": n, "k": k},
                {"x": (c, 2 * n + k - 2), "w": (o, c, k)}, reference,
                2.0 * c * o * n * k, 4.0 * c * (2 * n + k + o * k), 4.0 * o * n, "f32", ("k",), tags=UNTUNED)  # fmt: skip


def mahalanobis(n: int, d: int) -> Case:
    def reference(a: Arrays) -> Arrays:
        t = a["x"] - a["mean"]
        return {"out": ((t @ a["P"].T) * t).sum(-1)}

    return Case(f"mahalanobis {n}x{d}", "mahalanobis", "mahalanobis", {"n": n, "d": d}, {"x": (n, d), "mean": (d,), "P": (d, d)}, reference,
                2.0 * n * d * d, 4.0 * n * d, 4.0 * n, "f32", ("d",), tags=UNTUNED)  # fmt: skip


HEADS = ((8, 512, 64), (8, 1024, 64), (4, 2048, 64), (1, 4096, 128))

REGULAR = [
    *(attention(*s, causal) for causal in (False, True) for s in HEADS),
    *(attention_backward(*s, causal, forward) for forward in (False, True) for causal in (False, True) for s in HEADS),
    decode(32, 4096, 128), rmsnorm(4096, 4096), softmax(4096, 4096), gated_mlp(128, 1024, 2816), gated_mlp(512, 1024, 2816),
    *(matmul(n, n, n) for n in (512, 1024, 2048)), *(matmul(n, n, n, dtype="float64") for n in (512, 1024, 2048)),
    matmul(1024, 1024, 1024, "nt"), matmul(1024, 1024, 1024, "tn"), batched_matmul(4096, 16), stencil5(4096, 4096, 1), stencil5(4096, 4096, 10),
    stencil5_drop(4096, 4096), stencil9(4096, 4096), vector("sum", 2**24), vector("dot", 2**24), vector("prefix_sum", 2**24), outer(4096, 4096),
    pairwise_distances(2000, 2000, 32), kernel_density(4000, 4000), cross_entropy(2000, 8000), jacobi3d(200, 200, 200), conv1d_stride2(64, 128, 1500, 5),
    mahalanobis(10000, 64),
]  # fmt: skip

ODD = [
    *(attention(8, n, d, causal) for causal in (False, True) for n in (1000, 1023) for d in (59, 80, 96)),
    *(attention_backward(*s, causal, True) for causal in (False, True) for s in ((8, 1000, 80), (8, 1023, 59))),
    decode(31, 4001, 96), rmsnorm(4001, 4003), softmax(4001, 4003), gated_mlp(127, 1000, 2801), gated_mlp(500, 1000, 2801),
    *(matmul(n, n, n) for n in (1000, 1023)), *(matmul(n, n, n, dtype="float64") for n in (1000, 1023)), batched_matmul(4000, 15), stencil5(4001, 4003, 1),
    stencil5(4001, 4003, 10), stencil9(4001, 4003), vector("sum", 2**24 - 7), vector("dot", 2**24 - 7), vector("prefix_sum", 2**24 - 7), outer(4001, 4003),
    pairwise_distances(1999, 2003, 31), kernel_density(3989, 4003), cross_entropy(1999, 8009), jacobi3d(199, 197, 201), conv1d_stride2(63, 127, 1499, 7),
    mahalanobis(9999, 61),
]  # fmt: skip

CASES = {c.name: c for c in [*REGULAR, *ODD]}
