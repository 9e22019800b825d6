"""Canonical text of programs (``moarw fmt``). Comments are kept; the text of a tree parses back to the same tree; formatting twice changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from . import builtins as B
from .parse import comments, parse
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
    Prim,
    Rank,
    Ref,
    Result,
    Tuple,
    Type,
    Vector,
)

WIDTH = 110

# Binding strengths, as the grammar's rules: or and not comparison ++ + × | a dyad, an application, an operand of a dyad, an atom
OR, AND, NOT, CMP, CAT, SUM, PRODUCT, DYAD, APPLY, OPERAND, ATOM = range(11)
_LEVEL = {"or": OR, "and": AND, **dict.fromkeys((*B.ORDER, *B.EQUAL), CMP), "cat": CAT, "add": SUM, "sub": SUM,
          **dict.fromkeys(("mul", "div", "idiv", "mod"), PRODUCT)}  # fmt: skip
_DYADS = ("psi", "reshape", "take", "drop", "rotate", "transpose")


class Printer:
    def __init__(self, ascii: bool = False) -> None:
        self.ascii = ascii

    def symbol(self, op: str) -> str:
        unicode, plain = B.SYMBOL[op]
        return (plain or op) if self.ascii else unicode

    # --- expressions ---
    def show(self, e: Expr, level: int = OR) -> str:
        """Text that can stand where the grammar asks for the given strength."""
        text, own = self.expr(e)
        return text if own >= level else f"({text})"

    def operand(self, e: Expr, level: int) -> str:
        """An operand of arithmetic. For the reader's sake a dyad, a reduction or Ω in it has parentheses: (+ red x) ÷ n, (1 ↓ x) - y."""
        text, own = self.expr(e)
        loose = own == DYAD or (own == APPLY and isinstance(e, App) and isinstance(e.fn, Fold | Rank))
        return text if own >= level and not loose else f"({text})"

    def expr(self, e: Expr) -> tuple[str, int]:
        match e:
            case Num(text):
                return text, ATOM
            case Bool(value):
                return "true" if value else "false", ATOM
            case Name(id):
                return id, ATOM
            case Hole():
                return "_", ATOM
            case Vector(items):
                return f"<{', '.join(self.show(i, CAT) for i in items)}>", ATOM
            case Tuple(items):
                return f"({self.listed(items)})", ATOM
            case App(fn, args):
                return self.app(fn, args)
        raise AssertionError(e)

    def listed(self, es: tuple[Expr, ...]) -> str:
        return ", ".join(self.show(e) for e in es)

    def app(self, fn: Fn, args: tuple[Expr, ...]) -> tuple[str, int]:
        split = self.infix(fn, args)
        if split:
            left, op, right, level = split
            if level == DYAD:
                return f"{self.show(left, OPERAND)} {op} {self.show(right, DYAD)}", level
            a, b = (CAT, CAT) if level == CMP else (level, level + 1)
            return f"{self.operand(left, a)} {op} {self.operand(right, b)}", level
        match fn:
            case Prim("not"):
                return f"not {self.operand(args[0], NOT)}", NOT
            case Prim("neg"):
                text, own = self.expr(args[0])
                loose = own < APPLY or (own == APPLY and isinstance(args[0], App) and isinstance(args[0].fn, Fold | Rank))
                return (f"-({text})", OPERAND) if loose else (f"-{text}", min(own, OPERAND))
            case Prim(name) if name in B.MONADS.values() and len(args) == 1 and not self.ascii:
                text = self.show(args[0], DYAD)
                return f"{self.symbol(name)}{'' if text[0].isalnum() or text[0] == '(' else ' '}{text}", APPLY
            case Prim("psi") if isinstance(args[0], Vector) and args[0].items:
                return f"{self.show(args[1], ATOM)}[{self.listed(args[0].items)}]", ATOM
            case Prim(name) | Ref(name):
                return f"{name}({self.listed(args)})", ATOM
            case Fold():
                return f"{self.function(fn)} {self.show(args[0], DYAD)}", APPLY
            case Outer(op):
                return f"outer({self.symbol(op)}, {self.listed(args)})", ATOM
            case Rank(f, ranks):
                if self.ascii:
                    return f"omega({self.function(f)}, <{', '.join(map(str, ranks))}>, {self.listed(args)})", ATOM
                shown = self.show(args[0], DYAD) if len(args) == 1 else f"({self.listed(args)})"
                return f"{self.function(f)} {_omega(ranks)} {shown}", APPLY
        raise AssertionError((fn, args))

    def infix(self, fn: Fn, args: tuple[Expr, ...]) -> tuple[Expr, str, Expr, int] | None:
        """(left, operator, right, strength) if the application is written infix."""
        if len(args) != 2:
            return None
        left, right = args
        omega = f" {_omega(fn.ranks)}" if isinstance(fn, Rank) else ""
        if isinstance(fn, Rank) and self.ascii:
            return None
        match fn.fn if isinstance(fn, Rank) else fn:
            case Prim(name) if name in _LEVEL:
                return left, self.symbol(name) + omega, right, _LEVEL[name]
            case Prim(name) if name in _DYADS and not self.ascii:
                return left, self.symbol(name) + omega, right, DYAD
            case Inner(op, by):
                return left, f"{self.symbol(op)}.{self.symbol(by)}{omega}", right, PRODUCT
            case Outer(op) if not self.ascii:
                return left, f"•{self.symbol(op)}{omega}", right, CMP if op in (*B.ORDER, *B.EQUAL) else PRODUCT
        return None

    def function(self, fn: Fn) -> str:
        """What stands before Ω or as the first argument of omega."""
        match fn:
            case Prim(name):
                return self.symbol(name) if name in _LEVEL or (name in B.SYMBOL and not self.ascii) else name
            case Ref(name):
                return name
            case Fold(kind, op):
                return f"{self.symbol(op)} {kind}"
            case Inner(op, by):
                return f"{self.symbol(op)}.{self.symbol(by)}"
            case Outer(op):
                return f"•{self.symbol(op)}" if not self.ascii else f"outer({self.symbol(op)}, _, _)"
            case Part(body, _):
                return self.show(body, ATOM)
        raise AssertionError(fn)

    # --- long expressions over several lines ---
    def lines(self, e: Expr, indent: int, used: int) -> list[str]:
        """The expression on one line if it fits after ``used`` columns, else one operand of the outermost operator per line."""
        text = self.show(e)
        if used + len(text) <= WIDTH:
            return [text]
        pad = " " * indent
        if isinstance(e, Tuple):
            items = [self.show(i) for i in e.items]
            return [f"({items[0]},", *[f"{pad} {i}," for i in items[1:-1]], f"{pad} {items[-1]})"]
        if isinstance(e, App):
            split = self.infix(e.fn, e.args)
            if split and split[3] != DYAD:
                left, op, right, level = split
                a, b = (CAT, CAT) if level == CMP else (level, level + 1)
                text = self.operand(left, a)
                first = self.lines(left, indent, used) if self.expr(left)[1] >= a and text[0] != "(" else [text]
                return [*first, f"{pad}{op} {self.operand(right, b)}"]
            if isinstance(e.fn, Ref | Prim) and self.expr(e)[1] == ATOM and not text.endswith("]"):
                name = e.fn.name
                args = [self.show(a) for a in e.args]
                return [f"{name}({args[0]},", *[f"{pad}  {a}," for a in args[1:-1]], f"{pad}  {args[-1]})"] if len(args) > 1 else [text]
        return [text]

    # --- declarations ---
    def type(self, t: Type) -> str:
        return t.name + ("" if t.dims is None or (t.name and not t.dims) else f"[{self.listed(t.dims)}]")

    def param(self, p: Param) -> str:
        return p.name if p.type is None else f"{p.name}: {self.type(p.type)}"

    def result(self, r: Result) -> str:
        return f"{r.name}: {self.type(r.type)}" if r.name else self.type(r.type)


