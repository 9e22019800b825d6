"""Rule files to rules. A bad file is a MoaError with its place: 401 syntax, 402 duplicate name, 403 guard, 404 variable, 405 `without`, 406 malformed law,
407 operator, 408 builtin, 409 no such file."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterator, Sequence
from pathlib import Path

from lark import Token, Tree
from lark.exceptions import UnexpectedInput, VisitError

from ..data import data_path
from ..errors import MoaError
from ..terms import Term
from ..terms.ops import ARGS
from ..terms.syntax import parser, pattern_builder
from ..terms.term import Arg
from .builtin import PARAMS
from .guards import GUARDS
from .meta import META
from .rule import Rule, RuleSet, variables


def load(paths: Sequence[Path | str] | None = None, without: Sequence[str] = ()) -> RuleSet:
    """All rules of the project's rules/*.moar in the order of their names, then those of the files in ``paths``, less ``without`` and its corollaries."""
    files = [*sorted(data_path("rules").glob("*.moar")), *map(Path, paths or ())]
    rules: dict[str, Rule] = {}
    for file in files:
        for rule in load_file(file):
            if rule.name in rules:
                first = rules[rule.name]
                raise MoaError(402, f'two rules are named "{rule.name}"', rule.file, rule.line, 1, [f"the first stands at {first.file}:{first.line}"])
            rules[rule.name] = rule
    for rule in rules.values():
        if rule.corollary and rule.corollary not in rules:
            raise MoaError(406, f'"{rule.name}" is a corollary of "{rule.corollary}", which is no rule', rule.file, rule.line, 1)
    for name in without:
        if name not in rules:
            near = difflib.get_close_matches(name, rules, 3)
            raise MoaError(405, f'there is no rule "{name}" to leave out', hint=", ".join(near) if near else "moarw rules list")
    gone = set(without)
    while more := {r.name for r in rules.values() if r.corollary in gone} - gone:
        gone |= more
    return RuleSet({n: r for n, r in rules.items() if n not in gone})


def load_file(file: Path) -> list[Rule]:
    """The rules of one file."""
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as e:
        raise MoaError(409, f"cannot read rules: {e.strerror}", str(file)) from None
    try:
        tree = parser("rule_file").parse(text)
    except UnexpectedInput as e:
        line, col = (e.line, e.column) if e.line > 0 else (len(text.splitlines()) or 1, 1)
        notes = e.get_context(text).rstrip().splitlines() if e.line > 0 else ["the file ends in the middle of a rule"]
        raise MoaError(401, "this is not a rule", str(file), line, col, notes) from None
    return [r for t in tree.children for r in _rules(t, str(file))]  # type: ignore[arg-type]


def _rules(tree: Tree, file: str) -> Iterator[Rule]:
    """The rules that one `rule` of a file stands for: several when it is a schema."""
    title, *clauses = tree.children
    name, line = str(title)[1:-1], tree.meta.line
    operators: list[str | None] = [None]
    variable = ""
    if clauses and isinstance(clauses[0], Tree) and clauses[0].data == "schema":
        variable, *found = map(str, clauses.pop(0).children)  # type: ignore[union-attr]
        operators = list(found)
        if "{" + variable + "}" not in name:
            raise MoaError(406, f'the name "{name}" of a schema must contain {{{variable}}}', file, line, 1)
    for op in operators:
        rename = {variable: op} if op is not None else {}
        yield _rule(name.replace("{" + variable + "}", op) if op else name, clauses, rename, file, line)  # type: ignore[arg-type]


def _rule(name: str, clauses: list, rename: dict[str, str], file: str, line: int) -> Rule:
    doc: list[str] = []
    source, corollary, builtin = "", "", False
    params: list[str] = []
    guards: list[Term] = []
    define: list[tuple[str, Term]] = []
    laws: list[tuple[Term, Term, bool]] = []
    for clause in clauses:
        here = clause.meta.line if not clause.meta.empty else line
        data, kids = str(clause.data), clause.children
        if data == "doc":
            doc.append(str(kids[0])[1:-1])
        elif data == "source":
            source = str(kids[0])[1:-1]
        elif data == "corollary":
            corollary = str(kids[0])[1:-1]
        elif data == "builtin":
            builtin = True
        elif data == "param":
            params += map(str, kids)
        else:
            terms = [_renamed(_term(k, file, here), rename) for k in kids]
            if data == "when":
                guards += [_guard(t, file, here) for t in terms]
            elif data == "define":
                define.append((str(terms[0].args[0]), terms[1]))
            else:
                laws.append((terms[0], terms[1], data == "twoway"))
    if len(laws) != (0 if builtin else 1):
        raise MoaError(406, f'"{name}" must have exactly one law, or be builtin', file, line, 1)
    if not doc:
        raise MoaError(406, f'"{name}" has no doc', file, line, 1)
    lhs, rhs, twoway = laws[0] if laws else (None, None, False)
    rule = Rule(name, lhs, rhs, twoway, tuple(guards), tuple(params), tuple(define), builtin, " ".join(doc), source, corollary, file, line)
    _check(rule)
    return rule


