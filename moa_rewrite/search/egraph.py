"""The only module that talks to egglog: rules as data are compiled to it, terms go in, frozen classes come out.

All terms are of one sort M; index lists are cons lists. Two analyses travel with the classes: ``fv``, the loop axes a scalar depends on (definitions of
lifted axes looked through), and ``rd``/``wr``, the arrays a statement reads and writes. All are bit masks, intersected when classes merge.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from egglog import bindings as B

from ..terms import Term
from ..terms.ops import ARGS

Node = tuple  # (operator, *children); a child is a class id (int, in a 1-tuple) or a literal


@dataclass
class Report:
    """What a run did: nodes and classes at the end, matches and seconds per rule, and which budget stopped it ("" if it saturated)."""

    nodes: int = 0
    iterations: int = 0
    matches: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    stopped: str = ""
    wall: float = 0.0


def _name(op: str) -> str:
    return "M_" + op


class Graph:
    """An e-graph over terms. ``own`` gives each axis name its bit mask, ``arrays`` each array name its bit."""

    def __init__(self, abits: Mapping[str, int], arrays: Mapping[str, int], keyed: Mapping[str, int]) -> None:
        self.eg = B.EGraph(seminaive=True)
        self.cmd("(sort M)")
        for op, sig in ARGS.items():
            if op != "ix":
                kinds = " ".join({"s": "String", "i": "i64"}.get(c, "M") for c in sig)
                self.cmd(f"(constructor {_name(op)} ({kinds}) M)")
        self.cmd("(constructor M_nil () M)")
        self.cmd("(constructor M_cons (M M) M)")
        for f, kind in (("fv", "M"), ("rd", "M"), ("wr", "M")):
            self.cmd(f"(function {f} ({kind}) i64 :merge (& old new))")
        for f, table in (("abits", abits), ("arrbit", arrays), ("keyed", keyed)):
            self.cmd(f"(function {f} (String) i64 :merge (| old new))")
            for key in sorted(table):
                self.cmd(f'(set ({f} "{key}") {table[key]})')
        self.cmd("(ruleset analysis)")
        self.cmd("(ruleset laws)")
        self._analyses()
        self._params: set[str] = set()

    def cmd(self, text: str) -> list:
        return self.eg.run_program(*self.eg.parse_program(text))

    def _analyses(self) -> None:
        """fv on scalars and index lists, rd on everything, wr on statements."""
        shapes = {op: sig for op, sig in ARGS.items() if op != "ix"} | {"nil": "", "cons": "EE"}
        for op, sig in shapes.items():
            vs = [f"a{k}" for k in range(len(sig))]
            kids = [v for v, s in zip(vs, sig, strict=True) if s not in "si"]
            head = f"(= e ({_name(op)} {' '.join(vs)}))"
            # scalars only: a statement's loop axes are never asked for
            if op not in ("for", "emit", "seq", "new", "guard", "skip"):
                base = {"axis": "(abits a0)"}.get(op, "0")
                self._analysis(head, "fv", kids, base, op)
            base = {"get": "(arrbit a0)", "arr": "(arrbit a0)"}.get(op, "0")
            self._analysis(head, "rd", kids, base, op)
            if op in ("for", "emit", "seq", "new", "guard", "skip"):
                stm = [v for v, s in zip(vs, sig, strict=True) if s == "S"]
                self._analysis(head, "wr", stm, "(arrbit a1)" if op == "emit" else "0", op)

    def _analysis(self, head: str, f: str, kids: list[str], base: str, op: str) -> None:
        value = base
        for k in kids:
            value = f"(| {value} x_{k})"
        facts = " ".join([head, *[f"(= x_{k} ({f} {k}))" for k in kids]])
        if "abits" in base or "arrbit" in base:
            facts += f" (= b {base})"
            value = value.replace(base, "b")
        self.cmd(f"(rule ({facts}) ((set ({f} e) {value})) :ruleset analysis)")

    # --- terms in ---------------------------------------------------------------------------------------------------------------
    def add(self, t: Term, name: str) -> None:
        """Add a ground term and bind it to ``$name``; children are shared by the graph itself."""
        self.cmd(f"(let ${name} {text(t)})")

    # --- rules ------------------------------------------------------------------------------------------------------------------
    def add_rule(self, rule, directions: Iterable[bool] = (True,)) -> None:
        """Compile a rule (rules.Rule) in the given directions (True: left to right). Guards become conditions."""
        for forward in directions:
            lhs, rhs = (rule.lhs, rule.rhs) if forward else (rule.rhs, rule.lhs)
            facts = [f"(= top_ {text(lhs)})"]
            if rule.params:
                rel = "param_" + rule.name.replace("-", "_")
                if rel not in self._params:
                    self._params.add(rel)
                    lits = _literals(lhs)
                    self.cmd(f"(relation {rel} ({' '.join(['String'] * len(lits) + ['M'] * len(rule.params))}))")
                facts.append(f"({rel} {' '.join([*_literals(lhs), *['v_' + p for p in rule.params]])})")
            facts += [c for g in rule.guards for c in condition(g)]
            tag = rule.name if forward else rule.name + "~"
            self.cmd(f'(rule ({" ".join(facts)}) ((union top_ {text(rhs)})) :ruleset laws :name "{tag}")')

    def param(self, rule, literals: Mapping[str, str], values: Mapping[str, Term]) -> None:
        """Allow a rule with parameters to fire for given literal variables and parameter values."""
        rel = "param_" + rule.name.replace("-", "_")
        lits = " ".join(f'"{literals[v]}"' for v in _literals(rule.lhs))
        self.cmd(f"({rel} {lits} {' '.join(text(values[p]) for p in rule.params)})")

    def run(self, node_limit: int) -> Report:
        """Saturate within a budget of nodes; the report says whether it stopped the run."""
        rep, start = Report(), time.monotonic()
        matches: dict[str, int] = defaultdict(int)
        spent: dict[str, float] = defaultdict(float)
        self.cmd("(run-schedule (saturate (run analysis)))")
        while True:
            (out,) = self.cmd("(run-schedule (seq (run laws) (saturate (run analysis))))")
            r = out.report
            for k, v in r.num_matches_per_rule.items():
                matches[k] += v
            for k, v in r.search_and_apply_time_per_rule.items():
                spent[k] += v.total_seconds() if hasattr(v, "total_seconds") else float(v)
            rep.iterations += 1
            rep.nodes = self.count()
            if not r.updated:
                break
            if rep.nodes > node_limit:
                rep.stopped = f"node budget {node_limit}"
                break
        named = [k for k in matches if not k.startswith("(")]
        rep.matches = {k: matches[k] for k in sorted(named)}
        rep.seconds = {k: spent[k] for k in sorted(named)}
        rep.wall = time.monotonic() - start
        return rep

    def count(self) -> int:
        """Number of statement and scalar e-nodes."""
        (out,) = self.cmd("(print-size)")
        return sum(n for name, n in _sizes(out) if name.startswith("M_"))

    # --- classes out --------------------------------------------------------------------------------------------------------------
    def classes(self, ops: Iterable[str] | None = None) -> dict[int, list[Node]]:
        """class id -> its e-nodes ``(op, child, ...)``; a child that is a class is its id wrapped in a 1-tuple. Deterministic order."""
        fz = self.eg.freeze()
        ids: dict = {}
        out: dict[int, list[Node]] = {}

        def ident(v) -> int:
            return ids.setdefault(v, len(ids))

        rows = []
        for op in [*ARGS, "nil", "cons"] if ops is None else ops:
            if op == "ix":
                continue
            sig = {"nil": "", "cons": "EE"}.get(op, ARGS.get(op, ""))
            for row in fz.functions[_name(op)].rows:
                rows.append((op, sig, row))
        for op, sig, row in rows:
            kids = []
            for c, v in zip(sig, row.inputs, strict=True):
                kids.append(self.eg.value_to_string(v) if c == "s" else self.eg.value_to_i64(v) if c == "i" else (ident(v),))
            out.setdefault(ident(row.output), []).append((op, *kids))
        self._ids = ids
        return out

    def class_of(self, name: str) -> int:
        """Class id of a ``$name``, valid after ``classes()``."""
        _, value = self.eg.eval_expr(B.Var(B.PanicSpan(), f"${name}"))
        return self._ids[value]


def _sizes(out) -> list[tuple[str, int]]:
    pairs = getattr(out, "sizes", None)
    return list(pairs) if pairs is not None else []


def _literals(t: Term) -> list[str]:
    """Names of the literal variables of a pattern that are axis names (first occurrence order)."""
    out: list[str] = []

    def walk(u: Term) -> None:
        if u.op == "for" and isinstance(u.args[0], str) and u.args[0].startswith("?"):
            v = u.args[0][1:]
            if "." not in v and v not in out:
                out.append(v)
        for a in u.kids():
            walk(a)

    walk(t)
    return out


def text(t: Term) -> str:
    """A term or pattern in egglog's syntax."""
    if t.op == "var":
        return f"v_{t.args[0]}"
    if t.op == "ix":
        out = "(M_nil)"
        items = list(t.args)
        if items and isinstance(items[-1], Term) and items[-1].op == "seqvar":
            out = f"v_{items[-1].args[0]}"
            items.pop()
        for a in reversed(items):
            out = f"(M_cons {_arg(a)} {out})"
        return out
    return f"({' '.join([_name(t.op), *[_arg(a) for a in t.args]])})"


