"""Random loop orders, splits and placements of two nests, compiled and compared with NumPy at sizes with and without tails."""

from __future__ import annotations

import random

import numpy as np
import onf
import pytest

from moa_rewrite.build import compile_c, load
from moa_rewrite.emit import Options, lower, print_c
from moa_rewrite.terms import Kernel

PLACES = ["seq", "seq", "simd", "unroll"]


def random_loops(r: random.Random, axes: dict[str, str], keys: str) -> tuple[list[str], list[str]]:
    """(loops ``axis:extent:place``, definitions): each axis split up to twice, shuffled so that every loop comes after those its extent names."""
    loops, defs = [], []
    for a, n in axes.items():
        extent, name = n, a
        for _ in range(r.randint(0, 2)):
            t = r.choice([2, 3, 4, 8])
            loops.append((f"{name}.o", f"({extent} + {t - 1}) // {t}"))
            defs.append(f"{name} = @{name}.o*{t} + @{name}.i")
            extent, name = f"min({t}, {extent} - @{name}.o*{t})", f"{name}.i"
        loops.append((name, extent))
    order: list[str] = []
    left = list(loops)
    while left:
        ready = [p for p in left if all(f"@{q[0]}*" not in p[1] for q in left if q is not p)]
        name, extent = r.choice(ready)
        left.remove((name, extent))
        core = not order and name.split(".")[0] in keys and r.random() < 0.5
        order.append(f"{name}:{extent}:{'core' if core else r.choice(PLACES)}")
    return order, defs[::-1]


def compiled(k: Kernel, where, r: random.Random):
    prog = lower(k, options=Options(vector_registers=r.choice([16, 32])))
    src = print_c(prog)
    return load(compile_c(src.c_text, src.h_text, where, prog.name, extra=("-Wall", "-Wextra", "-Werror", r.choice(["-O1", "-O3"]))), k, prog.name), src.c_text


@pytest.mark.parametrize("seed", range(24))
def test_products(tmp_path, seed):
    r = random.Random(seed)
    loops, defs = random_loops(r, {"i": "n", "j": "m", "k": "p"}, "ij")
    monoid, e = r.choice([("add", "A[@i, @k] * B[@k, @j]"), ("max", "A[@i, @k] + B[@k, @j]"), ("add", "select(@k <= @i, A[@i, @k], 0.5) * B[@k, @j]")])
    stages, body = [], onf.nest(loops, f'emit("{monoid}", "C", <@i, @j>, {e})')
    if r.random() < 0.5:  # B copied to a stage, somewhere between the loops
        inner = r.randint(0, len(loops))
        pack = [f"{f.rsplit(':', 1)[0]}:{r.choice(['seq', 'simd'])}" for f in loops[inner:] if f[0] in "jk"]
        for a, n in (("k", "p"), ("j", "m")):  # an axis split in the product may be run over whole here
            if all(f[0] != a for f in loops[:inner]) and r.random() < 0.5:
                pack = [*[f for f in pack if f[0] != a], f"{a}:{n}:{r.choice(['seq', 'simd'])}"]
        rest = onf.nest([f.replace(":core", ":seq") for f in loops[inner:]], f'emit("{monoid}", "C", <@i, @j>, {e.replace("B[", "T[")})')
        body = onf.nest(loops[:inner], onf.new("T", onf.block(onf.nest(pack, 'emit("once", "T", <@k, @j>, B[@k, @j])'), rest)))
        stages = [onf.stage("T", "f64", "k j", "p; m", "once", layout=r.choice([(0, 1), (1, 0)]))]
    k = onf.kernel("fuzz", "n m p", [onf.array("A", "f64", "n", "p"), onf.array("B", "f64", "p", "m")], [onf.array("C", "f64", "n", "m")], body, stages,
                   "; ".join(defs))  # fmt: skip
    f, text = compiled(k, tmp_path, r)
    rng = np.random.default_rng(seed)
    for n, m, p in ((1, 1, 1), (8, 8, 8), (7, 9, 10), (16, 3, 5), (2, 0, 3), (3, 2, 0)):
        a, b = rng.standard_normal((n, p)), rng.standard_normal((p, m))
        if monoid == "max":
            want = (a[:, :, None] + b[None]).max(1, initial=-np.inf)
        else:
            want = (np.where(np.arange(p)[None] <= np.arange(n)[:, None], a, 0.5) if "select" in e else a) @ b
        np.testing.assert_allclose(f(a, b), want, rtol=1e-12, atol=1e-12, err_msg=f"{(n, m, p)} {loops}\n{text}")