def _omega(ranks: tuple[int, ...]) -> str:
    return f"Ω<{','.join(map(str, ranks))}>"


@dataclass
class _Unit:
    """Lines that belong together, with the place where their source starts; comments go between units or at the end of one."""

    start: tuple[int, int]
    indent: int
    lines: list[str]
    top: bool = False
    short: bool = False  # a whole definition on one line; such lines may follow each other without a blank line


def _start(e: Expr) -> tuple[int, int]:
    own = (e.pos.line, e.pos.col)
    match e:
        case App(fn, args):
            inside = [_start(fn.body)] if isinstance(fn, Part) else []
            return min([own, (fn.pos.line, fn.pos.col), *inside, *map(_start, args)])
        case Vector(items) | Tuple(items):
            return min([own, *map(_start, items)])
    return own


class _Layout:
    def __init__(self, p: Printer) -> None:
        self.p = p
        self.units: list[_Unit] = []

    def add(self, start: tuple[int, int], indent: int, lines: list[str], top: bool = False) -> None:
        self.units.append(_Unit(start, indent, [" " * indent + lines[0], *lines[1:]], top))

    def declaration(self, d: Def | KernelDef) -> None:
        at = (d.pos.line, d.pos.col)
        if isinstance(d, Def):
            self.definition(d, 0, top=True)
            return
        results = ", ".join(self.p.result(r) for r in d.results)
        head = f"kernel {d.name}({', '.join(self.p.param(x) for x in d.params)}) -> "
        self.add(at, 0, [head + (f"({results})" if len(d.results) > 1 else results)], top=True)
        if d.where:
            self.add(_start(d.where[0]), 2, [f"where {self.p.listed(d.where)}"])
        self.body(d.body, 4, "= ")

    def definition(self, d: Def, indent: int, prefix: str = "", top: bool = False) -> None:
        head = f"{prefix}def {d.name}({', '.join(self.p.param(x) for x in d.params)}) ="
        self.value((d.pos.line, d.pos.col), indent, len(prefix), head, d.body, top)

    def value(self, at: tuple[int, int], indent: int, hang: int, head: str, b: Body, top: bool = False) -> None:
        """``head`` and what it is equal to: on the same line, or its bindings below."""
        if b.bindings:
            self.add(at, indent, [head], top)
            self.body(b, indent + hang + 2)
        else:
            lines = self.p.lines(b.result, indent + hang + 4, indent + len(head) + 1)
            self.add(at, indent, [f"{head} {lines[0]}", *lines[1:]], top)

    def body(self, b: Body, indent: int, prefix: str = "") -> None:
        """Bindings and result, one below the other; the first carries the prefix, hanging to the left."""
        for n, x in enumerate(b.bindings):
            first = prefix if n == 0 else ""
            if isinstance(x, Def):
                self.definition(x, indent - len(first), first)
            else:
                names = x.names[0] if len(x.names) == 1 else f"({', '.join(x.names)})"
                self.value((x.pos.line, x.pos.col), indent - len(first), len(first), f"{first}let {names} =", x.value)
        word = "in " if b.bindings else prefix
        at = indent if b.bindings else indent - len(prefix)
        lines = self.p.lines(b.result, at + len(word), at + len(word))
        self.add(_start(b.result), at, [word + lines[0], *lines[1:]])


