"""The C of every example, built with sanitizers and run at odd sizes: no access outside an array, no undefined arithmetic, no race between two threads.

The proofs say the same of the kernel before it is lowered; this looks at what lowering and printing made of it. For ThreadSanitizer the kernels are linked with
tests/gomp_threads.c in place of libgomp, which the sanitizer cannot see into. Plans are those for this computer, of a shorter search.
"""

from __future__ import annotations

import functools
import os
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onf
import pytest
from test_examples import agrees, data, elaborated, kernels, trial_sizes

from moa_rewrite import machine, rules, search
from moa_rewrite.build import SANITIZE, compile_c
from moa_rewrite.build.standalone import Standalone, main_c
from moa_rewrite.cli.emission import emit
from moa_rewrite.emit import LoopProgram, lower, print_c
from moa_rewrite.errors import MoaError
from moa_rewrite.terms import Kernel

THREADS = Path(__file__).resolve().parent / "gomp_threads.c"
ADDRESS = (*SANITIZE, "-O1")
THREAD = ("-g", "-O1", "-fsanitize=thread", str(THREADS))
QUICK = {"matmul", "softmax", "stencil5_rotate", "prefix_sum", "cross_entropy"}


@pytest.fixture(scope="module", autouse=True)
def _sanitizers_work(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A compiler without them is an error in CI; elsewhere the tests are skipped."""
    folder = tmp_path_factory.mktemp("probe")
    (folder / "probe.c").write_text("int main(void) { return 0; }\n")
    for name in ("address,undefined", "thread"):
        made = subprocess.run(["gcc", f"-fsanitize={name}", "probe.c", "-o", "probe"], cwd=folder, capture_output=True, text=True, check=False)
        done = made if made.returncode else subprocess.run([folder / "probe"], capture_output=True, text=True, check=False)
        if done.returncode:
            (pytest.fail if os.environ.get("CI") else pytest.skip)(f"gcc -fsanitize={name}: {done.stderr.strip()}")


@functools.cache
def planned(file: str, name: str) -> tuple[Kernel, search.Result]:
    k = elaborated(file, name, False)
    return k, search.optimize(k, rules.load(), machine.detect(), dict.fromkeys(k.sizes, 96), search.Options(top=1))


def lowered(kernel: Kernel) -> LoopProgram:
    out = emit(kernel, "c", kernel.name, {}, machine.detect()).lowered
    assert isinstance(out, LoopProgram)
    return out


def run(exe: Standalone, inputs: dict[str, np.ndarray], sizes: dict[str, int], report: Path | None = None) -> tuple[dict[str, np.ndarray], list[int]]:
    """Outputs, and of the runtime for threads the number of regions and of loops dealt out."""
    env = {**os.environ, "OMP_NUM_THREADS": "2", "ASAN_OPTIONS": "detect_leaks=1", "TSAN_OPTIONS": "halt_on_error=1"}
    if report is None:
        return exe.run(inputs, sizes, env), []
    out = exe.run(inputs, sizes, {**env, "MOARW_TEST_REPORT": str(report)})
    return out, [int(n) for n in report.read_text().split()]


def all_ours(program: Path) -> None:
    """No function of libgomp is left, which would bring its invisible barriers back."""
    symbols = subprocess.run(["nm", "--undefined-only", str(program)], capture_output=True, text=True, check=True).stdout
    foreign = re.findall(r"\b(?:GOMP|omp)_\w+", symbols)
    assert not foreign, f"gomp_threads.c lacks {', '.join(foreign)}"


@pytest.mark.parametrize(("file", "name"), [pytest.param(f, k, marks=[] if f in QUICK and f == k else [pytest.mark.slow]) for f, k in kernels()])
def test_no_finding(file: str, name: str, tmp_path: Path) -> None:
    kernel, result = planned(file, name)
    program = lowered(result.kernel)
    with ThreadPoolExecutor() as pool:
        kinds = [(tmp_path / "address", ADDRESS), (tmp_path / "thread", THREAD)]
        address, thread = pool.map(lambda kind: Standalone(kernel, program, kind[0], extra=kind[1]), kinds)
    all_ours(thread.path)
    parallel = "#pragma omp parallel" in print_c(program).c_text
    tried = trial_sizes(kernel)
    assert tried
    for n, sizes in enumerate(tried):
        inputs = data(kernel, sizes)
        first, _ = run(address, inputs, sizes)
        second, (regions, _) = run(thread, inputs, sizes, tmp_path / "report")
        assert regions > 0 or not parallel or 0 in sizes.values()
        for out, value in first.items():
            np.testing.assert_allclose(second[out], value, rtol=1e-4, atol=1e-4 * max(1.0, float(np.abs(value).max(initial=0))), err_msg=f"{out} at {sizes}")
        if n == 1 or len(tried) == 1:
            agrees(kernel, result, first, inputs, sizes)
            agrees(kernel, result, second, inputs, sizes)


# --- the sanitizers see what they are there for ------------------------------------------------------------------------------------------------
def vector(name: str, body: str, extent: str = "n", dtype: str = "f32") -> Kernel:
    return onf.kernel(name, "n", [onf.array("X", dtype, "n")], [onf.array("Y", dtype, extent)], body)


def built(kernel: Kernel, c_text: str, folder: Path, extra: tuple[str, ...]) -> Standalone:
    """A program around other C than the printer's, with the kernel's name and arguments."""
    exe = Standalone.__new__(Standalone)
    exe.kernel, exe.prog = kernel, lower(kernel)
    exe.path = compile_c(c_text, print_c(exe.prog).h_text, folder, exe.prog.name, extra=extra, main_text=main_c(exe.prog))
    return exe


def changed(kernel: Kernel, *changes: tuple[str, str]) -> str:
    """The kernel's C with mistakes put in."""
    text = print_c(lower(kernel)).c_text
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return text


def seen(what: str, exe: Standalone, inputs: dict[str, np.ndarray], sizes: dict[str, int] | None = None) -> None:
    with pytest.raises(MoaError) as e:
        run(exe, inputs, sizes or {})
    assert any(what in note for note in e.value.notes), e.value.notes


RACE = "ThreadSanitizer: data race"
COPY = vector("copy", onf.nest(["i:n:core"], 'emit("once", "Y", <@i>, X[@i])'))


def test_a_race_on_a_sum_is_seen(tmp_path: Path) -> None:
    """A reduction whose loop is given to the threads, which no proof would admit."""
    k = vector("total", onf.nest(["i:n:core"], 'emit("add", "Y", <0>, X[@i])'), "1")
    seen(RACE, Standalone(k, lower(k), tmp_path, extra=THREAD), {"X": np.ones(64, np.float32)})


@pytest.mark.parametrize("schedule", ["static", "dynamic", "guided"])
def test_a_race_between_neighbours_is_seen(schedule: str, tmp_path: Path) -> None:
    """Each iteration also writes its neighbour's cell: with every schedule two threads meet. Without the mistake there is no finding."""
    x = {"X": np.arange(1, 100, dtype=np.float32)}
    scheduled = ("schedule(static)", f"schedule({schedule})")
    right = built(COPY, changed(COPY, scheduled), tmp_path / "right", THREAD)
    all_ours(right.path)
    out, (regions, loops) = run(right, x, {}, tmp_path / "report")
    np.testing.assert_array_equal(out["Y"], x["X"])
    assert regions == 1 and loops == (schedule != "static")
    neighbour = ("Y[i] = X[i];", "Y[i] = X[i]; Y[(i + 1) % n] = X[(i + 1) % n];")
    seen(RACE, built(COPY, changed(COPY, scheduled, neighbour), tmp_path / "wrong", THREAD), x)


def test_storage_shared_by_mistake_is_seen(tmp_path: Path) -> None:
    """The scratch of all threads at the same place. Values may well be right then."""
    k = onf.kernel(
        "rows", "n m", [onf.array("X", "f32", "n", "m")], [onf.array("Y", "f32", "n", "m")],
        onf.nest(["i:n:core"], onf.new("T", onf.block(onf.nest(["j:m:seq"], 'emit("once", "T", <@j>, X[@i, @j])'),
                                                      onf.nest(["j:m:seq"], 'emit("once", "Y", <@i, @j>, T[@j] + T[0])')))),
        [onf.stage("T", "f32", "j", "m", "once")],
    )  # fmt: skip
    inputs = {"X": np.arange(130, dtype=np.float32).reshape(13, 10)}
    right = Standalone(k, lower(k), tmp_path / "right", extra=THREAD)
    all_ours(right.path)
    np.testing.assert_array_equal(run(right, inputs, {})[0]["Y"], inputs["X"] + inputs["X"][:, :1])
    seen(RACE, built(k, changed(k, ("moarw_thread() * moarw_private", "0 * moarw_private")), tmp_path / "wrong", THREAD), inputs)


def test_a_missing_barrier_is_seen(tmp_path: Path) -> None:
    """Two loops of one region, the second reading what other threads wrote: that is in order only by the barrier between them, which must be visible."""
    loops = """float T[64];
#pragma omp parallel
{
#pragma omp for schedule(dynamic) WAIT
for (int64_t i = 0; i < n; i++) T[i] = X[i];
#pragma omp for schedule(dynamic)
for (int64_t i = 0; i < n; i++) Y[i] = T[n - 1 - i];
}"""
    head, tail = '#include "moarw.h"\n#include "copy.h"\nint copy(const int64_t n, const float *X, float *Y) {\n', "\nreturn 0;\n}\n"
    x = {"X": np.arange(64, dtype=np.float32)}
    right = built(COPY, head + loops.replace("WAIT", "") + tail, tmp_path / "right", THREAD)
    all_ours(right.path)
    out, counts = run(right, x, {}, tmp_path / "report")
    np.testing.assert_array_equal(out["Y"], x["X"][::-1])
    assert counts == [1, 2]
    seen(RACE, built(COPY, head + loops.replace("WAIT", "nowait") + tail, tmp_path / "wrong", THREAD), x)


def test_an_access_outside_is_seen(tmp_path: Path) -> None:
    k = vector("shifted", onf.nest(["i:n:core"], 'emit("once", "Y", <@i>, X[@i + 1])'))
    seen("heap-buffer-overflow", Standalone(k, lower(k), tmp_path, extra=ADDRESS), {"X": np.ones(9, np.float32)})


def test_a_signed_overflow_is_seen(tmp_path: Path) -> None:
    k = vector("power", onf.nest(["i:n:core"], 'emit("once", "Y", <@i>, X[@i] * X[@i])'), dtype="i64")
    c = "int64_t square = 0; for (int64_t i = 0; i < n; i++) { square = X[i] * X[i]; Y[i] = square; } return 0;"
    exe = built(k, f'#include "moarw.h"\n#include "power.h"\nint power(const int64_t n, const int64_t *X, int64_t *Y) {{ {c} }}\n', tmp_path, ADDRESS)
    np.testing.assert_array_equal(run(exe, {"X": np.array([3, -4])}, {})[0]["Y"], [9, 16])
    seen("signed integer overflow", exe, {"X": np.array([2**40, 1])})


def test_the_runtime_deals_out_every_iteration(tmp_path: Path) -> None:
    """Loops up and down, with steps, chunks, and numbers beyond int64's, on one to five threads, against the sum each must give."""
    (tmp_path / "deal.c").write_text("""#include <stdint.h>
#include <stdio.h>
#define LOOP(T, FROM, COND, STEP, CHUNK) { uint64_t seen = 0, sum = 0, want = 0, trips = 0; \\
    for (T i = FROM; COND; i += STEP) want += (uint64_t)i * (uint64_t)i, trips++; \\
    _Pragma("omp parallel reduction(+ : seen, sum)") { \\
    _Pragma(CHUNK) \\
    for (T i = FROM; COND; i += STEP) sum += (uint64_t)i * (uint64_t)i, seen++; } \\
    if (seen != trips || sum != want) { printf("%s %s %s\\n", #FROM, #COND, CHUNK); bad = 1; } }
#define BOTH(T, FROM, COND, STEP) LOOP(T, FROM, COND, STEP, "omp for schedule(dynamic)") \\
    LOOP(T, FROM, COND, STEP, "omp for schedule(monotonic : dynamic, 3)") \\
    LOOP(T, FROM, COND, STEP, "omp for schedule(guided, 2)") LOOP(T, FROM, COND, STEP, "omp for schedule(static)")
int main(void) {
    int bad = 0;
    BOTH(int64_t, 0, i < 100, 1) BOTH(int64_t, 5, i < 5, 1) BOTH(int64_t, -7, i < 8, 4) BOTH(int64_t, 50, i > -3, -7)
    BOTH(uint64_t, UINT64_MAX - 20, i < UINT64_MAX - 4, 3)
    return bad;
}
""")
    subprocess.run(["gcc", "-O1", "-fopenmp", "-std=c11", "deal.c", str(THREADS), "-o", "deal"], cwd=tmp_path, check=True)
    for n in range(1, 6):
        done = subprocess.run([tmp_path / "deal"], env={**os.environ, "MOARW_TEST_THREADS": str(n)}, timeout=20, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout
