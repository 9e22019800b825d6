"""Reading and writing files, with a clear refusal where the system says no, and nothing half-written."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from ..errors import MoaError


def read_bytes(path: str | Path) -> bytes:
    """Contents of a file. MoaError 751 if it cannot be read."""
    try:
        return Path(path).read_bytes()
    except OSError as e:
        raise MoaError(751, f"cannot read {path}: {e.strerror}", file="moarw") from None


def read(path: str | Path) -> str:
    """Text of a file, in UTF-8. MoaError 751 if it cannot be read."""
    try:
        return read_bytes(path).decode()
    except UnicodeDecodeError:
        raise MoaError(751, f"cannot read {path}: not UTF-8 text", file="moarw") from None


def write(path: str | Path, text: str) -> None:
    """Replaces a file in one step."""
    path = Path(path)
    write_all(path.parent, {path.name: text.encode()})


def must_be_writable(folder: Path) -> None:
    """MoaError 752 if a folder can neither be written to nor made: better said before the work than after."""
    for at in (folder, *folder.absolute().parents):
        if at.exists():
            if not at.is_dir():
                raise MoaError(752, f"cannot write to {folder}: {at} is a file", file="moarw", hint="another directory with -o DIR")
            if not os.access(at, os.W_OK | os.X_OK):
                raise MoaError(752, f"cannot write to {folder}: no permission in {at}", file="moarw", hint="another directory with -o DIR")
            return


def write_all(folder: Path, contents: Mapping[str, bytes], last: str = "") -> None:
    """Write files into a folder. A new folder appears complete or not at all; in an existing one each file is replaced in one step, ``last``
    at the end. MoaError 752 if the system refuses.
    """
    order = sorted(contents, key=lambda n: (n == last, n))
    spare: str | None = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        home = folder if folder.is_dir() else folder.parent
        spare = tempfile.mkdtemp(prefix=f".{folder.name}.", dir=home)
        for name in order:
            (Path(spare) / name).write_bytes(contents[name])
        if folder.is_dir():
            for name in order:
                os.replace(Path(spare) / name, folder / name)
        else:
            os.chmod(spare, 0o777 & ~_umask())
            os.rename(spare, folder)
    except OSError as e:
        raise MoaError(752, f"cannot write to {folder}: {e.strerror}", file="moarw", hint="another directory with -o DIR") from None
    finally:
        if spare is not None:
            shutil.rmtree(spare, ignore_errors=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
