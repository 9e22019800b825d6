"""Options that several commands share, each with its environment variable. docs/cli.md has the table; a test holds the two together."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..errors import MoaError

TARGETS = ("c", "fortran", "cuda")


def _count(text: str) -> int:
    n = int(text)
    if n < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive whole number")
    return n


def _plans(text: str) -> int:
    return 0 if text in ("off", "0") else _count(text)


def _seconds(text: str) -> float:
    s = float(text)
    if not s > 0:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number of seconds")
    return s


def _target(text: str) -> str:
    if text not in TARGETS:
        raise argparse.ArgumentTypeError(f"{text!r} is not one of {', '.join(TARGETS)}")
    return text


def _flag(text: str) -> bool:
    return text not in ("", "0", "no", "false")


_count.__name__, _plans.__name__, _seconds.__name__ = "whole number", "number of plans", "number of seconds"  # argparse names the type in its message


@dataclass(frozen=True)
class Option:
    """One option: flags, the value's name ("" for a switch), its type, default, and help. The variable is MOARW_ and the long flag."""

    flags: tuple[str, ...]
    value: str
    type: Callable[[str], Any]
    default: Any
    help: str

    @property
    def variable(self) -> str:
        return "MOARW_" + self.flags[-1].lstrip("-").replace("-", "_").upper()


OPTIONS = {
    o.flags[-1].lstrip("-"): o
    for o in (
        Option(("-m", "--machine"), "NAME", str, "host", "machine file or name (default host: this computer, as detected)"),
        Option(("--target",), "T", _target, None, "c, fortran or cuda (default: cuda for a machine with a GPU, else c)"),
        Option(("--kernel",), "NAME", str, None, "which kernel of the program (default: the last)"),
        Option(("--rules",), "FILE", str, None, "also use the rules in FILE (repeatable)"),
        Option(("--without",), "RULE", str, None, "leave a rule out (repeatable)"),
        Option(("--top",), "K", _count, 4, "alternatives: forms of the program that are searched, and rows of the plan table (default 4)"),
        Option(("-o", "--output-dir"), "DIR", str, None, "where the bundle goes (default out/NAME-MACHINE)"),
        Option(("--stem",), "NAME", str, None, "name of the written files (default: the kernel's)"),
        Option(("--timeout",), "S", _seconds, 300.0, "seconds for the search (default 300)"),
        Option(("--seed",), "N", int, 0, "seed of everything random (default 0)"),
        Option(("--no-trial",), "", _flag, False, "do not call the emitted kernel before it is written"),
        Option(("--tune",), "N", _plans, 0, "measure the N best plans on this computer and take the fastest (default off)"),
        Option(("--plan",), "FILE", str, None, "take the plan that --tune wrote to FILE, without a search"),
        Option(("--json",), "", _flag, False, "print one JSON object instead of text"),
        Option(("--threads",), "N", _count, None, "OpenMP threads (default: all this process may use)"),
        Option(("--repeat",), "N", _count, 5, "timed repetitions; the median is printed (default 5)"),
        Option(("-v", "--verbose"), "", int, 0, "say more; -vv also shows where a fault of moarw came from"),
    )
}
REPEATABLE = {"rules", "without"}


def add(parser: argparse.ArgumentParser, *names: str) -> None:
    """Give a command the named options of the table; the environment fills in what the command line leaves out."""
    for name in (*names, "verbose"):
        o = OPTIONS[name]
        default = os.environ.get(o.variable, o.default)
        if name == "verbose":
            parser.add_argument(*o.flags, action="count", default=int(default), help=o.help)
        elif not o.value:
            parser.add_argument(*o.flags, action="store_true", default=_flag(str(default)) if default else False, help=o.help)
        elif name in REPEATABLE:
            parser.add_argument(*o.flags, metavar=o.value, action="append", default=default.split(",") if default else [], help=o.help)
        else:
            parser.add_argument(*o.flags, metavar=o.value, type=o.type, default=default, help=o.help)


def add_sizes(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument("-D", nargs=2, metavar=("NAME", "VALUE"), action="append", default=[], dest="define", help=what)


def add_fix(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--fix", nargs=2, metavar=("NAME", "VALUE"), action="append", default=[], help="compile this size into the kernel (repeatable)")


def integers(pairs: list[list[str]], flag: str) -> dict[str, int]:
    """``-D n 1000 -D m 777`` as a mapping. Raises MoaError for text that is no whole number >= 0 and for a name given two values."""
    out: dict[str, int] = {}
    for name, text in pairs:
        try:
            value = int(text)
        except ValueError:
            raise MoaError(753, f"{flag} {name} {text}: the value of a size is a whole number", file="moarw", hint=f"{flag} {name} 1000") from None
        if value < 0:
            raise MoaError(753, f"{flag} {name} {text}: a size is at least 0", file="moarw")
        if out.setdefault(name, value) != value:
            raise MoaError(753, f"{flag} gives {name} two values, {out[name]} and {value}", file="moarw")
    return out
