"""Alternatives of a DNF: the algebra rules saturate on its scalars in an e-graph, a few best forms come out, each with its derivation.

egglog has no proofs from Python, so every rule also records its firings on origin terms: a mirror sort that is never merged, ``trm`` giving one origin term of
each class. The recorded instances, replayed through a congruence closure, explain each extracted form.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Set
from functools import lru_cache
from heapq import nsmallest
from itertools import product
from typing import Any

from egglog.bindings import EGraph

from ..rules import Rule, RuleSet, Step, apply_step
from ..rules.masks import mask, zero_unless
from ..rules.pattern import instantiate
from ..rules.rule import RuleError
from ..terms import Kernel, Path, Term, evaluate, free_axes, positions, replace, subterms
from ..terms.ops import ARGS
from .congruence import Closure
from .egraph import Report, text
from .form import nests

# operations an operator counts for; those not named count one
_WEIGHT = {"exp": 12.0, "log": 14.0, "div": 5.0, "sqrt": 8.0, "pow": 40.0, "sin": 25.0, "cos": 25.0, "tanh": 30.0, "erf": 30.0, "get": 0.4, "idiv": 10.0,
           "mod": 10.0}  # fmt: skip
SHARE = 0.55  # of the points that a comparison of two axes leaves
OSM = 1.9  # operations of a product and its addition to a weighted sum, which needs no pass for the maximum
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
        self.memo: dict[Any, list[Term]] = {}  # the best terms of every class when ``forms`` was last asked

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
    def forms(self, keep: int, work: Work, free: Set[Term] = frozenset()) -> list[Term]:
        """The best terms of the source's class by ``work``; what is ``free`` is worked out anyway."""
        fz = self.eg.freeze()
        rows: dict[Any, list[tuple[str, Any]]] = {}
        users: dict[Any, set] = defaultdict(set)
        for op, sig in self.sigs.items():
            for row in fz.functions["M_" + op].rows:
                rows.setdefault(row.output, []).append((op, row.inputs))
                for c, v in zip(sig, row.inputs, strict=True):
                    if c not in "si":
                        users[v].add(row.output)
        memo = self.memo = {}
        ranks: dict[Term, tuple[float, _Text]] = {}

        def rank(t: Term) -> tuple[float, _Text]:
            if t not in ranks:
                ranks[t] = (work([t], free), _Text(t))
            return ranks[t]

        from egglog.bindings import PanicSpan, Var

        _, root = self.eg.eval_expr(Var(PanicSpan(), "$source"))
        stale, rounds = set(rows), 0
        # bottom up until nothing changes, which in cyclic classes may take long: then until there are some forms
        while stale and (rounds < 12 or root not in memo):
            rounds += 1
            for cls, nodes in rows.items():
                if cls not in stale:
                    continue
                stale.remove(cls)
                found = dict.fromkeys(memo.get(cls, []))
                for op, inputs in nodes:
                    options: list[list[Any]] = []
                    for c, v in zip(self.sigs[op], inputs, strict=True):
                        options.append([self.eg.value_to_string(v)] if c == "s" else [self.eg.value_to_i64(v)] if c == "i" else memo.get(v, []))
                    for args in product(*options):
                        t = Term("ix") if op == "nil" else Term("ix", args[0], *args[1].args) if op == "cons" else Term(op, *args)
                        found[t] = None
                best = list(found) if len(found) == 1 else nsmallest(keep, found, key=rank)
                if best != memo.get(cls, []):
                    memo[cls] = best
                    stale |= users[cls]
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


@lru_cache(maxsize=1 << 14)
def _text(t: Term) -> str:
    return repr(t)


class _Text:
    """The text of a term, which decides between terms of the same work; made only when it is asked for."""

    def __init__(self, t: Term) -> None:
        self.term = t

    def __lt__(self, other: _Text) -> bool:
        return _text(self.term) < _text(other.term)


