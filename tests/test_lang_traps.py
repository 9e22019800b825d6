"""Mistakes known from other systems: transposition of more than two axes, right folds, nested selections, heads, names of sizes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from moa_rewrite import lang
from moa_rewrite.errors import MoaError
from moa_rewrite.semantics import run
from moa_rewrite.terms import show


def value(source: str, **inputs: object) -> np.ndarray:
    """The one result of a program, the same by the interpreter of the source and from the elaborated kernel."""
    program = lang.load(source)
    kernel = lang.elaborate(program)
    arrays = {k: np.asarray(v) for k, v in inputs.items()}
    sizes = lang.bind_sizes(kernel, arrays)
    lang.check_where(kernel, sizes)
    got = lang.interpret(program, None, arrays, sizes)["out"]
    np.testing.assert_allclose(run(kernel, arrays, sizes)["out"], got, rtol=1e-12)
    return got


@pytest.mark.parametrize("v", list(itertools.permutations(range(3))))
def test_transpose_reads_index_of_v(v: tuple[int, int, int]) -> None:
    """result[i] = A[i[v]], so that axis j of A becomes axis v[j]; the other reading is the inverse permutation."""
    a = np.arange(60.0).reshape(3, 4, 5)
    shape = ["", "", ""]
    for j in range(3):
        shape[v[j]] = "abc"[j]
    got = value(f"kernel t(A: f64[a, b, c]) -> f64[{', '.join(shape)}] = <{v[0]}, {v[1]}, {v[2]}> ⍉ A", A=a)
    assert got.shape == tuple(a.shape[v.index(k)] for k in range(3))
    for i in np.ndindex(got.shape):
        assert got[i] == a[i[v[0]], i[v[1]], i[v[2]]]


def test_transpose_by_2_0_1() -> None:
    a = np.arange(60.0).reshape(3, 4, 5)
    got = value("kernel t(A: f64[3, 4, 5]) -> f64[4, 5, 3] = <2, 0, 1> ⍉ A", A=a)
    assert got[3, 4, 2] == a[2, 3, 4]


@pytest.mark.parametrize(("v", "w"), list(itertools.product(itertools.permutations(range(3)), repeat=2)))
def test_transposes_compose(v: tuple[int, ...], w: tuple[int, ...]) -> None:
    """v ⍉ (w ⍉ A) = v[w] ⍉ A"""
    a = np.arange(24.0).reshape(2, 3, 4)
    vw = [v[k] for k in w]
    shape = ", ".join(str(a.shape[vw.index(k)]) for k in range(3))
    text = [", ".join(map(str, p)) for p in (v, w, vw)]
    source = f"kernel t(A: f64[2, 3, 4]) -> f64[{shape}] = (<{text[0]}> ⍉ <{text[1]}> ⍉ A) - (<{text[2]}> ⍉ A)"
    kernel = lang.elaborate(lang.load(source))
    assert not run(kernel, {"A": a}, {})["out"].any()


def test_minus_and_divide_reduce_from_the_right() -> None:
    assert value("kernel s(x: f64[n]) -> f64 = - red x", x=[7.0, 2.0, 1.0]) == 6  # 7 - (2 - 1); a left fold from 0 gives -10
    assert value("kernel s(x: f64[n]) -> f64 = ÷ red x", x=[8.0, 4.0, 2.0]) == 4  # 8 / (4 / 2); a left fold gives 1
    assert value("kernel s(x: f64[n]) -> f64 = - red x", x=np.zeros(0)) == 0
    assert value("kernel s(x: f64[n]) -> f64 = ÷ red x", x=np.zeros(0)) == 1


def test_rav_inside_take_and_psi() -> None:
    a = np.arange(12.0).reshape(3, 4)
    assert value("kernel t(A: f64[n, m]) -> f64[5] where n * m >= 5 = 5 ↑ rav(A)", A=a).tolist() == [0, 1, 2, 3, 4]
    assert value("kernel t(A: f64[n, m]) -> f64[n * m - 7] = 7 ↓ rav(φA)", A=a).tolist() == [7, 0, 1, 2, 3]
    assert value("kernel t(A: f64[3, 4]) -> f64 = <6> ψ rav(⍉A)", A=a) == a.T.ravel()[6]
    assert value("kernel t(A: f64[3, 4]) -> f64[2] = <2> ψ <6, 2> ρ̂ rav(A)", A=a).tolist() == [4, 5]


def test_reverse_under_omega() -> None:
    a = np.arange(24.0).reshape(2, 3, 4)
    for cells, axis in ((3, 0), (2, 1), (1, 2)):
        assert (value(f"kernel t(A: f64[a, b, c]) -> f64[a, b, c] = φ Ω<{cells}> A", A=a) == np.flip(a, axis)).all()
    assert (value("kernel t(A: f64[a, b, c]) -> f64[a, b, c - 1] = (1 ↓ φ _) Ω<1> A", A=a) == a[:, :, ::-1][:, :, 1:]).all()


def test_rotate_is_drop_and_take() -> None:
    x = np.arange(7.0)
    for r in range(8):
        assert not value(f"kernel t(x: f64[n]) -> f64[n] where n >= 7 = ({r} θ x) - (({r % 7} ↓ x) ++ ({r % 7} ↑ x))", x=x).any() or r % 7 != r


def test_index_arrays_give_the_array_back() -> None:
    """(ι ρA) ψ A = A, cell by cell."""
    a = np.arange(6.0).reshape(2, 3)
    assert (value("kernel t(A: f64[n, m]) -> f64[n, m] = (_ ψ A) Ω<1> ι ρA", A=a) == a).all()


def test_frames_align_on_the_right() -> None:
    """Frames <2, 3> and <3>: with alignment on the left the lengths 2 and 3 would meet."""
    a, v = np.arange(6.0).reshape(2, 3), np.array([10.0, 20.0, 30.0])
    assert (value("kernel t(A: f64[n, m], v: f64[m]) -> f64[n, m] = A + Ω<0,0> v", A=a, v=v) == a + v).all()
    with pytest.raises(MoaError) as e:
        lang.elaborate(lang.load("kernel t(A: f64[n, m], v: f64[n]) -> f64[n, m] = A + Ω<0,0> v"))
    assert e.value.code == 302 and "<n, m>" in str(e.value) and "<n>" in str(e.value) and "n = 0, m = 1" in str(e.value).replace("m = 0, n = 1", "n = 0, m = 1")


GROUPED = """
kernel grouped(Q: f64[g * k, n, d], K: f64[k, m, d]) -> f64[g * k, n, m]
  = let shared = <g * k, m, d> ρ̂ (fill(<g>, 1.0) × Ω<0,2> _) Ω<2> K
    in (_ +.× ⍉ _) Ω<2,2> (Q, shared)
