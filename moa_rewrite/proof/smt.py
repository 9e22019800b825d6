"""Integer and boolean terms as SMT-LIB 2 text.

Every symbol is quoted and prefixed (``|s:n|`` a size, ``|a:i|`` an axis), so none is taken for a built-in such as exp. What is not integer
arithmetic (a comparison of floats, data read from an array) becomes an uninterpreted function of the axes or indices it depends on:
nothing is assumed of it beyond being a function.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..terms import Kernel, Term, free_axes, loops, show
from .walk import Frames, is_index

_INT = {"add": "+", "sub": "-", "mul": "*", "idiv": "div", "mod": "mod"}  # div and mod agree with floor division for divisors > 0
_ORDER = {"lt": "<", "le": "<=", "eq": "=", "ne": "distinct"}
Env = Mapping[str, str]


def conj(*parts: str) -> str:
    return parts[0] if len(parts) == 1 else f"(and {' '.join(parts)})" if parts else "true"


def disj(*parts: str) -> str:
    return parts[0] if len(parts) == 1 else f"(or {' '.join(parts)})" if parts else "false"


def lit(value: int) -> str:
    return str(value) if value >= 0 else f"(- {-value})"


class Script:
    """Declarations and assumptions of one obligation. Sizes are integers >= 0 that satisfy the kernel's ``where``."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.declared: dict[str, str] = {}
        self.facts: list[str] = []
        self.nonlinear = False
        self.members = {str(f.args[0]): int(f.args[1].args[0]) for f in loops(kernel.body) if f.args[2] == "numa" and f.args[1].op == "int"}  # type: ignore
        self.few: dict[str, int] = {}  # text of a value -> what it is known to stay below
        self.named: dict[str, str] = {}  # text -> symbol that is equal to it
        for n in kernel.sizes:
            self.fact(f"(<= 0 {self.size(n)})")
        for w in kernel.where:
            self.fact(self.bool(w, {}))

    def text(self) -> str:
        lines = [f"(set-logic {'QF_UFNIA' if self.nonlinear else 'QF_UFLIA'})", *self.declared.values()]
        return "\n".join([*lines, *[f"(assert {f})" for f in dict.fromkeys(self.facts)], "(check-sat)", ""])

    def fact(self, text: str) -> None:
        self.facts.append(text)

    def size(self, name: str) -> str:
        return self.symbol(f"s:{name}")

    def symbol(self, name: str, args: int = 0, sort: str = "Int") -> str:
        assert "|" not in name and "\\" not in name
        self.declared.setdefault(name, f"(declare-fun |{name}| ({' '.join(['Int'] * args)}) {sort})")
        return f"|{name}|"

    def apply(self, name: str, args: list[str], sort: str) -> str:
        f = self.symbol(name, len(args), sort)
        return f"({f} {' '.join(args)})" if args else f

    def variable(self, name: str, extent: str) -> str:
        """A fresh integer in [0, extent)."""
        v = self.symbol(name)
        self.fact(conj(f"(<= 0 {v})", f"(< {v} {extent})"))
        return v

    def name(self, text: str) -> str:
        """A symbol that is equal to an integer expression; numbers and symbols stand for themselves."""
        if not text.startswith("(") or (text.startswith("(- ") and text[3:-1].isdigit()):
            return text
        if text not in self.named:
            self.named[text] = self.symbol(f"e:{len(self.named)}")
            self.fact(f"(= {self.named[text]} {text})")
        return self.named[text]

    def product(self, few: str, by: str) -> str:
        """few * by, where few is one of a few values: by cases, which keeps the argument linear."""
        by, out = self.name(by), "0"
        for k in range(self.few[few] - 1, 0, -1):
            out = f"(ite (= {few} {k}) {by if k == 1 else f'(* {k} {by})'} {out})"
        return self.name(out)

    def part(self, value: str, rows: str, members: int) -> str:
        """The largest k < members with k * rows <= value (0 if there is none): value div rows of a value that lies in one of the parts."""
        value, rows = self.name(value), self.name(rows)
        passed = [f"(ite (<= {rows if k == 1 else f'(* {k} {rows})'} {value}) 1 0)" for k in range(1, members)]
        out = self.name(f"(+ {' '.join(passed)})" if len(passed) > 1 else passed[0] if passed else "0")
        self.few[out] = members
        return out

    def bind(self, frames: Frames, env: Env, copy: str = "") -> dict[str, str]:
        """One iteration of the loops and reductions in ``frames`` for which the conditions hold; ``copy`` keeps two iterations apart."""
        out = dict(env)
        for f in frames:
            if f.kind in ("for", "reduce"):
                assert f.term is not None
                name = f"a:{f.name}{copy}"
                while f"|{name}|" in out.values():  # hides the axis of that name around it
                    name += "~"
                out[f.name] = self.variable(name, self.int(f.term, out))
                if f.place == "numa" and f.term.op == "int":
                    self.few[out[f.name]] = int(f.term.args[0])  # type: ignore[arg-type]
            elif f.kind == "if":
                assert f.term is not None
                self.fact(self.bool(f.term, out))
        return out

    def holds(self, frames: Frames, env: Env) -> list[str]:
        """What must be true for ``env`` to be an iteration of ``frames``: the same conditions as ``bind`` assumes."""
        out = []
        for f in frames:
            if f.kind in ("for", "reduce"):
                assert f.term is not None
                out.append(conj(f"(<= 0 {env[f.name]})", f"(< {env[f.name]} {self.int(f.term, env)})"))
            elif f.kind == "if":
                assert f.term is not None
                out.append(self.bool(f.term, env))
        return out

    def sort(self, t: Term) -> str:
        """Int, Bool, or Real for what is not translated."""
        if t.op in ("int", "size", "axis"):
            return "Int"
        if t.op in ("bool", "not", "and", "or", *_ORDER):
            return "Bool"
        if t.op == "cast" and t.args[0] == "i64" and self.sort(t.kids()[0]) == "Int":
            return "Int"
        if t.op == "get":
            return {"i32": "Int", "i64": "Int", "bool": "Bool"}.get(self.kernel.array(str(t.args[0])).dtype, "Real")
        if t.op in (*_INT, "max", "min", "neg", "abs", "select"):
            kinds = {self.sort(a) for a in t.kids()[t.op == "select" :]}
            return kinds.pop() if len(kinds) == 1 else "Real"
        return "Real"

    def int(self, t: Term, env: Env) -> str:
        """Text of an integer term, axes replaced by ``env``; lifted axes by their definitions."""
        args: tuple = t.args
        if t.op == "axis":
            if args[0] in env:
                return env[args[0]]
            definition = self.kernel.definition(args[0])
            if definition is None:
                raise KeyError(f"axis {args[0]} is not bound")
            return self.int(definition, env)
        if t.op == "int":
            return lit(args[0])
        if t.op == "size":
            return self.size(args[0])
        if self.sort(t) != "Int" or (t.op in ("idiv", "mod") and not is_index(args[1])):  # no obligation says that such a divisor is positive
            return self.opaque(t, env, "Int")
        if t.op == "cast":
            return self.int(args[1], env)
        if t.op == "get":
            return self.apply(f"d:{args[0]}", [self.int(i, env) for i in args[1].args], "Int")
        if t.op == "select":
            return f"(ite {self.bool(args[0], env)} {self.int(args[1], env)} {self.int(args[2], env)})"
        x = [self.int(a, env) for a in args]
        if t.op == "mul" and x[0] in self.few and args[1].op != "int":
            return self.product(*x)
        match t.op:
            case "max" | "min":
                return f"(ite ({'>=' if t.op == 'max' else '<='} {x[0]} {x[1]}) {x[0]} {x[1]})"
            case "neg":
                return f"(- {x[0]})"
            case "abs":
                return f"(ite (>= {x[0]} 0) {x[0]} (- {x[0]}))"
            case _:
                constant = [a.op == "int" for a in args]
                self.nonlinear |= not any(constant) if t.op == "mul" else t.op in ("idiv", "mod") and not constant[1]
                return f"({_INT[t.op]} {x[0]} {x[1]})"

    def bool(self, t: Term, env: Env) -> str:
        args: tuple = t.args
        if t.op == "bool":
            return "true" if args[0] else "false"
        if t.op == "get" and self.sort(t) == "Bool":
            return self.apply(f"d:{args[0]}", [self.int(i, env) for i in args[1].args], "Bool")
        if t.op in _ORDER:
            kinds = [self.sort(a) for a in args]
            if kinds == ["Int", "Int"]:
                return f"({_ORDER[t.op]} {self.int(args[0], env)} {self.int(args[1], env)})"
            if kinds == ["Bool", "Bool"] and t.op in ("eq", "ne"):
                return f"({_ORDER[t.op]} {self.bool(args[0], env)} {self.bool(args[1], env)})"
        elif t.op in ("not", "and", "or") and all(self.sort(a) == "Bool" for a in args):
            return f"({t.op} {' '.join(self.bool(a, env) for a in args)})"
        elif t.op == "select" and self.sort(t) == "Bool":
            return f"(ite {' '.join(self.bool(a, env) for a in args)})"
        return self.opaque(t, env, "Bool")

    def opaque(self, t: Term, env: Env, sort: str) -> str:
        names = sorted(free_axes(t))
        return self.apply(f"v:{show(t)}", [self.int(Term("axis", a), env) for a in names], sort)
