"""``optimize --tune`` and ``--plan``: what is measured, what is left out, what is kept, and what is refused."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from moa_rewrite.build import measured
from moa_rewrite.cli import cache, emission, options, pipeline, tune
from moa_rewrite.cli.main import main, parser
from moa_rewrite.errors import MoaError

PROGRAM = "kernel weigh(A: f64[n, m], W: f64[m, k]) -> y: f64[n, k] where m >= 1 = A +.× W\n"
SIZES = ("-D", "n", "64", "-D", "m", "60", "-D", "k", "50")
Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, need) -> None:
    need("gcc")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(tune, "ROUNDS", 3)
    monkeypatch.setattr(tune, "LEAST", 1e-3)
    (tmp_path / "weigh.moa").write_text(PROGRAM, encoding="utf-8")
    monkeypatch.chdir(tmp_path)


def moarw(*words: str | Path) -> int:
    return main([str(w) for w in words])


def tuned(out: str, *more: str) -> int:
    return moarw("optimize", "weigh.moa", "--tune", "3", "-o", out, *SIZES, *more)


def same(a: str, b: str) -> bool:
    """Whether two bundles hold the same files with the same bytes; plan files aside, which hold times."""
    one, two = ({p.name: p.read_bytes() for p in Path(x).iterdir() if p.suffix != ".yaml"} for x in (a, b))
    return one == two


def never(*_: object, **__: object) -> None:
    raise AssertionError("measured again")


def in_order(times: list[float]) -> Callable[..., list[measured.Timed | str]]:
    """In place of a measurement: these seconds, one per contender."""

    def fake(contenders: list[measured.Contender], *_: object, **__: object) -> list[measured.Timed | str]:
        return [measured.Timed(t, (t,)) for t in times[: len(contenders)]]

    return fake


def test_the_fastest_is_taken_and_its_plan_makes_it_again(capsys: Capture) -> None:
    assert tuned("a", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    rows = told["tuned"]["plans"]
    assert len(rows) == 3 and [r["taken"] for r in rows] == [True, False, False] and not any(r["why"] for r in rows)
    assert [r["measured_s"] for r in rows] == sorted(r["measured_s"] for r in rows) and rows[0]["measured_s"] > 0
    assert len({r["text"] for r in rows}) == 3, "three different kernels"
    assert moarw("check", "a") == 0
    plan = yaml.safe_load(Path("a/weigh.tuned.yaml").read_text())
    assert (plan["loops"], plan["tiles"], plan["text"]) == (rows[0]["loops"], rows[0]["tiles"], rows[0]["text"])
    assert moarw("optimize", "weigh.moa", "--plan", "a/weigh.tuned.yaml", "-o", "b") == 0
    assert "warning" not in capsys.readouterr().err
    assert same("a", "b") and not Path("b/weigh.tuned.yaml").exists()


def test_the_measurement_decides(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    """Each of the plans, whichever is measured fastest, ends in the bundle."""
    texts = []
    for n, times in enumerate(([1e-3, 2e-3, 3e-3], [2e-3, 1e-3, 3e-3], [3e-3, 2e-3, 1e-3])):
        monkeypatch.setattr(measured, "interleaved", in_order(times))
        monkeypatch.setenv("XDG_CACHE_HOME", str(Path.cwd() / f"cache{n}"))
        assert tuned(f"o{n}") == 0
        out = capsys.readouterr().out
        taken = next(line for line in out.splitlines() if " taken " in line)
        assert taken.split()[:2] == ["1", "ms"] and f" {n + 1}  taken" in taken
        other = times[0 if n else 1] / times[n]
        assert f"measured {other:.2f}x the time" in out
        texts.append(Path(f"o{n}/weigh.c").read_text())
    assert len(set(texts)) == 3


def test_the_second_run_does_not_measure(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    assert tuned("a") == 0
    first = capsys.readouterr().out
    monkeypatch.setattr(measured, "interleaved", never)
    assert tuned("b") == 0
    second = capsys.readouterr().out
    assert "measured by an earlier run" in second and "measured by an earlier run" not in first
    assert same("a", "b") and Path("a/weigh.tuned.yaml").read_text() == Path("b/weigh.tuned.yaml").read_text()


def test_what_the_answer_depends_on() -> None:
    """Every one of these is another question; nothing else is."""

    def asked(*words: str) -> str:
        args = parser().parse_args(["optimize", "weigh.moa", *SIZES, "--tune", "3", *words])
        return cache.digest(tune.question(pipeline.job(args), args))

    other = [("--fix", "m", "60"), ("-D", "n", "64", "--target", "fortran"), ("--tune", "2"), ("--without", "lift"), ("-m", "delta-cpu"), ("--top", "3")]
    found = [asked(), *[asked(*words) for words in other]]
    Path("weigh.moa").write_text(PROGRAM.replace("A +.×", "A max.×"), encoding="utf-8")
    found.append(asked())
    assert len(set(found)) == len(found)
    Path("weigh.moa").write_text(f"# a remark\n{PROGRAM}", encoding="utf-8")
    assert asked("-o", "elsewhere", "--stem", "other", "-v") == found[0]


@pytest.mark.slow
def test_a_plan_that_gives_another_text_is_measured_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """A version under development has the version number of the last run."""
    assert tuned("a") == 0
    asked: list[int] = []
    monkeypatch.setattr(measured, "interleaved", lambda c, *_, **__: asked.append(1) or [measured.Timed(1e-3, (1e-3,)) for _ in c])
    real = emission.emit

    def other(*args: object) -> emission.Emitted:
        e = real(*args)  # type: ignore[arg-type]
        return replace(e, files={n: b"/* new */\n" + t if n.endswith(".c") else t for n, t in e.files.items()})

    monkeypatch.setattr(emission, "emit", other)
    assert tuned("b") == 0 and asked == [1]


@pytest.mark.slow
def test_a_damaged_entry_is_ignored_with_a_warning(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setattr(measured, "interleaved", in_order([1e-3, 2e-3, 3e-3]))
    assert tuned("a") == 0
    entry = next(Path("cache/moarw/tune").glob("*.json"))
    entry.write_text(entry.read_text().replace('"threads": ', '"threads": 1'))
    capsys.readouterr()
    assert tuned("b") == 0
    captured = capsys.readouterr()
    assert f"moarw: warning: the damaged cache entry {entry.resolve()} is ignored: its digest is another" in captured.err
    assert "measured by an earlier run" not in captured.out
    assert tuned("c") == 0 and "warning" not in capsys.readouterr().err, "it was replaced by a whole one"


@pytest.mark.parametrize("harm", ["cut", "changed", "empty", "binary", "list"])
def test_damage(harm: str, tmp_path: Path, capsys: Capture) -> None:
    cache.write("k", "x", {"answer": [1, 2]})
    entry = tmp_path / "cache" / "moarw" / "k" / "x.json"
    text = entry.read_text()
    rotten = {"cut": text[:40], "changed": text.replace("2", "3"), "empty": "", "binary": "\udcff", "list": "[]"}[harm]
    entry.write_bytes(rotten.encode(errors="surrogateescape"))
    assert cache.read("k", "x") is None and f"the damaged cache entry {entry} is ignored" in capsys.readouterr().err


def spoiled(monkeypatch: pytest.MonkeyPatch, harm: Callable[[str], str]) -> None:
    """The text of the first plan that is emitted is changed, wherever it is emitted."""
    real, first = emission.emit, []

    def emit(kernel, *args):  # type: ignore[no-untyped-def]
        e = real(kernel, *args)
        first.append(kernel)
        if kernel == first[0]:
            e = replace(e, files={n: harm(t.decode()).encode() if n.endswith(".c") else t for n, t in e.files.items()})
        return e

    monkeypatch.setattr(emission, "emit", emit)


def test_a_plan_that_does_not_compile_is_left_out_and_told(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    spoiled(monkeypatch, lambda text: text + "\n#error no\n")
    assert tuned("a") == 0
    out = capsys.readouterr().out
    assert out.count("left out") == 2 and "MOA0602 gcc failed on weigh.c" in " ".join(out.split())
    assert "taken" in out and "#error" not in Path("a/weigh.c").read_text()
    assert "MOA0602" in Path("a/weigh.tuned.yaml").read_text()


@pytest.mark.slow
def test_a_plan_whose_values_are_wrong_is_left_out_and_told(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    spoiled(monkeypatch, lambda text: text.replace("+=", "-="))
    assert tuned("a") == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "wrong values: y: error" in out and "taken" in out
    assert moarw("run", "a", *SIZES, "--repeat", "1") == 0


def test_a_winner_that_fails_its_trial_gives_way(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    from moa_rewrite.cli import trial

    monkeypatch.setattr(measured, "interleaved", in_order([1e-3, 2e-3, 3e-3]))
    calls: list[object] = []
    real = trial.attempt

    def attempt(*args: object) -> list[dict[str, int]]:
        calls.append(1)
        if len(calls) == 1:
            raise MoaError(655, "the c emitted for weigh computes something else", witness="at n = 3")
        return real(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(trial, "attempt", attempt)
    assert tuned("a") == 0
    out = capsys.readouterr().out
    assert "MOA0655" in out and " 2  taken" in out
    monkeypatch.setattr(trial, "attempt", lambda *_: (_ for _ in ()).throw(MoaError(655, "nothing is right", exit_code=4)))
    assert tuned("none") == 4 and not Path("none").exists(), "none is left"
    assert "error[MOA0655]: nothing is right" in capsys.readouterr().err


def test_no_plan_can_be_measured(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setattr(measured, "interleaved", lambda c, *_, **__: ["the process ended with SIGSEGV" for _ in c])
    assert tuned("a") == 4
    err = capsys.readouterr().err
    assert "error[MOA0765]" in err and "SIGSEGV" in err and not Path("a").exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("-m", "delta-cpu"), "MOA0762]: --tune measures on this computer"),
        (("-m", "delta-a100"), "does not run CUDA"),
        (("--plan", "p.yaml"), "MOA0753]: --tune looks for a plan, and --plan gives one"),
    ],
)
def test_where_it_cannot_measure(words: tuple[str, ...], told: str, capsys: Capture) -> None:
    assert tuned("a", *words) == 1
    assert told in capsys.readouterr().err and not Path("a").exists()


def test_without_a_compiler(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setattr(emission, "version", lambda target: emission.COMPILER[target])
    assert tuned("a") == 1 and "MOA0762]: --tune compiles what it measures, and there is no gcc here" in capsys.readouterr().err


def test_the_option(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    kind = options.OPTIONS["tune"].type
    assert [kind(t) for t in ("off", "0", "7")] == [0, 0, 7]
    for text in ("-1", "many", "1.5"):
        assert moarw("optimize", "weigh.moa", "--tune", text) == 1 and "MOA0701" in capsys.readouterr().err
    monkeypatch.setattr(tune, "best", never)
    assert moarw("optimize", "weigh.moa", "-o", "a", *SIZES, "--tune", "off") == 0


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What --tune writes, which no test changes."""
    at = tmp_path_factory.mktemp("tuned")
    (at / "weigh.moa").write_text(PROGRAM, encoding="utf-8")
    with pytest.MonkeyPatch.context() as m:
        m.setenv("XDG_CACHE_HOME", str(at / "cache"))
        m.setattr(measured, "interleaved", in_order([1e-3, 2e-3]))
        assert moarw("optimize", at / "weigh.moa", "--tune", "2", "-o", at / "a", *SIZES) == 0
    return at / "a"