"""


def test_grouped_heads() -> None:
    """Four query heads, two key heads: query heads 0 and 1 use key head 0, heads 2 and 3 use key head 1."""
    q, k = np.ones((4, 1, 1)), np.array([[[1.0]], [[2.0]]])
    assert value(GROUPED, Q=q, K=k).ravel().tolist() == [1, 1, 2, 2]
    kernel = lang.elaborate(lang.load(GROUPED))
    with pytest.raises(MoaError) as e:
        lang.bind_sizes(kernel, {"Q": np.ones((5, 1, 1)), "K": k})
    assert "g * k = 5: axis 0 of Q" in str(e.value)


def test_a_mismatch_is_refused_even_for_length_one() -> None:
    """Nothing is broadcast, so lengths 2 and 1 do not meet."""
    kernel = lang.elaborate(lang.load("kernel t(x: f64[i], y: f64[i]) -> f64[i] = x × y"))
    with pytest.raises(MoaError) as e:
        lang.bind_sizes(kernel, {"x": np.ones(2), "y": np.ones(1)})
    assert "i = 2: axis 0 of x" in str(e.value) and "i = 1: axis 0 of y" in str(e.value)


def test_outer_sum_over_two_axes() -> None:
    a = np.arange(64.0).reshape(2, 4, 8)
    got = value("kernel t(A: f64[i, j, k]) -> f64[i, j, i, j] = A +.× (<1, 2, 0> ⍉ A)", A=a)
    assert (got == np.einsum("abk,cdk->abcd", a, a)).all()


def test_psi_correspondence() -> None:
    """The part of the ravelled array that a partial index selects: a start, stride 1, and a length."""
    a = np.arange(60.0).reshape(3, 5, 4)
    got = value("kernel p(A: f64[3, 5, 4]) -> f64[4] = (<2, 3> ψ A) - (4 ↑ 52 ↓ rav(A))", A=a)  # 2 * 20 + 3 * 4
    assert not got.any()


def test_names_do_not_collide() -> None:
    """Axes avoid the names of sizes, inputs and results."""
    kernel = lang.elaborate(lang.load("kernel t(i: f64[r0, j]) -> (k: f64[r0], l: f64[j]) = (+ red Ω<1> i, + red i)"))
    text = show(kernel.body)
    assert '"r1"' in text and '"r2"' in text and '"r0"' not in text
    assert 'for("p", r0' in text and 'for("q", j' in text


def test_equal_extents_share_output_axes() -> None:
    kernel = lang.elaborate(lang.load("kernel t(x: f64[n], y: f64[m]) -> (a: f64[n], b: f64[m], c: f64[n, n]) = (x, y, x •× x)"))
    text = show(kernel.body)
    assert text.count('for("i", n') == 2 and text.count('for("j", m') == 1 and text.count('for("k", n') == 1


def test_reductions_have_their_own_names_and_bindings_are_shared() -> None:
    kernel = lang.elaborate(lang.load("kernel t(x: f64[n]) -> f64[n] = let s = + red x in x × s + s - (max red x)"))
    names = [t.args[2] for t in _subterms(kernel.body) if t.op == "red"]
    assert sorted(names) == ["r0", "r1"]


def _subterms(t):
    from moa_rewrite.terms import subterms

    return list(subterms(t))


def test_elaboration_is_repeatable() -> None:
    source = (lang.load("kernel t(x: f64[n, m]) -> f64[n, m] = softmax Ω<1> x"),) * 2
    assert lang.elaborate(source[0]) == lang.elaborate(source[1])
