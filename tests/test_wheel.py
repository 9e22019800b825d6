"""The wheel carries grammar, rules, machines, runtime headers and examples, and works without the checkout."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
FOLDERS = ("grammar", "rules", "machines", "codegen", "examples")


@pytest.fixture(scope="module")
def wheel(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps", "-w", str(out), str(root)], check=True)
    (found,) = out.glob("*.whl")
    return found


def test_every_data_file_is_in_the_wheel(root: Path, wheel: Path) -> None:
    tracked = subprocess.run(["git", "-C", str(root), "ls-files", *FOLDERS], capture_output=True, text=True, check=True).stdout.split()
    names = set(zipfile.ZipFile(wheel).namelist())
    assert tracked and [f for f in tracked if f"moa_rewrite/_data/{f}" not in names] == []


def test_the_wheel_works_alone(wheel: Path, tmp_path: Path) -> None:
    """Unpacked into an empty folder: the laws, machines and an example are read from the wheel's own copy."""
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    program = "import sys; from moa_rewrite import data; print(data.data_path('rules')); from moa_rewrite.cli.main import main; sys.exit(main(sys.argv[1:]))"

    def moarw(*words: str) -> str:
        done = subprocess.run([sys.executable, "-c", program, *words], cwd=tmp_path / "site", capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    listing = moarw("rules", "list")
    assert listing.splitlines()[0] == str(tmp_path / "site" / "moa_rewrite" / "_data" / "rules")
    assert "delta-a100" in moarw("machine", "list")
    assert "attention" in moarw("fmt", "moa_rewrite/_data/examples/attention.moa")
