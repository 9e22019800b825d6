"""Rules and rule sets: the laws as data, after loading."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path as File
from typing import Literal

from ..terms import Term

Value = Term | str | int | tuple[Term, ...]
Subst = dict[str, Value]
Kind = Literal["term", "name", "sequence"]


class RuleError(Exception):
    """A step that is not an instance of its rule, with the reason."""


@dataclass(frozen=True)
class Rule:
    """``lhs => rhs`` (or ``<=>`` when ``twoway``) under ``guards``.

    ``params`` are the variables that matching does not determine. ``define`` lists axis definitions (name pattern, term pattern) that the step adds to
    the header. A ``builtin`` has no sides: it is the function of its name in builtin.py. ``corollary`` names the law this one follows from.
    """

    name: str
    lhs: Term | None
    rhs: Term | None
    twoway: bool
    guards: tuple[Term, ...]
    params: tuple[str, ...]
    define: tuple[tuple[str, Term], ...]
    builtin: bool
    doc: str
    source: str
    corollary: str
    file: str
    line: int

    @property
    def group(self) -> str:
        """The stem of the file the rule stands in: psi, simplify, algebra, structure, ..."""
        return File(self.file).stem

    @property
    def two_way(self) -> bool:
        return self.twoway

    def variables(self) -> dict[str, Kind]:
        """Every variable of the two sides and what it stands for. Params that occur in neither (those of builtins) are not listed."""
        out: dict[str, Kind] = {}
        for side in (self.lhs, self.rhs):
            if side is not None:
                out.update(variables(side))
        return out

    def __str__(self) -> str:
        if self.builtin:
            return f"builtin {self.name}({', '.join(self.params)})"
        when = f" when {', '.join(map(repr, self.guards))}" if self.guards else ""
        define = "".join(f" define @{a.lstrip('?')} = {t!r}" for a, t in self.define)
        return f"{self.lhs!r} {'<=>' if self.twoway else '=>'} {self.rhs!r}{when}{define}"


def variables(pattern: Term) -> dict[str, Kind]:
    """Variables of a pattern; ``k.o`` counts as ``k``. ValueError when one stands for two kinds of things."""
    out: dict[str, Kind] = {}

    def note(name: str, kind: Kind) -> None:
        name = name.partition(".")[0]
        if out.setdefault(name, kind) != kind:
            raise ValueError(f"variable {name} stands for a {out[name]} and for a {kind}")

    def walk(t: Term) -> None:
        if t.op == "var":
            note(str(t.args[0]), "term")
        elif t.op == "seqvar":
            note(str(t.args[0]), "sequence")
        else:
            for a in t.args:
                if isinstance(a, Term):
                    walk(a)
                elif isinstance(a, str) and a.startswith("?"):
                    note(a[1:], "name")

    walk(pattern)
    return out


class RuleSet(Mapping[str, Rule]):
    """Rules by name, in the order of the files."""

    def __init__(self, rules: Mapping[str, Rule]) -> None:
        self._rules = dict(rules)

    def __getitem__(self, name: str) -> Rule:
        return self._rules[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rules)

    def __len__(self) -> int:
        return len(self._rules)

    def group(self, *names: str) -> list[str]:
        """Names of the rules in the given groups, builtins left out."""
        return [r.name for r in self.values() if r.group in names and not r.builtin]
