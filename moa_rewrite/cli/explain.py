"""``moarw explain PATH``: the derivation in a certificate as steps that people read."""

from __future__ import annotations

import argparse
import json

from ..errors import OK, MoaError
from . import certificates, options

_SHORT, _WHOLE = 100, 10**9


def arguments(p: argparse.ArgumentParser) -> None:
    p.add_argument("path", metavar="PATH", help="a certificate, or the directory of a bundle")
    options.add(p, "rules", "json")


def run(args: argparse.Namespace) -> int:
    from .. import rules
    from ..proof.certificate import from_json
    from ..proof.checker import replay
    from ..report import pretty
    from ..report.units import count

    path = certificates.locate(args.path)
    try:
        c = from_json(certificates.read(path))
    except ValueError as e:
        raise MoaError(757, f"{path} is no certificate: {e}", file="moarw") from None
    laws = rules.load(args.rules)
    if args.json:
        print(json.dumps([{**rules.step_to_json(s), "meaning": laws[s.rule].doc if s.rule in laws else ""} for s in c.steps], indent=1))
        return OK
    try:
        end = replay(c.source, c.steps, laws)
        text = rules.derivation_text(c.source, c.steps, laws, _WHOLE if args.verbose else _SHORT)
    except rules.RuleError as e:
        raise MoaError(757, f"the derivation in {path} does not replay: {e}", file="moarw", exit_code=2) from None
    print("source\n" + _indent(c.text.strip("\n")))
    print("\nnormal form: each element of the output by elements of the input\n" + _indent(pretty.formula(end.dnf)))
    print(f"\n{count(len(c.steps), 'step')}\n{text}")
    print(f"\nresult, for {c.machine}\n" + _indent(pretty.onf(c.onf)))
    used = sorted({s.rule for s in c.steps}, key=lambda n: list(laws).index(n))
    width = max(map(len, used), default=0)
    print("\nrules used\n" + "\n".join(f"  {n:<{width}}  {sum(s.rule == n for s in c.steps):>4}x  {laws[n].doc}" for n in used))
    return OK


def _indent(text: str) -> str:
    return "\n".join("  " + line for line in text.splitlines())
