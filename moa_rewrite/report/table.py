"""Small text tables and the labelled lines that the commands end with."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import TextIO

_CODES = {"bold": "1", "red": "31", "green": "32", "dim": "2"}


def coloured(stream: TextIO) -> bool:
    """Whether to colour: on a terminal, unless NO_COLOR is set."""
    return stream.isatty() and not os.environ.get("NO_COLOR")


def paint(text: str, colour: str, stream: TextIO | None = None) -> str:
    return f"\x1b[{_CODES[colour]}m{text}\x1b[0m" if coloured(stream or sys.stdout) else text


def columns(rows: Iterable[Sequence[str]], right: frozenset[int] = frozenset(), gap: int = 2) -> list[str]:
    """Rows with aligned columns; the columns in ``right`` are aligned at their right ends. The last one is not padded."""
    table = [list(r) for r in rows]
    if not table:
        return []
    widths = [max(len(r[c]) for r in table if c < len(r)) for c in range(max(map(len, table)))]
    lines = []
    for r in table:
        cells = [x.rjust(widths[c]) if c in right else x.ljust(widths[c]) for c, x in enumerate(r)]
        lines.append((" " * gap).join(cells).rstrip())
    return lines


def labelled(rows: Iterable[tuple[str, str | Sequence[str]]], width: int = 0) -> str:
    """``label  text`` lines; a text of several lines, or a long one, goes on under itself. Rows without text are left out."""
    width = width or max(60, min(160, shutil.get_terminal_size((140, 24)).columns))
    kept = [(label, [text] if isinstance(text, str) else list(text)) for label, text in rows if text]
    pad = max((len(label) for label, _ in kept), default=0) + 2
    out = []
    for label, lines in kept:
        wrapped = [w for line in lines for w in _wrap(line, width - pad)]
        out += [f"{label if n == 0 else '':<{pad}}{line}".rstrip() for n, line in enumerate(wrapped)]
    return "\n".join(out)


def _wrap(line: str, width: int) -> list[str]:
    if len(line) <= width:
        return [line]
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    return textwrap.wrap(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
