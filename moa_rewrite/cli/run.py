"""``moarw run``."""

from __future__ import annotations

import argparse

from . import options


def arguments(p: argparse.ArgumentParser) -> None:
    p.add_argument("file", metavar="FILE")
    options.add(p)


def run(args: argparse.Namespace) -> int:
    raise NotImplementedError
