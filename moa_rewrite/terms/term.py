"""Terms: one hash-consed tree type for arrays, scalars and statements.

A term is an operator name and its arguments; an argument is a term, a string (a name) or an int. Equal terms are the same
object, so equality and hashing cost nothing and shared subterms are shared. What an operator means stands in ``ops.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import ClassVar, Union

Arg = Union["Term", str, int]
Path = tuple[int, ...]


class Term:
    __slots__ = ("_hash", "args", "op")
    op: str
    args: tuple[Arg, ...]
    _table: ClassVar[dict[tuple, Term]] = {}

    def __new__(cls, op: str, *args: Arg) -> Term:
        # a Term hashes by identity, so the key is cheap; ints and bools must not collide with each other
        key = (op, *args)
        found = cls._table.get(key)
        if found is None:
            found = object.__new__(cls)
            found.op, found.args = op, args
            cls._table[key] = found
        return found

    def __reduce__(self):
        return Term, (self.op, *self.args)

    def __copy__(self) -> Term:
        return self

    def __deepcopy__(self, memo: object) -> Term:
        return self

    def __repr__(self) -> str:
        from .syntax import show

        return show(self)

    def kids(self) -> list[Term]:
        """The arguments that are terms."""
        return [a for a in self.args if isinstance(a, Term)]

    def map(self, f: Callable[[Term], Term]) -> Term:
        """The same operator with ``f`` applied to each argument that is a term."""
        return Term(self.op, *[f(a) if isinstance(a, Term) else a for a in self.args])


def at(t: Term, path: Path) -> Term:
    """The subterm at a position; a position is the list of argument numbers (from 0) on the way down. IndexError if there is none."""
    for k in path:
        a = t.args[k]
        if k < 0 or not isinstance(a, Term):
            raise IndexError(f"no subterm at {path}")
        t = a
    return t


def put(t: Term, path: Path, new: Term) -> Term:
    """``t`` with the subterm at ``path`` replaced by ``new``."""
    if not path:
        return new
    k, a = path[0], t.args[path[0]]
    if k < 0 or not isinstance(a, Term):
        raise IndexError(f"no subterm at {path}")
    return Term(t.op, *t.args[:k], put(a, path[1:], new), *t.args[k + 1 :])


def positions(t: Term, path: Path = ()) -> Iterator[tuple[Path, Term]]:
    """Every (position, subterm), outermost first, left to right."""
    yield path, t
    for k, a in enumerate(t.args):
        if isinstance(a, Term):
            yield from positions(a, (*path, k))


def subterms(t: Term) -> Iterator[Term]:
    """Every distinct subterm once, children before parents."""
    seen: set[Term] = set()

    def walk(u: Term) -> Iterator[Term]:
        if u in seen:
            return
        seen.add(u)
        for a in u.args:
            if isinstance(a, Term):
                yield from walk(a)
        yield u

    yield from walk(t)


def replace(t: Term, old: Term, new: Term) -> Term:
    """``t`` with every occurrence of ``old`` replaced by ``new``."""
    memo: dict[Term, Term] = {old: new}

    def walk(u: Term) -> Term:
        if u not in memo:
            memo[u] = u.map(walk)
        return memo[u]

    return walk(t)
