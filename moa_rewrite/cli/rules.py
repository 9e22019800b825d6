"""``moarw rules list`` and ``moarw rules show NAME``: the laws, as data."""

from __future__ import annotations

import argparse
import difflib
import json
from typing import Any

from ..errors import OK, MoaError
from . import options


def arguments(p: argparse.ArgumentParser) -> None:
    sub = p.add_subparsers(dest="action", metavar="list|show", required=True)
    every = sub.add_parser("list", help="name, group and meaning of every rule")
    options.add(every, "rules", "without", "json")
    one = sub.add_parser("show", help="a rule with its sides, conditions and source")
    one.add_argument("name", metavar="NAME")
    options.add(one, "rules", "json")


def load(paths: list[str], without: list[str]) -> Any:
    """The rule set in force. MoaError 756 for a name in ``without`` that no rule has."""
    from .. import rules

    known = rules.load(paths, [])
    for name in without:
        if name not in known:
            raise unknown(name, known)
    return rules.load(paths, without) if without else known


def unknown(name: str, known: Any) -> MoaError:
    near = difflib.get_close_matches(name, list(known), 3)
    return MoaError(756, f"there is no rule {name!r}", file="moarw", hint=", ".join(near) if near else "moarw rules list")


def run(args: argparse.Namespace) -> int:
    known = load(args.rules, getattr(args, "without", []))
    if args.action == "list":
        if args.json:
            print(json.dumps([_entry(known[n]) for n in known], indent=1))
            return OK
        width = max(len(n) for n in known)
        group = ""
        for r in sorted(known.values(), key=lambda r: (r.group, r.line)):
            if r.group != group:
                group = r.group
                print(f"{group}:")
            print(f"  {r.name:<{width}}  {r.doc}")
        return OK
    if args.name not in known:
        raise unknown(args.name, known)
    r = known[args.name]
    if args.json:
        print(json.dumps(_entry(r), indent=1))
        return OK
    print(f"rule {r.name}  ({r.group}, {r.file}:{r.line})")
    print(f"  {r.doc}")
    if r.source:
        print(f"  source: {r.source}")
    if r.lhs is None:
        print("  builtin: a function, rules/builtin.py")
    else:
        print(f"  {r.lhs!r}\n    {'<=>' if r.two_way else '=>'} {r.rhs!r}")
    for g in r.guards:
        print(f"  when {g!r}")
    return OK


def _entry(r: Any) -> dict[str, Any]:
    return {
        "name": r.name, "group": r.group, "doc": r.doc, "source": r.source, "file": str(r.file), "line": r.line, "builtin": r.lhs is None,
        "lhs": None if r.lhs is None else repr(r.lhs), "rhs": None if r.rhs is None else repr(r.rhs), "when": [repr(g) for g in r.guards],
    }  # fmt: skip