class Work:
    """Operations to evaluate terms at all points of their free axes, every distinct subterm once at the points of its own free axes; ``points`` gives each axis
    its extent. What is needed only where one axis is below another, say, is evaluated at a share of them."""

    def __init__(self, points: dict[str, float]) -> None:
        self.points = points
        self.known: dict[tuple[Term, bool], tuple[float, Term | None, float]] = {}

    def __call__(self, terms: Iterable[Term], free: Set[Term] = frozenset()) -> float:
        """The operations but for what is ``free``."""
        total, weighed = 0.0, set[Term]()
        operations, idle = _joined([_operations(t) for t in terms])
        for u in operations:
            if u not in free:
                n, score, exponentials = self.known.get((u, u in idle)) or self._of(u, u in idle)
                if score is not None and score not in weighed:  # sums of one score share its exponentials
                    weighed.add(score)
                    total += exponentials
                total += n
        return total

    def _of(self, u: Term, idle: bool) -> tuple[float, Term | None, float]:
        """Operations of one subterm, and of a weighted sum its score and the operations that sums of this score share."""
        share = SHARE if idle or (u.op == "reduce" and _masked(u)) else 1.0
        n, score, exponentials = self._points(u) * share, None, 0.0
        if u.op == "reduce":
            m, k, _, body = u.args
            n *= self.points.get(str(k), 1.0)
            if m == "osm":
                score, x = body.kids()  # type: ignore[union-attr]
                exponentials = self._points(score) * (_WEIGHT["exp"] + 1.0) * share
                n *= 1.0 if x.op == "num" else OSM
        else:
            n *= _WEIGHT.get(u.op, 1.0)
        return self.known.setdefault((u, idle), (n, score, exponentials))

    def _points(self, t: Term) -> float:
        return math.prod(self.points.get(a, 1.0) for a in sorted(free_axes(t)))


Operations = tuple[tuple[Term, ...], frozenset[Term]]  # subterms that cost something, children first; those of them that masks leave idle at some points


@lru_cache(maxsize=1 << 16)  # candidates share most of their subterms
def _operations(t: Term) -> Operations:
    always = _always(t)
    found, idle = _joined([(part, idle if a in always else frozenset(part)) for a in t.kids() for part, idle in [_operations(a)]])
    return (found, idle) if t.op in _NOTHING else ((*found, t), idle)


def _joined(parts: list[Operations]) -> Operations:
    if len(parts) == 1:
        return parts[0]
    idle = frozenset[Term]().union(*[i for _, i in parts])
    if idle:  # somewhere, but not where another part needs it
        idle -= {u for found, i in parts for u in found if u not in i}
    return tuple(dict.fromkeys(u for found, _ in parts for u in found)), idle


def _always(u: Term) -> list[Term]:
    """The arguments that are needed whatever masks say: not what the mask of a reduction, of a choice between something and a constant, or of a factor
    keeps."""
    x = u.kids()
    if (u.op == "reduce" and _masked(u)) or (u.op == "select" and x[2].op == "num" and _compares(x[0])):
        return x[:1]
    return [a for a, b in (x, x[::-1]) if not _compares(zero_unless(b))] if u.op == "mul" else x


def _masked(reduction: Term) -> bool:
    m, body = str(reduction.args[0]), reduction.kids()[1]
    return _compares(mask(m, body)) or (m == "add" and _compares(zero_unless(body)))


def _compares(condition: Term | None) -> bool:
    """Whether it is a condition that leaves a part of the points, whatever the sizes: on several axes."""
    return condition is not None and len(free_axes(condition)) > 1


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


