"""What was measured on this computer, kept for the next run: one file per question, in the user's cache directory.

An entry is named by the digest of all that its answer depends on. It is written to a name of its own and renamed, so a reader sees a whole one or none; one
whose text does not fit its own digest is ignored with a warning. Locks are files too (``fcntl``), so several processes may ask at once.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any


def folder() -> Path:
    """``$XDG_CACHE_HOME/moarw``, or ``~/.cache/moarw``."""
    home = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(home) if Path(home).is_absolute() else Path.home() / ".cache") / "moarw"  # the standard has relative paths ignored


def digest(value: Any) -> str:
    """Of data that JSON can hold; the order of mappings does not matter."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def read(kind: str, key: str) -> Any | None:
    """The entry of a key; None if there is none, or a damaged one."""
    path = folder() / kind / f"{key}.json"
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as e:
        why = str(e)
    else:
        try:
            entry = json.loads(text)
            if entry["digest"] == digest(entry["value"]):
                return entry["value"]
            why = "its digest is another"
        except (ValueError, KeyError, TypeError):
            why = "it is no entry"
    print(f"moarw: warning: the damaged cache entry {path} is ignored: {why}", file=sys.stderr)
    return None


def write(kind: str, key: str, value: Any) -> None:
    """Keep an entry, in place of the one that was there. A directory that cannot be written to is told once and does no harm."""
    at = folder() / kind
    try:
        at.mkdir(parents=True, exist_ok=True)
        handle, spare = tempfile.mkstemp(dir=at, prefix=f".{key[:16]}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as f:
                json.dump({"digest": digest(value), "value": value}, f, indent=1)
            os.replace(spare, at / f"{key}.json")
        except BaseException:
            with suppress(OSError):
                os.unlink(spare)
            raise
    except OSError as e:
        print(f"moarw: warning: nothing is kept in {at}: {e.strerror}", file=sys.stderr)


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Waits until no other process holds the lock of this name; the system releases it when its holder ends, whatever happens. Without a directory to
    write to there is nothing to share, and no lock."""
    try:
        (folder() / "locks").mkdir(parents=True, exist_ok=True)
        f = (folder() / "locks" / name).open("w")
    except OSError:
        yield
        return
    with f:
        fcntl.flock(f, fcntl.LOCK_EX)
        yield
