"""Alternatives of a DNF: the algebra rules saturate on its scalars in an e-graph, a few best forms come out, each with its derivation.

egglog has no proofs from Python, so every rule also records its firings on origin terms: a mirror sort that is never merged, ``trm`` giving one origin term of
each class. The recorded instances, replayed through a congruence closure, explain each extracted form.
"""

from __future__ import annotations

import math
from itertools import product
from typing import Any

from egglog.bindings import EGraph

from ..rules import Rule, RuleSet, Step, apply_step
from ..rules.pattern import instantiate
from ..rules.rule import RuleError
from ..terms import Kernel, Term, evaluate, free_axes, positions, subterms
from ..terms.ops import ARGS
from .congruence import Closure
from .egraph import Report, text
from .form import nests

# operations an operator counts for; those not named count one
_WEIGHT = {"exp": 12.0, "log": 14.0, "div": 5.0, "sqrt": 8.0, "pow": 40.0, "sin": 25.0, "cos": 25.0, "tanh": 30.0, "erf": 30.0, "get": 0.4, "idiv": 10.0,
           "mod": 10.0}  # fmt: skip
_NOTHING = {"int", "num", "bool", "size", "axis", "ix", "pair", "fst", "snd", "cast"}


class Saturation:
    """One scalar term and all that the rules make of it, within budgets."""

    def __init__(self, kernel: Kernel, source: Term, rules: list[Rule], rounds: int = 8, nodes: int = 6000) -> None:
        self.kernel, self.source, self.rules = kernel, source, rules
        self.eg = EGraph(seminaive=True)
        names = sorted({str(t.args[0]) for t in subterms(source) if t.op == "axis"} | {str(t.args[1]) for t in subterms(source) if t.op == "reduce"})
        self.bits = {n: 1 << k for k, n in enumerate(names)}
        self.ops = [op for op in ARGS if op not in ("ix", "for", "emit", "seq", "new", "guard", "skip", "psi", "arr")]
        self.sigs: dict[str, str] = {op: ARGS[op] for op in self.ops} | {"nil": "", "cons": "EE"}
        self._declare()
        self.cmd(f"(let $source {text(source)})")
        for r in rules:
            for forward in (True, False) if r.twoway else (True,):
                self._rule(r, forward)
        self.report = self._run(rounds, nodes)

    def cmd(self, t: str) -> list:
        return self.eg.run_program(*self.eg.parse_program(t))

    def _declare(self) -> None:
        for s in ("M", "Trm"):
            self.cmd(f"(sort {s})")
        for op, sig in self.sigs.items():
            for prefix, sort in (("M_", "M"), ("t_", "Trm")):
                self.cmd(f"(constructor {prefix}{op} ({' '.join({'s': 'String', 'i': 'i64'}.get(c, sort) for c in sig)}) {sort})")
        self.cmd("(function trm (M) Trm :merge old)")
        self.cmd("(function fv (M) i64 :merge (& old new))")
        self.cmd("(function bit (String) i64 :merge old)")
        for n, b in self.bits.items():
            self.cmd(f'(set (bit "{n}") {b})')
        for s in ("real_", "positive_", "scalar_"):
            self.cmd(f"(relation {s} (M))")
        self.cmd("(relation floats (String))")
        for a in self.kernel.inputs:
            if a.dtype in ("f32", "f64"):
                self.cmd(f'(floats "{a.name}")')
        for w in self.kernel.where:  # sizes known to be positive
            if w.op in ("lt", "le") and w.args[1].op == "size" and w.args[0].op == "int" and w.args[0].args[0] >= (w.op == "le"):  # type: ignore
                self.cmd(f"(positive_ {text(w.args[1])})")  # type: ignore[arg-type]
        for t in subterms(self.source):
            if t.op == "num" and not str(t.args[0]).startswith("-") and float(str(t.args[0])) > 0:
                self.cmd(f"(positive_ {text(t)})")
        for s in ("analysis", "laws"):
            self.cmd(f"(ruleset {s})")
        for op, sig in self.sigs.items():
            self._analyse(op, sig)

    def _analyse(self, op: str, sig: str) -> None:
        vs = [f"a{k}" for k in range(len(sig))]
        kids = [v for v, s in zip(vs, sig, strict=True) if s not in "si"]
        head = f"(= e (M_{op} {' '.join(vs)}))"
        facts = " ".join([head, *[f"(= t_{v} (trm {v}))" for v in kids]])
        args = " ".join("t_" + v if v in kids else v for v in vs)
        self.cmd(f"(rule ({facts}) ((set (trm e) (t_{op} {args}))) :ruleset analysis)")
        value = "(bit a0)" if op == "axis" else "0"
        for v in kids:
            value = f"(| {value} f_{v})"
        if op == "reduce":  # the bound axis is not free in the body
            value = "(| f_a2 (& f_a3 (^ b -1)))"
        bits = {"reduce": ["(= b (bit a1))"], "axis": ["(= c (bit a0))"]}.get(op, [])
        facts = " ".join([head, *[f"(= f_{v} (fv {v}))" for v in kids], *bits])
        self.cmd(f"(rule ({facts}) ((set (fv e) {value.replace('(bit a0)', 'c')})) :ruleset analysis)")
        rules = {"num": "real_", "exp": "real_", "sqrt": "real_", "log": "real_"}
        if op in rules:
            self.cmd(f"(rule ({head}) (({rules[op]} e)) :ruleset analysis)")
        if op == "get":
            self.cmd(f"(rule ({head} (floats a0)) ((real_ e)) :ruleset analysis)")
        if op == "cast":
            for t in ("f32", "f64"):
                self.cmd(f'(rule ({head} (= a0 "{t}")) ((real_ e)) :ruleset analysis)')
                self.cmd(f'(rule ({head} (= a0 "{t}") (positive_ a1)) ((positive_ e)) :ruleset analysis)')
        if op in ("add", "sub", "mul", "div", "pow", "max", "min", "neg", "abs", "fst", "snd", "pair"):
            self.cmd(f"(rule ({head} (real_ a0)) ((real_ e)) :ruleset analysis)")
        if op == "select":
            self.cmd(f"(rule ({head} (real_ a1)) ((real_ e)) :ruleset analysis)")
        if op == "reduce":
            self.cmd(f"(rule ({head} (real_ a3)) ((real_ e)) :ruleset analysis)")
        if op == "exp":
            self.cmd(f"(rule ({head}) ((positive_ e)) :ruleset analysis)")
        if op == "int":
            self.cmd(f"(rule ({head} (> a0 0)) ((positive_ e)) :ruleset analysis)")
        if op in ("sqrt", "add", "mul", "div", "max", "min"):
            self.cmd(f"(rule ({head} {' '.join(f'(positive_ {v})' for v in kids)}) ((positive_ e)) :ruleset analysis)")
        if op in ("int", "num", "bool", "size", "axis", "get", "reduce"):
            self.cmd(f"(rule ({head}) ((scalar_ e)) :ruleset analysis)")

    def _rule(self, r: Rule, forward: bool) -> None:
        lhs, rhs = (r.lhs, r.rhs) if forward else (r.rhs, r.lhs)
        assert lhs is not None and rhs is not None
        kinds = r.variables()
        tag = f"fire_{r.name.replace('-', '_')}{'' if forward else '_b'}"
        self.cmd(f"(relation {tag} ({' '.join('Trm' if k == 'term' else 'String' for k in kinds.values())}))")
        facts = [f"(= top_ {text(lhs)})"]
        for g in r.guards:
            facts += self._condition(g)
        facts += [f"(= t_{v} (trm v_{v}))" for v, k in kinds.items() if k == "term"]
        fire = f"({tag} {' '.join('t_' + v if k == 'term' else v for v, k in kinds.items())})"
        self.cmd(f'(rule ({" ".join(facts)}) ((union top_ {text(rhs)}) {fire}) :ruleset laws :name "{tag}")')

    def _condition(self, g: Term) -> list[str]:
        def v(a: Any) -> str:
            return text(a) if isinstance(a, Term) else str(a).lstrip("?")

        if g.op == "notin":
            name = g.args[0].args[0] if isinstance(g.args[0], Term) else v(g.args[0])
            out = [f"(= b_{name} (bit {name}))"]
            for e in g.args[1:]:
                key = str(e.args[0])  # type: ignore[union-attr]
                out += [f"(= f_{name}_{key} (fv {v(e)}))", f"(= 0 (& b_{name} f_{name}_{key}))"]
            return out
        if g.op == "distinct":
            return [f"(!= {g.args[0].args[0]} {g.args[1].args[0]})"]  # type: ignore[union-attr]
        if g.op in ("real", "positive", "scalar"):
            return [f"({g.op}_ {v(a)})" for a in g.args]
        raise KeyError(f"guard {g.op} has no meaning in an e-graph of scalars")

    def _run(self, rounds: int, nodes: int) -> Report:
        rep = Report()
        self.cmd("(run-schedule (saturate (run analysis)))")
        for _ in range(rounds):
            (out,) = self.cmd("(run-schedule (seq (run laws) (saturate (run analysis))))")
            for k, n in out.report.num_matches_per_rule.items():
                if k.startswith("fire_"):
                    rep.matches[k[5:]] = rep.matches.get(k[5:], 0) + n
            rep.iterations += 1
            (sizes,) = self.cmd("(print-size)")
            rep.nodes = sum(n for name, n in sizes.sizes if name.startswith("M_"))
            if not out.report.updated:
                return rep
            if rep.nodes > nodes:
                rep.stopped = f"node budget {nodes}"
                return rep
        rep.stopped = f"{rounds} rounds"
        return rep

    # --- results ------------------------------------------------------------------------------------------------------------------
    def forms(self, keep: int, points: dict[str, float]) -> list[Term]:
        """The best terms of the source's class by ``work``; ``points`` gives each axis its extent."""
        fz = self.eg.freeze()
        rows: dict[Any, list[tuple[str, Any]]] = {}
        for op in self.sigs:
            for row in fz.functions["M_" + op].rows:
                rows.setdefault(row.output, []).append((op, row.inputs))
        memo: dict[Any, list[Term]] = {}
        ranks: dict[Term, tuple[float, str]] = {}

        def rank(t: Term) -> tuple[float, str]:
            if t not in ranks:
                ranks[t] = (work(t, points), repr(t))
            return ranks[t]

        from egglog.bindings import PanicSpan, Var

        _, root = self.eg.eval_expr(Var(PanicSpan(), "$source"))
        changed, rounds = True, 0
        # bottom up until nothing changes, which in cyclic classes may take long: then until there are some forms
        while changed and (rounds < 12 or root not in memo):
            changed, rounds = False, rounds + 1
            for cls, nodes in rows.items():
                found = dict.fromkeys(memo.get(cls, []))
                for op, inputs in nodes:
                    options: list[list[Any]] = []
                    for c, v in zip(self.sigs[op], inputs, strict=True):
                        options.append([self.eg.value_to_string(v)] if c == "s" else [self.eg.value_to_i64(v)] if c == "i" else memo.get(v, []))
                    for args in product(*options):
                        t = Term("ix") if op == "nil" else Term("ix", args[0], *args[1].args) if op == "cons" else Term(op, *args)
                        found[t] = None
                best = list(found) if len(found) == 1 else sorted(found, key=rank)[:keep]
                if best != memo.get(cls, []):
                    memo[cls] = best
                    changed = True
        return memo[root]

    def closure(self) -> Closure:
        """The recorded instances, joined."""
        fz = self.eg.freeze().functions
        made: dict[Any, tuple[str, Any]] = {}
        for op in self.sigs:
            for row in fz["t_" + op].rows:
                made[row.output] = (op, row.inputs)
        terms: dict[Any, Term] = {}

        def term(v: Any) -> Term:
            if v not in terms:
                op, inputs = made[v]
                args: list[Any] = [self.eg.value_to_string(x) if c == "s" else self.eg.value_to_i64(x) if c == "i" else term(x)
                                   for c, x in zip(self.sigs[op], inputs, strict=True)]  # fmt: skip
                terms[v] = Term("ix") if op == "nil" else Term("ix", args[0], *args[1].args) if op == "cons" else Term(op, *args)
            return terms[v]

        cc = Closure()
        cc.add(self.source)
        for r in self.rules:
            kinds = r.variables()
            for forward in (True, False) if r.twoway else (True,):
                for row in fz[f"fire_{r.name.replace('-', '_')}{'' if forward else '_b'}"].rows:
                    sub = {v: term(x) if k == "term" else self.eg.value_to_string(x) for (v, k), x in zip(kinds.items(), row.inputs, strict=True)}
                    cc.merge(instantiate(r.lhs, sub), instantiate(r.rhs, sub), (r.name, sub, True))  # type: ignore[arg-type]
        return cc


