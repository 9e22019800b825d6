"""What a syntax error means, from what the parser found, what it would have taken, and what stands before."""

from __future__ import annotations

import re
from collections.abc import Set

_CLOSING = {"(": ")", "[": "]"}
_OPERAND = {"IDENT", "INT", "FLOAT", "P_BOOL", "UNDERSCORE", "LPAR", "P_MONAD", "P_NOT", "P_FOLD"}


def diagnose(found: str, accepts: Set[str], before: str) -> tuple[int, str, str]:
    """(code, message, hint). ``found``: type of the token that does not fit, "$END" for the end; ``accepts``: types that would;
    ``before``: the text before it."""
    before = re.sub(r"#[^\n]*", "", before).rstrip()
    declaration = max(before.rfind("kernel "), before.rfind("def "))
    here = before[max(declaration, 0) :]
    operand_wanted = {"IDENT", "LPAR", "INT"} <= accepts
    operator_wanted = bool(accepts & {"P_PLUS", "P_AND", "P_OR"})
    if re.search(r"Ω\s*(<[^>]*)?$", before):
        return 109, "Ω needs the ranks of its arguments", "write literal ranks, one per argument: `f Ω<1> x`, `x - Ω<1,0> m`"
    if found == "P_OMEGA" and re.search(r"\b(red|scan)$", before):
        return 105, "a reduction needs its function", "write it before: `+ red Ω<1> x`"
    cut_off = found == "$END" or (found in ("KERNEL", "DEF", "IN", "LET") and not before.endswith(("(", ",", "=")))
    if cut_off and not operand_wanted and (bracket := _open(here)):
        return 103, f"`{bracket}` is not closed", f"add the missing `{_CLOSING[bracket]}`"
    if found in ("$END", "KERNEL", "DEF", "IN", "LET") and {"MORETHAN", "COMMA"} <= accepts:
        return 103, "`<` is not closed", "add the missing `>`"
    if operand_wanted:
        return 105, "an expression is missing here", "an operator, `=`, `in`, a comma or a bracket needs an expression after it"
    if operator_wanted and found in ("LESSTHAN", "MORETHAN", "P_CMP"):
        return 110, "comparisons do not chain", "write `a < b and b < c`"
    if "IN" in accepts and found in ("$END", "KERNEL"):
        return 104, "a binding needs `in` before the result", "write `let x = ... in result`"
    if operator_wanted and found in _OPERAND:
        hint = "put an operator between them, or call f(x)"
        return 106, "two expressions stand side by side", hint + ("; `let x = ...` needs `in` before the result" if "IN" in accepts else "")
    if before.endswith(":"):
        return 107, "a type is missing here", "for example `x: f32[n]`; a scalar is `eps: f32`"
    if here.startswith("kernel") and not operator_wanted and _open(here) is None:
        return 108, "a kernel needs `-> type` and `= body`", "for example `kernel dot(x: f32[n], y: f32[n]) -> f32 = x +.× y`"
    return 101, "unexpected", ""


def _open(text: str) -> str | None:
    """The innermost bracket that is not closed."""
    stack: list[str] = []
    for c in text:
        if c in _CLOSING:
            stack.append(c)
        elif stack and c == _CLOSING[stack[-1]]:
            stack.pop()
    return stack[-1] if stack else None
