"""``moarw``: reads the command line, runs one command, turns what went wrong into a message and an exit code.

Exit codes: 0 proved and done; 1 the user's mistake; 2 refuted (with a witness); 3 undecided or out of time; 4 a fault of moarw.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import io
import os
import sys
import traceback
from collections.abc import Sequence
from typing import NoReturn

from .. import __version__
from ..errors import FAULT, MoaError

# command -> what it does; the module of the same name has `arguments(parser)` and `run(args) -> exit code`
COMMANDS = {
    "optimize": "rewrite a program for a machine, prove it, and write the kernel with its certificate",
    "check": "check a certificate again, without the search that made it",
    "run": "compile a program or bundle, run it, and compare with the reference interpreter",
    "explain": "the derivation in a certificate as readable steps",
    "cost": "what the chosen plan costs, memory level by memory level",
    "rules": "list the rewrite rules, or show one",
    "machine": "list, show, check or detect machines",
    "fmt": "print a program in canonical text",
}
INTERRUPTED = 130


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are MoaErrors."""

    def error(self, message: str) -> NoReturn:
        hint = f"{self.prog} --help"
        if "invalid choice" in message:  # argparse lists all choices; name the nearest instead
            given = message.split("'")[1]
            near = difflib.get_close_matches(given, list(COMMANDS), 1)
            hint = f"moarw {near[0]}" if near else hint
            message = f"no command {given!r}; the commands are {', '.join(COMMANDS)}" if self.prog == "moarw" else message
        raise MoaError(701, message, file="moarw", hint=hint)


def parser() -> Parser:
    top = Parser(prog="moarw", description="Rewrites array programs (Mathematics of Arrays) into proved kernels for one machine.", allow_abbrev=False)
    top.add_argument("--version", action="version", version=f"moarw {__version__}")
    sub = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, text in COMMANDS.items():
        command = sub.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".", allow_abbrev=False)
        importlib.import_module(f".{name}", __package__).arguments(command)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """The console script. Returns the exit code; never raises for a mistake in the input."""
    words = list(sys.argv[1:] if argv is None else argv)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without Ω shows ? for it
    try:
        args = parser().parse_args(words)
        code = importlib.import_module(f".{args.command}", __package__).run(args)
        sys.stdout.flush()
        return code
    except MoaError as e:
        print(e, file=sys.stderr)
        return e.exit_code
    except SystemExit as e:  # --help and --version
        return int(e.code or 0)
    except KeyboardInterrupt:
        print("moarw: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # the reader (head, less) has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as e:
        if "-vv" in words or words.count("-v") > 1:
            traceback.print_exc()
        print(f"moarw: internal error {type(e).__name__}: {' '.join(str(e).split())[:300]} (a fault of moarw; -vv shows where)", file=sys.stderr)
        return FAULT


if __name__ == "__main__":
    sys.exit(main())
