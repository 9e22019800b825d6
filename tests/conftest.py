"""Shared fixtures. In CI a missing compiler is a failure; elsewhere the tests that need it are skipped."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture(scope="session")
def need() -> Callable[[str], str]:
    """``need("gfortran")`` gives the path of a tool, or skips the test; in CI (variable CI set) it fails instead."""

    def find(tool: str) -> str:
        path = shutil.which(tool)
        if path is None:
            (pytest.fail if os.environ.get("CI") else pytest.skip)(f"{tool} is not installed")
        return str(path)

    return find


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests see no MOARW_* setting of the person who runs them, and no colours."""
    for name in [n for n in os.environ if n.startswith("MOARW_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("NO_COLOR", "1")