def work(t: Term, points: dict[str, float]) -> float:
    """Operations to evaluate a term at all points of its free axes, every distinct subterm once at the points of its own free axes."""
    total = 0.0
    for u in subterms(t):
        if u.op in _NOTHING:
            continue
        n = math.prod(points.get(a, 1.0) for a in sorted(free_axes(u)))
        if u.op == "reduce":
            m, k, _, body = u.args
            n *= points.get(str(k), 1.0)
            if m == "osm":
                total += n * (1.2 if body.args[1].op != "num" else 15.0)  # type: ignore[union-attr]
                continue
            total += n * 1.0
        else:
            total += n * _WEIGHT.get(u.op, 1.0)
    return total


def _diverse(forms: list[Term], keep: int) -> list[Term]:
    """The cheapest forms, no more than two with the same reductions."""
    seen: dict[tuple, int] = {}
    out = []
    for f in forms:
        kind = tuple(sorted((str(u.args[0]), *sorted(free_axes(u))) for u in subterms(f) if u.op == "reduce"))
        if seen.setdefault(kind, 0) < 2:
            seen[kind] += 1
            out.append(f)
    return out[:keep]


def alternatives(kernel: Kernel, rules: RuleSet, names: list[str], sizes: dict[str, int], keep: int) -> tuple[list[tuple[Kernel, list[Step]]], list[Report]]:
    """The DNF itself and its best other forms, with the steps from the DNF to each. One e-graph per output expression."""
    laws = [rules[n] for n in names if n in rules]
    variants: list[tuple[Kernel, list[Step]]] = [(kernel, [])]
    reports = []
    for _, _, path, leaf in list(nests(kernel.body)):
        e: Term = leaf.args[3]  # type: ignore[assignment]
        points = extent_points(kernel, sizes)
        sat = Saturation(kernel, e, laws)
        reports.append(sat.report)
        cc = sat.closure()
        found: list[tuple[Kernel, list[Step]]] = []
        for k, steps in variants:
            for form in dict.fromkeys([*_diverse(sat.forms(2 * keep, points), keep), e]):
                cc.add(form)
                try:
                    chain = [Step(rule, (*path, 3, *p), sub, fwd) for p, rule, sub, fwd in cc.explain(e, form)]
                    new = k
                    for s in chain:
                        new = apply_step(new, rules, s)
                except (LookupError, RuleError):
                    continue  # an instance whose side condition holds for the class, not for its origin term
                found.append((new, [*steps, *chain]))
        found.sort(key=lambda v: _total(v[0], points))
        plain = [v for v in found[keep:] if not v[1]]  # what was written is always among them, for comparison
        variants = [*found[:keep], *plain]
    return variants, reports


def _total(kernel: Kernel, points: dict[str, float]) -> float:
    """``work`` of all output expressions."""
    return sum((work(leaf.args[3], points) for _, _, _, leaf in nests(kernel.body)), 0.0)  # type: ignore[arg-type]


def extent_points(kernel: Kernel, sizes: dict[str, int]) -> dict[str, float]:
    """Numeric extent of every axis bound in the body (the mean where it depends on other axes)."""
    out: dict[str, float] = {}
    for _, t in positions(kernel.body):
        if t.op in ("for", "reduce"):
            name, ext = (t.args[0], t.args[1]) if t.op == "for" else (t.args[1], t.args[2])
            env = {a: out.get(a, 2.0) / 2 for a in free_axes(ext)}  # type: ignore[arg-type]
            out[str(name)] = max(1.0, float(evaluate(ext, sizes, env)))  # type: ignore[arg-type]
    return out


__all__ = ["Saturation", "alternatives", "extent_points", "work"]
