"""Hand-written ONFs with GPU placements for the tests of the CUDA printer, and NumPy answers for them."""

from __future__ import annotations

import numpy as np
from onf import array, block, kernel, nest, stage
from onf import new as new_one

from moa_rewrite.terms import Kernel


def emit(monoid: str, cell: str, value: str) -> str:
    name, index = cell.rstrip("]").split("[")
    return f'emit("{monoid}", "{name}", <{index}>, {value})'


def new(names: str, body: str) -> str:
    for n in reversed(names.split()):
        body = new_one(n, body)
    return body


def over(loops: str, body: str) -> str:
    """``over("i:n:grid; j:m:seq", s)``"""
    return nest([f.strip() for f in loops.split(";")], body)


def tile(a: str, n: str, t: int, place: str) -> str:
    return f"{a}.i:min({t}, {n} - @{a}.o*{t}):{place}"


def tiles(a: str, n: str, t: int, place: str) -> str:
    return f"{a}.o:({n} + {t - 1}) // {t}:{place}"


def lifted(**axes: int) -> str:
    return "; ".join(f"{a} = @{a}.o*{t} + @{a}.i" for a, t in axes.items())


def matmul(ty: str = "f32") -> Kernel:
    """Tiles of A and B in shared memory, the sum over tiles of k in global memory."""
    i, j, k, ks = tile("i", "n", 16, "block"), tile("j", "m", 16, "block"), tile("k", "p", 8, "block"), tile("k", "p", 8, "seq")
    body = over(f"{tiles('i', 'n', 16, 'grid')}; {tiles('j', 'm', 16, 'grid')}; {tiles('k', 'p', 8, 'seq')}", new("As Bs", block(
        over(f"{i}; {k}", emit("once", "As[@i, @k]", "A[@i, @k]")),
        over(f"{k}; {j}", emit("once", "Bs[@k, @j]", "B[@k, @j]")),
        over(f"{i}; {j}; {ks}", emit("add", "C[@i, @j]", "As[@i, @k] * Bs[@k, @j]")),
    )))  # fmt: skip
    return kernel("matmul", "n m p", [array("A", ty, "n", "p"), array("B", ty, "p", "m")], [array("C", ty, "n", "m")], body,
                  [stage("As", ty, "i k", "n; p", "once"), stage("Bs", ty, "k j", "p; m", "once")], lifted(i=16, j=16, k=8))  # fmt: skip


def matmul_registers(ty: str = "f32") -> Kernel:
    """As ``matmul``, each thread with 2 x 4 accumulators in registers for the tile's part of the sum."""
    rows, cols = "i.i.i:min(2, min(16, n - @i.o*16) - @i.i.o*2):unroll", "j.i.i:min(4, min(32, m - @j.o*32) - @j.i.o*4):unroll"
    body = over(f"{tiles('i', 'n', 16, 'grid')}; {tiles('j', 'm', 32, 'grid')}", new("Cs", block(
        over(tiles("k", "p", 8, "seq"), new("As Bs", block(
            over(f"i.i.o:(min(16, n - @i.o*16) + 1) // 2:block; i.i.i:min(2, min(16, n - @i.o*16) - @i.i.o*2):block; {tile('k', 'p', 8, 'block')}",
                 emit("once", "As[@i, @k]", "A[@i, @k]")),
            over(f"{tile('k', 'p', 8, 'block')}; j.i.o:(min(32, m - @j.o*32) + 3) // 4:block; j.i.i:min(4, min(32, m - @j.o*32) - @j.i.o*4):block",
                 emit("once", "Bs[@k, @j]", "B[@k, @j]")),
            over(f"i.i.o:(min(16, n - @i.o*16) + 1) // 2:block; j.i.o:(min(32, m - @j.o*32) + 3) // 4:block; {tile('k', 'p', 8, 'seq')}; {rows}; {cols}",
                 emit("add", "Cs[@i, @j]", "As[@i, @k] * Bs[@k, @j]")),
        ))),
        over(f"i.i.o:(min(16, n - @i.o*16) + 1) // 2:block; j.i.o:(min(32, m - @j.o*32) + 3) // 4:block; {rows}; {cols}",
             emit("once", "C[@i, @j]", "Cs[@i, @j]")),
    )))  # fmt: skip
    defs = "i.i = @i.i.o*2 + @i.i.i; j.i = @j.i.o*4 + @j.i.i; " + lifted(i=16, j=32, k=8)
    return kernel("matmul_registers", "n m p", [array("A", ty, "n", "p"), array("B", ty, "p", "m")], [array("C", ty, "n", "m")], body,
                  [stage("As", ty, "i k", "n; p", "once"), stage("Bs", ty, "k j", "p; m", "once"), stage("Cs", ty, "i j", "n; m", "add")], defs)  # fmt: skip


