"""Proving obligations with Z3: deterministic, one fresh context each, and no counterexample believed that Python cannot repeat.

``unknown`` is a verdict of its own and never a pass.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import z3

from .obligations import Obligation
from .reach import Unknown

RLIMIT = 5_000_000  # resource units per obligation; typical ones take a few thousand
_BOUNDS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 32, 64, 128, 1024, 2**16, 2**24, 2**31, 2**33, 2**48, 2**64)
Sexpr = "str | list"


@dataclass(frozen=True)
class Verdict:
    """status proved, refuted or undecided. ``witness``: sizes and indices of a counterexample, with what it shows; the reason if undecided.
    ``ms`` wall time; ``rlimit`` resource units spent on the verdict (repeatable for one solver version), without the search for a small witness."""

    status: str
    witness: str = ""
    ms: float = 0.0
    rlimit: int = 0


def version() -> str:
    return f"z3 {z3.get_version_string()}"


def prove(o: Obligation, rlimit: int = RLIMIT, second: bool = False) -> Verdict:
    """The verdict on one obligation within a budget of ``rlimit`` resource units per try. ``second``: another engine must agree."""
    start = time.perf_counter()
    status, spent = _decide(o.smt, rlimit)
    if second and status != "unknown" and (other := _check(z3.Solver, o.smt, rlimit, 7)[0]) != status:
        return Verdict("undecided", f"two engines disagree: {status} and {other}", _ms(start), spent)
    if status == "unknown":
        return Verdict("undecided", "the solver gave up", _ms(start), spent)
    if status == "unsat":
        return Verdict(*(("refuted", o.complaint) if o.kind == "admissible" else ("proved", "")), _ms(start), spent)
    verdict, text = _explain(o, rlimit)
    if o.kind == "admissible" and verdict == "refuted":  # the model is an example, and checked
        verdict, text = "proved", ""
    return Verdict(verdict, text, _ms(start), spent)


def prove_all(items: Sequence[Obligation], rlimit: int = RLIMIT, second: bool = False) -> list[Verdict]:
    """Verdicts in order; equal texts are decided once."""
    known: dict[str, Verdict] = {}
    out = []
    for o in items:
        if o.smt not in known or known[o.smt].status != "proved":
            known[o.smt] = prove(o, rlimit, second)
        out.append(known[o.smt])
    return out


def _ms(start: float) -> float:
    return (time.perf_counter() - start) * 1000


def _decide(smt: str, rlimit: int) -> tuple[str, int]:
    """sat, unsat or unknown; the simple engine first, then the general one."""
    status, spent = _check(z3.SimpleSolver, smt, rlimit, 0)
    if status == "unknown":
        status, more = _check(z3.Solver, smt, rlimit, 0)
        spent += more
    return status, spent


def _check(make: type, smt: str, rlimit: int, seed: int) -> tuple[str, int]:
    solver = _solver(make, smt, rlimit, seed)
    status = str(solver.check())
    return status, int(solver.statistics().get_key_value("rlimit count"))


def _solver(make: type, smt: str, rlimit: int, seed: int = 0) -> z3.Solver:
    solver = make(ctx=z3.Context())
    solver.set("rlimit", rlimit)
    solver.set("random_seed", seed)
    solver.from_string(smt)
    return solver


# --- counterexamples ---------------------------------------------------------------------------------------------------------------
def _explain(o: Obligation, rlimit: int) -> tuple[str, str]:
    """(verdict, text) of an obligation with a model: a small one, evaluated again here."""
    solver = _solver(z3.SimpleSolver, o.smt, rlimit)
    model = _smallest(solver, o)
    if model is None:
        return "undecided", "a counterexample exists but the solver cannot show it"
    functions = {f"|{d.name()}|": _table(model, d) for d in model.decls()}
    ast = parse(o.smt)
    for d in ast:
        if isinstance(d, list) and d[0] == "declare-fun":
            functions.setdefault(str(d[1]), ({}, False if d[3] == "Bool" else 0))
    symbols = {name: int(default) for name, (rows, default) in functions.items() if not rows}
    try:
        if not all(evaluate(d[1], functions) for d in ast if isinstance(d, list) and d[0] == "assert"):
            return "undecided", "the solver's counterexample is wrong"
        if o.confirm is not None and not o.confirm(symbols):
            return "undecided", "no inverse is known of the loops: the iteration tried is not one, but another reaches it"
    except Unknown as e:
        return "undecided", f"a counterexample depends on what has no value here: {e}"
    shown = [f"{label} = {evaluate(parse(text)[0], functions)}" for label, text in o.shown]
    return "refuted", f"{', '.join(shown)}: {o.complaint}"


def _smallest(solver: z3.Solver, o: Obligation) -> z3.ModelRef | None:
    """A model whose shown values are small: all below a common bound first, then each in turn."""
    if not o.shown:
        return solver.model() if solver.check() == z3.sat else None
    declarations = "\n".join(line for line in o.smt.splitlines() if line.startswith("(declare-fun"))
    values = [z3.parse_smt2_string(f"{declarations}(assert (= {t} 0))", ctx=solver.ctx)[0].arg(0) for _, t in o.shown]
    model = None
    for bound in _BOUNDS:
        solver.push()
        solver.add(*[v <= bound for v in values])
        if solver.check() == z3.sat:
            model = solver.model()
            break
        solver.pop()
    if model is None:
        return solver.model() if solver.check() == z3.sat else None
    for v in values:
        low, high = min(0, _value(model, v)), _value(model, v)
        while low < high:
            mid = (low + high) // 2
            solver.push()
            solver.add(v <= mid)
            if solver.check() == z3.sat:
                model, high = solver.model(), min(mid, _value(solver.model(), v))
            else:
                low = mid + 1
            solver.pop()
        solver.add(v == high)
    return model


def _value(model: z3.ModelRef, v: z3.ExprRef) -> int:
    return int(model.eval(v, model_completion=True).as_long())


def _constant(v: z3.ExprRef) -> int | bool:
    return z3.is_true(v) if z3.is_bool(v) else int(v.as_long())


def _table(model: z3.ModelRef, d: z3.FuncDeclRef) -> tuple[dict[tuple, int | bool], int | bool]:
    """A function of a model: its rows and the value elsewhere."""
    if d.arity() == 0:
        return {}, _constant(model[d])
    f = model[d]
    if not isinstance(f, z3.FuncInterp):
        return {}, _constant(f)
    rows = {tuple(_constant(f.entry(k).arg_value(j)) for j in range(d.arity())): _constant(f.entry(k).value()) for k in range(f.num_entries())}
    return rows, _constant(f.else_value())


# --- evaluation of SMT-LIB text ------------------------------------------------------------------------------------------------------
def parse(text: str) -> list:
    """The s-expressions of an SMT-LIB text; symbols stay strings, quoted ones with their bars."""
    stack: list[list] = [[]]
    for token in _tokens(text):
        if token == "(":
            stack.append([])
        elif token == ")":
            done = stack.pop()
            stack[-1].append(done)
        else:
            stack[-1].append(token)
    return stack[0]


def _tokens(text: str) -> Iterator[str]:
    k = 0
    while k < len(text):
        c = text[k]
        if c in "()":
            yield c
            k += 1
        elif c.isspace():
            k += 1
        else:
            end = text.index("|", k + 1) + 1 if c == "|" else next((j for j in range(k, len(text)) if text[j] in "() \n"), len(text))
            yield text[k:end]
            k = end


def evaluate(e: str | list, functions: Mapping[str, tuple[dict, int | bool]]) -> int | bool:
    """An expression of the fragment in use, in Python integers; ``functions`` gives every declared symbol as (rows, value elsewhere)."""
    if isinstance(e, str):
        if e in functions:
            return functions[e][1]
        return {"true": True, "false": False}[e] if e in ("true", "false") else int(e)
    op = e[0]
    if op == "ite":
        return evaluate(e[2] if evaluate(e[1], functions) else e[3], functions)
    x = [evaluate(a, functions) for a in e[1:]]
    if op in functions:
        rows, other = functions[op]
        return rows.get(tuple(x), other)
    match op:
        case "and":
            return all(x)
        case "or":
            return any(x)
        case "not":
            return not x[0]
        case "=>":
            return not x[0] or bool(x[1])
        case "=":
            return x[0] == x[1]
        case "distinct":
            return len(set(x)) == len(x)
        case "<":
            return x[0] < x[1]
        case "<=":
            return x[0] <= x[1]
        case ">":
            return x[0] > x[1]
        case ">=":
            return x[0] >= x[1]
        case "+":
            return sum(x)
        case "-":
            return -x[0] if len(x) == 1 else x[0] - sum(x[1:])
        case "*":
            out = 1
            for v in x:
                out *= v
            return out
        case "div" if x[1] > 0:
            return x[0] // x[1]
        case "mod" if x[1] > 0:
            return x[0] % x[1]
    raise Unknown(f"{op} of {x}")
