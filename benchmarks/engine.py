"""How long the engine itself takes: cold `moarw optimize` and `moarw check` as whole processes, with e-nodes and peak memory.

    python benchmarks/engine.py [--repeat 5] [--json FILE] [EXAMPLE ...]
    python benchmarks/engine.py --scale [FAMILY ...] [--most 16] [--limit 600] [--json FILE] [--table FILE]

Whole processes (imports and the C compiler included), medians. Peak memory is the largest resident set of the process or of a compiler that it starts.

--scale measures programs that grow, and fits the exponent of the growth (least squares between logarithms), for all sizes and for the last two:

    file          k kernels in one file, each optimized by a run of its own
    chained       one kernel of k statements, each of which reads the result of the one before
    independent   one kernel of k results that have one input in common
    axes          a sum of products over 1 to 6 axes in all

Processor time is what is fitted: a busy machine cannot lengthen it. --profile says where it goes in the largest program of each family.
"""

from __future__ import annotations

import argparse
import cProfile
import io
import json
import math
import os
import pstats
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"
MOARW = [sys.executable, "-m", "moa_rewrite"]


@dataclass(frozen=True)
class Run:
    """One process. ``wall_s``, ``cpu_s`` (children that it waited for included), ``peak_MiB``, and what it printed."""

    wall_s: float
    cpu_s: float
    peak_MiB: float
    text: str


def run(command: list[str], folder: str, limit: float = 3600.0) -> Run | None:
    """A process that must succeed; None if it takes more than ``limit`` seconds of processor time."""

    def bounded() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(limit), math.ceil(limit) + 5))

    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])}
    with tempfile.TemporaryFile() as out:
        start = time.perf_counter()
        child = subprocess.Popen(command, cwd=folder, stdout=out, env=env, preexec_fn=bounded)
        _, status, usage = os.wait4(child.pid, 0)
        wall = time.perf_counter() - start
        if os.WIFSIGNALED(status):
            return None
        if status != 0:
            raise SystemExit(f"{' '.join(command)} failed")
        out.seek(0)
        return Run(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, out.read().decode())


# --- programs that grow --------------------------------------------------------------------------------------------------------------
SIZES = "## typical { n = 512, m = 512 }\n"


def chained(k: int) -> str:
    """k statements: the rectified product with one matrix, again and again."""
    names = ["X", *[f"x{n}" for n in range(1, k)]]
    lets = "".join(f"    let {b} = max(0, {a} +.× W)\n" for a, b in pairwise(names))
    body = f"max(0, {names[-1]} +.× W)"
    return f"kernel chained{k}(X: f32[n, m], W: f32[m, m]) -> f32[n, m]\n  =\n{lets}{'    in ' if lets else '    '}{body}\n{SIZES}"


def independent(k: int) -> str:
    """k results of as many inputs and one matrix."""
    inputs = ", ".join(f"X{n}: f32[n, m]" for n in range(k))
    results = ", ".join(f"y{n}: f32[n, m]" for n in range(k))
    body = ", ".join(f"max(0, X{n} +.× W)" for n in range(k))
    return f"kernel independent{k}({inputs}, W: f32[m, m]) -> ({results})\n  = ({body})\n{SIZES}" if k > 1 else (
        f"kernel independent1({inputs}, W: f32[m, m]) -> {results}\n  = {body}\n{SIZES}")  # fmt: skip


def file(k: int) -> str:
    """k kernels, one after the other."""
    return "\n".join(chained(1).replace("chained1", f"product{n}") for n in range(k))