def _arg(a: Term | str | int) -> str:
    if isinstance(a, Term):
        return text(a)
    if isinstance(a, int):
        return str(a)
    if a.startswith("?"):
        var, dot, rest = a[1:].partition(".")
        return f'(+ {var} ".{rest}")' if dot else var
    return '"' + a + '"'


def condition(guard: Term) -> list[str]:
    """A guard of rules/guards.py as egglog facts. Guards that the graph cannot decide are left to the replay of the derivation, which checks all."""
    op, args = guard.op, guard.args

    def name(a: Term | str | int) -> str:
        return str(a.args[0]) if isinstance(a, Term) else str(a).lstrip("?")

    if op == "notin":
        if any("." in name(a) for a in args[:1]):
            return []
        i, out = name(args[0]), []
        for k, e in enumerate(args[1:]):
            out += [f"(= m_{i}{k} (abits {i}))", f"(= f_{i}{k} (fv {_arg(e)}))", f"(= 0 (& m_{i}{k} f_{i}{k}))"]
        return out
    if op == "keyed":
        i, a, b = name(args[0]), _arg(args[1]), _arg(args[2])
        return [f"(= k_ (keyed {i}))", f"(= ra_ (rd {a}))", f"(= rb_ (rd {b}))", f"(= wa_ (wr {a}))", f"(= wb_ (wr {b}))",
                "(= q_ (| (& wa_ rb_) (& ra_ wb_)))", "(= q_ (& q_ k_))"]  # fmt: skip
    if op == "keyed_either":
        i, j, s = name(args[0]), name(args[1]), _arg(args[2])
        return [f"(= k_ (| (keyed {i}) (keyed {j})))", f"(= r_ (rd {s}))", f"(= w_ (wr {s}))", "(= q_ (& r_ w_))", "(= q_ (& q_ k_))"]
    if op == "distinct":
        return [f"(!= {name(args[0])} {name(args[1])})"]
    if op in ("tile", "noreads", "absent"):
        return []
    raise KeyError(f"guard {op} has no meaning in an e-graph of statements")
