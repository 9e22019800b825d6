"""`moarw optimize` calls what it emitted before it writes it: lowering and printing are outside the proof."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from test_cli_commands import Capture, moarw
from test_examples import LONG, kernels

from moa_rewrite import lang, rules
from moa_rewrite.build import compile_c
from moa_rewrite.build.apart import call_apart
from moa_rewrite.cli import emission, pipeline, tiles
from moa_rewrite.cli.main import parser
from moa_rewrite.emit.loops import If, Loop, LoopProgram
from moa_rewrite.terms import Kernel

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
PROGRAM = "kernel weigh(A: f64[n, m], w: f64[m]) -> y: f64[n] where m >= 1 = A +.× w\n"
TILED = "kernel matmul(A: f32[n, k], B: f32[k, m]) -> C: f32[n, m] = A +.× B\n"


@pytest.fixture
def weigh(tmp_path: Path) -> Path:
    (tmp_path / "weigh.moa").write_text(PROGRAM, encoding="utf-8")
    return tmp_path / "weigh.moa"


# --- a fault behind the proof --------------------------------------------------------------------------------------------------------
def broken(monkeypatch: pytest.MonkeyPatch, target: str, change: Callable[[str], str]) -> None:
    """Emission whose text is changed before it is handed on."""
    before = emission._PRINT[target]

    def after(*args):
        lowered, texts, flags = before(*args)
        changed = {n: change(t) if n.endswith(emission.SUFFIX[target]) else t for n, t in texts.items()}
        assert changed != texts
        return lowered, changed, flags

    monkeypatch.setitem(emission._PRINT, target, after)


def minus(text: str) -> str:
    return text.replace("+= A[", "-= A[")


def at_entry(text: str, line: str) -> str:
    return re.sub(r"^(int weigh\([^;{]*\{)$", rf"\1\n    {line}", text, count=1, flags=re.M)


def crash(text: str) -> str:
    return at_entry(text, "*(volatile int *)8 = 1;")


def endless(text: str) -> str:
    return at_entry(text, "for (volatile int x = 0;;) x++;")


def refused(text: str) -> str:
    return at_entry(text, "return 1;")


WRONG = {minus: "reference", crash: "SIGSEGV", endless: "did not return", refused: "refuses these sizes"}


@pytest.mark.parametrize("change", WRONG, ids=lambda f: f.__name__)
def test_a_wrong_text_is_refused(weigh: Path, tmp_path: Path, change, monkeypatch: pytest.MonkeyPatch, capsys: Capture, need) -> None:
    need("gcc")
    monkeypatch.setattr("moa_rewrite.cli.trial.PATIENCE", 3.0)
    broken(monkeypatch, "c", change)
    assert moarw("optimize", weigh, "-m", "delta-cpu", "-o", tmp_path / "b") == 4
    err = capsys.readouterr().err
    assert "MOA0655" in err and re.search(r"witness: at n = \d+, m = \d+, random inputs \(seed 0\)", err) and WRONG[change] in err
    assert not (tmp_path / "b").exists()


def test_fortran_too(weigh: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture, need) -> None:
    need("gfortran")
    words = ["optimize", weigh, "-m", "delta-cpu", "--target", "fortran", "-o", tmp_path / "b"]
    assert moarw(*words, "--json") == 0
    assert len(json.loads(capsys.readouterr().out)["tried"]) >= 3
    broken(monkeypatch, "fortran", lambda t: t.replace("+ A(", "- A("))
    assert moarw(*words[:-1], tmp_path / "c") == 4
    assert "MOA0655" in capsys.readouterr().err and not (tmp_path / "c").exists()


def test_cuda_too(weigh: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture, need) -> None:
    need("g++")
    words = ["optimize", weigh, "-m", "delta-a100", "-o", tmp_path / "b"]
    assert moarw(*words, "--json") == 0
    assert len(json.loads(capsys.readouterr().out)["tried"]) >= 2
    broken(monkeypatch, "cuda", minus)
    assert moarw(*words[:-1], tmp_path / "c") == 4
    assert "MOA0655" in capsys.readouterr().err and not (tmp_path / "c").exists()


def without_tails(p: LoopProgram) -> LoopProgram:
    """The program with every branch for a tile that is cut short left empty."""

    def cut(body):
        out = []
        for n in body:
            if isinstance(n, Loop):
                n = dataclasses.replace(n, body=cut(n.body))
            elif isinstance(n, If):
                n = dataclasses.replace(n, then=cut(n.then), other=())
            out.append(n)
        return tuple(out)

    return dataclasses.replace(p, body=cut(p.body))


def test_a_forgotten_tail_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture, need) -> None:
    need("gcc")
    (tmp_path / "m.moa").write_text(TILED, encoding="utf-8")
    from moa_rewrite import emit

    lower = emit.lower
    monkeypatch.setattr(emit, "lower", lambda *args: without_tails(lower(*args)))
    words = ["optimize", tmp_path / "m.moa", "-m", "delta-cpu", "-o", tmp_path / "b"]
    assert moarw(*words) == 4
    assert "MOA0655" in capsys.readouterr().err and not (tmp_path / "b").exists()
    assert moarw(*words, "--no-trial") == 0


# --- what is said and written -----------------------------------------------------------------------------------------------------------
def test_the_bundle_does_not_depend_on_it(weigh: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture, need) -> None:
    need("gcc")
    assert moarw("optimize", weigh, "-m", "delta-cpu", "-o", tmp_path / "a") == 0
    assert re.search(r"^tried +\d+ sizes up to n = \d+, m = \d+: all values within their bounds$", capsys.readouterr().out, re.M)
    monkeypatch.setenv("MOARW_NO_TRIAL", "1")
    assert moarw("optimize", weigh, "-m", "delta-cpu", "-o", tmp_path / "b") == 0
    assert "\ntried" not in capsys.readouterr().out
    files = sorted(p.name for p in (tmp_path / "a").iterdir())
    assert [(tmp_path / "a" / f).read_bytes() for f in files] == [(tmp_path / "b" / f).read_bytes() for f in files]


def test_without_a_compiler_the_table_says_so(weigh: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setattr(emission, "version", lambda target: emission.COMPILER[target])
    assert moarw("optimize", weigh, "-m", "delta-cpu", "-o", tmp_path / "a") == 0
    assert re.search(r"^tried +not at all", capsys.readouterr().out, re.M)


# --- the sizes --------------------------------------------------------------------------------------------------------------------------
def placed(name: str, *more: str) -> Kernel:
    args = parser().parse_args(["optimize", str(EXAMPLES / f"{name}.moa"), *more])
    return pipeline.search(pipeline.job(args), args).kernel


@pytest.mark.parametrize("name", ["matmul", "attention"])
@pytest.mark.parametrize("machine", ["delta-cpu", "delta-a100"])
@pytest.mark.parametrize("points", [2**23, 2**14])
def test_every_tile_is_full_and_cut(name: str, machine: str, points: int) -> None:
    k = _placed_once(name, machine)
    tried = tiles.trial_sizes(k, {}, points)
    found = tiles.tiles(k)
    assert {t.width for t in found} >= {int(w) for e in [str(d) for _, d in k.defs] for w in re.findall(r"\* (\d+)", e)} and len(found) >= 3
    for t in found:
        hits = [t.hit(at) for at in tried]
        assert any(full for full, _ in hits) and any(short for _, short in hits), (t, tried)
    assert dict.fromkeys(k.sizes, 1) in tried
    assert all(n % 2 for at in tried for n in at.values())


_KEPT: dict[tuple[str, str], Kernel] = {}


def _placed_once(name: str, machine: str) -> Kernel:
    if (name, machine) not in _KEPT:
        _KEPT[name, machine] = placed(name, "-m", machine)
    return _KEPT[name, machine]


def test_matmul_by_hand() -> None:
    """64 x 64 tiles: the loop over a tile's rest takes place when the size is no multiple, the full tile when it is at least one."""
    k = _placed_once("matmul", "delta-cpu")
    tried = tiles.trial_sizes(k, {}, 2**23)
    for name, d in k.defs:
        size = {"i": "n", "j": "m", "l": "k"}[name.split(".")[0]]
        if d.args[0].args[1].op != "int":  # the parts of a split over memory domains
            continue
        width = int(d.args[0].args[1].args[0])
        assert any(at[size] >= width and at[size] % width for at in tried), (name, width, tried)


