"""``moarw rules list`` and ``moarw rules show NAME``: the laws, as data."""

from __future__ import annotations

import argparse
import difflib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import OK, MoaError
from . import options

if TYPE_CHECKING:
    from ..rules import Rule


def arguments(p: argparse.ArgumentParser) -> None:
    sub = p.add_subparsers(dest="action", metavar="list|show", required=True)
    every = sub.add_parser("list", help="name, group and meaning of every rule")
    options.add(every, "rules", "without", "json")
    one = sub.add_parser("show", help="a rule with its sides, conditions and source")
    one.add_argument("name", metavar="NAME")
    options.add(one, "rules", "json")


def unknown(name: str, known: Iterable[str]) -> MoaError:
    near = difflib.get_close_matches(name, list(known), 3)
    return MoaError(756, f"there is no rule {name!r}", file="moarw", hint=", ".join(near) if near else "moarw rules list")


def run(args: argparse.Namespace) -> int:
    from .. import rules

    known = rules.load(args.rules, getattr(args, "without", []))
    if args.action == "list":
        if args.json:
            print(json.dumps([_entry(known[n]) for n in known], indent=1))
            return OK
        width = max(len(n) for n in known)
        for group in dict.fromkeys(r.group for r in known.values()):
            print(f"{group}:")
            for r in known.values():
                if r.group == group:
                    print(f"  {r.name:<{width}}  {r.doc}")
        return OK
    if args.name not in known:
        raise unknown(args.name, known)
    r = known[args.name]
    if args.json:
        print(json.dumps(_entry(r), indent=1))
        return OK
    print(f"{r.name}  ({r.group}, {Path(r.file).name}:{r.line})")
    print(f"  {r.doc}")
    if r.builtin:
        print(f"  a function of {', '.join(r.params)}")
    else:
        print(f"\n      {r.lhs!r}\n  {'<=>' if r.twoway else '=>'}  {r.rhs!r}\n")
    for g in r.guards:
        print(f"  when {g!r}")
    for axis, meaning in r.define:
        print(f"  where {axis.lstrip('?')} = {meaning!r}")
    for label, text in (("parameters", "" if r.builtin else ", ".join(r.params)), ("follows from", r.corollary), ("source", r.source)):
        if text:
            print(f"  {label}: {text}")
    return OK


def _entry(r: Rule) -> dict[str, Any]:
    return {
        "name": r.name, "group": r.group, "doc": r.doc, "source": r.source, "file": Path(r.file).name, "line": r.line, "builtin": r.builtin,
        "lhs": None if r.lhs is None else repr(r.lhs), "rhs": None if r.rhs is None else repr(r.rhs), "both_ways": r.twoway,
        "when": [repr(g) for g in r.guards], "parameters": list(r.params), "corollary_of": r.corollary,
    }  # fmt: skip
