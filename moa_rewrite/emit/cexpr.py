"""Expressions of a loop program as C (and CUDA) text."""

from __future__ import annotations

from collections.abc import Mapping

from ..terms import Term
from .fold import const, nonneg
from .loops import Buffer
from .types import FLOATS, infer, join

C_TYPE = {"f32": "float", "f64": "double", "i32": "int32_t", "i64": "int64_t", "bool": "bool"}
_SUFFIX = {"f32": "f32", "f64": "f64", "i32": "i64", "i64": "i64", "bool": "i64"}
_INFIX = {"or": (2, "||"), "and": (3, "&&"), "eq": (4, "=="), "ne": (4, "!="), "lt": (5, "<"), "le": (5, "<="), "add": (6, "+"), "sub": (6, "-"),
          "mul": (7, "*"), "div": (7, "/")}  # fmt: skip
_LIBM = ("log", "sqrt", "sin", "cos", "tanh", "erf", "floor", "ceil")
ATOM = 9


def literal(value: str | int, ty: str) -> str:
    """A constant of a type, exact."""
    if ty == "f32" or ty == "f64":
        x = float(value)
        if x != x or x in (float("inf"), float("-inf")):
            text = "NAN" if x != x else "INFINITY" if x > 0 else "-INFINITY"
            return text if ty == "f32" else f"(double){text}"
        text = str(value) if isinstance(value, str) else repr(x)
        return text + ("f" if ty == "f32" else "")
    n = int(float(value)) if isinstance(value, str) else int(value)
    if ty == "bool":
        return "true" if n else "false"
    if n == -(2**63):
        return "INT64_MIN"
    if n == -(2**31) and ty == "i32":
        return "INT32_MIN"
    return f"INT64_C({n})" if abs(n) >= 2**31 else str(n)


class CExpr:
    """Printer of expressions; ``buffers`` gives types and shapes."""

    def __init__(self, buffers: Mapping[str, Buffer]) -> None:
        self.buffers = buffers
        self.types = {n: b.dtype for n, b in buffers.items()}

    def text(self, t: Term, ty: str | None = None, level: int = 0) -> str:
        """``t`` converted to type ``ty`` (its own if None), in parentheses when it binds weaker than ``level``."""
        own, literal_only = infer(t, self.types)
        ty = ty or own
        if t.op in ("int", "num"):
            text = literal(t.args[0], ty)  # type: ignore[arg-type]
            weak = text.startswith("-") or text.startswith("(")
            return f"({text})" if weak and level > 6 else text
        if own != ty and not (literal_only and t.op not in ("idiv", "mod")):
            if ty == "bool":
                return self._wrap(f"{self.text(t, own, 5)} != 0", 4, level)
            return self._wrap(f"({C_TYPE[ty]}){self.text(t, own, 8)}", 8, level)
        text, strength = self._plain(t, ty)
        return self._wrap(text, strength, level)

    @staticmethod
    def _wrap(text: str, strength: int, level: int) -> str:
        return f"({text})" if strength < level else text

    def _plain(self, t: Term, ty: str) -> tuple[str, int]:
        """Text of an expression of type ``ty`` and its binding strength."""
        op, kids = t.op, t.kids()
        if op in ("axis", "size"):
            return str(t.args[0]), ATOM
        if op == "bool":
            return ("true" if t.args[0] else "false"), ATOM
        if op == "get":
            return self.access(str(t.args[0]), tuple(kids[0].args)), ATOM  # type: ignore[arg-type]
        if op in ("lt", "le", "eq", "ne"):
            both = join(*(infer(k, self.types) for k in kids))[0]
            p, sign = _INFIX[op]
            return f"{self.text(kids[0], both, 6)} {sign} {self.text(kids[1], both, 6)}", p
        if op in ("and", "or"):
            p, sign = _INFIX[op]
            # operands of the other connective in parentheses, as compilers ask for
            return f" {sign} ".join(self.text(k, "bool", p if k.op == op and n == 0 else 4) for n, k in enumerate(kids)), p
        if op == "not":
            return f"!{self.text(kids[0], 'bool', 8)}", 8
        if op == "select":
            c, a, b = kids
            return f"{self.text(c, 'bool', 2)} ? {self.text(a, ty, 2)} : {self.text(b, ty, 2)}", 1
        if op == "cast":
            inner = infer(kids[0], self.types)[0]
            if ty == "bool":
                return f"{self.text(kids[0], inner, 5)} != 0", 4
            if inner in FLOATS and ty in ("i32", "i64"):
                return f"({C_TYPE[ty]}){self.text(kids[0], inner, 8)}", 8
            return f"({C_TYPE[ty]}){self.text(kids[0], inner, 8)}", 8
        if op == "neg":
            return f"-{self.text(kids[0], ty, 8)}".replace("--", "- -"), 8
        if op in ("idiv", "mod"):
            d = const(kids[1])
            if ty in FLOATS:
                return self._call("fdiv" if op == "idiv" else "fmod", kids, ty)
            if nonneg(kids[0]) and d is not None and d > 0:
                return f"{self.text(kids[0], ty, 7)} {'/' if op == 'idiv' else '%'} {self.text(kids[1], ty, 8)}", 7
            return self._call("fdiv" if op == "idiv" else "fmod", kids, ty)
        if op in _INFIX:
            p, sign = _INFIX[op]
            return f"{self.text(kids[0], ty, p)} {sign} {self.text(kids[1], ty, p + 1)}", p
        if op in ("max", "min"):
            if ty not in FLOATS and all(k.op in ("axis", "size", "int") for k in kids):
                left, right = (self.text(k, ty, 6) for k in kids)
                return f"{left} {'>' if op == 'max' else '<'} {right} ? {left} : {right}", 1
            return self._call(op, kids, ty)
        if op in ("qmax", "pow", "abs", "sign", "exp", "expn"):
            if op in ("abs", "sign") and ty == "bool":
                return self.text(kids[0], ty), ATOM
            return self._call(op, kids, ty)
        if op in _LIBM:
            if ty not in FLOATS:
                return self._plain(kids[0], ty)  # floor and ceil of an integer
            return f"{op}{'f' if ty == 'f32' else ''}({', '.join(self.text(k, ty) for k in kids)})", ATOM
        raise ValueError(f"no C text for {op}")

    def _call(self, name: str, kids: list[Term], ty: str) -> tuple[str, int]:
        suffix = _SUFFIX[ty]
        args = ", ".join(self.text(k, ty if ty in FLOATS else "i64") for k in kids)
        text = f"moarw_{name}_{suffix}({args})"
        return (f"(int32_t){text}", 8) if ty == "i32" else (text, ATOM)

    def access(self, name: str, index: tuple[Term, ...]) -> str:
        """An element of a buffer: a[i][j] for local arrays of constant shape, a[i*n + j] behind a pointer."""
        b = self.buffers[name]
        if b.space == "value" or (not b.shape and b.space in ("register", "stack")):
            return name
        if b.space in ("register", "stack"):
            return name + "".join(f"[{self.text(i, 'i64')}]" for i in index)
        if not index:
            return f"{name}[0]"
        offset, strength = self.text(index[0], "i64"), None
        for n, i in enumerate(index[1:], 1):
            left = self.text(index[0], "i64", 7) if strength is None else f"({offset})"
            offset, strength = f"{left} * {self.text(b.shape[n], 'i64', 8)} + {self.text(i, 'i64', 7)}", 6
        return f"{name}[{offset}]"
