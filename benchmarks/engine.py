"""How long the engine itself takes: cold `moarw optimize` and `moarw check` of examples as whole processes, with peak memory.

    python benchmarks/engine.py [--repeat 5] [--json FILE] [EXAMPLE ...]

Whole-process wall time (imports included), medians. Peak memory is the largest resident set of the process.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def timed(command: list[str], folder: str) -> tuple[float, float]:
    """Seconds and peak MiB of a process that must succeed."""
    start = time.perf_counter()
    child = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    if status != 0:
        raise SystemExit(f"{' '.join(command)} failed")
    return time.perf_counter() - start, usage.ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("examples", nargs="*", default=["attention", "matmul", "layernorm", "softmax"])
    parser.add_argument("--machine", default="host")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    rows = {}
    moarw = [sys.executable, "-m", "moa_rewrite"]
    with tempfile.TemporaryDirectory() as folder:
        for name in args.examples:
            out = str(Path(folder) / name)
            optimize = [timed([*moarw, "optimize", str(EXAMPLES / f"{name}.moa"), "-m", args.machine, "-o", out], folder) for _ in range(args.repeat)]
            check = [timed([*moarw, "check", out], folder) for _ in range(args.repeat)]
            rows[name] = {
                "optimize_s": statistics.median(t for t, _ in optimize), "optimize_MiB": max(m for _, m in optimize),
                "check_s": statistics.median(t for t, _ in check), "check_MiB": max(m for _, m in check),
            }  # fmt: skip
            print(f"{name:12s} " + "  ".join(f"{k} {v:.2f}" for k, v in rows[name].items()), flush=True)
    if args.json:
        args.json.write_text(json.dumps({"machine": args.machine, "repeat": args.repeat, **rows}, indent=1))


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    main()