class _Output:
    """An output expression, its e-graph, and the steps to those of its forms that can be derived."""

    def __init__(self, kernel: Kernel, rules: RuleSet, laws: list[Rule], path: Path, source: Term) -> None:
        self.kernel, self.rules, self.path, self.source = kernel, rules, path, source
        self.saturation = Saturation(kernel, source, laws)
        self.closure = self.saturation.closure()
        self.chains: dict[Term, list[Step] | None] = {source: []}

    def forms(self, keep: int, work: Work, free: Set[Term]) -> list[Term]:
        """The best that can be derived, and the source."""
        best = _diverse(self.saturation.forms(2 * keep, work, free), keep)
        return [f for f in dict.fromkeys([*best, self.source]) if self.chain(f) is not None]

    def chain(self, form: Term) -> list[Step] | None:
        if form not in self.chains:
            self.closure.add(form)
            try:
                found = [Step(rule, (*self.path, *p), sub, fwd) for p, rule, sub, fwd in self.closure.explain(self.source, form)]
                k = self.kernel
                for s in found:
                    k = apply_step(k, self.rules, s)
                self.chains[form] = found
            except (LookupError, RuleError):  # an instance whose side condition holds for the class, not for its origin term
                self.chains[form] = None
        return self.chains[form]


def alternatives(kernel: Kernel, rules: RuleSet, names: list[str], sizes: dict[str, int], keep: int) -> tuple[list[tuple[Kernel, list[Step]]], list[Report]]:
    """The DNF itself and its best other forms, with the steps from the DNF to each. One e-graph per output expression; of several outputs each is chosen in
    view of those chosen before, and again in view of all others."""
    laws = [rules[n] for n in names if n in rules]
    work = Work(extent_points(kernel, sizes))
    outputs = [_Output(kernel, rules, laws, (*path, 3), leaf.args[3]) for _, _, path, leaf in nests(kernel.body)]  # type: ignore[arg-type]
    source = tuple(o.source for o in outputs)
    variants = [source]
    for decided in (False, True)[: len(outputs)]:
        for n, o in enumerate(outputs):
            others = variants[0][:n] + variants[0][n + 1 :] * decided
            forms = o.forms(keep, work, frozenset(u for t in others for u in subterms(t)))
            found = list(dict.fromkeys((*v[:n], f, *v[n + 1 :]) for v in variants for f in forms))
            found.sort(key=work)
            variants = list(dict.fromkeys([*found[:keep], source]))  # what was written is always among them, for comparison
    variants = list(dict.fromkeys([_agreed(variants[0], outputs, work), *variants]))[: keep + 1]
    out = []
    for v in variants:
        k, steps = kernel, [s for o, form in zip(outputs, v, strict=True) for s in o.chain(form) or ()]
        for s in steps:
            k = apply_step(k, rules, s)
        out.append((k, steps))
    return out, [o.saturation.report for o in outputs]


def _agreed(forms: tuple[Term, ...], outputs: list[_Output], work: Work) -> tuple[Term, ...]:
    """The forms with each reduction that several of them have replaced in all at once, where that is less work."""
    found = [dict.fromkeys(u for u in subterms(t) if u.op in ("reduce", "snd")) for t in forms]
    for shared in [u for u, n in Counter(u for us in found for u in us).items() if n > 1]:
        memo = next(o.saturation.memo for o, us in zip(outputs, found, strict=True) if shared in us)
        for other in next((terms for terms in memo.values() if shared in terms), []):
            trial = tuple(replace(t, shared, other) for t in forms)
            if work(trial) < work(forms) and all(o.chain(t) is not None for o, t in zip(outputs, trial, strict=True)):
                forms, shared = trial, other
    return forms


def extent_points(kernel: Kernel, sizes: dict[str, int]) -> dict[str, float]:
    """Numeric extent of every axis bound in the body (the mean where it depends on other axes)."""
    out: dict[str, float] = {}
    for _, t in positions(kernel.body):
        if t.op in ("for", "reduce"):
            name, ext = (t.args[0], t.args[1]) if t.op == "for" else (t.args[1], t.args[2])
            env = {a: out.get(a, 2.0) / 2 for a in free_axes(ext)}  # type: ignore[arg-type]
            out[str(name)] = max(1.0, float(evaluate(ext, sizes, env)))  # type: ignore[arg-type]
    return out


__all__ = ["Saturation", "Work", "alternatives", "extent_points"]
