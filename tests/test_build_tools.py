"""Compilers other than that for C: what is parsed from their output, and what is said when one is missing or refuses."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from moa_rewrite.build import fortran, nvcc, simt
from moa_rewrite.errors import MoaError

PTXAS = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'first' for 'sm_80'
ptxas info    : Function properties for first
    8 bytes stack frame, 16 bytes spill stores, 28 bytes spill loads
ptxas info    : Used 48 registers, used 1 barriers, 8 bytes cumulative stack size, 4096 bytes smem, 416 bytes cmem[0]
ptxas info    : Compiling entry function '_Z6secondPf' for 'sm_90'
ptxas info    : Function properties for _Z6secondPf
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 16 registers, used 0 barriers
"""


def test_ptxas_figures():
    first, second = nvcc.parse_resources(PTXAS)
    assert first == nvcc.Resources("first", registers=48, barriers=1, shared=4096, stack=8, spill_stores=16, spill_loads=28)
    assert second == nvcc.Resources("_Z6secondPf", registers=16, barriers=0, shared=0, stack=0, spill_stores=0, spill_loads=0)


def test_a_warning_of_nvcc_is_an_error(tmp_path):
    source = tmp_path / "k.cu"
    source.write_text("extern \"C\" __global__ void k(float *x) { int unused = 1; x[0] = 1.0f; }\n", encoding="utf-8")
    with pytest.raises(MoaError, match="MOA0711") as e:
        nvcc.compile_cubin(source)
    assert "never referenced" in str(e.value)


def test_a_warning_of_gfortran_is_an_error(tmp_path):
    source = tmp_path / "k.f90"
    source.write_text("subroutine k() bind(c)\n  integer :: unused\nend subroutine k\n", encoding="utf-8")
    with pytest.raises(MoaError, match="MOA0721") as e:
        fortran.compile_fortran(source)
    assert "unused" in str(e.value)


def test_what_gxx_refuses_is_shown(tmp_path):
    with pytest.raises(MoaError, match="MOA0703") as e:
        simt.build("void f() { undeclared(); }\n", tmp_path, "k")
    assert "k.cu:1" in str(e.value) and "undeclared" in str(e.value)


def test_missing_compilers_are_named(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "k.cu").write_text("", encoding="utf-8")
    (tmp_path / "k.f90").write_text("", encoding="utf-8")
    for call, code in ((lambda: nvcc.compile_cubin(tmp_path / "k.cu"), 710), (lambda: fortran.compile_fortran(tmp_path / "k.f90"), 720),
                       (lambda: simt.build("", tmp_path), 702)):  # fmt: skip
        with pytest.raises(MoaError, match=rf"MOA0{code}\]: .* is not installed"):
            call()


def test_fortran_runtime_compiles_alone(root, tmp_path):
    source = root / "codegen" / "fortran" / "moarw.f90"
    command = ["gfortran", *fortran.FLAGS, *fortran.WARNINGS, f"-J{tmp_path}", "-c", "-o", str(tmp_path / "m.o"), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert re.findall(r"^ *end function moarw_exp_f32$", source.read_text(encoding="utf-8"), re.M)


# --- occupancy against NVIDIA's own calculation, a header of the toolkit that needs no GPU -----------------------------------------------------
ORACLE = r"""
#include <cuda_occupancy.h>
#include <cstdio>
int main() {
  int threads, registers, shared;
  while (scanf("%d %d %d", &threads, &registers, &shared) == 3) {
    cudaOccDeviceProp p; cudaOccFuncAttributes f; cudaOccDeviceState s; cudaOccResult r;
    p.computeMajor = 8; p.computeMinor = 0; p.maxThreadsPerBlock = 1024; p.maxThreadsPerMultiprocessor = 2048; p.regsPerBlock = 65536;
    p.regsPerMultiprocessor = 65536; p.warpSize = 32; p.sharedMemPerBlock = 49152; p.sharedMemPerMultiprocessor = 167936; p.numSms = 108;
    p.sharedMemPerBlockOptin = 166912; p.reservedSharedMemPerBlock = 1024;
    f.maxThreadsPerBlock = 1024; f.numRegs = registers; f.sharedSizeBytes = 0; f.partitionedGCConfig = PARTITIONED_GC_OFF;
    f.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN; f.maxDynamicSharedSizeBytes = 166912; f.numBlockBarriers = 1;
    printf("%d\n", cudaOccMaxActiveBlocksPerMultiprocessor(&r, &p, &f, &s, threads, shared) == CUDA_OCC_SUCCESS ? r.activeBlocksPerMultiprocessor : -1);
  }
}
"""


def test_blocks_per_sm_agrees_with_the_toolkit(tmp_path):
    include = Path(str(shutil.which("nvcc"))).resolve().parent.parent / "include"
    include = include if (include / "cuda_occupancy.h").exists() else Path("/usr/local/cuda/include")
    (tmp_path / "o.cpp").write_text(ORACLE, encoding="utf-8")
    subprocess.run(["g++", "-w", f"-I{include}", str(tmp_path / "o.cpp"), "-o", str(tmp_path / "o")], check=True)
    rng = random.Random(1)
    cases = [(rng.randint(1, 32) * 32, rng.randint(1, 255), rng.choice([0, rng.randint(0, 166912)])) for _ in range(2000)]
    done = subprocess.run([str(tmp_path / "o")], input="\n".join(" ".join(map(str, c)) for c in cases), capture_output=True, text=True, check=True)
    for case, blocks in zip(cases, map(int, done.stdout.split()), strict=True):
        assert nvcc.blocks_per_sm(*case)[0] == blocks, (case, nvcc.blocks_per_sm(*case))
    assert nvcc.blocks_per_sm(256, 32, 0) == (8, "warps") and nvcc.blocks_per_sm(32, 16, 0) == (32, "blocks")