def softmax(ty: str = "f32") -> Kernel:
    """One block per row; the row's exponentials in shared memory, whose size depends on m; maximum and sum by one thread."""
    body = over("i:n:grid", new("mx e z", block(
        over("j:m:seq", emit("max", "mx[@i]", "X[@i, @j]")),
        over("j:m:block", emit("once", "e[@i, @j]", "exp(X[@i, @j] - mx[@i])")),
        over("j:m:seq", emit("add", "z[@i]", "e[@i, @j]")),
        over("j:m:block", emit("once", "Y[@i, @j]", "e[@i, @j] / z[@i]")),
    )))  # fmt: skip
    return kernel("softmax", "n m", [array("X", ty, "n", "m")], [array("Y", ty, "n", "m")], body,
                  [stage("mx", ty, "i", "n", "max"), stage("e", ty, "i j", "n; m", "once"), stage("z", ty, "i", "n", "add")])  # fmt: skip


def softmax_launches(ty: str = "f32") -> Kernel:
    """Row softmax with all stages outside the loops: four launches, stages in global memory."""
    body = new("mx e z", block(
        over("i:n:grid; j:m:seq", emit("max", "mx[@i]", "X[@i, @j]")),
        over("i:n:grid; j:m:block", emit("once", "e[@i, @j]", "exp(X[@i, @j] - mx[@i])")),
        over("i:n:block; j:m:seq", emit("add", "z[@i]", "e[@i, @j]")),
        over("i:n:seq; j:m:seq", emit("once", "Y[@i, @j]", "e[@i, @j] / z[@i]")),
    ))  # fmt: skip
    return kernel("softmax", "n m", [array("X", ty, "n", "m")], [array("Y", ty, "n", "m")], body,
                  [stage("mx", ty, "i", "n", "max"), stage("e", ty, "i j", "n; m", "once"), stage("z", ty, "i", "n", "add")])  # fmt: skip


def stencil(ty: str = "f32") -> Kernel:
    """Five points on the torus, a tile of 8 x 32 outputs per block, no shared memory."""
    value = "0.25 * (X[(@i+1) % n, @j] + X[(@i+n-1) % n, @j] + X[@i, (@j+1) % m] + X[@i, (@j+m-1) % m]) - X[@i, @j]"
    body = over(f"{tiles('i', 'n', 8, 'grid')}; {tiles('j', 'm', 32, 'grid')}; {tile('i', 'n', 8, 'block')}; {tile('j', 'm', 32, 'block')}",
                emit("once", "Y[@i, @j]", value))  # fmt: skip
    return kernel("stencil", "n m", [array("X", ty, "n", "m")], [array("Y", ty, "n", "m")], body, [], lifted(i=8, j=32))


def attention(ty: str = "f32") -> Kernel:
    """Heads and tiles of 8 queries over the grid, tiles of 16 keys in turn, online softmax."""
    i, k, ks = tile("i", "n", 8, "block"), tile("k", "m", 16, "block"), tile("k", "m", 16, "seq")
    body = over(f"h:H:grid; {tiles('i', 'n', 8, 'grid')}", new("acc z", block(
        over(tiles("k", "m", 16, "seq"), new("S", block(
            over(f"{i}; {k}", emit("once", "S[@h, @i, @k]", 's[] * reduce("add", "d", D, Q[@h, @i, @d] * K[@h, @k, @d])')),
            over(f"{i}; v:D:block; {ks}", emit("osm", "acc[@h, @i, @v]", "pair(S[@h, @i, @k], V[@h, @k, @v])")),
            over(f"{i}; {ks}", emit("osm", "z[@h, @i]", "pair(S[@h, @i, @k], 1.0)")),
        ))),
        over(f"{i}; v:D:block", emit("once", "Out[@h, @i, @v]", "acc[@h, @i, @v] / z[@h, @i]")),
    )))  # fmt: skip
    stages = [stage("S", ty, "h i k", "H; n; m", "once"), stage("z", ty, "h i", "H; n", "osm"), stage("acc", ty, "h i v", "H; n; D", "osm")]
    arrays = [array("s", ty), array("Q", ty, "H", "n", "D"), array("K", ty, "H", "m", "D"), array("V", ty, "H", "m", "D")]
    return kernel("attention", "H n m D", arrays, [array("Out", ty, "H", "n", "D")], body, stages, lifted(i=8, k=16))


def stencil_answer(x: np.ndarray) -> np.ndarray:
    x = x.astype(np.float64)
    return 0.25 * (np.roll(x, 1, 0) + np.roll(x, -1, 0) + np.roll(x, 1, 1) + np.roll(x, -1, 1)) - x


def softmax_answer(x: np.ndarray) -> np.ndarray:
    x = x.astype(np.float64)
    e = np.exp(x - x.max(axis=1, keepdims=True, initial=-np.inf))
    return e / e.sum(axis=1, keepdims=True)


def attention_answer(s: float, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    q, k, v = (a.astype(np.float64) for a in (q, k, v))
    scores = s * np.einsum("hid,hkd->hik", q, k)
    p = np.exp(scores - scores.max(axis=2, keepdims=True, initial=-np.inf))
    return np.einsum("hik,hkv->hiv", p, v) / p.sum(axis=2, keepdims=True)  # no keys: 0/0
