"""Text to syntax tree. Syntax errors are MOA01xx with a caret line."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from typing import NoReturn

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from ..data import data_path
from ..errors import MoaError
from . import builtins as B
from .mistakes import diagnose
from .tree import (
    App,
    Body,
    Bool,
    Comment,
    Def,
    Expr,
    Fn,
    Fold,
    Hole,
    Inner,
    KernelDef,
    Let,
    Name,
    Num,
    Outer,
    Param,
    Part,
    Pos,
    Prim,
    Rank,
    Ref,
    Result,
    Tuple,
    Type,
    Vector,
)

_OPS = r"\+|\*|×|-|−|//|/|÷|%|<=|≤|==|!=|≠|<|>=|≥|>|max|min|and|or|pow"


@functools.cache
def _lark() -> Lark:
    text = data_path("grammar", "moa.lark").read_text(encoding="utf-8") + "\n%ignore PROGRAM_COMMENT\n"
    return Lark(text, start="program", parser="lalr", propagate_positions=True, maybe_placeholders=False)


def parse(text: str, filename: str) -> tuple[Def | KernelDef, ...]:
    """The declarations of a program in order. Raises MoaError MOA01xx."""
    try:
        tree = _lark().parse(text)
    except UnexpectedInput as e:
        _syntax_error(e, text, filename)
    return tuple(_Build(filename).declaration(t) for t in tree.children)  # type: ignore[arg-type]


def comments(text: str) -> list[Comment]:
    """All comments of a text (``#`` has no other use in a program)."""
    out = []
    for n, line in enumerate(text.splitlines(), 1):
        at = line.find("#")
        if at >= 0:
            out.append(Comment(n, at + 1, line[at:].rstrip(), not line[:at].strip()))
    return out


def _syntax_error(e: UnexpectedInput, text: str, filename: str) -> NoReturn:
    line, col = e.line, e.column
    code, message, hint = 102, "", "docs/language.md lists the symbols and their ASCII spellings"
    if isinstance(e, UnexpectedToken):
        kind, at = e.token.type, e.token.start_pos
        if kind == "$END":
            lines = text.rstrip().splitlines() or [""]
            line, col, at = len(lines), len(lines[-1]) + 1, len(text)
        found = "the end of the file" if kind == "$END" else f"`{e.token}`"
        code, message, hint = diagnose(kind, e.accepts or set(), text[:at])
        message += f" {found}" if code == 101 else f" (found {found})"
    else:
        assert isinstance(e, UnexpectedCharacters)
        message = f"the character `{text[e.pos_in_stream]}` has no meaning here"  # type: ignore[index]
    source = text.splitlines()[line - 1] if text.strip() else ""
    raise MoaError(code, message, filename, line, col, [source, " " * (col - 1) + "^"], hint=hint)


class _Build:
    """Lark tree to syntax tree. Every method is named after a grammar rule."""

    def __init__(self, filename: str) -> None:
        self.file = filename
        self.holes = 0

    def pos(self, t: Tree | Token) -> Pos:
        if isinstance(t, Token):
            return Pos(self.file, t.line or 0, t.column or 0)
        return Pos(self.file, getattr(t.meta, "line", 0), getattr(t.meta, "column", 0))

    def fail(self, code: int, at: Tree | Token, message: str, hint: str = "") -> NoReturn:
        p = self.pos(at)
        raise MoaError(code, message, p.file, p.line, p.col, hint=hint)

    def new_name(self, t: Token) -> str:
        if t in B.RESERVED:
            self.fail(202, t, f"`{t}` is built in and cannot be given another meaning", "choose another name")
        return "pi" if t == "π" else str(t)

    # --- declarations ---
    def declaration(self, t: Tree) -> Def | KernelDef:
        return self.kernel(t) if t.data == "kernel" else self.definition(t)

    def definition(self, t: Tree) -> Def:
        name, *params, body = t.children
        return Def(self.new_name(name), tuple(self.param(p) for p in params), self.body(body), pos=self.pos(t))  # type: ignore[arg-type]

    def kernel(self, t: Tree) -> KernelDef:
        params = tuple(self.param(c) for c in t.children if isinstance(c, Tree) and c.data == "param")
        (results,) = [c for c in t.children if isinstance(c, Tree) and c.data == "results"]
        where = [w for c in t.children if isinstance(c, Tree) and c.data == "where" for w in c.children]
        out = tuple(self.result(r) for r in results.children)  # type: ignore[arg-type]
        return KernelDef(self.new_name(t.children[0]), params, out, tuple(self.expr(w) for w in where), self.body(t.children[-1]), pos=self.pos(t))  # type: ignore[arg-type]

    def param(self, t: Tree) -> Param:
        name, *rest = t.children
        return Param(self.new_name(name), self.type(rest[0]) if rest else None, pos=self.pos(t))  # type: ignore[arg-type]

    def type(self, t: Tree) -> Type:
        name = next((str(c) for c in t.children if isinstance(c, Token)), "")
        dims = next((tuple(self.expr(d) for d in c.children) for c in t.children if isinstance(c, Tree)), None)
        return Type(name, () if dims is None and name in B.DTYPES else dims, pos=self.pos(t))

    def result(self, t: Tree) -> Result:
        *name, type_ = t.children
        return Result(self.new_name(name[0]) if name else "", self.type(type_), pos=self.pos(t))  # type: ignore[arg-type]

    def body(self, t: Tree) -> Body:
        *bindings, result = t.children
        own = tuple(self.let(b) if b.data == "let" else self.definition(b) for b in bindings)  # type: ignore[union-attr, arg-type]
        if not bindings:
            return Body((), self.expr(result), pos=self.pos(t))
        rest = self.body(result)  # type: ignore[arg-type]
        return Body(own + rest.bindings, rest.result, pos=self.pos(t))

    def let(self, t: Tree) -> Let:
        *names, value = t.children
        return Let(tuple(self.new_name(n) for n in names), self.body(value), pos=self.pos(t))  # type: ignore[arg-type]

    # --- expressions ---
    def expr(self, t: Tree | Token) -> Expr:
        assert isinstance(t, Tree), t
        e: Expr = getattr(self, t.data)(t)
        return e

    def exprs(self, ts: Sequence[Tree | Token]) -> tuple[Expr, ...]:
        return tuple(self.expr(t) for t in ts)

    def p_number(self, t: Tree) -> Expr:
        return Num(str(t.children[0]), pos=self.pos(t))

    def p_bool(self, t: Tree) -> Expr:
        return Bool(t.children[0] == "true", pos=self.pos(t))

    def p_name(self, t: Tree) -> Expr:
        name = str(t.children[0])
        return Name("pi" if name == "π" else name, pos=self.pos(t))

    def p_hole(self, t: Tree) -> Expr:
        self.holes += 1
        return Hole(self.holes - 1, pos=self.pos(t))

    def p_paren(self, t: Tree) -> Expr:
        return self.expr(t.children[0])

    def p_tuple(self, t: Tree) -> Expr:
        return Tuple(self.exprs(t.children), pos=self.pos(t))

    def p_vector(self, t: Tree) -> Expr:
        return Vector(self.exprs(t.children), pos=self.pos(t))

    def p_element(self, t: Tree) -> Expr:
        a, *index = self.exprs(t.children)
        return App(Prim("psi", pos=self.pos(t)), (Vector(tuple(index), pos=index[0].pos), a), pos=self.pos(t))

    def p_negation(self, t: Tree) -> Expr:
        return App(Prim("not", pos=self.pos(t)), (self.expr(t.children[-1]),), pos=self.pos(t))

    def p_minus(self, t: Tree) -> Expr:
        return App(Prim("neg", pos=self.pos(t)), (self.expr(t.children[-1]),), pos=self.pos(t))

    def p_monad(self, t: Tree) -> Expr:
        return App(self.fn(t.children[0]), (self.expr(t.children[1]),), pos=self.pos(t))

    def p_apply(self, t: Tree) -> Expr:
        return App(self.fn(t.children[0]), (self.expr(t.children[1]),), pos=self.pos(t))

    def p_omega(self, t: Tree) -> Expr:
        fn, rank, arg = t.children
        f = self.function(fn)
        a = self.expr(arg)
        args = a.items if isinstance(a, Tuple) else (a,)
        return self.omega(t, f, self.ranks(rank), args)  # type: ignore[arg-type]

    def infix(self, t: Tree) -> Expr:
        left, op, *rank, right = t.children
        args = (self.expr(left), self.expr(right))
        f = self.fn(op)
        if rank:
            return self.omega(t, f, self.ranks(rank[0]), args)  # type: ignore[arg-type]
        # the place of an infix application is its operator
        return App(f, args, pos=f.pos)

    def omega(self, t: Tree, f: Fn, ranks: tuple[int, ...], args: tuple[Expr, ...]) -> Expr:
        if len(ranks) != len(args):
            self.fail(203, t, f"Ω<{','.join(map(str, ranks))}> has {len(ranks)} rank(s) and {len(args)} argument(s)", "give one rank for each argument")
        return App(Rank(f, ranks, pos=f.pos), args, pos=self.pos(t))

    def ranks(self, t: Tree) -> tuple[int, ...]:
        return tuple(int(c) for c in t.children if isinstance(c, Token) and c.type == "INT")

    # --- functions ---
    def fn(self, t: Tree | Token) -> Fn:
        """An operator token, symbol or fold."""
        p = self.pos(t)
        if isinstance(t, Tree):
            if t.data == "p_fold" and len(t.children) == 1:  # "- red" is one token
                return Fold(str(t.children[0])[1:].strip(), "sub", pos=p)
            if t.data == "p_fold":
                return Fold(str(t.children[1]), self.scalar(t.children[0]), pos=p)
            return self.fn(t.children[0])  # p_op, p_cmp, p_symbol
        if t.type == "P_INNER":
            m = re.fullmatch(rf"({_OPS})[.·]({_OPS})", t)
            assert m is not None
            return Inner(B.INFIX[m[1]], B.INFIX[m[2]], pos=p)
        if t.type in ("P_OUTER", "P_OUTER_CMP"):
            return Outer(B.INFIX[t[1:].strip()], pos=p)
        return Prim(B.MONADS.get(t) or B.INFIX[t], pos=p)

    def scalar(self, t: Tree | Token) -> str:
        """The name of the binary scalar function a fold or a product uses."""
        token = t.children[0] if isinstance(t, Tree) and t.data in ("p_op", "p_order", "p_foldop", "p_name") else t
        if isinstance(token, Token) and B.INFIX.get(token) in B.BINARY:
            return B.INFIX[token]
        self.fail(208, t, f"{f'`{token}`' if isinstance(token, Token) else 'this'} is not a binary scalar function", "for example + × max min and or")

    def function(self, t: Tree | Token) -> Fn:
        """What stands before Ω, or as a function argument."""
        p = self.pos(t)
        if isinstance(t, Token) or t.data in ("p_fold", "p_op", "p_order", "p_symbol"):
            return self.fn(t)
        if t.data == "p_name":
            name = str(t.children[0])
            if name in B.COMBINATORS or name in B.CONSTANTS:
                self.fail(206, t, f"`{name}` cannot stand under Ω by itself", "give it its function: `red(max, _)`")
            return Prim(name, pos=p) if name in B.CALLABLE else Ref(name, pos=p)
        outside, self.holes = self.holes, 0
        body = self.expr(t)
        holes, self.holes = self.holes, outside
        if holes == 0:
            self.fail(206, t, "this is an array, not a function", "a partial application marks its arguments: `take(2, _) Ω<1> x` or `(2 ↑ _) Ω<1> x`")
        return Part(body, holes, pos=p)

    def p_call(self, t: Tree) -> Expr:
        name, *args = t.children
        special: dict[str, Callable[[Tree, Sequence[Tree | Token]], Expr]] = {
            "red": self.call_fold, "scan": self.call_fold, "outer": self.call_outer, "inner": self.call_inner, "omega": self.call_omega}  # fmt: skip
        if name in special:
            return special[str(name)](t, args)
        for a in args:
            if isinstance(a, Token) or a.data in ("p_fold", "p_op", "p_order", "p_symbol"):
                self.fail(206, a, f"`{name}` takes arrays, not functions", "use Ω to apply a function to parts of an array")
        name = "rho" if name == "shape" else name
        fn: Fn = Prim(str(name), pos=self.pos(t)) if name in B.CALLABLE else Ref(str(name), pos=self.pos(t))
        if isinstance(fn, Prim) and len(args) not in B.arity(fn.name):
            hint = f"to reduce an array, write `{name} red x`" if name in B.MONOIDS else "docs/language.md lists the operators"
            self.fail(203, t, f"`{name}` takes {' or '.join(map(str, B.arity(fn.name)))} argument(s), not {len(args)}", hint)
        return App(fn, self.exprs(args), pos=self.pos(t))

    def count(self, t: Tree, args: Sequence[Tree | Token], form: str, n: int) -> None:
        if len(args) != n:
            self.fail(203, t, f"`{t.children[0]}` takes {n} arguments, not {len(args)}", f"write `{form}`")

    def call_fold(self, t: Tree, args: Sequence[Tree | Token]) -> Expr:
        self.count(t, args, f"{t.children[0]}(+, A)", 2)
        return App(Fold(str(t.children[0]), self.scalar(args[0]), pos=self.pos(t)), (self.expr(args[1]),), pos=self.pos(t))

    def call_outer(self, t: Tree, args: Sequence[Tree | Token]) -> Expr:
        self.count(t, args, "outer(*, A, B)", 3)
        return App(Outer(self.scalar(args[0]), pos=self.pos(t)), self.exprs(args[1:]), pos=self.pos(t))

    def call_inner(self, t: Tree, args: Sequence[Tree | Token]) -> Expr:
        self.count(t, args, "inner(+, *, A, B)", 4)
        return App(Inner(self.scalar(args[0]), self.scalar(args[1]), pos=self.pos(t)), self.exprs(args[2:]), pos=self.pos(t))

    def call_omega(self, t: Tree, args: Sequence[Tree | Token]) -> Expr:
        if len(args) < 3:
            self.fail(203, t, f"`omega` takes a function, its ranks and its arguments, not {len(args)} argument(s)", "write `omega(f, <1>, A)`")
        ranks = self.expr(args[1])
        if not isinstance(ranks, Vector) or not all(isinstance(r, Num) and not r.is_float for r in ranks.items):
            self.fail(109, args[1], "Ω needs the ranks of its arguments", "write literal ranks, one per argument: `omega(f, <1,0>, A, B)`")
        return self.omega(t, self.function(args[0]), tuple(int(r.text) for r in ranks.items if isinstance(r, Num)), self.exprs(args[2:]))