def _term(tree: Tree | Token, file: str, line: int) -> Term:
    try:
        found = pattern_builder().transform(tree) if isinstance(tree, Tree) else tree
    except VisitError as e:
        raise MoaError(407, str(e.orig_exc), file, line, 1) from None
    if not isinstance(found, Term):
        raise MoaError(407, f"{found} is not a term", file, line, 1)
    return found


def _renamed(t: Term, by: dict[str, str]) -> Term:
    """A law of a schema with the operator (or monoid) in place of the schema's variable."""

    def argument(a: Arg) -> Arg:
        return _renamed(a, by) if isinstance(a, Term) else by.get(a[1:], a) if isinstance(a, str) and a.startswith("?") else a

    return Term(by.get(t.op, t.op), *[argument(a) for a in t.args]) if by else t


def _guard(t: Term, file: str, line: int) -> Term:
    if t.op not in GUARDS:
        near = difflib.get_close_matches(t.op, GUARDS, 1)
        raise MoaError(403, f"there is no guard {t.op}", file, line, 1, hint=near[0] if near else f"one of {', '.join(sorted(GUARDS))}")
    try:
        inspect.signature(GUARDS[t.op]).bind(None, *t.args)
    except TypeError:
        raise MoaError(403, f"guard {t.op} does not take {len(t.args)} arguments", file, line, 1) from None
    return t


def _check(rule: Rule) -> None:
    """Every operator is known and every variable that a step needs is given by the side it matches or is a param."""

    if rule.builtin:
        if rule.name not in PARAMS:
            raise MoaError(408, *_place(rule, f"there is no builtin of this name, only {', '.join(PARAMS)}"))
        if rule.params != tuple(PARAMS[rule.name]) or rule.guards or rule.define:
            raise MoaError(408, *_place(rule, f"this builtin takes the params {', '.join(PARAMS[rule.name])} and no conditions"))
        return
    assert rule.lhs is not None and rule.rhs is not None
    try:
        left, right = variables(rule.lhs), variables(rule.rhs)
        every = variables(Term("pair", rule.lhs, rule.rhs))
    except ValueError as e:
        raise MoaError(404, *_place(rule, str(e))) from None
    used = [*right, *[v for t in rule.guards for v in _names(t)], *[v for a, t in rule.define for v in (a[1:], *_names(t))]]
    if rule.twoway:
        used += [v for v in left if v not in right]
    for v in used:
        if v not in rule.params and not (v in left and (v in right or not rule.twoway)):
            raise MoaError(404, *_place(rule, f"variable {v} is not bound by the {'left' if v not in left else 'right'} side"))
    if rule.define and rule.twoway:
        raise MoaError(406, *_place(rule, "a law that defines an axis applies from left to right only"))
    for p in rule.params:
        if p not in every:
            raise MoaError(404, *_place(rule, f"param {p} occurs in neither side"))
    _operators(rule, rule.lhs, False)
    _operators(rule, rule.rhs, not rule.twoway)


def _place(rule: Rule, text: str) -> tuple[str, str, int, int]:
    """Message, file, line and column of an error in a rule."""
    return f'"{rule.name}": {text}', rule.file, rule.line, 1


def _names(t: Term) -> Iterator[str]:
    """Variables of a guard, where a bare name stands for whatever the sides make of it."""
    for a in t.args:
        if isinstance(a, Term):
            yield from _names(a)
        elif t.op in ("var", "seqvar"):
            yield str(a).partition(".")[0]
        elif isinstance(a, str) and a[:1] in "?#":
            yield a[1:].partition(".")[0]


def _operators(rule: Rule, t: Term, meta: bool) -> None:
    """Operators are those of the table with the arguments it says, and on the right side also meta functions."""
    if t.op not in ("var", "seqvar") and t.op not in ARGS and not (meta and t.op in META):
        raise MoaError(407, *_place(rule, f"{'function' if t.op in META else 'operator'} {t.op} cannot stand here"), hint=_near(t.op))
    sig = ARGS.get(t.op, "*")
    if sig != "*" and (len(sig) != len(t.args) or any(isinstance(a, Term) == (kind in "si") for a, kind in zip(t.args, sig, strict=True))):
        raise MoaError(407, *_place(rule, f"these arguments do not fit {t.op}: {', '.join(map(str, t.args))}"))
    if t.op == "ix" and sum(isinstance(a, Term) and a.op == "seqvar" for a in t.args) > 2:
        raise MoaError(407, *_place(rule, "at most two sequence variables in one list"))
    for a in t.kids():
        _operators(rule, a, meta)


def _near(op: str) -> str:
    near = difflib.get_close_matches(op, [*ARGS, *META], 1)
    return near[0] if near else ""
