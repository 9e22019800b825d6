"""Forward attention, 8 heads, n = 1024, d = 64, f32: generated C against NumPy's naive form and PyTorch (if installed), interleaved in one process.

    python benchmarks/attention.py [--threads 2] [--repeat 15] [--json FILE]

Ratios are peer time / ours, medians; the machine's peak is not measured here. NumPy's OpenBLAS uses the same number of threads. An environment that names
an old OpenBLAS core type slows NumPy: run with OPENBLAS_CORETYPE and OPENBLAS_L2_SIZE unset.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "attention.moa"
PAUSE = 0.1  # seconds before each call: idle threads of the libraries' pools spin for a while and would take a core from the next
SIZES = {"h": 8, "n": 1024, "m": 1024, "d": 64, "e": 64}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=15)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = str(args.threads)
    import numpy as np

    from moa_rewrite import build, emit, lang, machine, rules, search

    kernel = lang.elaborate(lang.load_file(EXAMPLE))
    result = search.optimize(kernel, rules.load(), machine.detect(), SIZES)
    host = machine.detect()
    options = emit.Options(vector_bytes=host.simd_bytes, vector_registers=host.vector_registers)
    source = emit.print_c(emit.lower(result.kernel, "c", options))
    with tempfile.TemporaryDirectory() as folder:
        ours = build.load(build.compile_c(source.c_text, source.h_text, Path(folder), name=kernel.name), kernel)
        rng = np.random.default_rng(0)
        q, k, v = (rng.standard_normal((8, 1024, 64)).astype(np.float32) for _ in range(3))

        def naive() -> np.ndarray:
            s = q @ k.transpose(0, 2, 1) / np.float32(8.0)
            p = np.exp(s - s.max(-1, keepdims=True))
            return p / p.sum(-1, keepdims=True) @ v

        peers = {"moarw": lambda: ours(Q=q, K=k, V=v), "numpy": naive}
        try:
            import torch

            torch.set_num_threads(args.threads)
            tensors = [torch.from_numpy(x) for x in (q, k, v)]
            peers["torch sdpa"] = lambda: torch.nn.functional.scaled_dot_product_attention(*tensors).numpy()
        except ImportError:
            print("torch is not installed: not measured", file=sys.stderr)
        want = naive_f64(np, q, k, v)
        times: dict[str, list[float]] = {n: [] for n in peers}
        errors = {n: float(np.abs(f() - want).max()) for n, f in peers.items()}
        for _ in range(args.repeat):
            for name, f in peers.items():
                time.sleep(PAUSE)
                start = time.perf_counter()
                f()
                times[name].append(time.perf_counter() - start)
    median = {n: statistics.median(t) for n, t in times.items()}
    flops = 4 * 8 * 1024 * 1024 * 64
    rows = {n: {"ms": 1e3 * t, "gflops": flops / t / 1e9, "ratio": t / median["moarw"], "error": errors[n]} for n, t in median.items()}
    print(f"attention forward 8 x 1024 x 64 f32, {args.threads} threads, medians of {args.repeat}")
    for n, r in rows.items():
        print(f"  {n:12s} {r['ms']:8.2f} ms {r['gflops']:7.1f} GFLOP/s   {r['ratio']:5.2f} x ours   max error {r['error']:.1e}")
    if args.json:
        about = {"threads": args.threads, "repeat": args.repeat, "predicted_ms": 1e3 * float(result.plans[0].predicted_s)}
        args.json.write_text(json.dumps({**about, **rows}, indent=1))


def naive_f64(np, q, k, v):
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    s = q @ k.transpose(0, 2, 1) / 8.0
    p = np.exp(s - s.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True) @ v


if __name__ == "__main__":
    main()
