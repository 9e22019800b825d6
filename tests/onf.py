"""ONF kernels written by hand, for the tests of lowering, printing and building."""

from __future__ import annotations

from moa_rewrite.terms import Array, Kernel, Stage, Term, parse_term


def t(text: str) -> Term:
    return parse_term(text)


def array(name: str, dtype: str, *shape: str) -> Array:
    return Array(name, dtype, tuple(map(t, shape)))


def stage(name: str, dtype: str, axes: str, shape: str, monoid: str, definition: str = "0", layout: tuple[int, ...] = ()) -> Stage:
    """``axes`` separated by blanks, ``shape`` by semicolons."""
    return Stage(name, dtype, tuple(axes.split()), tuple(t(s) for s in shape.split(";") if s.strip()), monoid, t(definition), layout)


def kernel(
    name: str, sizes: str, inputs: list[Array], outputs: list[Array], body: str, stages: list[Stage] | None = None, defs: str = "", where: str = ""
) -> Kernel:  # fmt: skip
    """``defs`` like ``i = @i.o*64 + @i.i; ...``."""
    pairs = tuple((d.split("=", 1)[0].strip(), t(d.split("=", 1)[1])) for d in defs.split(";") if d.strip())
    wheres = tuple(t(w) for w in where.split(";") if w.strip())
    return Kernel(name, tuple(sizes.split()), wheres, tuple(inputs), tuple(outputs), t(body), tuple(stages or ()), pairs)


def nest(loops: list[str], body: str) -> str:
    """Loops ``axis:extent:place`` around a statement."""
    for f in reversed(loops):
        a, extent, place = f.split(":")
        body = f'for("{a}", {extent}, "{place}", {body})'
    return body


def block(*statements: str) -> str:
    out = statements[-1]
    for s in reversed(statements[:-1]):
        out = f"seq({s}, {out})"
    return out


def new(name: str, body: str) -> str:
    return f'new("{name}", {body})'


def matmul_plain(ty: str = "f32") -> Kernel:
    body = 'for("i", n, "core", for("j", m, "seq", for("k", p, "seq", emit("add", "C", <@i, @j>, A[@i, @k] * B[@k, @j]))))'
    return kernel("matmul", "n m p", [array("A", ty, "n", "p"), array("B", ty, "p", "m")], [array("C", ty, "n", "m")], body)


def matmul_tiled(ty: str = "f32", rows: int = 6, cols: int = 16) -> Kernel:
    """Register tile rows x cols, with a packed panel of B shared by the row tiles."""
    body = f'''for("j.o", (m + {cols - 1}) // {cols}, "core", new("Bp", seq(
        for("k", p, "seq", for("j.i", min({cols}, m - @j.o*{cols}), "simd", emit("once", "Bp", <@k, @j>, B[@k, @j]))),
        for("i.o", (n + {rows - 1}) // {rows}, "seq", for("k", p, "seq", for("i.i", min({rows}, n - @i.o*{rows}), "unroll",
          for("j.i", min({cols}, m - @j.o*{cols}), "simd", emit("add", "C", <@i, @j>, A[@i, @k] * Bp[@k, @j]))))))))'''
    defs = f"i = @i.o*{rows} + @i.i; j = @j.o*{cols} + @j.i"
    return kernel("matmul", "n m p", [array("A", ty, "n", "p"), array("B", ty, "p", "m")], [array("C", ty, "n", "m")], body,
                  [stage("Bp", ty, "k j", "p; m", "once", "B[@k, @j]")], defs)  # fmt: skip


def softmax_staged(ty: str = "f32") -> Kernel:
    body = '''for("i", n, "core", new("M", new("E", new("L", seq(
        for("j", m, "seq", emit("max", "M", <@i>, X[@i, @j])),
        seq(for("j", m, "simd", emit("once", "E", <@i, @j>, exp(X[@i, @j] - M[@i]))),
        seq(for("j", m, "seq", emit("add", "L", <@i>, E[@i, @j])),
        for("j", m, "simd", emit("once", "Y", <@i, @j>, E[@i, @j] / L[@i])))))))))'''
    return kernel("softmax", "n m", [array("X", ty, "n", "m")], [array("Y", ty, "n", "m")], body,
                  [stage("M", ty, "i", "n", "max"), stage("E", ty, "i j", "n; m", "once"), stage("L", ty, "i", "n", "add")])  # fmt: skip


