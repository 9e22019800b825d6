"""Free axes of a term, renaming, and equality up to the names of bound axes."""

from __future__ import annotations

from collections.abc import Mapping

from .term import Term

_free: dict[Term, frozenset[str]] = {}


def free_axes(t: Term) -> frozenset[str]:
    """Names of the axes that occur free. Axis definitions (``i = i.o*T + i.i``) are not looked through: see Kernel.base_axes."""
    found = _free.get(t)
    if found is None:
        if t.op == "axis":
            found = frozenset([str(t.args[0])])
        elif t.op == "reduce":
            _, name, extent, body = t.args
            found = free_axes(extent) | (free_axes(body) - {name})  # type: ignore[arg-type]
        elif t.op == "for":
            name, extent, _, body = t.args
            found = free_axes(extent) | (free_axes(body) - {name})  # type: ignore[arg-type]
        else:
            found = frozenset().union(*[free_axes(a) for a in t.kids()])
        _free[t] = found
    return found


def reads(t: Term) -> frozenset[str]:
    """Names of the arrays a term reads with ``get`` or mentions with ``arr``."""
    out = set()
    stack, seen = [t], {t}
    while stack:
        u = stack.pop()
        if u.op in ("get", "arr"):
            out.add(str(u.args[0]))
        for a in u.kids():
            if a not in seen:
                seen.add(a)
                stack.append(a)
    return frozenset(out)


def writes(t: Term) -> frozenset[str]:
    """Names of the arrays a statement emits to."""
    if t.op == "emit":
        return frozenset([str(t.args[1])])
    return frozenset().union(*[writes(a) for a in t.kids()]) if t.op in ("for", "seq", "new", "guard") else frozenset()


def substitute(t: Term, by: Mapping[str, Term]) -> Term:
    """Replace free axes by terms. The caller makes sure that no bound axis captures one (names are unique in a kernel)."""
    if not by or not (free_axes(t) & by.keys()):
        return t
    if t.op == "axis":
        return by[str(t.args[0])]
    if t.op in ("reduce", "for"):
        k = 1 if t.op == "reduce" else 0
        inner = {a: e for a, e in by.items() if a != t.args[k]}
        args = [substitute(a, inner if n == len(t.args) - 1 else by) if isinstance(a, Term) else a for n, a in enumerate(t.args)]
        return Term(t.op, *args)
    return t.map(lambda a: substitute(a, by))


def alpha_normal(t: Term) -> Term:
    """``t`` with every axis bound by a ``reduce`` renamed to ``%d``, d the number of reduces around it (equal iff alpha-equal)."""

    def walk(u: Term, env: dict[str, str], depth: int) -> Term:
        if u.op == "axis":
            return Term("axis", env.get(str(u.args[0]), str(u.args[0])))
        if u.op == "reduce":
            m, name, extent, body = u.args
            fresh = f"%{depth}"
            return Term("reduce", m, fresh, walk(extent, env, depth), walk(body, {**env, str(name): fresh}, depth + 1))  # type: ignore[arg-type]
        return u.map(lambda a: walk(a, env, depth))

    return walk(t, {}, 0)
