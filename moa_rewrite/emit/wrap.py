"""Rotated indices without remainders: a loop whose body reads at ``(j + c) mod n``, n being the loop's own extent, is cut where the index wraps round.

    for j:n s     becomes     for j < lo s ; for lo <= j < hi s with j + c and j - c for the remainders ; for hi <= j < n s

The middle part is all but a few iterations; its accesses are contiguous, so it runs in vectors. The parts cover 0..n-1 once each, in order.
"""

from __future__ import annotations

from collections.abc import Callable

from ..terms import I, Kernel, Term, axis, free_axes, replace, substitute, subterms


def shifts(t: Term) -> list[int] | None:
    """The constant shifts c of all ``(j + c) mod n`` in the body of a loop over j:n; None when there is none."""
    j, n = axis(str(t.args[0])), t.args[1]
    found = [c for u in subterms(t.args[3]) if u.op == "mod" and u.args[1] is n and (c := _shift(u.args[0], j)) is not None]  # type: ignore
    return sorted(set(found)) or None


def _shift(e: Term, j: Term) -> int | None:
    if e is j:
        return 0
    if e.op in ("add", "sub") and e.args[0] is j and e.args[1].op == "int":  # type: ignore[union-attr]
        c = e.args[1].args[0]  # type: ignore[union-attr]
        return c if e.op == "add" else -c  # type: ignore[return-value, operator]
    return None


def own(t: Term) -> Term:
    """A statement with ``j mod n`` replaced by j in loops over j:n."""
    if t.op == "for":
        j, n, place, body = t.args
        return Term("for", j, n, place, replace(own(body), Term("mod", axis(str(j)), n), axis(str(j))))  # type: ignore[arg-type]
    return t.map(own) if t.op in ("seq", "new", "guard") else t


def wraps(kernel: Kernel, t: Term) -> bool:
    """Whether a loop can be cut: no parallel level, nothing but inputs and outputs depends on its axis, and no axis is defined by it."""
    if t.op != "for" or t.args[2] not in ("seq", "simd") or shifts(t) is None:
        return False
    j = str(t.args[0])
    plain = {a.name for a in (*kernel.inputs, *kernel.outputs)}
    touched = [u for u in subterms(t.args[3]) if u.op in ("get", "emit") and j in free_axes(u)]  # type: ignore[arg-type]
    stored = {str(u.args[0] if u.op == "get" else u.args[1]) for u in touched}
    binders = {u.args[0] for u in subterms(t.args[3]) if u.op in ("for", "new")}  # type: ignore[arg-type]
    return stored <= plain and not binders and all(j not in free_axes(d) and j != a for a, d in kernel.defs)


def wrap(t: Term, fresh: Callable[[str], str]) -> list[Term]:
    """The three loops; ``fresh`` makes new axis names."""
    j, n, place, body = t.args
    assert isinstance(n, Term) and isinstance(body, Term)
    found = shifts(t)
    assert found is not None
    lo = Term("min", I(max(0, -found[0])), n)
    hi = Term("max", lo, Term("sub", n, I(max(0, found[-1]))))
    zero = I(0)

    def part(stem: str, start: Term, count: Term, s: Term, how: str) -> Term:
        name = fresh(f"{j}{stem}")
        at = axis(name) if start is zero else Term("add", axis(name), start)
        return Term("for", name, count, how, substitute(s, {str(j): at}))

    middle = _unwrapped(body, axis(str(j)), n)
    return [
        part("_a", zero, lo, body, "seq"),
        part("_m", lo, Term("sub", hi, lo), middle, str(place)),
        part("_z", hi, Term("sub", n, hi), body, "seq"),
    ]  # fmt: skip


def _unwrapped(t: Term, j: Term, n: Term) -> Term:
    if t.op == "mod" and t.args[1] is n and _shift(t.args[0], j) is not None:  # type: ignore[arg-type]
        return t.args[0]  # type: ignore[return-value]
    return t.map(lambda a: _unwrapped(a, j, n))