def attention(ty: str = "f32", queries: int = 16, keys: int = 64, rows: int = 4, cols: int = 4, apart: str = "") -> Kernel:
    """Forward attention of H heads: queries on SIMD lanes, key tiles, online softmax; rows and cols are the register tiles of the two products.

    ``apart``: a condition around the weighted sum ("outside"), or around its part for each tile of its columns ("inside"): it has a running
    maximum of its own then."""
    q, k, r, c = queries, keys, rows, cols
    lanes = f"i.i:min({q}, n - @i.o*{q}):simd"
    nk = f"min({k}, m - @k.o*{k})"
    k_o, k_i = f"k.i.o:({nk} + {r - 1}) // {r}:seq", f"k.i.i:min({r}, {nk} - @k.i.o*{r}):"
    v_o, v_i = f"v.o:(D + {c - 1}) // {c}:seq", f"v.i:min({c}, D - @v.o*{c}):"
    pack = nest(["d:D:seq", lanes], 'emit("once", "Qp", <@h, @i, @d>, Q[@h, @i, @d] * s[])')
    scores = nest([k_o, "d:D:seq", k_i + "unroll", lanes], 'emit("add", "S", <@h, @i, @k>, Qp[@h, @i, @d] * K[@h, @k, @d])')
    out = nest([v_o, k_o, k_i + "seq", v_i + "unroll", lanes], 'emit("osm", "O", <@h, @i, @v>, pair(S[@h, @i, @k], V[@h, @k, @v]))')
    if apart == "outside":
        out = f"guard(0 < D, {out})"
    elif apart == "inside":
        cells = nest([k_o, k_i + "seq", v_i + "unroll", lanes], 'emit("osm", "O", <@h, @i, @v>, pair(S[@h, @i, @k], V[@h, @k, @v]))')
        out = nest([v_o], f"guard(0 < D, {cells})")
    total = nest([k_o, k_i + "seq", lanes], 'emit("osm", "L", <@h, @i>, pair(S[@h, @i, @k], 1.0))')
    tiles = nest([f"k.o:(m + {k - 1}) // {k}:seq"], new("S", block(scores, out, total)))
    divide = nest([lanes.replace("simd", "seq"), v_o, v_i + "seq"], 'emit("once", "Out", <@h, @i, @v>, O[@h, @i, @v] / L[@h, @i])')
    body = nest(["h:H:core", f"i.o:(n + {q - 1}) // {q}:core"], new("Qp", new("O", new("L", block(pack, tiles, divide)))))
    defs = f"k.i = @k.i.o*{r} + @k.i.i; k = @k.o*{k} + @k.i; i = @i.o*{q} + @i.i; v = @v.o*{c} + @v.i"
    stages = [
        stage("Qp", ty, "h i d", "H; n; D", "once", layout=(0, 2, 1)), stage("S", ty, "h i k", "H; n; m", "add", layout=(0, 2, 1)),
        stage("O", ty, "h i v", "H; n; D", "osm", layout=(0, 2, 1)), stage("L", ty, "h i", "H; n", "osm"),
    ]  # fmt: skip
    arrays = [array("s", ty), array("Q", ty, "H", "n", "D"), array("K", ty, "H", "m", "D"), array("V", ty, "H", "m", "D")]
    return kernel("attention", "H n m D", arrays, [array("Out", ty, "H", "n", "D")], body, stages, defs)


def attention_streamed(ty: str = "f32", causal: bool = False) -> Kernel:
    """No tiles: one key at a time, the running maximum and the rescaling in the innermost place."""
    out = nest(["v:D:seq"], 'emit("osm", "O", <@i, @v>, pair(S[@i, @k], V[@k, @v]))')
    total = 'emit("osm", "L", <@i>, pair(S[@i, @k], 1.0))'
    score = nest(["d:D:seq"], 'emit("add", "S", <@i, @k>, Q[@i, @d] * K[@k, @d])')
    step = new("S", block(score, out, total))
    if causal:
        step = f"guard(@k <= @i, {step})"
    divide = nest(["v:D:seq"], 'emit("once", "Y", <@i, @v>, O[@i, @v] / L[@i])')
    body = nest(["i:n:core"], new("O", new("L", block(nest(["k:m:seq"], step), divide))))
    stages = [stage("S", ty, "i k", "n; m", "add"), stage("O", ty, "i v", "n; D", "osm"), stage("L", ty, "i", "n", "osm")]
    arrays = [array("Q", ty, "n", "D"), array("K", ty, "m", "D"), array("V", ty, "m", "D")]
    return kernel("streamed", "n m D", arrays, [array("Y", ty, "n", "D")], body, stages)


