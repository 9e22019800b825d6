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


def kernel(name: str, sizes: str, inputs: list[Array], outputs: list[Array], body: str, stages: list[Stage] | None = None, defs: str = "", where: str = "") -> Kernel:
    """``defs`` like ``i = @i.o*64 + @i.i; ...``."""
    pairs = tuple((d.split("=", 1)[0].strip(), t(d.split("=", 1)[1])) for d in defs.split(";") if d.strip())
    wheres = tuple(t(w) for w in where.split(";") if w.strip())
    return Kernel(name, tuple(sizes.split()), wheres, tuple(inputs), tuple(outputs), t(body), tuple(stages or ()), pairs)


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
