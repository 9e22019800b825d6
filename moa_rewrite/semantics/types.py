"""Element types of scalar and array terms.

Casts are explicit, so a type follows from the leaves: names have declared types, sizes and axes are i64. A literal has no type of its own
and takes that of what it meets; alone it is i64 or f64. i32 next to i64 is i64 (nothing is lost); every other mixture is a ValueError.
"""

from __future__ import annotations

from ..terms import Kernel, Term
from ..terms.ops import COMPARE, INTEGER, LOGIC

Kind = str | tuple[str, "Kind", "Kind"]  # a dtype, "int*" or "num*" for a literal, ("pair", first, second)
_FLOATS, _INTS = ("f32", "f64", "num*"), ("i32", "i64", "int*")
_TRANSCENDENTAL = ("exp", "log", "sqrt", "sin", "cos", "tanh", "erf")
_memo: dict[tuple[tuple[str, str], ...], dict[Term, Kind]] = {}


def dtype(t: Term, kernel: Kernel) -> str:
    """The element type of a scalar or array term: f32 f64 i32 i64 bool, or "pair" for an element of a composite monoid. ValueError for a mixture."""
    kind = _kind(t, names_of(kernel))
    return "pair" if isinstance(kind, tuple) else {"int*": "i64", "num*": "f64"}.get(kind, kind)


def is_literal(t: Term, kernel: Kernel) -> bool:
    """Whether a term is made of constants only, so that its type is the one of what it meets."""
    return _kind(t, names_of(kernel)) in ("int*", "num*")


def names_of(kernel: Kernel) -> tuple[tuple[str, str], ...]:
    """(name, dtype) of every array of a kernel: all that types depend on."""
    return tuple((a.name, a.dtype) for a in (*kernel.inputs, *kernel.outputs)) + tuple((s.name, s.dtype) for s in kernel.stages)


def dtype_of_names(t: Term, names: tuple[tuple[str, str], ...]) -> str:
    """As ``dtype``, given the (name, dtype) pairs instead of a kernel."""
    kind = _kind(t, names)
    return "pair" if isinstance(kind, tuple) else {"int*": "i64", "num*": "f64"}.get(kind, kind)


def _kind(t: Term, names: tuple[tuple[str, str], ...]) -> Kind:
    memo, table = _memo.setdefault(names, {}), dict(names)

    def kind(u: Term) -> Kind:
        found = memo.get(u)
        if found is None:
            found = memo[u] = rule(u)
        return found

    def integers(index: Term, where: Term) -> None:
        for e in index.kids():
            if kind(e) not in _INTS:
                raise ValueError(f"index {e} of {where} has type {kind(e)}, not an integer type")

    def rule(u: Term) -> Kind:
        op, args = u.op, u.args
        if op == "int":
            return "int*"
        if op == "num":
            return "num*"
        if op == "bool":
            return "bool"
        if op in ("size", "axis"):
            return "i64"
        if op == "get":
            integers(args[1], u)  # type: ignore[arg-type]
            return table[str(args[0])]
        if op == "arr":
            return table[str(args[0])]
        if op == "iota":
            return "i64"
        if op == "psi":
            integers(args[0], u)  # type: ignore[arg-type]
        if op == "cast":
            kind(args[1])  # type: ignore[arg-type]
            return str(args[0])
        kinds = [kind(a) for a in u.kids() if a.op != "ix"]
        if op == "pair":
            return "pair", kinds[0], kinds[1]
        if op in ("fst", "snd"):
            if not isinstance(kinds[0], tuple):
                raise ValueError(f"{u} takes a component of {kinds[0]}")
            return kinds[0][1 if op == "fst" else 2]
        if op in ("reduce", "red", "scan"):
            return _reduced(str(args[0]), kinds[-1], u)
        if op == "cat":
            return _join(kinds[-2], kinds[-1], u)
        if op == "gather":
            if kinds[0] not in _INTS:
                raise ValueError(f"gather by {kinds[0]} in {u}")
            return kinds[1]
        if op in ("psi", "fill", "spread", "take", "taker", "drop", "dropr", "reverse", "rotate", "transpose", "reshape"):
            return kinds[-1]
        return _function(op, kinds, u)

    return kind(t)


def _join(a: Kind, b: Kind, u: Term) -> Kind:
    """The common type of two operands."""
    if a == b:
        return a
    if isinstance(a, tuple) and isinstance(b, tuple):
        return "pair", _join(a[1], b[1], u), _join(a[2], b[2], u)
    for x, y in ((a, b), (b, a)):
        if (x == "int*" and y in (*_INTS, *_FLOATS)) or (x == "num*" and y in _FLOATS) or (x, y) == ("i32", "i64"):
            return y
    raise ValueError(f"{a} meets {b} in {u}: a cast must say what is meant")


def _function(op: str, kinds: list[Kind], u: Term) -> Kind:
    def need(ok: bool) -> None:
        if not ok:
            raise ValueError(f"{op} does not apply to {', '.join(map(str, kinds))} in {u}")

    if op == "select":
        need(kinds[0] == "bool")
        return _join(kinds[1], kinds[2], u)
    if op == "not" or op in LOGIC:
        need(all(k == "bool" for k in kinds))
        return "bool"
    common = kinds[0] if len(kinds) == 1 else _join(kinds[0], kinds[1], u)
    if op in COMPARE:
        need(not isinstance(common, tuple) and (common != "bool" or op in ("eq", "ne")))
        return "bool"
    need(common in _FLOATS or common in _INTS)
    if op in INTEGER:
        need(common in _INTS)
    if op in _TRANSCENDENTAL or op == "div":
        need(common in _FLOATS or common == "int*")
        return "num*" if common == "int*" else common
    return common


def _reduced(monoid: str, body: Kind, u: Term) -> Kind:
    if monoid == "osm":
        if not isinstance(body, tuple):
            raise ValueError(f"osm reduces pairs, not {body}, in {u}")
        return "pair", body[1], _join(body[1], body[2], u)
    if (monoid in ("and", "or")) != (body == "bool") or isinstance(body, tuple):
        raise ValueError(f"{monoid} does not reduce {body} in {u}")
    return "i64" if body == "int*" else body  # a count is not a constant
