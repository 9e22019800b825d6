"""Expressions of a loop program as Fortran 2008 text.

``merge`` evaluates both branches and ``.and.`` may evaluate both operands, so a ``select`` or a second operand that could fail when it is not wanted
(an element, a division) becomes an ``if`` before the statement, with a variable for its value.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..terms import Term, subterms
from .fold import const, nonneg
from .loops import Buffer
from .types import FLOATS, infer, join

KIND = {"f32": "c_float", "f64": "c_double", "i32": "c_int32_t", "i64": "c_int64_t", "bool": "c_bool"}
TYPE = {t: f"{'logical' if t == 'bool' else 'real' if t in FLOATS else 'integer'}({k})" for t, k in KIND.items()}
_INFIX = {"or": (1, ".or."), "and": (2, ".and."), "eq": (4, "=="), "ne": (4, "/="), "lt": (4, "<"), "le": (4, "<="), "add": (5, "+"), "sub": (5, "-"),
          "mul": (6, "*"), "div": (6, "/")}  # fmt: skip
_INTRINSIC = ("log", "sqrt", "sin", "cos", "tanh", "erf", "abs")
ATOM = 9


def literal(value: str | int, ty: str, strict: bool = True) -> str:
    """A constant of a type, exact. Not ``strict``: a default integer will do where it meets an int64."""
    if ty in FLOATS:
        x = float(value)
        if x != x or x in (float("inf"), float("-inf")):
            sign, what = ("-" if x < 0 else ""), ("nan" if x != x else "inf")
            return f"{sign}moarw_{what}_{ty}"
        text = str(value) if isinstance(value, str) else repr(x)
        return (text if "." in text or "e" in text.lower() else text + ".0") + f"_{KIND[ty]}"
    n = int(float(value)) if isinstance(value, str) else int(value)
    if ty == "bool":
        return ".true._c_bool" if n else ".false._c_bool"
    least = -(2 ** (31 if ty == "i32" else 63))
    if n == least:
        return f"(-{-(n + 1)}_{KIND[ty]} - 1_{KIND[ty]})"
    return f"{n}_{KIND[ty]}" if strict or abs(n) >= 2**31 else str(n)


class FExpr:
    """Printer of expressions. ``helpers`` collects the names of runtime functions used, ``before`` the statements to put in front, ``temporaries``
    (name, type) of the variables these set."""

    def __init__(self, buffers: Mapping[str, Buffer]) -> None:
        self.buffers = buffers
        self.types = {n: b.dtype for n, b in buffers.items()}
        self.helpers: set[str] = set()
        self.before: list[str] = []
        self.temporaries: list[tuple[str, str]] = []
        self.made = 0
        self.in_tile = False  # there, private buffers are arguments: the part of one thread

    def text(self, t: Term, ty: str | None = None, level: int = 0, strict: bool = False) -> str:
        """``t`` converted to type ``ty`` (its own if None), in parentheses when it binds weaker than ``level``. ``strict``: of that kind exactly."""
        own, literal_only = infer(t, self.types)
        ty = ty or own
        if t.op in ("int", "num"):
            return self._wrap(literal(t.args[0], ty, strict), 5 if str(t.args[0]).startswith("-") else ATOM, level)  # type: ignore[arg-type]
        if own != ty and not (literal_only and t.op not in ("idiv", "mod")):
            return self._convert(t, own, ty, level)
        if ty == "i64" and strict and not any(u.op in ("axis", "size", "get") for u in subterms(t)):
            return f"int({self.text(t, ty)}, c_int64_t)"
        text, strength = self._plain(t, ty)
        return self._wrap(text, strength, level)

    def _convert(self, t: Term, own: str, ty: str, level: int) -> str:
        if ty == "bool":
            return self._wrap(f"{self.text(t, own, 5)} /= 0", 4, level)
        if own == "bool":
            return f"merge({literal(1, ty)}, {literal(0, ty)}, {self.text(t, 'bool')})"
        return f"{'real' if ty in FLOATS else 'int'}({self.text(t, own)}, {KIND[ty]})"

    @staticmethod
    def _wrap(text: str, strength: int, level: int) -> str:
        return f"({text})" if strength < level else text

    def _plain(self, t: Term, ty: str) -> tuple[str, int]:
        """Text of an expression of type ``ty`` and its binding strength."""
        op, kids = t.op, t.kids()
        match op:
            case "axis" | "size":
                return str(t.args[0]), ATOM
            case "bool":
                return literal(int(t.args[0]), "bool"), ATOM  # type: ignore[arg-type]
            case "get":
                return self.access(str(t.args[0]), tuple(kids[0].args)), ATOM  # type: ignore[arg-type]
            case "lt" | "le" | "eq" | "ne":
                both = join(*(infer(k, self.types) for k in kids))[0]
                if both == "bool":
                    return f"{self.text(kids[0], both, 3)} {'.eqv.' if op == 'eq' else '.neqv.'} {self.text(kids[1], both, 3)}", 0
                p, sign = _INFIX[op]
                return f"{self.text(kids[0], both, 5)} {sign} {self.text(kids[1], both, 5)}", p
            case "and" | "or":
                if not safe(kids[1]):
                    return self._short(op, kids), ATOM
                p, sign = _INFIX[op]
                return f" {sign} ".join(self.text(k, "bool", p) for k in kids), p
            case "not":
                return f".not. {self.text(kids[0], 'bool', 4)}", 3
            case "select":
                return self._select(kids, ty), ATOM
            case "cast":
                inner = infer(kids[0], self.types)[0]
                return (self._convert(kids[0], inner, ty, 9) if inner != ty else self.text(kids[0], ty, 9)), ATOM
            case "neg":
                return f"-{self.text(kids[0], ty, 6)}", 5
            case "idiv" | "mod":
                d = const(kids[1])
                if ty not in FLOATS and nonneg(kids[0]) and d is not None and d > 0:
                    if op == "idiv":
                        return f"{self.text(kids[0], ty, 6)} / {self.text(kids[1], ty, 7)}", 6
                    return f"mod({self.text(kids[0], ty, 0, True)}, {self.text(kids[1], ty, 0, True)})", ATOM
                return self._call("fdiv" if op == "idiv" else "fmod", kids, ty)
            case "max" | "min":
                return self._call(op, kids, ty) if ty in FLOATS else self._intrinsic(op, kids, ty)
            case "qmax":
                return self._intrinsic("max", kids, ty)
            case "exp" | "sign" | "floor" | "ceil":
                return self._call(op, kids, ty) if ty in FLOATS or op == "sign" else self._plain(kids[0], ty)
            case "pow":
                if ty in FLOATS:
                    return f"{self.text(kids[0], ty, 8)}**{self.text(kids[1], ty, 8)}", 7
                return self._call("pow", kids, ty)
        if op in _INTRINSIC:
            return self._intrinsic(op, kids, ty)
        if op in _INFIX:
            p, sign = _INFIX[op]
            return f"{self.text(kids[0], ty, p)} {sign} {self.text(kids[1], ty, p + 1)}", p
        raise ValueError(f"no Fortran text for {op}")

    def _intrinsic(self, name: str, kids: list[Term], ty: str) -> tuple[str, int]:
        return f"{name}({', '.join(self.text(k, ty, 0, True) for k in kids)})", ATOM

    def _call(self, name: str, kids: list[Term], ty: str) -> tuple[str, int]:
        own = ty if ty in FLOATS else "i64"
        helper = f"moarw_{name}_{own}"
        self.helpers.add(helper)
        text = f"{helper}({', '.join(self.text(k, own, 0, True) for k in kids)})"
        return (f"int({text}, c_int32_t)" if ty == "i32" else text), ATOM

    def _select(self, kids: list[Term], ty: str) -> str:
        c, a, b = kids
        if safe(a) and safe(b):
            return f"merge({self.text(a, ty, 0, True)}, {self.text(b, ty, 0, True)}, {self.text(c, 'bool')})"
        name = self._temporary(ty)
        cond = self.text(c, "bool")
        then, other = (self._assign(name, k, ty) for k in (a, b))
        self.before += [f"if ({cond}) then", *then, "else", *other, "end if"]
        return name

    def _short(self, op: str, kids: list[Term]) -> str:
        """The second operand evaluated only where the first does not decide."""
        name = self._temporary("bool")
        self.before.append(f"{name} = {self.text(kids[0], 'bool')}")
        second = self._assign(name, kids[1], "bool")
        self.before += [f"if ({name}) then" if op == "and" else f"if (.not. {name}) then", *second, "end if"]
        return name

    def _assign(self, name: str, t: Term, ty: str) -> list[str]:
        """Statements that set a variable, those that the expression needs first included."""
        outer, self.before = self.before, []
        text = self.text(t, ty)
        inner, self.before = self.before, outer
        return [*(f"  {line}" for line in inner), f"  {name} = {text}"]

    def _temporary(self, ty: str) -> str:
        self.made += 1
        name = f"moarw_v{self.made}"
        self.temporaries.append((name, ty))
        return name

    def access(self, name: str, index: tuple[Term, ...]) -> str:
        """An element: indices reversed, so that the last axis is contiguous as it is in row-major storage."""
        b = self.buffers[name]
        parts = [self.text(i, "i64") for i in reversed(index)]
        if b.space == "private" and not self.in_tile:
            parts.append("moarw_thread")
        return f"{name}({', '.join(parts)})" if parts else name


def safe(t: Term) -> bool:
    """Whether evaluating an expression whose value is not wanted can do no harm."""
    return not any((u.op == "get" and u.args[1].kids()) or (u.op in ("idiv", "mod", "pow") and const(u.kids()[1]) is None) for u in subterms(t))  # type: ignore