def written(change: Callable[[dict], object]) -> str:
    plan = yaml.safe_load(Path("a/weigh.tuned.yaml").read_text())
    change(plan)
    Path("p.yaml").write_text(yaml.safe_dump(plan))
    return "p.yaml"


def test_plans_that_are_none(bundle: Path, capsys: Capture) -> None:
    shutil.copytree(bundle, "a")
    changes: dict[str, Callable[[dict], object]] = {
        "'loops' is missing": lambda p: p.pop("loops"),
        "'tiles' is missing or of another kind": lambda p: p.update(tiles={"i": "big"}),
        "'sizes' is missing or of another kind": lambda p: p.update(sizes={"n": True}),
        "format 2; this moarw reads format 1": lambda p: p.update(format=2),
        "has no tile size for j": lambda p: p.update(tiles={"j": 0}),
        "for the machine delta-cpu, not for host": lambda p: p.update(machine="delta-cpu"),
    }
    for told, change in changes.items():
        assert moarw("optimize", "weigh.moa", "--plan", written(change), "-o", "b") == 1
        err = capsys.readouterr().err
        assert told in err and "MOA0763" in err, err
    for text in ("- a\n", "{", "text"):
        Path("p.yaml").write_text(text)
        assert moarw("optimize", "weigh.moa", "--plan", "p.yaml", "-o", "b") == 1 and "MOA0763]: p.yaml is no plan" in capsys.readouterr().err
    assert moarw("optimize", "weigh.moa", "--plan", "none.yaml", "-o", "b") == 1 and "MOA0751" in capsys.readouterr().err
    assert not Path("b").exists()


