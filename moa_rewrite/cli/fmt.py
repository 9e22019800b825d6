"""``moarw fmt FILE``: canonical text of a program, on standard output or in place."""

from __future__ import annotations

import argparse
import sys

from ..errors import OK, USER_ERROR
from . import files, options


def arguments(p: argparse.ArgumentParser) -> None:
    p.add_argument("file", metavar="FILE", nargs="+", help="programs (.moa)")
    p.add_argument("-i", "--in-place", action="store_true", help="rewrite the files")
    p.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file is not in canonical text")
    p.add_argument("--ascii", action="store_true", help="ASCII spellings of the operators")
    options.add(p)


def run(args: argparse.Namespace) -> int:
    from .. import lang

    differs = False
    for name in args.file:
        before = files.read(name)
        after = lang.format(before, args.ascii, name)
        if args.check:
            if after != before:
                differs = True
                print(f"{name}: not in canonical text (moarw fmt -i {name})")
        elif args.in_place:
            if after != before:
                files.write(name, after)
        else:
            sys.stdout.write(after)
    return USER_ERROR if differs else OK
