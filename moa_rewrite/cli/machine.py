"""``moarw machine list|show|check|detect``."""

from __future__ import annotations

import argparse

from . import options


def arguments(p: argparse.ArgumentParser) -> None:
    sub = p.add_subparsers(dest="action", metavar="list|show|check|detect", required=True)
    options.add(sub.add_parser("list", help="names of the machines that come with moarw"))
    for action, text in (("show", "levels, memories and rates of a machine"), ("check", "does the machine file hold together?")):
        one = sub.add_parser(action, help=text)
        one.add_argument("name", metavar="NAME", help="a name from `machine list`, host, or a file")
        options.add(one, "json")
    options.add(sub.add_parser("detect", help="describe this computer as a machine file"), "json")


def run(args: argparse.Namespace) -> int:
    raise NotImplementedError