def test_a_plan_that_no_longer_exists(bundle: Path, capsys: Capture) -> None:
    shutil.copytree(bundle, "a")
    for change in (lambda p: p.update(form="folded"), lambda p: p.update(loops="q y"), lambda p: p.update(packed=["W[@z]"])):
        assert moarw("optimize", "weigh.moa", "--plan", written(change), "-o", "b") == 1
        err = capsys.readouterr().err
        assert "MOA0764]: p.yaml: the plan no longer exists for weigh" in err and "try: " in err
    Path("weigh.moa").write_text(PROGRAM.replace("A +.× W", "A max.× W"), encoding="utf-8")
    code = moarw("optimize", "weigh.moa", "--plan", "a/weigh.tuned.yaml", "-o", "b")
    assert code == 0 and "warning: the text of this kernel is not the one" in capsys.readouterr().err


def test_the_command_line_and_the_plan_disagree(bundle: Path, capsys: Capture) -> None:
    shutil.copytree(bundle, "a")
    plan = ("--plan", "a/weigh.tuned.yaml", "-o", "b")
    for words in (("-D", "n", "301"), ("--fix", "m", "60"), ("--target", "fortran"), ("--kernel", "other")):
        assert moarw("optimize", "weigh.moa", *plan, *words) == 1 and "MOA0763" in capsys.readouterr().err
    assert moarw("optimize", "weigh.moa", *plan, "-D", "n", "64", "--target", "c") == 0
    assert moarw("optimize", "weigh.moa", *plan, "-D", "q", "300") == 1 and "no size 'q'" in capsys.readouterr().err


