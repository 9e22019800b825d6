"""Generated C against the libraries its users would otherwise call: one command, one table.

    python benchmarks/run.py [--python PEERS/bin/python] [--only TEXT] [--peers LIST] [--threads 1 2] [--odd | --all] [--quick] [--resume FILE] [--table FILE]

Every contender runs in a process of its own; the processes take turns within a round, and a pause before each turn lets the idle threads of the others' pools
fall asleep. A turn is one warming call and some timed ones. A ratio is a contender's median of a round over ours of the same round, then the median over
rounds. With one thread the clock is that of the process, which a busy machine cannot lengthen; with more it is elapsed time, and a turn waits for others to
fall silent. In the same rounds the machine's limits are measured: fused multiply-adds, copying, reading. Inputs and, where a peer takes them, outputs are
allocated beforehand. Errors are the largest distance from a float64 answer, relative to that answer's largest magnitude.

Peers that are not installed are named and left out. --python names further interpreters (repeatable) whose environments hold peers: Numba, JAX and ONNX Runtime
pin versions of NumPy of their own and are best kept apart. OPENBLAS_CORETYPE and OPENBLAS_L2_SIZE are removed from the environment of the workers, so that
OpenBLAS takes the kernel made for this processor.

Results are written after every row. --resume FILE takes the rows that FILE holds, measures those that it lacks, and adds them to it; the options that a figure
depends on must be the same. A contender that ends or is silent for too long is named in its row and started anew for the next.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from cases import ODD, REGULAR, Case  # type: ignore[import-not-found]

HERE = Path(__file__).resolve().parent
PEERS = ("numpy", "torch", "torch-compile", "onnxruntime", "jax", "numba")
OURS = ("moarw", "moarw-fixed")
PAUSE = 0.1  # seconds before a turn
QUIET = 0.08  # share of the processors that may be busy during the pause
PATIENCE = 900  # seconds for an answer: the search for a large program, or a compilation, takes some minutes
SAME = ("peers", "rounds", "seconds", "most", "memory", "best")  # options that a row's figures depend on
QUICK = ("attention 8x512x64", "attention_causal 8x512x64", "matmul 512", "softmax 4096x4096", "rmsnorm 4096x4096")


class Worker:
    def __init__(self, peer: str, python: str, threads: int) -> None:
        hidden = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
        env = {k: v for k, v in os.environ.items() if k not in hidden}
        env |= {f"{n}_NUM_THREADS": str(threads) for n in ("OMP", "OPENBLAS", "MKL", "NUMBA")}
        env |= {"TORCHINDUCTOR_COMPILE_THREADS": "1"}
        if peer == "jax" and threads == 1:
            env["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
        cores = sorted(os.sched_getaffinity(0))[:threads]
        self.peer = peer
        self.log = tempfile.TemporaryFile()  # noqa: SIM115
        self.process = subprocess.Popen(
            ["taskset", "-c", ",".join(map(str, cores)), python, str(HERE / "worker.py"), peer, str(threads)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, env=env, text=True,
        )  # fmt: skip
        self.alive = bool(self.answer())

    def answer(self) -> dict[str, Any]:
        """What the worker says, or nothing when it has ended. One that is silent for longer than ``PATIENCE`` is ended."""
        assert self.process.stdout
        if not select.select([self.process.stdout], [], [], PATIENCE)[0]:
            self.process.kill()
        line = self.process.stdout.readline()
        if not line:
            self.alive = False
            return {}
        return dict(json.loads(line))

    def ask(self, op: str, **more: Any) -> dict[str, Any]:
        assert self.process.stdin
        try:
            self.process.stdin.write(json.dumps({"op": op, **more}) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return {}
        return self.answer()

    def reason(self) -> str:
        self.log.seek(0)
        lines = self.log.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "ended"

    def end(self) -> None:
        if self.process.poll() is None:
            assert self.process.stdin
            try:
                self.process.stdin.write('{"op": "quit"}\n')
                self.process.stdin.close()
                self.process.wait(10)
            except (BrokenPipeError, subprocess.TimeoutExpired):
                self.process.kill()
        self.process.wait()


def quiet(patience: float) -> float:
    """Pause until nothing else runs (other processes, pools that still spin), at most ``patience`` seconds longer. The busy share of the last pause."""
    end = time.monotonic() + patience
    while True:
        before = ticks()
        time.sleep(PAUSE)
        idle, total = (b - a for a, b in zip(before, ticks(), strict=True))
        busy = 1 - idle / max(total, 1)
        if busy <= QUIET or time.monotonic() > end:
            return busy


def ticks() -> tuple[int, int]:
    """(idle, all) processor time since the start of the system."""
    numbers = [int(x) for x in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return numbers[3] + numbers[4], sum(numbers)


def start(peer: str, pythons: Iterable[str], threads: int) -> Worker | None:
    """The peer in the first environment that has it."""
    for python in pythons:
        w = Worker(peer, python, threads)
        if w.alive:
            return w
        why = w.reason()
        w.end()
    print(f"{peer} is not measured: {why}", file=sys.stderr)
    return None


def prepared(case: Case, folder: Path) -> Path:
    """Inputs and float64 answer of a case as files, made once."""
    at = folder / case.name.replace(" ", "_")
    if not at.exists():
        at.mkdir()
        inputs = case.inputs()
        for name, a in inputs.items():
            np.save(at / f"{name}.npy", a)
        for name, a in case.reference({n: a.astype(np.float64) for n, a in inputs.items()}).items():
            np.save(at / f"answer-{name}.npy", np.asarray(a))
    return at


def measured(case: Case, workers: dict[str, Worker], limits: Worker, at: Path, threads: int, args: argparse.Namespace) -> dict[str, Any]:
    """One row: what each contender said at setup, its times by round, ratios, and the limits."""
    row: dict[str, Any] = {"sizes": case.sizes, "flops": case.flops, "read": case.read, "written": case.written, "bound": case.bound}
    row |= {"contenders": {}, "left_out": {}}
    ready: dict[str, Worker] = {}
    for name, w in workers.items():
        said = w.ask("setup", case=case.name, folder=str(at)) if w.alive else {}
        if not said:
            said = {"ok": False, "why": f"ended: {w.reason()}"}
        if said.pop("ok"):
            ready[name] = w
            row["contenders"][name] = {**said, "rounds": []}
        else:
            row["left_out"][name] = said["why"]
    rates: dict[str, list[float]] = {}
    busy: list[float] = []
    for _ in range(args.rounds):
        quiet(args.patience if threads > 1 else 0)
        for k, v in limits.ask("rates").items():
            rates.setdefault(k, []).append(v)
        for name, w in ready.items():
            busy.append(quiet(args.patience if threads > 1 else 0))
            if said := w.ask("time", seconds=args.seconds, most=args.most):
                row["contenders"][name]["rounds"].append(statistics.median(said["times"]))
        for name in [n for n, w in ready.items() if not w.alive]:
            row["left_out"][name] = f"ended: {ready.pop(name).reason()}"
            del row["contenders"][name]
    if args.memory:
        for name, w in ready.items():
            row["contenders"][name]["memory"] = w.ask("memory").get("bytes", 0)
    row["busy"] = statistics.mean(busy) if busy else 0.0
    row["limits"] = {k: max(v) for k, v in rates.items()}
    for c in row["contenders"].values():
        c["seconds"] = statistics.median(c["rounds"])
    ours = [row["contenders"][n] for n in OURS if n in row["contenders"]]
    if ours:
        base = min(ours, key=lambda c: c["seconds"])["rounds"] if args.best else ours[0]["rounds"]
        for c in row["contenders"].values():
            c["ratio"] = statistics.median(t / b for t, b in zip(c["rounds"], base, strict=True))
    return row


def share(row: dict[str, Any], seconds: float) -> float:
    """Of the limit that binds: arithmetic done or bytes moved per second over what was measured in the same rounds."""
    work = row["flops"] if row["bound"].startswith("f") else row["read"] + row["written"]
    return float(work / seconds / row["limits"][row["bound"]])


def table(results: dict[str, Any]) -> str:
    """Markdown: our time and share, then each peer's time over ours; the best peer's ratio in bold."""
    lines = []
    for threads, rows in results["threads"].items():
        names = [p for p in (*OURS, *results["peers"]) if any(p in r["contenders"] for r in rows.values())]
        peers = [n for n in names if n != "moarw"]
        lines += [f"\n{threads} thread{'s' * (threads != '1')}\n", f"| program | ms | GF/s or GB/s | of limit | {' | '.join(peers)} | error | peers' errors |"]
        lines.append("|---" * (len(peers) + 6) + "|")
        for case, row in rows.items():
            found = row["contenders"]
            if "moarw" not in found:
                lines.append(f"| {case} | {row['left_out'].get('moarw', '-').splitlines()[0]} |" + " |" * (len(peers) + 4))
                continue
            s = found["moarw"]["seconds"]
            work = row["flops"] if row["bound"].startswith("f") else row["read"] + row["written"]
            rivals = [found[p]["ratio"] for p in peers if p in found and p not in OURS]
            best = min(rivals) if rivals else 0
            cells = []
            for p in peers:
                text = f"{found[p]['ratio']:.2f}" if p in found else "-"
                cells.append(f"**{text}**" if p in found and p not in OURS and found[p]["ratio"] == best else text)
            worst = [found[p]["error"] for p in peers if p in found and p not in OURS]
            errors = f"{min(worst):.0e} .. {max(worst):.0e}" if worst else "-"
            ours = f"{s * 1e3:.2f} | {work / s / 1e9:.1f} | {share(row, s):.0%}"
            lines.append(f"| {case} | {ours} | {' | '.join(cells)} | {found['moarw']['error']:.0e} | {errors} |")
        limits = {k: [r["limits"][k] for r in rows.values()] for k in ("f32", "f64", "copy", "read")}
        text = ", ".join(f"{k} {statistics.median(v) / 1e9:.0f} ({min(v) / 1e9:.0f} to {max(v) / 1e9:.0f})" for k, v in limits.items())
        lines.append(f"\nLimits in the same rounds, GF/s and GB/s, median over rows (least to most): {text}.")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", action="append", default=[], help="a further interpreter whose environment holds peers")
    parser.add_argument("--only", action="append", default=[], metavar="TEXT", help="cases with TEXT in their name (repeatable)")
    parser.add_argument("--peers", nargs="*", default=list(PEERS), choices=PEERS)
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--odd", action="store_true", help="sizes that are multiples of nothing")
    which.add_argument("--all", action="store_true", help="both kinds of sizes")
    parser.add_argument("--quick", action="store_true", help="a few cases and rounds")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.1, help="of timed calls in a turn")
    parser.add_argument("--most", type=int, default=50, help="calls in a turn")
    parser.add_argument("--patience", type=float, default=3.0, help="seconds that a turn waits for other processes to fall silent")
    parser.add_argument("--memory", action="store_true", help="also how far resident memory rises in a call")
    parser.add_argument("--best", action="store_true", help="ratios against the faster of the variants with and without fixed sizes")
    kept = parser.add_mutually_exclusive_group()
    kept.add_argument("--json", type=Path, help="where results go, after every row")
    kept.add_argument("--resume", type=Path, metavar="FILE", help="results that are not measured again; new ones are added to it")
    parser.add_argument("--table", type=Path)
    args = parser.parse_args()
    cases = chosen(args)
    file = args.resume or args.json
    results = resumed(args.resume, args) if args.resume else fresh(args)
    missing = [(t, c) for t in args.threads for c in cases if c.name not in results["threads"].setdefault(str(t), {})]
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        for threads in dict.fromkeys(t for t, _ in missing):
            with Contenders(args, threads, Path(folder)) as contenders:
                for at, case in ((n, c) for n, (t, c) in enumerate(missing) if t == threads):
                    row = measured(case, contenders.ready(), contenders.limits, prepared(case, Path(folder)), threads, args)
                    results["threads"][str(threads)][case.name] = row
                    results["load_after"] = os.getloadavg()
                    if file:
                        save(results, file)
                    told(case, threads, row)
                    left = (time.monotonic() - started) / (at + 1) * (len(missing) - at - 1)
                    print(f"{at + 1} of {len(missing)} rows, about {left / 60:.0f} min left", file=sys.stderr, flush=True)
    text = table(results)
    print(text)
    if args.table:
        args.table.write_text(text, encoding="utf-8")


def chosen(args: argparse.Namespace) -> list[Case]:
    cases = ODD if args.odd else [*REGULAR, *ODD] if args.all else REGULAR
    if args.quick:
        cases, args.rounds = [c for c in cases if c.name in QUICK], min(args.rounds, 3)
    if args.only:
        cases = [c for c in cases if any(o in c.name + " " or o in c.tags for o in args.only)]
    return cases


class Contenders:
    """The workers of one thread count, with the one that measures limits; those that ended are started anew when they are asked for."""

    def __init__(self, args: argparse.Namespace, threads: int, folder: Path) -> None:
        self.pythons, self.threads = [sys.executable, *args.python], threads
        limits = start("limits", [sys.executable], threads)
        assert limits
        self.limits = limits
        any_case = min(REGULAR, key=lambda c: c.read)
        self.limits.ask("setup", case=any_case.name, folder=str(prepared(any_case, folder)))
        self.workers = {p: w for p in (*OURS, *args.peers) if (w := start(p, self.pythons, threads))}

    def __enter__(self) -> Contenders:
        return self

    def __exit__(self, *_: object) -> None:
        for w in (*self.workers.values(), self.limits):
            w.end()

    def ready(self) -> dict[str, Worker]:
        for name, w in self.workers.items():
            if not w.alive:
                w.end()
                self.workers[name] = start(name, self.pythons, self.threads) or w
        return self.workers


def fresh(args: argparse.Namespace) -> dict[str, Any]:
    return {"peers": args.peers, "options": options(args), "load_before": os.getloadavg(), "threads": {}}


def options(args: argparse.Namespace) -> dict[str, Any]:
    return {n: getattr(args, n) for n in SAME}


def resumed(file: Path, args: argparse.Namespace) -> dict[str, Any]:
    """What a file holds, or nothing yet where there is none. Ends the program when its rows were measured with other options."""
    if not file.exists():
        return fresh(args)
    results: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    other = [n for n, v in options(args).items() if results["options"].get(n) != v]
    if other:
        raise SystemExit(f"{file} was measured with " + ", ".join(f"--{n} {results['options'].get(n)}" for n in other))
    return results


def save(results: dict[str, Any], file: Path) -> None:
    """All or nothing: an interruption leaves what was there."""
    new = file.with_name(file.name + ".new")
    new.write_text(json.dumps(results, indent=1), encoding="utf-8")
    os.replace(new, file)


def told(case: Case, threads: int, row: dict[str, Any]) -> None:
    parts = [f"{n} {c['seconds'] * 1e3:.2f} ms" + (f" ({share(row, c['seconds']):.0%})" if n in OURS else "") for n, c in row["contenders"].items()]
    failed = [f"{n}: {why}" for n, why in row["left_out"].items() if "not written" not in why and "no size" not in why and "compiles to" not in why]
    print(f"[{threads}] {case.name}: {', '.join(parts)}{'; ' if failed else ''}{'; '.join(failed)}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
