"""Files are written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from moa_rewrite.cli import files
from moa_rewrite.errors import MoaError


def test_a_new_folder(tmp_path: Path) -> None:
    files.write_all(tmp_path / "out" / "x", {"a.c": b"int a;", "b": b""})
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["x"]
    assert sorted(p.name for p in (tmp_path / "out" / "x").iterdir()) == ["a.c", "b"]
    assert (tmp_path / "out" / "x").stat().st_mode & 0o700 == 0o700


def test_an_existing_folder_keeps_what_is_not_ours(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("mine")
    (tmp_path / "a.c").write_text("old")
    files.write_all(tmp_path, {"a.c": b"new"})
    assert (tmp_path / "a.c").read_text() == "new" and (tmp_path / "notes").read_text() == "mine"
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("existing", [True, False])
def test_nothing_is_left_when_writing_stops_half_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, existing: bool) -> None:
    target = tmp_path / "x"
    if existing:
        target.mkdir()
    write = Path.write_bytes

    def full(self: Path, data: bytes) -> int:
        if self.name == "b":
            raise OSError(28, "No space left on device")
        return write(self, data)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(MoaError, match=r"MOA0752.*No space left on device"):
        files.write_all(target, {"a": b"1", "b": b"2"})
    assert target.exists() == existing
    assert [p for p in tmp_path.rglob("*") if p != target] == []


def test_the_last_file_comes_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order = []
    move = os.replace

    def see(a: Path, b: Path) -> None:
        order.append(Path(b).name)
        move(a, b)

    monkeypatch.setattr(os, "replace", see)
    files.write_all(tmp_path, {"a": b"", "c": b"", "b": b""}, last="a")
    assert order == ["b", "c", "a"]


def test_a_folder_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(MoaError, match="MOA0752"):
        files.write_all(tmp_path / "file" / "x", {"a": b""})
    with pytest.raises(MoaError, match="MOA0752"):
        files.write_all(tmp_path / "file", {"a": b""})


def test_reading(tmp_path: Path) -> None:
    with pytest.raises(MoaError, match=r"moarw: error\[MOA0751\]: cannot read .*none.moa: No such file"):
        files.read(tmp_path / "none.moa")
    (tmp_path / "b.moa").write_bytes(b"\xff\xfe")
    with pytest.raises(MoaError, match="not UTF-8"):
        files.read(tmp_path / "b.moa")
