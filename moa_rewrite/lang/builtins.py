"""Names and spellings of everything built in. Definitions (softmax, mean, ...) are not here: they are MoA, in prelude.moa."""

from __future__ import annotations

# Infix spellings of binary scalar functions -> name
INFIX = {
    "+": "add", "-": "sub", "−": "sub", "*": "mul", "×": "mul", "/": "div", "÷": "div", "//": "idiv", "%": "mod",
    "<": "lt", "<=": "le", "≤": "le", ">": "gt", ">=": "ge", "≥": "ge", "==": "eq", "!=": "ne", "≠": "ne",
    "and": "and", "∧": "and", "or": "or", "∨": "or", "max": "max", "min": "min", "pow": "pow",
    "++": "cat", "ψ": "psi", "ρ̂": "reshape", "↑": "take", "↓": "drop", "θ": "rotate",
}  # fmt: skip
MONADS = {"ρ": "rho", "δ": "dim", "τ": "tau", "ι": "iota", "φ": "reverse", "⍉": "transpose"}

# Canonical symbols, (Unicode, ASCII); an ASCII symbol of None is written as a call.
SYMBOL: dict[str, tuple[str, str | None]] = {
    "or": ("or", "or"), "and": ("and", "and"), "lt": ("<", "<"), "le": ("<=", "<="), "gt": (">", ">"), "ge": (">=", ">="), "eq": ("==", "=="),
    "ne": ("!=", "!="), "cat": ("++", "++"), "add": ("+", "+"), "sub": ("-", "-"), "mul": ("×", "*"), "div": ("÷", "/"), "idiv": ("//", "//"),
    "mod": ("%", "%"), "max": ("max", "max"), "min": ("min", "min"), "pow": ("pow", "pow"),
    "psi": ("ψ", None), "reshape": ("ρ̂", None), "take": ("↑", None), "drop": ("↓", None), "rotate": ("θ", None),
    "rho": ("ρ", None), "dim": ("δ", None), "tau": ("τ", None), "iota": ("ι", None), "reverse": ("φ", None), "transpose": ("⍉", None),
}  # fmt: skip

FLOATS, INTS = ("f32", "f64"), ("i32", "i64")
DTYPES = (*FLOATS, *INTS, "bool")

FLOAT_UNARY = ("exp", "log", "sqrt", "sin", "cos", "tanh", "erf", "floor", "ceil")
NUMERIC_UNARY = ("neg", "abs", "sign")
ARITH = ("add", "sub", "mul", "max", "min")
FLOAT_BINARY = ("div", "pow")
INT_BINARY = ("idiv", "mod")
ORDER = ("lt", "le", "gt", "ge")
EQUAL = ("eq", "ne")
LOGIC = ("and", "or")
UNARY = (*FLOAT_UNARY, *NUMERIC_UNARY, "not")
BINARY = (*ARITH, *FLOAT_BINARY, *INT_BINARY, *ORDER, *EQUAL, *LOGIC)
SCALAR = (*UNARY, *BINARY, "select", *DTYPES)

# Structural operators -> numbers of arguments they take
STRUCTURAL: dict[str, tuple[int, ...]] = {
    "psi": (2,), "rho": (1,), "dim": (1,), "tau": (1,), "iota": (1,), "rav": (1,), "reshape": (2,), "take": (2,), "drop": (2,), "cat": (2,),
    "reverse": (1,), "rotate": (2,), "transpose": (1, 2), "fill": (2,),
}  # fmt: skip

# Names that may be called; `red`, `scan`, `outer`, `inner`, `omega` take functions and are resolved by the parser.
CALLABLE = (*(u for u in UNARY if u not in ("neg", "not")), "max", "min", "pow", "select", *DTYPES, *STRUCTURAL)
COMBINATORS = ("red", "scan", "outer", "inner", "omega")
CONSTANTS = ("pi", "π", "inf")
RESERVED = frozenset((*CALLABLE, *COMBINATORS, *CONSTANTS, "shape"))

MONOIDS = ("add", "mul", "max", "min", "and", "or")


def arity(name: str) -> tuple[int, ...]:
    """Numbers of arguments a built-in function takes."""
    if name in STRUCTURAL:
        return STRUCTURAL[name]
    if name == "select":
        return (3,)
    return (1,) if name in UNARY or name in DTYPES else (2,)
