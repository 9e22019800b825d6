"""Facts about sizes for all values the `where` admits: small witnesses by enumeration, proofs by Z3. `unknown` is never a proof."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import z3

from ..terms import Term
from .poly import evaluate, size_names

RLIMIT = 3_000_000  # deterministic bound on the work of one query
UNKNOWN = "data"  # names of sizes that stand for data begin so; a witness does not list them
_SMALL = 4  # sizes 0..3 are tried first: a witness should be small


@dataclass(frozen=True)
class Verdict:
    proved: bool
    witness: str = ""  # values of sizes (and of entries) that refute the claim; "" if proved or undecided


def to_z3(t: Term, env: dict[str, z3.ExprRef], facts: list) -> z3.ExprRef:
    """A term over sizes and axes; ``env`` maps names ("n", "@i") and is extended. Divisors are asserted nonzero in ``facts``."""

    def go(u: Term):
        match u.op:
            case "int":
                return z3.IntVal(u.args[0])
            case "bool":
                return z3.BoolVal(bool(u.args[0]))
            case "size" | "axis":
                name = ("@" if u.op == "axis" else "") + str(u.args[0])
                if name not in env:
                    env[name] = z3.Int(name)
                    facts.append(env[name] >= 0)
                return env[name]
        a = [go(k) for k in u.kids()]
        match u.op:
            case "neg":
                return -a[0]
            case "add":
                return a[0] + a[1]
            case "sub":
                return a[0] - a[1]
            case "mul":
                return a[0] * a[1]
            case "idiv" | "mod":  # floor division; z3's is Euclidean, the same for a positive divisor
                q, r = z3.FreshInt("q"), z3.FreshInt("r")
                facts.append(z3.Implies(a[1] > 0, z3.And(a[0] == a[1] * q + r, r >= 0, r < a[1])))
                facts.append(z3.Implies(a[1] < 0, z3.And(a[0] == a[1] * q + r, a[1] < r, r <= 0)))
                return q if u.op == "idiv" else r
            case "max":
                return z3.If(a[0] >= a[1], a[0], a[1])
            case "min":
                return z3.If(a[0] <= a[1], a[0], a[1])
            case "abs":
                return z3.If(a[0] >= 0, a[0], -a[0])
            case "select":
                return z3.If(a[0], a[1], a[2])
            case "lt":
                return a[0] < a[1]
            case "le":
                return a[0] <= a[1]
            case "eq":
                return a[0] == a[1]
            case "ne":
                return a[0] != a[1]
            case "and":
                return z3.And(a[0], a[1])
            case "or":
                return z3.Or(a[0], a[1])
            case "not":
                return z3.Not(a[0])
        raise ValueError(u.op)

    return go(t)


class Prover:
    """Decides claims (boolean integer terms) under the constraints of one kernel."""

    def __init__(self, where: tuple[Term, ...] = ()) -> None:
        self.where = where
        self._known: dict[tuple[Term, tuple[Term, ...]], Verdict] = {}

    def check(self, claim: Term, given: tuple[Term, ...] = (), shown: tuple[str, Term] | None = None) -> Verdict:
        """Is ``claim`` true for all sizes (and axes) that satisfy the `where` and ``given``? ``shown``: a value that a witness should name."""
        key = (claim, given)
        if key not in self._known:
            self._known[key] = self._small(claim, given) or self._solve(claim, given, shown)
        return self._known[key]

    def equal(self, a: Term, b: Term) -> Verdict:
        return Verdict(True) if a == b else self.check(Term("eq", a, b))

    def _small(self, claim: Term, given: tuple[Term, ...]) -> Verdict | None:
        terms = (claim, *given)
        from ..terms import free_axes

        if any(free_axes(t) for t in terms):
            return None
        mentioned = {n for t in terms for n in size_names(t)}
        relevant: list[Term] = []
        while True:  # all constraints connected with the claim
            more = [w for w in self.where if w not in relevant and mentioned & set(size_names(w))]
            if not more:
                break
            relevant += more
            mentioned |= {n for w in more for n in size_names(w)}
        names = sorted(mentioned)
        if len(names) > 5:
            return None
        for values in sorted(itertools.product(range(_SMALL), repeat=len(names)), key=sum):
            sizes = dict(zip(names, values, strict=True))
            try:
                if all(evaluate(g, sizes) for g in (*relevant, *given)) and not evaluate(claim, sizes):
                    return Verdict(False, ", ".join(f"{n} = {v}" for n, v in sizes.items()))
            except ZeroDivisionError:
                continue
        return None

    def _solve(self, claim: Term, given: tuple[Term, ...], shown: tuple[str, Term] | None) -> Verdict:
        env: dict[str, z3.ExprRef] = {}
        facts: list = []
        goal = to_z3(claim, env, facts)
        assumed = [to_z3(w, env, facts) for w in (*self.where, *given)]
        solver = z3.Solver()
        solver.set("rlimit", RLIMIT)
        solver.add(*facts, *assumed, z3.Not(goal))
        found = solver.check()
        if found == z3.unsat:
            return Verdict(True)
        if found == z3.sat:
            model = solver.model()
            parts = [] if shown is None else [(shown[0], to_z3(shown[1], env, []))]
            parts += [(n.lstrip("@"), v) for n, v in sorted(env.items()) if not n.startswith(UNKNOWN)]
            return Verdict(False, ", ".join(f"{n} = {model.eval(v, model_completion=True)}" for n, v in parts))
        return Verdict(False)
