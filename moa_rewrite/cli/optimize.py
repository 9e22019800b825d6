"""``moarw optimize``."""

from __future__ import annotations

import argparse

from . import options


def arguments(p: argparse.ArgumentParser) -> None:
    p.add_argument("file", metavar="FILE")
    options.add_sizes(p, "a size that cost is judged at (repeatable)")
    options.add_fix(p)
    options.add(p, "machine", "target", "kernel", "rules", "without", "top", "output-dir", "stem", "timeout", "seed", "json")


def run(args: argparse.Namespace) -> int:
    raise NotImplementedError