def axes(k: int) -> str:
    """An inner product whose operands have ``k`` axes in all, the one summed over counted once."""
    left, right = "abc"[: k // 2], "def"[: (k - 1) // 2]
    shape = lambda names: "[" + ", ".join(names) + "]" if names else ""  # noqa: E731
    extent = {1: 2**20, 2: 4096, 3: 1024, 4: 128, 5: 64, 6: 32}[k]
    sizes = ", ".join(f"{s} = {extent}" for s in f"{left}k{right}")
    return f"kernel axes{k}(A: f32{shape(left + 'k')}, B: f32{shape('k' + right)}) -> f32{shape(left + right)}\n  = A +.× B\n## typical {{ {sizes} }}\n"


FAMILIES: dict[str, tuple[Callable[[int], str], Sequence[int]]] = {
    "file": (file, (1, 2, 4, 8, 16)), "chained": (chained, (1, 2, 4, 8, 16)), "independent": (independent, (1, 2, 4, 8, 16)),
    "axes": (axes, (1, 2, 3, 4, 5, 6)),
}  # fmt: skip


def exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """The p for which c * size^p fits best: least squares between logarithms. NaN for fewer than two sizes."""
    if len(sizes) < 2:
        return math.nan
    x, y = [math.log(s) for s in sizes], [math.log(v) for v in values]
    mx, my = statistics.fmean(x), statistics.fmean(y)
    return sum((a - mx) * (b - my) for a, b in zip(x, y, strict=True)) / sum((a - mx) ** 2 for a in x)


def measured(family: str, k: int, machine: str, limit: float, folder: str) -> dict[str, float] | None:
    """A program of a family: seconds, e-nodes, memory. None if the limit is reached."""
    make = FAMILIES[family][0]
    path = Path(folder) / f"{family}{k}.moa"
    path.write_text(make(k), encoding="utf-8")
    kernels = [f"product{n}" for n in range(k)] if family == "file" else [""]
    total = {"wall_s": 0.0, "cpu_s": 0.0, "peak_MiB": 0.0, "nodes": 0.0, "search_s": 0.0, "check_s": 0.0, "check_MiB": 0.0}
    for name in kernels:
        out = str(Path(folder) / f"{family}{k}{name}")
        which = ["--kernel", name] if name else []
        done = run([*MOARW, "optimize", str(path), *which, "-m", machine, "-o", out, "--json", "--timeout", "36000"], folder, limit)
        if done is None:
            return None
        told = json.loads(done.text)
        checked = run([*MOARW, "check", out], folder)
        assert checked is not None
        for key, value in (("wall_s", done.wall_s), ("cpu_s", done.cpu_s), ("search_s", sum(told["search"]["seconds"].values())),
                           ("nodes", sum(told["search"]["nodes"].values())), ("check_s", checked.cpu_s)):  # fmt: skip
            total[key] += value
        total["peak_MiB"], total["check_MiB"] = max(total["peak_MiB"], done.peak_MiB), max(total["check_MiB"], checked.peak_MiB)
    return total


def scaled(families: list[str], args: argparse.Namespace) -> dict[str, dict]:
    out: dict[str, dict] = {}
    for family in families:
        rows: dict[int, dict[str, float] | None] = {}
        for k in FAMILIES[family][1]:
            if k > args.most:
                continue
            with tempfile.TemporaryDirectory() as folder:
                rows[k] = measured(family, k, args.machine, args.limit, folder)
            told = "over the limit" if rows[k] is None else "  ".join(f"{n} {v:.2f}" for n, v in rows[k].items())  # type: ignore[union-attr]
            print(f"{family} {k}: {told}", file=sys.stderr, flush=True)
            if rows[k] is None:
                break
        known = {k: r for k, r in rows.items() if r is not None}
        fit = {n: exponent(list(known), [max(r[n], 1e-9) for r in known.values()]) for n in ("cpu_s", "check_s", "nodes", "peak_MiB")}
        last = {n: exponent(list(known)[-2:], [max(r[n], 1e-9) for r in list(known.values())[-2:]]) for n in fit}
        out[family] = {"rows": rows, "exponent": fit, "last_step": last}
    return out


def table(found: dict[str, dict]) -> str:
    lines = ["| family | k | optimize, CPU s | search, elapsed s | e-nodes | peak, MiB | check, CPU s | peak, MiB |", "|---|---|---|---|---|---|---|---|"]
    for family, f in found.items():
        for k, r in f["rows"].items():
            cells = ["over the limit"] + [""] * 5 if r is None else [
                f"{r['cpu_s']:.2f}", f"{r['search_s']:.2f}", f"{r['nodes']:,.0f}", f"{r['peak_MiB']:.0f}", f"{r['check_s']:.2f}", f"{r['check_MiB']:.0f}"
            ]  # fmt: skip
            lines.append(f"| {family} | {k} | {' | '.join(cells)} |")
        for name, e in (("exponent", f["exponent"]), ("of the last step", f["last_step"])):
            lines.append(f"| | **{name}** | {e['cpu_s']:.2f} | | {e['nodes']:.2f} | {e['peak_MiB']:.2f} | {e['check_s']:.2f} | |")
    return "\n".join(lines)


def profiled(family: str, k: int, machine: str) -> str:
    """The functions that take most time in the program of a size, and those under which most of it passes."""
    from moa_rewrite.cli.main import main

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "program.moa"
        path.write_text(FAMILIES[family][0](k), encoding="utf-8")
        p = cProfile.Profile()
        with redirect_stdout(io.StringIO()):
            p.runcall(main, ["optimize", str(path), "-m", machine, "-o", str(Path(folder) / "out"), "--timeout", "36000"])
    text = io.StringIO()
    stats = pstats.Stats(p, stream=text).strip_dirs()
    stats.sort_stats("tottime").print_stats(12)
    stats.sort_stats("cumulative").print_stats("optimize|extract|cost|egraph|derive|form|obligations|certif|lower|trial|tiles|candidate", 16)
    return text.getvalue()


def cold(args: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Examples, from scratch."""
    rows = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in args.names or ["attention", "matmul", "layernorm", "softmax"]:
            out = str(Path(folder) / name)
            optimize = [run([*MOARW, "optimize", str(EXAMPLES / f"{name}.moa"), "-m", args.machine, "-o", out], folder) for _ in range(args.repeat)]
            check = [run([*MOARW, "check", out], folder) for _ in range(args.repeat)]
            rows[name] = {}
            for what, runs in (("optimize", optimize), ("check", check)):
                for key, attribute, pick in (("s", "wall_s", statistics.median), ("cpu_s", "cpu_s", statistics.median), ("MiB", "peak_MiB", max)):
                    rows[name][f"{what}_{key}"] = pick([getattr(r, attribute) for r in runs if r is not None])
            print(f"{name:12s} " + "  ".join(f"{k} {v:.2f}" for k, v in rows[name].items()), flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="examples; with --scale, families")
    parser.add_argument("--machine", default="host")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--scale", action="store_true")
    parser.add_argument("--profile", action="store_true", help="with --scale: where the time goes, in the largest program of each family")
    parser.add_argument("--most", type=int, default=16, help="with --scale: the largest program")
    parser.add_argument("--limit", type=float, default=600.0, help="with --scale: seconds of processor time of one run")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--table", type=Path, help="with --scale: Markdown")
    args = parser.parse_args()
    families = args.names or list(FAMILIES)
    if args.scale and args.profile:
        for family in families:
            k = max(k for k in FAMILIES[family][1] if k <= args.most)
            print(f"{family} {k}\n{profiled(family, k, args.machine)}")
        return
    found: dict = scaled(families, args) if args.scale else cold(args)
    if args.scale:
        print(table(found))
    if args.json:
        args.json.write_text(json.dumps({"machine": args.machine, "repeat": args.repeat, **found}, indent=1))
    if args.table:
        args.table.write_text(table(found) + "\n")


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    main()
