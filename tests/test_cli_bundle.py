"""Bundles: the manifest meets its published schema, digests are checked, nothing outside the directory is read."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from moa_rewrite.cli import bundle
from moa_rewrite.cli.emission import Emitted
from moa_rewrite.emit.loops import Buffer, LoopProgram
from moa_rewrite.errors import MoaError
from moa_rewrite.terms import parse_term, size

LOWERED = LoopProgram(
    "scale", ("n",), (parse_term("0 < n"),), (Buffer("A", "f32", (size("n"),), "input"), Buffer("c", "f32", (), "value")),
    (Buffer("B_", "f32", (size("n"),), "output", source="B"),), (), {}, (), fixed={"n": 8},
)  # fmt: skip


@pytest.fixture
def made() -> bundle.Bundle:
    e = Emitted("c", "scale.c", {"scale.c": b"int scale;\n", "scale.h": b""}, LOWERED, "gcc 12", ("-O3",), "gcc -O3 scale.c")
    contents = bundle.described(e.files, bundle.manifest(e, "host", {"n": 1024}, "scale.moa"))
    return bundle.Bundle({**contents, "certificate.json": b"{}\n"})


def test_the_manifest_meets_its_schema(made: bundle.Bundle, root: Path) -> None:
    schema = json.loads((root / "docs" / "manifest.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(made.manifest, schema)
    assert [(a["name"], a["role"], a["shape"]) for a in made.manifest["entry"]["arguments"]] == [
        ("n", "size", []), ("A", "input", ["n"]), ("c", "input", []), ("B", "output", ["n"]),
    ]  # fmt: skip


def test_there_and_back(made: bundle.Bundle, tmp_path: Path) -> None:
    made.write(tmp_path / "b")
    assert bundle.read(tmp_path / "b") == made


@pytest.mark.parametrize("name", ["scale.c", "scale.h"])
def test_a_changed_file_is_refused(made: bundle.Bundle, tmp_path: Path, name: str) -> None:
    made.write(tmp_path / "b")
    with (tmp_path / "b" / name).open("a") as f:
        f.write(" ")
    with pytest.raises(MoaError, match=rf"MOA0757.*{name} was changed"):
        bundle.read(tmp_path / "b")


@pytest.mark.parametrize("name", ["scale.c", "certificate.json", "manifest.json"])
def test_a_missing_file_is_refused(made: bundle.Bundle, tmp_path: Path, name: str) -> None:
    made.write(tmp_path / "b")
    (tmp_path / "b" / name).unlink()
    with pytest.raises(MoaError, match=f"MOA0751.*{name}"):
        bundle.read(tmp_path / "b")


def test_no_bundle(tmp_path: Path) -> None:
    with pytest.raises(MoaError, match="MOA0751"):
        bundle.read(tmp_path)
    for text in ("", "[]", "{}", '{"files": 3}', '{"files": {}}'):
        (tmp_path / "manifest.json").write_text(text)
        with pytest.raises(MoaError, match="is no manifest"):
            bundle.read(tmp_path)
    (tmp_path / "manifest.json").write_text('{"format": 99, "files": {}}')
    with pytest.raises(MoaError, match="format 99"):
        bundle.read(tmp_path)
    (tmp_path / "manifest.json").write_text('{"format": 1, "files": {"../x": "sha256:0"}}')
    with pytest.raises(MoaError, match="outside the bundle"):
        bundle.read(tmp_path)