def attention_turned(ty: str = "f32", queries: int = 64, rows: int = 4) -> Kernel:
    """Whole rows of scores, stored with the queries on lanes, which the weighted sum unrolls in groups of ``rows`` with values on lanes instead."""
    lanes = f"i.i:min({queries}, n - @i.o*{queries}):simd"
    group = [f"i.i.o:(min({queries}, n - @i.o*{queries}) + {rows - 1}) // {rows}:seq", "k:m:seq",
             f"i.i.i:min({rows}, min({queries}, n - @i.o*{queries}) - @i.i.o*{rows}):unroll", "v:D:simd"]  # fmt: skip
    score = nest(["k:m:seq", lanes], 'emit("once", "S", <@i, @k>, Q[@i] * K[@k])')
    out = nest(group, 'emit("osm", "O", <@i, @v>, pair(S[@i, @k], V[@k, @v]))')
    total = nest(["k:m:seq", lanes], 'emit("osm", "L", <@i>, pair(S[@i, @k], 1.0))')
    divide = nest([lanes.replace("simd", "seq"), "v:D:simd"], 'emit("once", "Y", <@i, @v>, O[@i, @v] / L[@i])')
    body = nest([f"i.o:(n + {queries - 1}) // {queries}:core"], new("S", new("O", new("L", block(score, out, total, divide)))))
    stages = [stage("S", ty, "i k", "n; m", "once", layout=(1, 0)), stage("O", ty, "i v", "n; D", "osm"), stage("L", ty, "i", "n", "osm")]
    arrays = [array("Q", ty, "n"), array("K", ty, "m"), array("V", ty, "m", "D")]
    return kernel("turned", "n m D", arrays, [array("Y", ty, "n", "D")], body, stages, f"i.i = @i.i.o*{rows} + @i.i.i; i = @i.o*{queries} + @i.i")


def softmax_lanes(ty: str = "f32", lanes: int = 16, unit: int = 64) -> Kernel:
    """Row softmax, keys on lanes: online denominator over tiles of ``unit``, then one more pass."""
    tile = [f"k.o:(m + {unit - 1}) // {unit}:seq", f"k.i.o:(min({unit}, m - @k.o*{unit}) + {lanes - 1}) // {lanes}:seq",
            f"k.i.i:min({lanes}, min({unit}, m - @k.o*{unit}) - @k.i.o*{lanes}):simd"]  # fmt: skip
    top = nest(["k2:m:simd"], 'emit("max", "M", <@i>, X[@i, @k2])')
    total = nest(tile, 'emit("osm", "L", <@i>, pair(X[@i, @k], 1.0))')
    out = nest(tile, 'emit("once", "Y", <@i, @k>, exp(X[@i, @k] - M[@i]) / L[@i])')
    body = nest(["i:n:core"], new("M", new("L", block(top, total, out))))
    defs = f"k.i = @k.i.o*{lanes} + @k.i.i; k = @k.o*{unit} + @k.i"
    return kernel("softmax_lanes", "n m", [array("X", ty, "n", "m")], [array("Y", ty, "n", "m")], body,
                  [stage("M", ty, "i", "n", "max"), stage("L", ty, "i", "n", "osm")], defs)  # fmt: skip


def dot(ty: str = "f32", lanes: int = 16, monoid: str = "add") -> Kernel:
    body = nest([f"k.o:(n + {lanes - 1}) // {lanes}:seq", f"k.i:min({lanes}, n - @k.o*{lanes}):simd"], f'emit("{monoid}", "R", <>, X[@k] * Y[@k])')
    return kernel("dot", "n", [array("X", ty, "n"), array("Y", ty, "n")], [array("R", ty)], body, defs=f"k = @k.o*{lanes} + @k.i")


def scan(ty: str = "f32") -> Kernel:
    """Inclusive prefix sum as a triangular reduction."""
    return kernel("scan_sum", "n", [array("X", ty, "n")], [array("Y", ty, "n")], nest(["i:n:seq", "k:@i + 1:seq"], 'emit("add", "Y", <@i>, X[@k])'))


def scan_lanes(ty: str = "f32") -> Kernel:
    """The same on lanes whose reductions have different lengths."""
    loops = ["i.o:(n + 7) // 8:core", "i.i:min(8, n - @i.o*8):simd", "k:@i + 1:seq"]
    return kernel("scan_lanes", "n", [array("X", ty, "n")], [array("Y", ty, "n")], nest(loops, 'emit("add", "Y", <@i>, X[@k])'), defs="i = @i.o*8 + @i.i")


def concatenate(ty: str = "f32") -> Kernel:
    body = block(nest(["i:n:core"], 'emit("once", "Z", <@i>, X[@i])'), nest(["j:m:simd"], 'emit("once", "Z", <n + @j>, Y[@j])'))
    return kernel("concatenate", "n m", [array("X", ty, "n"), array("Y", ty, "m")], [array("Z", ty, "n + m")], body)


def stencil(ty: str = "f32") -> Kernel:
    """Five points by rotation, tiled both ways."""
    loops = ["i.o:(n + 3) // 4:core", "j.o:(m + 15) // 16:seq", "i.i:min(4, n - @i.o*4):unroll", "j.i:min(16, m - @j.o*16):simd"]
    e = "0.25 * (X[(@i + 1) % n, @j] + X[(@i - 1) % n, @j] + X[@i, (@j + 1) % m] + X[@i, (@j - 1) % m])"
    return kernel("stencil", "n m", [array("X", ty, "n", "m")], [array("Y", ty, "n", "m")], nest(loops, f'emit("once", "Y", <@i, @j>, {e})'),
                  defs="i = @i.o*4 + @i.i; j = @j.o*16 + @j.i")  # fmt: skip


