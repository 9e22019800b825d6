"""The operators of the term algebra: their arguments and meaning. This table is the one place that says what a term may be.

Letters: E a scalar (index, value or size), A an array, S a statement, I an index list, s a string, i an int literal.

Every array term is elaborated: axis numbers (``k``, from 0) and the sizes its psi rule needs are explicit. A scalar constant or
a size is also the rank-0 array of it, and scalar functions apply to arrays elementwise (equal shapes).
"""

from __future__ import annotations

from .term import Term

# --- scalars -------------------------------------------------------------------------------------------------------------------
UNARY = ("neg", "abs", "exp", "log", "sqrt", "sin", "cos", "tanh", "erf", "floor", "ceil", "sign", "not")
ARITH = ("add", "sub", "mul", "div", "pow", "max", "min")
INTEGER = ("idiv", "mod")  # floor division and its remainder: a == b*idiv(a,b) + mod(a,b), 0 <= mod(a,b) < b for b > 0
COMPARE = ("lt", "le", "eq", "ne")
LOGIC = ("and", "or")
BINARY = ARITH + INTEGER + COMPARE + LOGIC
SCALAR_FUNCTIONS = UNARY + BINARY + ("select", "cast")

ARGS: dict[str, str] = {
    "int": "i",  # an integer constant
    "num": "s",  # a floating-point constant as written: "0.5", "1e-6", "inf", "-inf"
    "bool": "i",  # 0 or 1
    "size": "s",  # a symbolic size of the kernel, an integer >= 0
    "axis": "s",  # the value of the loop axis of that name
    "get": "sI",  # element of an input, output or stage: get(A, <i, j>)
    "psi": "IA",  # element of an array term at a full index
    **dict.fromkeys(UNARY, "E"),
    **dict.fromkeys(BINARY, "EE"),
    "select": "EEE",  # select(c, a, b): a where c, else b; the branch not taken is not evaluated
    "cast": "sE",  # cast(dtype, e), dtype one of f32 f64 i32 i64 bool
    "reduce": "ssEE",  # reduce(monoid, axis, extent, body): the monoid's sum of body over 0 <= axis < extent
    "pair": "EE",  # an element of a composite monoid such as osm
    "fst": "E",
    "snd": "E",
    # --- index lists ---
    "ix": "*",  # <e, ...>, any number of scalars; also used for shapes
    # --- arrays ---
    "arr": "s",  # an input of the kernel
    "iota": "E",  # iota(n)[i] = i
    "fill": "IA",  # fill(shape, c): every element is the rank-0 array c
    "spread": "iEA",  # spread(k, n, A): a new axis k of length n along which A is constant
    "take": "iEA",  # take(k, t, A): the first t items of axis k, 0 <= t <= n
    "taker": "iEEA",  # taker(k, t, n, A): the last t items of axis k, whose length is n
    "drop": "iEA",  # drop(k, t, A): all but the first t items of axis k
    "dropr": "iEA",  # dropr(k, t, A): all but the last t items
    "cat": "iEAA",  # cat(k, n, A, B): along axis k; n is the length of A's axis k
    "reverse": "iEA",  # reverse(k, n, A)
    "rotate": "iEEA",  # rotate(k, r, n, A)[i] = A[(i + r) mod n]
    "transpose": "IA",  # transpose(v, A)[i] = A[i[v]]; v a list of int literals, onto iota(1 + max v)
    "reshape": "IIA",  # reshape(new shape, old shape, A): same elements in row-major order
    "red": "sisEA",  # red(monoid, k, axis, n, A): reduce axis k, of length n; `axis` is the unique name its bound index gets
    "scan": "sisEA",  # inclusive scan along axis k
    "gather": "iAA",  # gather(k, E, A): axis k of A is selected by the integer array E, whose shape is the first k axes of A
    # --- statements: a statement denotes the monoid-sum of what it emits to each (array, index) ---
    "for": "sEsS",  # for(axis, extent, place, body); place "seq" or a machine level: core simd unroll grid block numa
    "emit": "ssIE",  # emit(monoid, X, <i, ...>, e): contributes e to X[i, ...]; monoid "once": exactly one contribution
    "seq": "SS",
    "new": "sS",  # new(T, body): storage for stage T, local to body; identity at entry
    "guard": "ES",  # body where the condition holds, else nothing
    "skip": "",
}

STATEMENTS = ("for", "emit", "seq", "new", "guard", "skip")
ARRAYS = ("arr", "iota", "fill", "spread", "take", "taker", "drop", "dropr", "cat", "reverse", "rotate", "transpose", "reshape", "red", "scan", "gather")
DTYPES = ("f32", "f64", "i32", "i64", "bool")


def is_binder(t: Term) -> bool:
    return t.op in ("reduce", "for")


# --- constructors that read well -----------------------------------------------------------------------------------------------
def I(value: int) -> Term:  # noqa: E743
    return Term("int", value)


def num(text: str) -> Term:
    return Term("num", text)


def axis(name: str) -> Term:
    return Term("axis", name)


def size(name: str) -> Term:
    return Term("size", name)


def ix(*items: Term) -> Term:
    return Term("ix", *items)


def get(name: str, *items: Term) -> Term:
    return Term("get", name, ix(*items))


def seq(*items: Term) -> Term:
    """Right-nested sequence; skip for none."""
    if not items:
        return Term("skip")
    out = items[-1]
    for s in reversed(items[:-1]):
        out = Term("seq", s, out)
    return out


# --- monoids -------------------------------------------------------------------------------------------------------------------
# name -> (scalar function or None). All are associative and commutative over the reals. `once` admits one contribution only.
# osm, the monoid of online softmax, holds pairs (m, w): combine = (max m, w1*exp(m1-m) + w2*exp(m2-m)), identity (-inf, 0).
MONOIDS = {"add": "add", "mul": "mul", "max": "max", "min": "min", "and": "and", "or": "or", "once": None, "osm": None}


def identity(monoid: str, dtype: str) -> Term:
    """The identity of a scalar monoid in a type. KeyError for `once` and `osm`."""
    if monoid in ("and", "or"):
        return Term("bool", int(monoid == "and"))
    if dtype in ("f32", "f64"):
        return num({"add": "0.0", "mul": "1.0", "max": "-inf", "min": "inf"}[monoid])
    bits = {"i32": 31, "i64": 63, "bool": 1}[dtype]
    return I({"add": 0, "mul": 1, "max": -(2**bits), "min": 2**bits - 1}[monoid])
