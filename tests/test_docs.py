"""The commands that README and docs show are run as they stand; links between the pages lead somewhere."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LONG = ("optimize", "run", "cost", "check", "explain")  # commands that search, or read what one of these wrote


def commands(page: Path) -> list[list[str]]:
    """The words of every ``$ moarw ...`` line of a page, in order."""
    return [shlex.split(m[1], comments=True) for m in re.finditer(r"^\s*\$ moarw (.+)$", page.read_text(encoding="utf-8"), re.M)]


def play(page: Path, folder: Path, wanted: bool) -> int:
    """Runs a page's commands from first to last, with the checkout's examples beside them; every one must succeed."""
    for name in ("examples", "docs", "rules", "machines"):
        (folder / name).symlink_to(ROOT / name)
    ran = 0
    for words in commands(page):
        if (words[0] in LONG) == wanted:
            done = subprocess.run([sys.executable, "-m", "moa_rewrite", *words], cwd=folder, capture_output=True, text=True)
            assert done.returncode == 0, f"{page.name}: moarw {' '.join(words)}\n{done.stderr}"
            ran += 1
    return ran


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_quick_commands(page: Path, tmp_path: Path) -> None:
    play(page, tmp_path, False)


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_long_commands(page: Path, tmp_path: Path) -> None:
    play(page, tmp_path, True)


def test_the_readme_shows_commands() -> None:
    assert {"optimize", "check", "run"} <= {words[0] for words in commands(ROOT / "README.md")}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    assert [t for t in targets if not t.startswith(("http://", "https://")) and not (page.parent / t).exists()] == []


def raised(path: Path) -> set[int]:
    """Numbers that a module gives as the code of an error: an argument before a text, or an item of a tuple before one."""
    out = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        items = node.args if isinstance(node, ast.Call) else node.elts if isinstance(node, ast.Tuple) else []
        name = "" if not isinstance(node, ast.Call) else node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in ("MoaError", "fail", "say", "claim") or (isinstance(node, ast.Tuple) and path.name in ("mistakes.py", "certify.py", "parse.py")):
            out |= {a.value for a in items if isinstance(a, ast.Constant) and type(a.value) is int and 100 <= a.value < 900}
    return out


def test_every_error_code_is_listed() -> None:
    """docs/errors.md names each code that the source raises, and no other."""
    found = set().union(*[raised(p) for p in sorted((ROOT / "moa_rewrite").rglob("*.py"))])
    listed = [int(c) for c in re.findall(r"^\| MOA(\d{4}) \|", (ROOT / "docs" / "errors.md").read_text(encoding="utf-8"), re.M)]
    assert listed == sorted(found)
