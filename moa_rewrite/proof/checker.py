"""The independent checker of certificates: replays the derivation, states and proves the obligations again, compares all that can be recomputed.

Trusted with it: the application of a step (rules), terms, the statement of obligations (obligations.py, storage.py, walk.py, smt.py), Z3's ``unsat``.
Not trusted: search, cost model, the e-graph; none of them is imported.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import OK, REFUTED, UNDECIDED, MoaError
from ..rules import RuleError, RuleSet, Step, apply_step, load
from ..terms import Kernel, Term, positions, show, subterms
from ..terms.ops import ARRAYS
from .certificate import SUFFIX, Certificate, from_json, permissions, rule_digest, sha256, tiles
from .obligations import obligations
from .solver import prove_all, version

# Compiler flags a certificate may name. Anything else might change what the proof says of the text, above all -ffast-math, -Ofast and their like.
FLAGS = re.compile(
    r"-O[0-3]|-std=[a-z0-9+]+|-m(arch|tune|cpu)=[\w.+-]+|-mavx\w*|-mfma|-mprefer-vector-width=\d+|-fopenmp(-simd)?|-fPIC|-fpic|-shared|-lm|-g\d?|-W[\w=+-]*|-pipe"
    r"|-f(no-math-errno|no-trapping-math|unroll-loops|tree-vectorize|no-semantic-interposition|visibility=hidden|strict-aliasing)"
    r"|-ffp-contract=(off|on|fast)|-fmad=(true|false)|-arch=sm_\d+[af]?|-cubin|-lineinfo|-fdefault-integer-8|-J\S*"
)


@dataclass
class CheckReport:
    """``findings``: what is wrong, one line each. ``undecided``: obligations the solver gave up on. ``steps``, ``proved``: how much was checked.
    ``narrowed``: conditions on sizes that the derivation adds to those of the source (the emitted code refuses other sizes)."""

    findings: list[str] = field(default_factory=list)
    undecided: list[str] = field(default_factory=list)
    narrowed: list[str] = field(default_factory=list)
    steps: int = 0
    proved: int = 0

    @property
    def ok(self) -> bool:
        return not self.findings and not self.undecided

    @property
    def exit_code(self) -> int:
        return REFUTED if self.findings else UNDECIDED if self.undecided else OK


@dataclass(frozen=True)
class Replay:
    """Where a derivation ends, and the last form on its way without array operators, stages or order: the denotational normal form."""

    onf: Kernel
    dnf: Kernel


def replay(source: Kernel, steps: Sequence[Step], rules: RuleSet) -> Replay:
    """Apply every step. RuleError, with the number of the step, for one that is no instance of its rule or changes nothing."""
    kernel, dnf = source, source if is_dnf(source) else None
    for n, step in enumerate(steps):
        try:
            after = apply_step(kernel, rules, step)
        except Exception as e:  # whatever a made-up step does to the code of a rule, it is no proof
            raise RuleError(f"step {n}: {e}" if isinstance(e, RuleError) else f"step {n}: {step.rule} fails with {type(e).__name__}") from None
        if after == kernel:
            raise RuleError(f"step {n}: {step.rule} changes nothing")
        kernel = after
        dnf = kernel if is_dnf(kernel) else dnf
    if dnf is None:
        raise RuleError("the derivation passes no denotational normal form")
    return Replay(kernel, dnf)


def is_dnf(kernel: Kernel) -> bool:
    """Nests of sequential loops around one emission per output, of a scalar without array operators; no stages, no lifted axes."""

    def nest(t: Term) -> bool:
        while t.op == "for" and t.args[2] == "seq":
            t = t.args[3]  # type: ignore[assignment]
        return all(map(nest, t.kids())) if t.op == "seq" else t.op == "emit" and t.args[0] == "once"

    emitted = [str(t.args[1]) for _, t in positions(kernel.body) if t.op == "emit"]
    plain = not kernel.stages and not kernel.defs and not any(t.op in (*ARRAYS, "psi") for t in subterms(kernel.body))
    return plain and nest(kernel.body) and sorted(emitted) == sorted(a.name for a in kernel.outputs)


def check(data: Mapping[str, Any], source: Kernel | None, files: Mapping[str, bytes] | None, rules: RuleSet | None = None) -> CheckReport:
    """Check a certificate, JSON data as read. ``source``: the kernel elaborated anew from the certificate's source text (None: that text is not trusted to
    mean the certificate's kernel, and a finding says so). ``files``: all emitted files (None: not checked). ``rules``: the loaded laws."""
    report = CheckReport()
    say = report.findings.append
    try:
        c = from_json(data)
    except ValueError as e:
        say(str(e))
        return report
    rules = load() if rules is None else rules
    if source is None:
        say("the source was not elaborated anew")
    elif source != c.source:
        say("the source text does not mean the certificate's source kernel")
        return report  # what follows would be about another program
    _check_rules(c, rules, say)
    try:
        end = replay(c.source, c.steps, rules)
    except RuleError as e:
        say(str(e))
        return report
    report.steps = len(c.steps)
    report.narrowed = [show(w) for w in end.onf.where if w not in c.source.where]
    if end.onf != c.onf:
        say("the derivation does not end in the certificate's operational form")
        return report
    _check_build(c, rules, say)
    if files is not None:
        for name in sorted(files.keys() | c.files.keys()):
            if name not in files or name not in c.files or sha256(files[name]) != c.files[name]:
                say(f"{name} is not the file that was certified")
    _check_obligations(c, end, report)
    return report


