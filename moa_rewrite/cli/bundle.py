"""A bundle: the emitted kernel, its header, manifest and certificate, and what builds it. docs/manifest.schema.json describes the manifest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import __version__
from ..errors import MoaError
from ..terms import show
from . import files

if TYPE_CHECKING:
    from .emission import Emitted

FORMAT = 1
MANIFEST, CERTIFICATE = "manifest.json", "certificate.json"


@dataclass(frozen=True)
class Bundle:
    """``contents``: every file by name. The manifest lists the others' digests; the certificate covers the manifest."""

    contents: dict[str, bytes]

    @property
    def manifest(self) -> dict[str, Any]:
        return json.loads(self.contents[MANIFEST])

    @property
    def certificate(self) -> dict[str, Any]:
        return json.loads(self.contents[CERTIFICATE])

    def write(self, folder: Path) -> None:
        files.write_all(folder, self.contents, last=CERTIFICATE)


def manifest(e: Emitted, machine: str, judged_at: Mapping[str, int], program: str) -> dict[str, Any]:
    """The manifest of an emitted kernel, still without the digests of its files."""
    p = e.lowered
    args = [{"name": s, "role": "size", "dtype": "i64", "shape": []} for s in p.sizes]
    for role, buffers in (("input", p.inputs), ("output", p.outputs)):
        args += [{"name": b.source or b.name, "role": role, "dtype": b.dtype, "shape": [show(n) for n in b.shape]} for b in buffers]
    return {
        "format": FORMAT, "moarw": __version__, "program": program, "kernel": p.name, "target": e.target, "machine": machine, "source": e.source,
        "entry": {"symbol": p.name, "arguments": args}, **({"first_touch": f"{p.name}_touch"} if getattr(p, "touch", ()) else {}),
        "sizes": {"where": [show(w) for w in p.where], "judged_at": dict(judged_at), "fixed": dict(p.fixed)},
        "index_type": "int64", "compiler": e.compiler, "flags": list(e.flags), "build": e.build,
    }  # fmt: skip


def described(contents: Mapping[str, bytes], about: Mapping[str, Any]) -> dict[str, bytes]:
    """The given files and the manifest that lists their digests."""
    digests = {name: _digest(data) for name, data in sorted(contents.items())}
    text = json.dumps({**about, "files": digests}, indent=1, ensure_ascii=False) + "\n"
    return {**contents, MANIFEST: text.encode()}


def _digest(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


def read(folder: Path) -> Bundle:
    """A bundle from disk. MoaError 757 if it is none, or a file differs from the manifest's digest."""
    text = files.read(folder / MANIFEST)
    try:
        about = json.loads(text)
        listed = dict(about["files"])
        if about["format"] != FORMAT:
            raise MoaError(757, f"{folder} holds a bundle of format {about['format']}; this moarw reads format {FORMAT}", file="moarw")
    except (ValueError, KeyError, TypeError):
        raise MoaError(757, f"{folder / MANIFEST} is no manifest of a bundle", file="moarw", hint="moarw optimize FILE -o DIR writes one") from None
    contents = {MANIFEST: text.encode()}
    for name, digest in [*listed.items(), (CERTIFICATE, None)]:
        if Path(name).name != name:
            raise MoaError(757, f"{folder / MANIFEST} lists {name!r}, which lies outside the bundle", file="moarw")
        contents[name] = files.read_bytes(folder / name)
        if digest is not None and _digest(contents[name]) != digest:
            raise MoaError(757, f"{folder / name} was changed after the bundle was written", file="moarw", hint="write the bundle again with moarw optimize")
    return Bundle(contents)
