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
    from ..emit.loops import LoopProgram

FORMAT = 1
MANIFEST, CERTIFICATE = "manifest.json", "certificate.json"


@dataclass(frozen=True)
class Bundle:
    """``contents``: every file by name, the manifest included."""

    contents: dict[str, bytes]
    manifest: dict[str, Any]

    def write(self, folder: Path) -> None:
        files.write_all(folder, self.contents, last=MANIFEST)

    @property
    def source(self) -> str:
        """Name of the kernel's source file."""
        return str(self.manifest["source"])


def dump(value: object) -> bytes:
    return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode()


def manifest(lowered: LoopProgram, target: str, machine: str, judged_at: Mapping[str, int], fp: list[str], build: str, source: str) -> dict[str, Any]:
    """The manifest of a lowered kernel, still without the digests of its files."""
    args = [{"name": s, "role": "size", "dtype": "i64", "shape": []} for s in lowered.sizes]
    for role, buffers in (("input", lowered.inputs), ("output", lowered.outputs)):
        args += [{"name": b.source or b.name, "role": role, "dtype": b.dtype, "shape": [show(e) for e in b.shape]} for b in buffers]
    return {
        "format": FORMAT, "moarw": __version__, "kernel": lowered.name, "target": target, "machine": machine, "source": source,
        "entry": {"symbol": lowered.name, "arguments": args},
        "sizes": {"where": [show(w) for w in lowered.where], "judged_at": dict(judged_at), "fixed": dict(lowered.fixed)},
        "index_type": "int64", "floating_point": fp, "build": build,
    }  # fmt: skip


def bundle(contents: Mapping[str, bytes], described: Mapping[str, Any]) -> Bundle:
    """The given files with the manifest that lists their digests."""
    digests = {name: "sha256:" + hashlib.sha256(data).hexdigest() for name, data in sorted(contents.items())}
    full = {**described, "files": digests}
    return Bundle({**contents, MANIFEST: dump(full)}, full)


def read(folder: Path) -> Bundle:
    """A bundle from disk. MoaError 757 if it is none, or a file differs from the manifest's digest."""
    try:
        described = json.loads(files.read(folder / MANIFEST))
        listed = dict(described["files"])
        if described["format"] != FORMAT:
            raise MoaError(757, f"{folder} holds a bundle of format {described['format']}; this moarw reads format {FORMAT}", file="moarw")
    except (ValueError, KeyError, TypeError):
        raise MoaError(757, f"{folder / MANIFEST} is no manifest of a bundle", file="moarw", hint="moarw optimize FILE -o DIR writes one") from None
    contents = {}
    for name, digest in listed.items():
        if Path(name).name != name:
            raise MoaError(757, f"{folder / MANIFEST} lists {name!r}, which lies outside the bundle", file="moarw")
        try:
            contents[name] = (folder / name).read_bytes()
        except OSError as e:
            raise MoaError(751, f"cannot read {folder / name}: {e.strerror}", file="moarw") from None
        if "sha256:" + hashlib.sha256(contents[name]).hexdigest() != digest:
            raise MoaError(757, f"{folder / name} was changed after the bundle was written", file="moarw", hint="write the bundle again with moarw optimize")
    return Bundle({**contents, MANIFEST: dump(described)}, described)
