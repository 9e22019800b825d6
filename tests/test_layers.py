"""The import order of the stages, read from the source by AST: the arrows of docs/design.md."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ORDER = ["terms", "lang", "semantics", "rules", "machine", "search", "proof", "emit", "build", "report", "cli"]
FREE = {"errors", "data", "__init__"}
ONLY = {"proof": {"proof", "terms", "semantics", "rules"}, "terms": {"terms"}}
NEVER = {"emit": {"search"}}


def imports(path: Path, package: tuple[str, ...]) -> list[tuple[int, str]]:
    """(line, stage) of every import of this package in a file, those inside functions and relative ones included."""
    found: list[tuple[int, str]] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [a.name for a in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = list(package[: len(package) - node.level + 1]) if node.level else []
            base += node.module.split(".") if node.module else []
            names = [".".join([*base, a.name]) for a in node.names] if base == ["moa_rewrite"] else [".".join(base)]
        for name in names:
            parts = name.split(".")
            if parts[0] == "moa_rewrite" and len(parts) > 1:
                found.append((node.lineno, parts[1]))
    return found


def offences(root: Path) -> list[str]:
    out = []
    for path in sorted((root / "moa_rewrite").rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        stage = "cli" if parts[1] == "__main__" else parts[1]
        for line, target in imports(path, parts[:-1]):
            if target in FREE or target == "__version__":
                continue
            if stage in FREE:
                bad = True  # the free modules import no stage
            elif stage in ONLY:
                bad = target not in ONLY[stage]
            else:
                bad = target not in ORDER or ORDER.index(target) > ORDER.index(stage) or target in NEVER.get(stage, set())
            if bad:
                out.append(f"{path.relative_to(root)}:{line}: {stage} imports {target}")
    return out


def test_imports_go_down_the_list(root: Path) -> None:
    assert offences(root) == []


def test_every_folder_is_a_stage(root: Path) -> None:
    folders = {p.name for p in (root / "moa_rewrite").iterdir() if p.is_dir() and p.name not in ("__pycache__", "_data")}
    assert folders == set(ORDER)


@pytest.mark.parametrize(
    ("stage", "line", "offence"),
    [
        ("proof", "from ..search import optimize", "proof imports search"),
        ("proof", "import moa_rewrite.lang.parser", "proof imports lang"),
        ("emit", "def f():\n    from ..search.cost import x", "emit imports search"),
        ("build", "from ..cli.main import main", "build imports cli"),
        ("terms", "from .. import lang", "terms imports lang"),
        ("search", "from moa_rewrite.emit import lower", "search imports emit"),
    ],
)
def test_a_wrong_arrow_is_seen(tmp_path: Path, stage: str, line: str, offence: str) -> None:
    folder = tmp_path / "moa_rewrite" / stage
    folder.mkdir(parents=True)
    (folder / "x.py").write_text(line + "\nfrom ..errors import MoaError\n")
    assert [o.split(": ", 1)[1] for o in offences(tmp_path)] == [offence]


def test_no_file_is_long(root: Path) -> None:
    long = {str(p.relative_to(root)): n for p in sorted((root / "moa_rewrite").rglob("*.py")) if (n := len(p.read_text().splitlines())) > 600}
    assert long == {}