def test_top_bounds_the_rows_of_the_table(capsys: Capture) -> None:
    Path("soft.moa").write_text("kernel soft(x: f32[n, m]) -> f32[n, m] where m >= 1 = softmax Ω<1> x\n", encoding="utf-8")
    rows = {}
    for top in ("1", "2", "9"):
        assert moarw("optimize", "soft.moa", "-m", "delta-cpu", "-o", "a", "--no-trial", "--top", top, "-D", "n", "64", "-D", "m", "60") == 0
        out = capsys.readouterr().out.splitlines()
        start = next(n for n, line in enumerate(out) if line.startswith("rejected"))
        rows[top] = 1 + next(n for n, line in enumerate(out[start + 1 :]) if not line.startswith(" "))
    assert rows["1"] == 1 and rows["2"] == 2 and rows["9"] > 2


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert cache.folder() == tmp_path / "cache" / "moarw"
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for text in ("", "relative/path"):
        monkeypatch.setenv("XDG_CACHE_HOME", text)
        assert cache.folder() == tmp_path / "home" / ".cache" / "moarw"


@pytest.mark.slow
def test_a_cache_that_cannot_be_written_to(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    Path("file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(Path.cwd() / "file"))
    assert tuned("a") == 0
    assert "warning: nothing is kept in" in capsys.readouterr().err


def test_entries(tmp_path: Path) -> None:
    assert cache.read("k", "x") is None
    cache.write("k", "x", {"b": [1, 2.5], "a": None})
    assert cache.read("k", "x") == {"b": [1, 2.5], "a": None}
    assert [p.name for p in (tmp_path / "cache" / "moarw" / "k").iterdir()] == ["x.json"], "no spare files are left"
    assert cache.digest({"a": 1, "b": 2}) == cache.digest({"b": 2, "a": 1}) != cache.digest({"a": 1, "b": 3})


def test_processes_take_turns(tmp_path: Path) -> None:
    """Several processes count in one file; none is lost."""
    program = textwrap.dedent("""
        import time
        from moa_rewrite.cli import cache
        for _ in range(10):
            with cache.locked("counter"):
                n = (cache.read("k", "n") or 0) + 1
                time.sleep(0.001)
                cache.write("k", "n", n)
    """)
    running = [subprocess.Popen([sys.executable, "-c", program]) for _ in range(3)]
    assert [p.wait(60) for p in running] == [0, 0, 0]
    assert cache.read("k", "n") == 30