def _check_rules(c: Certificate, rules: RuleSet, say: Any) -> None:
    used = {s.rule for s in c.steps}
    for name in sorted(used | c.rules.keys()):
        if name not in used or name not in c.rules or name not in rules or rule_digest(rules[name]) != c.rules[name]:
            say(f'rule "{name}" is not the one that the certificate names')


def _check_build(c: Certificate, rules: RuleSet, say: Any) -> None:
    if {n[n.rindex(".") :] for n in c.files if n.endswith(tuple(SUFFIX.values()))} != {SUFFIX[c.limits.target]}:
        say(f"the files are not those of a {c.limits.target} kernel")
    bad = [f for f in c.flags if not FLAGS.fullmatch(f)]
    if bad:
        say(f"the proof does not cover code built with {', '.join(bad)}")
    if sum(f.startswith(("-ffp-contract=", "-fmad=")) for f in c.flags) != 1:
        say("the flags must say once whether a*b + c may be contracted (-ffp-contract=, -fmad=)")
    if dict(c.floating_point) != permissions(c.onf, c.flags, c.steps, rules):
        say("the floating-point permissions are not those of the operational form and the flags")
    if dict(c.tiles) != tiles(c.onf):
        say("the tiles are not those of the operational form")


def _check_obligations(c: Certificate, end: Replay, report: CheckReport) -> None:
    say = report.findings.append
    try:
        wanted = obligations(end.onf, c.limits, end.dnf)
    except MoaError as e:  # ill-formed
        say(e.message)
        return
    stored = {(o.kind, o.name): o for o in c.obligations}
    if [(o.kind, o.name) for o in c.obligations] != [(o.kind, o.name) for o in wanted]:
        lost = [f"{o.kind} {o.name}" for o in wanted if (o.kind, o.name) not in stored]
        say(f"the obligations are not those of the operational form{': missing ' + '; '.join(lost) if lost else ''}")
    for o in wanted:
        have = stored.get((o.kind, o.name))
        if have is not None and (have.smt, have.verdict) != (o.smt, "proved"):
            say(f"{o.kind} {o.name}: not as stored")
    if c.solver != version():
        say(f"the certificate was made with {c.solver}; this is {version()}")
    if report.findings:
        return  # refused already
    for o, v in zip(wanted, prove_all(wanted), strict=True):
        spent = stored[o.kind, o.name].rlimit
        if v.status == "refuted":
            say(f"{o.kind} {o.name}: refuted by {v.witness}")
        elif v.status == "undecided":
            report.undecided.append(f"{o.kind} {o.name}: {v.witness}")
        elif v.rlimit != spent:
            say(f"{o.kind} {o.name}: proved with {v.rlimit} resource units, stored {spent}")
        else:
            report.proved += 1


__all__ = ["CheckReport", "Replay", "check", "is_dnf", "replay"]
