"""The command line's frame: messages, exit codes, options and their environment variables, laziness, interrupts."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

import pytest

from moa_rewrite import __version__
from moa_rewrite.cli import main as cli
from moa_rewrite.cli import optimize, options
from moa_rewrite.cli.main import COMMANDS, main
from moa_rewrite.errors import MoaError


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"moarw {__version__}\n"


@pytest.mark.parametrize("command", [[], *[[c] for c in COMMANDS], ["rules", "list"], ["machine", "show"]])
def test_help_is_there(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command, "--help"]) == 0
    assert capsys.readouterr().out.startswith("usage: moarw")


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        ([], "the following arguments are required: COMMAND", "moarw --help"),
        (["optimise", "x.moa"], "no command 'optimise'", "moarw optimize"),
        (["optimize"], "the following arguments are required: FILE", "moarw optimize --help"),
        (["optimize", "x.moa", "--target", "opencl"], "argument --target: 'opencl' is not one of c, fortran, cuda", "moarw optimize --help"),
        (["optimize", "x.moa", "--top", "0"], "0 is not a positive whole number", "moarw optimize --help"),
        (["optimize", "x.moa", "--timeout", "soon"], "invalid number of seconds value: 'soon'", "moarw optimize --help"),
        (["optimize", "x.moa", "-D", "n"], "argument -D: expected 2 arguments", "moarw optimize --help"),
        (["run", "x.moa", "--fancy"], "unrecognized arguments: --fancy", "moarw --help"),
        (["rules"], "the following arguments are required: list|show", "moarw rules --help"),
        (["machine", "draw"], "invalid choice: 'draw'", "moarw machine --help"),
    ],
)
def test_a_wrong_command_line(words: list[str], message: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 1
    out, err = capsys.readouterr()
    assert out == ""
    first, *rest = err.splitlines()
    assert first.startswith("moarw: error[MOA0701]: ") and message in first
    assert rest == [f"  try: {hint}"]


def test_exit_code_of_an_error(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def refuted(args: object) -> int:
        raise MoaError(501, "two iterations write O[i]", witness="i = 3, n = 5", exit_code=2)

    monkeypatch.setattr(optimize, "run", refuted)
    assert main(["optimize", "x.moa"]) == 2
    assert capsys.readouterr().err == "error[MOA0501]: two iterations write O[i]\n  witness: i = 3, n = 5\n"


def test_a_fault_is_one_line_and_exit_4(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken(args: object) -> int:
        raise KeyError("a\nb")

    monkeypatch.setattr(optimize, "run", broken)
    assert main(["optimize", "x.moa"]) == 4
    err = capsys.readouterr().err
    assert err.startswith("moarw: internal error KeyError: ") and err.count("\n") == 1
    assert main(["optimize", "x.moa", "-vv"]) == 4
    assert "Traceback" in capsys.readouterr().err


def test_interrupt(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(args: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(optimize, "run", interrupted)
    assert main(["optimize", "x.moa"]) == cli.INTERRUPTED
    assert capsys.readouterr().err == "moarw: interrupted\n"


def test_reading_the_command_line_loads_no_stage() -> None:
    """Start-up is quick, and `check` starts without egglog and the search."""
    program = "import sys; from moa_rewrite.cli.main import main; main(['optimize', '--help']); print(sorted(m for m in sys.modules if m in HEAVY))"
    program = f"HEAVY = ['egglog', 'z3', 'numpy', 'sympy', 'moa_rewrite.search', 'moa_rewrite.lang'];{program}"
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert out.splitlines()[-1] == "[]"


def test_environment_fills_in_and_the_flag_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOARW_TOP", "7")
    monkeypatch.setenv("MOARW_WITHOUT", "a,b")
    monkeypatch.setenv("MOARW_JSON", "1")
    args = cli.parser().parse_args(["optimize", "x.moa"])
    assert (args.top, args.without, args.json) == (7, ["a", "b"], True)
    assert cli.parser().parse_args(["optimize", "x.moa", "--top", "2"]).top == 2


def test_a_bad_environment_variable_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("MOARW_TOP", "many")
    assert main(["optimize", "x.moa"]) == 1
    assert "argument --top: invalid whole number value: 'many'" in capsys.readouterr().err


def test_every_variable_is_in_the_table_and_has_its_flag(root: Path) -> None:
    table = {}
    for line in (root / "docs" / "cli.md").read_text().splitlines():
        if m := re.match(r"\| `(MOARW_\w+)` \| (.+?) \|", line):
            table[m[1]] = re.findall(r"`(--?[\w-]+)", m[2])
    assert table == {o.variable: list(o.flags) for o in options.OPTIONS.values()}
    used = {v for p in sorted((root / "moa_rewrite").rglob("*.py")) for v in re.findall(r"[\"'](MOARW_[A-Z_]+[A-Z])", p.read_text())}
    assert used <= set(table)


def test_the_page_names_every_option_and_who_has_it(root: Path) -> None:
    page = (root / "docs" / "cli.md").read_text()
    users = {m[1]: set(m[2].split(", ")) for m in re.finditer(r"^\| `MOARW_\w+` \| .*?`(--[\w-]+)[^|]*\| ([^|]+) \|", page, re.M)}
    found: dict[str, set[str]] = {}

    def walk(p: argparse.ArgumentParser, command: str) -> None:
        for a in p._actions:
            if isinstance(a, argparse._SubParsersAction):
                for name, sub in a.choices.items():
                    walk(sub, f"{command} {name}".strip())
            for o in a.option_strings:
                if o not in ("-h", "--help"):
                    found.setdefault(o, set()).add(command)
                    assert re.search(rf"`(moarw )?{re.escape(o)}[ `]", page), f"{command} {o}"

    walk(cli.parser(), "")
    def covers(user: str, command: str) -> bool:
        return user in ("all", command) or command.startswith(f"{user} ")

    for option, commands in found.items():
        for who in users.get(option, set()):
            assert any(covers(who, c) for c in commands), f"{option} of {who}"
        assert option not in users or all(any(covers(u, c) for u in users[option]) for c in commands), option


def test_sizes_on_the_command_line() -> None:
    assert options.integers([["n", "3"], ["m", "0"]], "-D") == {"n": 3, "m": 0}
    for pairs in ([["n", "x"]], [["n", "-1"]], [["n", "2.5"]], [["n", "1"], ["n", "2"]]):
        with pytest.raises(MoaError, match="MOA0753"):
            options.integers(pairs, "-D")
