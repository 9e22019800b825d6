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


def attention(ty: str = "f32", queries: int = 16, keys: int = 64, rows: int = 4, cols: int = 4) -> Kernel:
    """Forward attention of H heads: queries on SIMD lanes, key tiles, online softmax; rows and cols are the register tiles of the two products."""
    q, k, r, c = queries, keys, rows, cols
    lanes = f"i.i:min({q}, n - @i.o*{q}):simd"
    nk = f"min({k}, m - @k.o*{k})"
    k_o, k_i = f"k.i.o:({nk} + {r - 1}) // {r}:seq", f"k.i.i:min({r}, {nk} - @k.i.o*{r}):"
    v_o, v_i = f"v.o:(D + {c - 1}) // {c}:seq", f"v.i:min({c}, D - @v.o*{c}):"
    pack = nest(["d:D:seq", lanes], 'emit("once", "Qp", <@h, @i, @d>, Q[@h, @i, @d] * s[])')
    scores = nest([k_o, "d:D:seq", k_i + "unroll", lanes], 'emit("add", "S", <@h, @i, @k>, Qp[@h, @i, @d] * K[@h, @k, @d])')
    out = nest([v_o, k_o, k_i + "seq", v_i + "unroll", lanes], 'emit("osm", "O", <@h, @i, @v>, pair(S[@h, @i, @k], V[@h, @k, @v]))')
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
