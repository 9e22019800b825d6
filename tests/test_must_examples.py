"""Every program of examples/ through the commands, for this computer: optimize, check, and run at odd sizes and at ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from test_examples import EXAMPLES, admitted, elaborated, kernels

from moa_rewrite.cli.main import main

ASKED = {"attention", "matmul", "softmax", "layernorm", "stencil5_rotate", "stencil5_drop", "outer", "prefix_sum", "transpose_chain", "psi_example",
         "meanvar", "conv1d", "dot"}  # fmt: skip


def test_the_programs_are_there() -> None:
    names = {file for file, _ in kernels()}
    assert names >= ASKED and len(names - ASKED) >= 1, "and at least one that nobody would call a kernel"


@pytest.mark.slow
@pytest.mark.parametrize(("file", "name"), kernels())
def test_optimize_check_and_run(file: str, name: str, tmp_path: Path, need, capsys: pytest.CaptureFixture[str]) -> None:
    need("gcc")
    out = str(tmp_path / "bundle")
    assert main(["optimize", str(EXAMPLES / f"{file}.moa"), "--kernel", name, "--machine", "host", "-o", out]) == 0
    assert main(["check", out]) == 0
    k = elaborated(file, name, False)
    odd = dict(zip(k.sizes, (137, 253, 41, 19, 23), strict=False))
    ones, none = dict.fromkeys(k.sizes, 1), dict.fromkeys(k.sizes, 0)
    tried = [t for t in (odd, ones, none) if admitted(k, t)]
    assert tried or not k.sizes
    for sizes in tried or [{}]:
        capsys.readouterr()
        assert main(["run", out, *[w for s, n in sizes.items() for w in ("-D", s, str(n))], "--repeat", "1", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["ok"]
