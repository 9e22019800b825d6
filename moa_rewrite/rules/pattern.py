"""Matching and instantiating patterns.

A pattern is a term with ``var x`` (any term), ``"?k"`` (a name or literal; ``"?k.o"`` is the value of k with ".o" added), ``seqvar F`` inside an index list
(any number of items) and ``"#F"`` (the length of F). An index list may hold two sequence variables when #F of the first stands elsewhere in the
pattern. Replaying a derivation needs ``instantiate`` alone.
"""

from __future__ import annotations

from ..terms import Term
from ..terms.term import Arg
from .meta import META
from .rule import RuleError, Subst, Value


def lookup(name: str, subst: Subst) -> Value:
    """Value of a variable or derived name."""
    base, dot, rest = name.partition(".")
    value = subst[base]
    if not dot:
        return value
    if not isinstance(value, str):
        raise RuleError(f"{name}: {base} is not a name")
    return f"{value}.{rest}"


def instantiate(p: Term, subst: Subst) -> Term:
    """The pattern with its variables replaced and its meta functions evaluated. The kinds of the values were checked by the caller."""
    if p.op == "var":
        return lookup(str(p.args[0]), subst)  # type: ignore[return-value]
    if p.op == "ix":
        items: list[Term] = []
        for a in p.args:
            if a.op == "seqvar":  # type: ignore[union-attr]
                items.extend(subst[str(a.args[0])])  # type: ignore[union-attr, arg-type]
            else:
                items.append(instantiate(a, subst))  # type: ignore[arg-type]
        return Term("ix", *items)
    args = [_argument(a, subst) for a in p.args]
    if p.op in META:
        return META[p.op](*args)
    return Term(p.op, *args)


def _argument(a: Arg, subst: Subst) -> Arg:
    if isinstance(a, Term):
        return instantiate(a, subst)
    if isinstance(a, str) and a.startswith("?"):
        return lookup(a[1:], subst)  # type: ignore[return-value]
    if isinstance(a, str) and a.startswith("#"):
        return len(subst[a[1:]])  # type: ignore[arg-type]
    return a


def match_term(pattern: Term, term: Term) -> Subst | None:
    """The substitution that makes the pattern equal to the term, or None. Patterns determine it: there is no search."""
    subst: Subst = {}
    lengths: dict[str, int] = {}
    lists: list[tuple[Term, Term]] = []  # index lists with two sequence variables wait until the lengths are known

    def bind(name: str, value: Value) -> bool:
        return subst.setdefault(name, value) == value

    def argument(p: Arg, a: Arg) -> bool:
        if isinstance(p, Term):
            return isinstance(a, Term) and walk(p, a)
        if isinstance(a, Term):
            return False
        if isinstance(p, str) and p.startswith("?"):
            name, dot, rest = p[1:].partition(".")
            if not dot:
                return bind(name, a)
            return isinstance(a, str) and a.endswith("." + rest) and bind(name, a[: -len(rest) - 1])
        if isinstance(p, str) and p.startswith("#"):
            return isinstance(a, int) and lengths.setdefault(p[1:], a) == a
        return type(p) is type(a) and p == a

    def walk(p: Term, t: Term) -> bool:
        if p.op == "var":
            return bind(str(p.args[0]), t)
        if p.op != t.op:
            return False
        if p.op == "ix":
            if sum(_is_seq(a) for a in p.args) == 2:
                lists.append((p, t))
                return True
            return items(p, t)
        return len(p.args) == len(t.args) and all(argument(x, y) for x, y in zip(p.args, t.args, strict=True))

    def items(p: Term, t: Term) -> bool:
        """An index list whose sequence variables but one have known lengths."""
        free = len(t.args) - sum(not _is_seq(a) for a in p.args)
        known = {str(a.args[0]): lengths.get(str(a.args[0])) for a in p.args if _is_seq(a)}  # type: ignore[union-attr]
        rest = free - sum(n for n in known.values() if n is not None)
        unknown = [v for v, n in known.items() if n is None]
        if len(unknown) > 1 or rest < 0 or (not unknown and rest):
            return False
        k = 0
        for a in p.args:
            if _is_seq(a):
                name = str(a.args[0])  # type: ignore[union-attr]
                n = known[name]
                n = rest if n is None else n
                if not bind(name, t.args[k : k + n]):  # type: ignore[arg-type]
                    return False
                lengths.setdefault(name, n)
                k += n
            else:
                if not argument(a, t.args[k]):
                    return False
                k += 1
        return True

    ok = walk(pattern, term) and all(items(p, t) for p, t in lists)
    return subst if ok and all(len(subst.get(v, ())) == n for v, n in lengths.items()) else None  # type: ignore[arg-type]


def _is_seq(a: Arg) -> bool:
    return isinstance(a, Term) and a.op == "seqvar"
