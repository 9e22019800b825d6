"""Every scalar function in Fortran and CUDA against NumPy, infinities, NaN, signed zeros and negative integers included."""

from __future__ import annotations

import re

import numpy as np
import pytest
from onf import array, kernel

from moa_rewrite.build import load, simt
from moa_rewrite.build.fortran import compile_fortran
from moa_rewrite.emit import lower
from moa_rewrite.emit.cuda import print_cuda
from moa_rewrite.emit.fortran import print_fortran
from moa_rewrite.emit.lower_cuda import lower_cuda
from moa_rewrite.semantics.numeric import VALUE
from moa_rewrite.terms import Kernel, Term, axis, get, ix, seq, size
from moa_rewrite.terms.ops import BINARY, COMPARE, LOGIC, UNARY

DTYPE = {"f32": np.float32, "f64": np.float64, "i32": np.int32, "i64": np.int64, "bool": np.bool_}
FLOATS = np.array([0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.5, -2.5, 3.0, -3.0, 7.75, -7.75, 88.0, -87.0, 100.0, -104.0, 1e-30, 1e10, -1e10, np.inf, -np.inf, np.nan])
INTS = np.array([0, 1, -1, 2, -2, 3, -3, 5, -7, 8, 100, -100, 2**31 - 1, -(2**31)])


def elementwise(ty: str, functions: list[tuple[str, str]]):
    """One output per function of x[i] and y[i]."""
    parts, outputs = [], []
    x, y = (get(a, axis("i")) for a in "XY")
    for n, (op, out) in enumerate(functions):
        value = Term(op, x) if op in UNARY else Term(op, x, y)
        parts.append(Term("for", "i", size("n"), "core", Term("emit", "once", f"R{n}", ix(axis("i")), value)))
        outputs.append(array(f"R{n}", out, "n"))
    return Kernel("functions", ("n",), (), (array("X", ty, "n"), array("Y", ty, "n")), tuple(outputs), seq(*parts))


def functions_of(ty: str) -> list[tuple[str, str]]:
    skip = {"log", "sqrt", "sin", "cos", "tanh", "erf", "exp", "div"} if ty[0] == "i" else set()
    if ty == "bool":
        return [("not", "bool"), *((op, "bool") for op in (*LOGIC, "eq", "ne"))]
    arithmetic = [(op, ty) for op in (*UNARY, *BINARY) if op not in {*COMPARE, *LOGIC, "not", *skip}]
    return arithmetic + [(op, "bool") for op in COMPARE]


def operands(ty: str) -> tuple[np.ndarray, np.ndarray]:
    values = FLOATS if ty[0] == "f" else np.array([False, True]) if ty == "bool" else INTS
    x, y = (a.ravel().astype(DTYPE[ty]) for a in np.meshgrid(values, values, indexing="ij"))
    return x, y


def answer(op: str, ty: str, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(values, where they are defined)."""
    with np.errstate(all="ignore"):
        defined = np.ones(len(x), bool)
        if ty[0] == "i":
            if op in ("idiv", "mod"):
                defined = y != 0
            if op == "pow":
                defined = (y >= 0) & (y <= 8) & (np.abs(x.astype(float)) < 12)
            big = np.abs(x.astype(float)), np.abs(y.astype(float))
            if ty == "i32" and op in ("add", "sub", "mul", "neg", "abs", "idiv"):
                defined &= (big[0] < 2**15) & (big[1] < 2**15)
            x, y = x.astype(np.int64), np.where(defined | (op != "pow"), y, 0).astype(np.int64)
        if ty[0] == "f" and op in ("idiv", "mod"):
            defined = np.isfinite(x) & np.isfinite(y) & (y != 0)
        if ty == "f32" and op in ("sin", "cos"):
            defined = np.abs(x) < 1e3
        value = np.asarray(VALUE[op](*([x] if op in UNARY else [x, y])))
        return (value.astype(DTYPE[ty]) if value.dtype.kind == "f" and ty[0] == "f" else value), defined  # what overflows f32 is infinite


def agree(ty: str, functions: list[tuple[str, str]], results: list[np.ndarray]) -> None:
    x, y = operands(ty)
    for (op, out), got in zip(functions, results, strict=True):
        want, defined = answer(op, ty, x, y)
        if out == "bool" or ty[0] == "i":
            wrong = defined & (got != want)
            assert not wrong.any(), (op, [*zip(x[wrong], y[wrong], got[wrong], want[wrong], strict=True)][:5])
            continue
        eps = 3e-6 if ty == "f32" else 1e-13
        tiny = float(np.finfo(DTYPE[ty]).tiny)
        np.testing.assert_allclose(got[defined].astype(float), want[defined].astype(float), rtol=eps, atol=tiny, err_msg=op)


@pytest.mark.parametrize("ty", list(DTYPE))
def test_fortran(ty, tmp_path):
    functions = functions_of(ty)
    k = elementwise(ty, functions)
    prog = lower(k, "fortran")
    (tmp_path / "f.f90").write_text(print_fortran(prog).f90_text, encoding="utf-8")
    f = load(compile_fortran(tmp_path / "f.f90"), k, prog.name)
    out = f(*operands(ty), sizes={})
    agree(ty, functions, list(out))


@pytest.mark.parametrize("ty", list(DTYPE))
def test_cuda(ty, tmp_path):
    functions = functions_of(ty)
    k = elementwise(ty, functions)
    program = lower_cuda(k)
    x, y = operands(ty)
    r = simt.build(print_cuda(program).cu_text, tmp_path).call(program.name, [len(x)], [x, y], [np.empty(len(x), DTYPE[out]) for _, out in functions])
    assert r.code == 0 and not r.faults
    agree(ty, functions, r.outputs)


def test_branches_not_taken_are_not_evaluated(tmp_path):
    """Reads out of range and divisions by zero stand in branches that the condition excludes."""
    value = "select(@i < n - 1, X[@i + 1], 0) + select(not (D[@i] == 0), 100 // D[@i], -1)"
    guarded = 'guard(@i + 1 < n and 0 < X[@i + 1], emit("once", "B", <@i>, true))'.replace("true", "bool(1)")
    body = f'seq(for("i", n, "core", emit("once", "A", <@i>, {value})), for("i", n, "core", seq(emit("once", "B", <@i>, bool(0)), {guarded})))'
    k = kernel("lazy", "n", [array("X", "i64", "n"), array("D", "i64", "n")], [array("A", "i64", "n"), array("B", "bool", "n")], body)
    x, d = np.array([3, -1, 4, 0, 5]), np.array([7, 0, -3, 0, 1])
    after = np.append(x[1:], 0)
    want = after + np.array([100 // 7, -1, -34, -1, 100])
    prog = lower(k, "fortran")
    text = print_fortran(prog).f90_text
    assert "merge(" not in text.split("end function")[0]  # it evaluates both branches
    assert not re.search(r"\.and\..*X\(", text)  # so may .and.
    (tmp_path / "f.f90").write_text(text, encoding="utf-8")
    a, b = load(compile_fortran(tmp_path / "f.f90"), k, prog.name)(x, d)
    assert np.array_equal(a, want) and np.array_equal(b, after > 0)
    r = simt.build(print_cuda(lower_cuda(k)).cu_text, tmp_path).call("lazy", [5], [x, d], [np.empty(5, np.int64), np.empty(5, np.bool_)])
    assert not r.faults and np.array_equal(r.outputs[0], want) and np.array_equal(r.outputs[1], after > 0)