def test_conditions_and_fixed_sizes_are_kept() -> None:
    text = "kernel k(x: f32[n], y: f32[m]) -> z: f32[n] where n == 2 * m, m >= 5 = x"
    k, _ = rules.psi_normalise(lang.elaborate(lang.load(text), None), rules.load())
    tried = tiles.trial_sizes(k, {}, 2**20)
    assert tried and all(at["n"] == 2 * at["m"] >= 10 for at in tried)
    assert tiles.trial_sizes(k, {"n": 20}, 2**20) == [{"n": 20, "m": 10}]
    far, _ = rules.psi_normalise(lang.elaborate(lang.load(text.replace("m >= 5", "m >= 100")), None), rules.load())
    assert tiles.trial_sizes(far, {}, 2**20) == [{"n": 256, "m": 128}]


def test_one_large_size_at_a_time() -> None:
    k = _placed_once("matmul", "delta-cpu")
    few = tiles.trial_sizes(k, {}, 2**12)
    assert all(sorted(at.values())[1] < 12 for at in few) and len(few) == 5


# --- a process of its own ------------------------------------------------------------------------------------------------------------------
def test_calls_apart(tmp_path: Path, need) -> None:
    """Results before a crash are kept; cells that nobody wrote show."""
    need("gcc")
    k = lang.elaborate(lang.load("kernel f(x: f64[n]) -> y: f64[n] = x"), None)
    body = "if (n == 3) __builtin_trap(); for (int64_t i = 0; i + 1 < n; i++) y[i] = x[i]; return 0;"
    c = f'#include "f.h"\nint f(int64_t n, const double *x, double *y) {{ {body} }}\n'
    so = compile_c(c, "#include <stdint.h>\n", tmp_path, "f")
    calls = [({"n": n}, {"x": np.arange(float(n))}) for n in (2, 3, 4)]
    first, why = call_apart(so, k, "f", calls, 1, 30.0, tmp_path)
    assert isinstance(first, dict) and first["y"][0] == 0.0 and np.isnan(first["y"][1])
    assert why == "the process ended with SIGILL"


@pytest.mark.slow
@pytest.mark.parametrize("target", ["c", "fortran"])
@pytest.mark.parametrize(("file", "name"), [k for k in kernels() if k[0] not in LONG])
def test_all_examples(file: str, name: str, target: str, tmp_path: Path, capsys: Capture, need) -> None:
    need("gcc")
    need("gfortran")
    assert moarw("optimize", EXAMPLES / f"{file}.moa", "--kernel", name, "--target", target, "-m", "delta-cpu", "-o", tmp_path / "b", "--json") == 0
    assert json.loads(capsys.readouterr().out)["tried"]