@pytest.mark.parametrize("seed", range(24))
def test_online_softmax(tmp_path, seed):
    """Scores staged between the outer and the inner loops, or not at all; weighted sum and total under one running maximum."""
    r = random.Random(100 + seed)
    rows = r.choice([1, 4])
    cut, unit = r.choice([4, 8]), r.choice([2, 3])
    lane = f"i.i:min({rows}, n - @i.o*{rows}):{r.choice(PLACES)}"
    tile = f"min({cut}, m - @k.o*{cut})"
    k_i = [f"k.i.o:({tile} + {unit - 1}) // {unit}:seq", f"k.i.i:min({unit}, {tile} - @k.i.o*{unit}):{r.choice(PLACES)}"]
    v = f"v:D:{r.choice(['seq', 'seq', 'simd'])}"

    def mixed(*groups: list[str]) -> list[str]:
        """A random merge that keeps the order inside each group."""
        queues, out = [list(g) for g in groups], []
        while any(queues):
            out.append(r.choice([q for q in queues if q]).pop(0))
        return out

    s = r.choice(["S[@i, @k]", "S[@i, @k]", "X[@i, @k]", "select(@k % 3 == 1, -inf, X[@i, @k])"])
    fill = onf.nest(mixed([lane.rsplit(":", 1)[0] + ":seq"], [f.rsplit(":", 1)[0] + ":seq" for f in k_i]), 'emit("once", "S", <@i, @k>, X[@i, @k])')
    out = onf.nest(mixed([lane], k_i, [v]), f'emit("osm", "O", <@i, @v>, pair({s}, V[@k, @v]))')
    total = onf.nest(mixed([lane], k_i), f'emit("osm", "L", <@i>, pair({s}, 1.0))')
    if seed % 3 == 0:  # under a condition the weighted sum has a running maximum of its own
        out = f"guard(0 < D, {out})"
    parts = [out, total] if r.random() < 0.7 else [total, out]
    step = onf.new("S", onf.block(fill, *parts)) if s[0] == "S" else onf.block(*parts)
    last = onf.nest([lane, "v:D:seq"], 'emit("once", "Y", <@i, @v>, O[@i, @v] / L[@i])')
    tiles = onf.nest([f"k.o:(m + {cut - 1}) // {cut}:seq"], step)
    body = onf.nest([f"i.o:(n + {rows - 1}) // {rows}:core"], onf.new("O", onf.new("L", onf.block(tiles, last))))
    stages = [onf.stage("S", "f64", "i k", "n; m", "once", layout=r.choice([(0, 1), (1, 0)])),
              onf.stage("O", "f64", "i v", "n; D", "osm", layout=r.choice([(0, 1), (1, 0)])), onf.stage("L", "f64", "i", "n", "osm")]  # fmt: skip
    defs = f"k.i = @k.i.o*{unit} + @k.i.i; k = @k.o*{cut} + @k.i; i = @i.o*{rows} + @i.i"
    k = onf.kernel("fuzz", "n m D", [onf.array("X", "f64", "n", "m"), onf.array("V", "f64", "m", "D")], [onf.array("Y", "f64", "n", "D")], body, stages, defs)
    f, text = compiled(k, tmp_path, r)
    rng = np.random.default_rng(seed)
    for n, m, d in ((1, 1, 1), (4, 8, 3), (5, 9, 4), (9, 23, 2)):
        x, w = 5 * rng.standard_normal((n, m)), rng.standard_normal((m, d))
        y = np.where(np.arange(m) % 3 == 1, -np.inf, x) if "select" in s else x
        e = np.exp(y - y.max(1, keepdims=True))
        np.testing.assert_allclose(f(x, w), e @ w / e.sum(1, keepdims=True), rtol=1e-11, atol=1e-12, err_msg=f"{(n, m, d)}\n{body}\n{text}")
