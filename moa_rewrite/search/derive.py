"""How an extracted ONF follows from the materialised form: it is normalised by the structure rules read backwards, and the steps are turned round.

Backwards: storage moves to the top, loops split over sequences, sequences nest to the right, tiles merge, loops sort. Each backward step is the
instance of a named rule; read in reverse order they lead from the materialised form to the ONF. Nothing here is trusted: the steps are replayed.
"""

from __future__ import annotations

from ..rules import RuleSet, Step
from ..rules.pattern import instantiate, match_term
from ..terms import Path, Term, at, put
from .form import nests
from .structure import lifting_law


class Backwards:
    """A body and the forward steps, last first, that lead to where it started."""

    def __init__(self, body: Term, rules: RuleSet) -> None:
        self.body, self.rules = body, rules
        self.steps: list[Step] = []

    def undo(self, rule: str, path: Path, forward: bool = True, **params: Term) -> bool:
        """Replace the result of ``rule`` at ``path`` (taken left to right if ``forward``) by what it was applied to."""
        r = self.rules[rule]
        before, after = (r.lhs, r.rhs) if forward else (r.rhs, r.lhs)
        assert before is not None and after is not None
        subst = match_term(after, at(self.body, path))
        if subst is None:
            return False
        subst = {**subst, **params}
        self.steps.append(Step(rule, path, subst, forward))
        self.body = put(self.body, path, instantiate(before, subst))
        return True


def derive(target: Term, source: Term, rules: RuleSet) -> list[Step]:
    """Steps from ``source`` (materialised form) to ``target`` (unplaced ONF of the same program). Raises LookupError if they do not meet."""
    b = Backwards(target, rules)
    while _storage_up(b, (), b.body):
        pass
    while _split(b, (), b.body):
        pass
    _sort_nests(b, source)
    _sort_storage(b, source)
    if b.body is not source:
        raise LookupError(f"the extracted form does not normalise to the materialised one:\n{b.body}\n{source}")
    return b.steps[::-1]


def _storage_up(b: Backwards, path: Path, t: Term) -> bool:
    """One move of a ``new`` outwards, innermost first; False when all are at the top."""
    for k, a in enumerate(t.args):
        if isinstance(a, Term) and a.op in ("for", "seq", "new") and _storage_up(b, (*path, k), a):
            return True
    if t.op == "for" and t.args[3].op == "new":  # type: ignore[union-attr]
        return b.undo("scope", path)
    if t.op == "seq" and t.args[0].op == "new":  # type: ignore[union-attr]
        return b.undo("scope-left", path)
    if t.op == "seq" and t.args[1].op == "new":  # type: ignore[union-attr]
        return b.undo("scope-right", path)
    return False


def _split(b: Backwards, path: Path, t: Term) -> bool:
    for k, a in enumerate(t.args):
        if isinstance(a, Term) and a.op in ("for", "seq", "new") and _split(b, (*path, k), a):
            return True
    if t.op == "for" and t.args[3].op == "seq":  # type: ignore[union-attr]
        return b.undo("fission", path, forward=False)
    if t.op == "seq" and t.args[0].op == "seq":  # type: ignore[union-attr]
        return b.undo("assoc", path, forward=False)
    return False


def _sort_nests(b: Backwards, source: Term) -> None:
    order = {leaf: [str(f.args[0]) for f in fors] for _, fors, _, leaf in nests(source)}
    for path, _, _, leaf in list(nests(b.body)):
        names = [str(f.args[0]) for f in _fors(b, path)]
        tiles = sorted({n[:-2] for n in names if n.endswith(".o")}, key=lambda n: (-n.count("."), n))
        for base in tiles:
            names = [str(f.args[0]) for f in _fors(b, path)]
            outer, inner = names.index(f"{base}.o"), names.index(f"{base}.i")
            for k in range(inner - 1, outer, -1):
                _swap(b, path, k)
            for k in range(inner, outer):  # an inner loop may stand outside where its extent allows it
                _swap(b, path, k)
            outer -= inner < outer
            here = (*path, *(3,) * outer)
            lift = lifting_law(b.rules)
            if lift is None or not b.undo(lift.name, here):
                raise LookupError(f"{base} is not lifted by the rule")
        want = order[leaf]
        for position, name in enumerate(want):
            names = [str(f.args[0]) for f in _fors(b, path)]
            for k in range(names.index(name) - 1, position - 1, -1):
                _swap(b, path, k)


def _fors(b: Backwards, path: Path) -> list[Term]:
    out, t = [], at(b.body, path)
    while t.op == "for":
        out.append(t)
        t = t.args[3]  # type: ignore[assignment]
    return out


def _swap(b: Backwards, path: Path, k: int) -> None:
    """Interchange loops k and k+1 of the nest at ``path``."""
    if not b.undo("interchange", (*path, *(3,) * k)):
        raise LookupError("loops that do not interchange")


def _sort_storage(b: Backwards, source: Term) -> None:
    want: list[str] = []
    t = source
    while t.op == "new":
        want.append(str(t.args[0]))
        t = t.args[1]  # type: ignore[assignment]
    for position, name in enumerate(want):
        have: list[str] = []
        t = b.body
        while t.op == "new":
            have.append(str(t.args[0]))
            t = t.args[1]  # type: ignore[assignment]
        for k in range(have.index(name) - 1, position - 1, -1):
            b.undo("scope-swap", (1,) * k)
