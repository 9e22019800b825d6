"""Why two terms are equal: proof-producing congruence closure over recorded rule instances (a proof forest, after Nieuwenhuis and Oliveras 2005).

Each edge of the forest carries a rule instance or "congruence". ``explain`` gives a flat chain of steps from one term to the other.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from ..terms import Path, Term

Why = tuple[str, dict[str, Any], bool] | None  # rule, substitution, left to right; None: by congruence


class Closure:
    def __init__(self) -> None:
        self.rep: dict[Term, Term] = {}
        self.members: dict[Term, list[Term]] = {}
        self.uses: dict[Term, list[Term]] = defaultdict(list)
        self.signatures: dict[tuple, Term] = {}
        self.edge: dict[Term, tuple[Term, Why] | None] = {}

    def add(self, t: Term) -> None:
        if t in self.rep:
            return
        for a in t.kids():
            self.add(a)
        self.rep[t], self.members[t], self.edge[t] = t, [t], None
        for rep in dict.fromkeys(self.rep[a] for a in t.kids()):
            self.uses[rep].append(t)
        other = self.signatures.setdefault(self._signature(t), t)
        if other is not t:
            self.merge(t, other, None)

    def _signature(self, t: Term) -> tuple:
        return (t.op, *[self.rep[a] if isinstance(a, Term) else a for a in t.args])

    def merge(self, a: Term, b: Term, why: Why) -> None:
        self.add(a)
        self.add(b)
        todo = [(a, b, why)]
        while todo:
            a, b, why = todo.pop()
            ra, rb = self.rep[a], self.rep[b]
            if ra is rb:
                continue
            if len(self.members[ra]) > len(self.members[rb]):
                a, b, ra, rb, why = b, a, rb, ra, _flip(why)
            self._make_root(a)
            self.edge[a] = (b, why)
            for m in self.members[ra]:
                self.rep[m] = rb
            self.members[rb] += self.members.pop(ra)
            for u in self.uses.pop(ra, []):
                other = self.signatures.setdefault(self._signature(u), u)
                if self.rep[other] is not self.rep[u]:
                    todo.append((u, other, None))
                self.uses[rb].append(u)

    def _make_root(self, a: Term) -> None:
        previous: tuple[Term, Why] | None = None
        cursor: Term | None = a
        while cursor is not None:
            edge = self.edge[cursor]
            self.edge[cursor] = previous
            if edge is None:
                break
            previous, cursor = (cursor, _flip(edge[1])), edge[0]

    def _chain(self, t: Term) -> list[Term]:
        out = [t]
        while (e := self.edge[t]) is not None:
            t = e[0]
            out.append(t)
        return out

    def explain(self, s: Term, t: Term, path: Path = ()) -> list[tuple[Path, str, dict[str, Any], bool]]:
        """Steps (position, rule, substitution, left to right) that turn s into t. LookupError if they are not known to be equal."""
        if s is t:
            return []
        if self.rep.get(s) is None or self.rep[s] is not self.rep.get(t):
            raise LookupError("not known to be equal")
        above = set(self._chain(t))
        meet = next(x for x in self._chain(s) if x in above)
        forward, back = [], []
        while s is not meet:
            n, why = self.edge[s]  # type: ignore[misc]
            forward.append((s, n, why))
            s = n
        while t is not meet:
            n, why = self.edge[t]  # type: ignore[misc]
            back.append((n, t, _flip(why)))
            t = n
        steps: list[tuple[Path, str, dict[str, Any], bool]] = []
        for a, b, why in [*forward, *back[::-1]]:
            if why is not None:
                steps.append((path, *why))
                continue
            for k, (x, y) in enumerate(zip(a.args, b.args, strict=True)):
                if isinstance(x, Term):
                    steps += self.explain(x, y, (*path, k))  # type: ignore[arg-type]
        return steps


def _flip(why: Why) -> Why:
    return None if why is None else (why[0], why[1], not why[2])
