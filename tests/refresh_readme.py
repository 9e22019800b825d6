"""Runs the commands that README shows, in order, and puts what they print in place of what stood there: ``python tests/refresh_readme.py``."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
INDENT, PROMPT = "    ", "    $ moarw "


def refreshed(lines: list[str], folder: Path) -> list[str]:
    """A command followed by output in the same block is run; one that stands alone is left as it is."""
    out: list[str] = []
    n = 0
    while n < len(lines):
        out.append(lines[n])
        n += 1
        if out[-1].startswith(PROMPT) and n < len(lines) and lines[n].startswith(INDENT) and not lines[n].startswith(PROMPT):
            while n < len(lines) and lines[n].startswith(INDENT):
                n += 1
            words = shlex.split(out[-1][len(PROMPT) :])
            env = {**os.environ, "COLUMNS": "112", "NO_COLOR": "1"}
            done = subprocess.run([sys.executable, "-m", "moa_rewrite", *words], cwd=folder, env=env, capture_output=True, text=True, check=True)
            out += [f"{INDENT}{line}".rstrip() for line in done.stdout.splitlines()]
    return out


def main() -> None:
    page = ROOT / "README.md"
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "examples").symlink_to(ROOT / "examples")
        text = refreshed(page.read_text(encoding="utf-8").splitlines(), Path(folder))
    page.write_text("\n".join(text) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
