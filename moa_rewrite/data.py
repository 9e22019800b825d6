"""Where the data folders (grammar, rules, machines, codegen, examples) lie: beside the package in a checkout, inside it in a wheel."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def data_path(*parts: str) -> Path:
    """Path of a data file, e.g. ``data_path("rules", "psi.moar")``; the checkout wins over the copy in a wheel."""
    for root in (_PACKAGE.parent, _PACKAGE / "_data"):
        path = root.joinpath(*parts)
        if path.exists():
            return path
    raise FileNotFoundError("/".join(parts))