def nested_reduce(ty: str = "f64") -> Kernel:
    """Reductions inside an expression, one of them under a select whose other branch would read out of range."""
    inner = 'reduce("add", "k", m, X[@i, @k] * select(@i < n - 1, reduce("max", "q", m, X[@i + 1, @q]), 0.5))'
    soft = 'snd(reduce("osm", "r", m, pair(X[@i, @r], X[@i, @r]))) + fst(reduce("osm", "w", m, pair(X[@i, @w], 1.0)))'
    return kernel("nested_reduce", "n m", [array("X", ty, "n", "m")], [array("Y", ty, "n")], nest(["i:n:core"], f'emit("once", "Y", <@i>, {inner} + {soft})'))


def partial_sums(ty: str = "f32") -> Kernel:
    """Key tiles outside a sum over blocks of k: cells are loaded and added to."""
    loops = ["k.o:(p + 7) // 8:seq", "i.o:(n + 3) // 4:core", "k.i:min(8, p - @k.o*8):seq", "i.i:min(4, n - @i.o*4):unroll", "j.i:min(8, m):simd"]
    return kernel("partial_sums", "n m p", [array("A", ty, "n", "p"), array("B", ty, "p", "m")], [array("C", ty, "n", "m")],
                  nest(loops, 'emit("add", "C", <@i, @j.i>, A[@i, @k] * B[@k, @j.i])'),
                  defs="i = @i.o*4 + @i.i; k = @k.o*8 + @k.i", where="m <= 8")  # fmt: skip


def integers() -> Kernel:
    e = "(@i - 7) // 3 * 100 + (@i - 7) % 3 * 10 + X[@i] // -4 + X[@i] % 5"
    b = "X[@i] % 2 == 0 and not (X[@i] < 0 or X[@i] == 4)"
    return kernel("integers", "n", [array("X", "i32", "n")], [array("Y", "i64", "n"), array("Z", "bool", "n")],
                  nest(["i:n:simd"], f'seq(emit("once", "Y", <@i>, {e}), emit("once", "Z", <@i>, {b}))'))  # fmt: skip


def reversed_tiles(ty: str = "f64") -> Kernel:
    """A stage stored tile by tile and read at another index than its key's."""
    back = "@i.o*8 + min(8, n - @i.o*8) - 1 - @i.i"
    tile = "i.i:min(8, n - @i.o*8):seq"
    body = nest(["i.o:(n + 7) // 8:core"], new("T", block(nest([tile], 'emit("once", "T", <@i>, X[@i] * X[@i])'),
                                                          nest([tile], f'emit("once", "Y", <@i>, T[{back}])'))))  # fmt: skip
    return kernel("reversed_tiles", "n", [array("X", ty, "n")], [array("Y", ty, "n")], body, [stage("T", ty, "i", "n", "once")], "i = @i.o*8 + @i.i")


def two_regions(ty: str = "f32") -> Kernel:
    """A stage shared by the threads between two parallel loops, stored column-major; a sum with a guard; two emissions to one output."""
    first = nest(["i:n:core", "j:m:seq"], 'emit("once", "P", <@i, @j>, X[@i, @j] + 1.0)')
    second = nest(["q:m:core", "k:n:seq"], 'emit("add", "Y", <@q>, P[@k, @q])')
    third = nest(["q:m:core", "k:n:seq"], 'guard(@k <= @q, emit("add", "Y", <@q>, X[@k, @q]))')
    return kernel("two_regions", "n m", [array("X", ty, "n", "m")], [array("Y", ty, "m")], new("P", block(first, second, third)),
                  [stage("P", ty, "i j", "n; m", "once", layout=(1, 0))])  # fmt: skip


def attention_causal(ty: str = "f32") -> Kernel:
    """Key tiles above the diagonal skipped by a guard, the diagonal one masked."""
    k = attention(ty, 4, 8, 4, 4)
    body = str(k.body)
    start = body.index('for("k.o", ')
    inner = body.index('new("S"', start)
    end, depth = inner, 0
    while True:
        depth += {"(": 1, ")": -1}.get(body[end], 0)
        end += 1
        if depth == 0 and body[end - 1] == ")":
            break
    masked = body[inner:end].replace('S[@h, @i, @k]', 'select(@k <= @i, S[@h, @i, @k], -inf)')
    text = f"{body[:inner]}guard(@k.o * 8 < @i.o * 4 + 4, {masked}){body[end:]}"
    return Kernel("attention_causal", k.sizes, (), k.inputs, k.outputs, t(text), k.stages, k.defs)
