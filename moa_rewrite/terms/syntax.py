"""Text of terms: ``show`` prints any term, ``parse_term`` reads it back to the same term. The grammar is grammar/moa.lark."""

from __future__ import annotations

import functools
import sys

from lark import Lark, Token, Transformer

from ..data import data_path
from .ops import ARGS
from .term import Arg, Term

_INFIX = {"or": (1, "or"), "and": (2, "and"), "lt": (3, "<"), "le": (3, "<="), "eq": (3, "=="), "ne": (3, "!="), "add": (4, "+"),
          "sub": (4, "-"), "mul": (5, "*"), "div": (5, "/"), "idiv": (5, "//"), "mod": (5, "%")}  # fmt: skip
_NONASSOC = {3}
sys.setrecursionlimit(20000)


def show(t: Term, level: int = 0) -> str:
    """Text of a term; ``level`` is the binding strength the surroundings ask for (0: none)."""
    op, args = t.op, t.args
    if op in _INFIX:
        p, sign = _INFIX[op]
        left = show(args[0], p + 1 if p in _NONASSOC else p)  # type: ignore[arg-type]
        text = f"{left} {sign} {show(args[1], p + 1)}"  # type: ignore[arg-type]
        return f"({text})" if p < level else text
    if op == "neg" and isinstance(args[0], Term) and args[0].op not in ("int", "num"):
        text = "-" + show(args[0], 6)
        return f"({text})" if level > 6 else text
    if op == "not":
        text = "not " + show(args[0], 6)  # type: ignore[arg-type]
        return f"({text})" if level > 6 else text
    if op == "int":
        return str(args[0])
    if op == "num":
        return str(args[0])
    if op in ("size", "var"):
        return str(args[0])
    if op == "axis":
        return "@" + str(args[0]).lstrip("?")
    if op == "seqvar":
        return f"{args[0]}.."
    if op == "get" and args[1].op == "var":  # type: ignore[union-attr]
        return f"get({str(args[0]).lstrip('?')}, {show(args[1])})"  # type: ignore[arg-type]
    if op == "get":
        return f"{str(args[0]).lstrip('?')}[{', '.join(show(a) for a in args[1].args)}]"  # type: ignore
    if op == "ix":
        return "<" + ", ".join(show(a, 4) for a in args) + ">"  # type: ignore[arg-type]
    return f"{op}({', '.join(_show_arg(a) for a in args)})"


def _show_arg(a: Arg) -> str:
    if isinstance(a, Term):
        return show(a)
    if isinstance(a, int):
        return str(a)
    return a.lstrip("?") if a[:1] in "?#" else f'"{a}"'


class _Build(Transformer):
    """Parse tree to term. In a pattern, names are variables and operators outside the table (meta functions) are kept."""

    def __init__(self, pattern: bool) -> None:
        super().__init__()
        self.pattern = pattern

    def _literal(self, a: Arg, kind: str, op: str) -> Arg:
        if kind == "s":
            if isinstance(a, str):
                return a
            if isinstance(a, Term) and a.op == "var" and self.pattern:
                return f"?{a.args[0]}"
        elif kind == "i":
            if isinstance(a, Term) and a.op == "int":
                return a.args[0]
            if isinstance(a, Term) and a.op == "var" and self.pattern:
                return f"?{a.args[0]}"
            if isinstance(a, str) and a.startswith("#"):
                return a
        elif isinstance(a, Term):
            return a
        raise SyntaxError(f"{op}: argument {a!r} does not fit")

    def call(self, kids: list) -> Term:
        op, args = str(kids[0]), [a for a in kids[1:] if a is not None]
        sig = ARGS.get(op)
        if sig is None or op in ("ix", "get"):
            if self.pattern and op == "get" and len(args) == 2:  # get(A, I) with a variable for the whole index list
                return Term("get", self._literal(args[0], "s", op), args[1])
            if self.pattern:  # a meta function or predicate, evaluated when the rule is applied
                return Term(op, *args)
            raise SyntaxError(f"unknown operator {op}")
        if op in ("axis", "size", "num", "int") or len(args) != len(sig):
            raise SyntaxError(f"{op} takes {len(sig)} arguments, not {len(args)}")
        return Term(op, *[self._literal(a, s, op) for a, s in zip(args, sig, strict=True)])

    def index(self, kids: list) -> Term:
        return Term("ix", *[k for k in kids if k is not None])

    def sequence(self, kids: list) -> Term:
        if not self.pattern:
            raise SyntaxError("a sequence variable outside a rule")
        return Term("seqvar", str(kids[0]))

    def element(self, kids: list) -> Term:
        name = f"?{kids[0]}" if self.pattern else str(kids[0])
        return Term("get", name, Term("ix", *[k for k in kids[1:] if k is not None]))

    def axis(self, kids: list) -> Term:
        return Term("axis", f"?{kids[0]}" if self.pattern else str(kids[0]))

    def length(self, kids: list) -> str:
        return f"#{kids[0]}"

    def string(self, kids: list[Token]) -> str:
        return str(kids[0])[1:-1]

    def integer(self, kids: list) -> Term:
        return Term("int", int(kids[0]))

    def number(self, kids: list) -> Term:
        return Term("num", str(kids[0]))

    def name(self, kids: list) -> Term:
        name = str(kids[0])
        if name == "inf":
            return Term("num", "inf")
        return Term("var" if self.pattern else "size", name)

    def neg(self, kids: list) -> Term:
        (a,) = kids
        if a.op == "int" and a.args[0] >= 0:
            return Term("int", -a.args[0])
        if a.op == "num" and not a.args[0].startswith("-"):
            return Term("num", "-" + a.args[0])
        return Term("neg", a)

    def __default__(self, data, children, meta):  # the operator aliases: add, sub, ...
        op = str(data)
        return Term(op, *children) if op in ARGS else super().__default__(data, children, meta)


@functools.cache
def parser(start: str) -> Lark:
    """The grammar with one of its start symbols; also used for rule files and programs."""
    return Lark(data_path("grammar", "moa.lark").read_text(encoding="utf-8"), start=start, parser="lalr", propagate_positions=True, maybe_placeholders=False)


def parse_term(text: str, pattern: bool = False) -> Term:
    """The term a text stands for. Raises lark.exceptions.UnexpectedInput or SyntaxError."""
    from lark.exceptions import VisitError

    try:
        return _Build(pattern).transform(parser("term").parse(text))
    except VisitError as e:
        raise SyntaxError(str(e.orig_exc)) from None


def pattern_builder() -> Transformer:
    """The transformer for term subtrees of a rule file."""
    return _Build(True)