def unparse(declarations: tuple[Def | KernelDef, ...], ascii: bool = False, notes: tuple[Comment, ...] = ()) -> str:
    """Text of declarations, with comments put back where they stood."""
    layout = _Layout(Printer(ascii))
    for d in declarations:
        first = len(layout.units)
        layout.declaration(d)
        layout.units[first].short = isinstance(d, Def) and len(layout.units) == first + 1 and len(layout.units[first].lines) == 1
    out = list(_merge(layout.units, list(notes)))
    while out and not out[0]:
        out.pop(0)
    return "\n".join(out).rstrip("\n") + "\n" if out else ""


def _merge(units: list[_Unit], notes: list[Comment]) -> Iterator[str]:
    before: list[list[Comment]] = [[] for _ in range(len(units) + 1)]  # own-line comments by the unit they precede
    after: dict[int, Comment] = {}
    for c in notes:
        k = sum(u.start < (c.line, c.col) for u in units)  # the comment stands inside or after unit k - 1
        if not c.own_line and k and k - 1 not in after:
            after[k - 1] = c
        else:
            before[k].append(c)
    for k, u in enumerate([*units, _Unit((10**9, 0), 0, [], top=True)]):
        last = units[k - 1].start[0] if k and units[k - 1].short else 0  # the line before, if it allows this one to follow directly
        for c in before[k]:
            if u.top and c.line != last + 1:
                yield ""
            yield " " * (0 if u.top else u.indent) + c.text
            last = c.line
        if u.lines:
            if u.top and (u.start[0] != last + 1 or not (before[k] or u.short)):
                yield ""
            yield from u.lines[:-1]
            yield u.lines[-1] + (f"  {after[k].text}" if k in after else "")


def format(text: str, ascii: bool = False, filename: str = "<text>") -> str:
    """Canonical text. ``ascii``: ASCII spellings instead of the symbols. Raises MoaError MOA01xx."""
    return unparse(parse(text, filename), ascii, tuple(comments(text)))


__all__ = ["Let", "format", "unparse"]
