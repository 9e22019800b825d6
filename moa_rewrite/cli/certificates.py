"""Finding and reading certificates: a file, or the directory of a bundle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..errors import MoaError
from . import bundle, files


def locate(path: str) -> Path:
    """The certificate's file."""
    return Path(path) / bundle.CERTIFICATE if Path(path).is_dir() else Path(path)


def read(path: Path) -> dict[str, Any]:
    """JSON data of a certificate. MoaError 757 if it is none."""
    from ..proof import certificate

    files.read_bytes(path)
    try:
        data = certificate.read(path)
    except ValueError as e:
        raise MoaError(757, f"{path} is no certificate: {e}", file="moarw") from None
    if not isinstance(data, dict):
        raise MoaError(757, f"{path} is no certificate", file="moarw", hint="certificate.json of a bundle, or the bundle's directory")
    return data


def beside(path: Path, data: dict[str, Any]) -> dict[str, bytes]:
    """The files that a certificate names, as they lie beside it; those that are missing are left out."""
    named = data.get("files")
    names = [n for n in named if isinstance(n, str) and Path(n).name == n] if isinstance(named, dict) else []
    return {n: (path.parent / n).read_bytes() for n in names if (path.parent / n).is_file()}
