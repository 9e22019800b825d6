"""Tests inside a program: blocks of ``##`` comments after the kernel they are about.

    ## test two rows { n = 2, d = 3 }
    ##   x = [[1, 2, 3], [4, 5, 6]]
    ##   eps = 0.5
    ##   expect = [6, 15]
    ##   within 1e-6

Sizes may be left out if the inputs say them; inputs left out, or written ``random`` or ``random 7`` (a seed), are random. ``expect``
takes the result's name if there are several. ``error MOA0307`` in place of ``expect`` says that the kernel is refused, or the call.
"""

from __future__ import annotations

import ast
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NoReturn

import numpy as np

from ..errors import MoaError
from ..terms import Kernel
from .binding import bind_sizes, check_where
from .poly import evaluate
from .tree import KernelDef, Pos


@dataclass(frozen=True)
class Test:
    """One block. ``inputs``: the literal ones; ``seeds``: those with a seed of their own; ``error``: the code expected, or None."""

    __test__ = False  # not one of pytest's

    name: str
    kernel: str
    pos: Pos
    sizes: Mapping[str, int]
    inputs: Mapping[str, object] = field(default_factory=dict)
    seeds: Mapping[str, int] = field(default_factory=dict)
    expect: Mapping[str, object] = field(default_factory=dict)
    within: float = 1e-6
    error: int | None = None

    def arguments(self, kernel: Kernel) -> tuple[dict[str, np.ndarray], dict[str, int]]:
        """Inputs and sizes for the elaborated kernel; raises as ``bind_sizes`` and ``check_where`` do."""
        given: dict[str, np.ndarray] = {a.name: np.asarray(self.inputs[a.name], _NUMPY[a.dtype]) for a in kernel.inputs if a.name in self.inputs}
        sizes = dict(self.sizes)
        if not all(s in sizes for s in kernel.sizes):
            sizes |= bind_sizes(replace(kernel, inputs=tuple(a for a in kernel.inputs if a.name in given)), given)
        check_where(kernel, sizes)
        out = {}
        for a in kernel.inputs:
            shape = tuple(evaluate(n, sizes) for n in a.shape)
            if a.name in given:
                out[a.name] = given[a.name].reshape(shape) if given[a.name].size == 0 and 0 in shape else given[a.name]
            else:
                out[a.name] = random_input(a.dtype, shape, self.seeds.get(a.name, zlib.crc32(a.name.encode())))
        if bind_sizes(kernel, out) != sizes:
            raise MoaError(312, f"the inputs of the test have other sizes than it says: {bind_sizes(kernel, out)}", self.pos.file, self.pos.line, self.pos.col)
        return out, sizes


_NUMPY = {"f32": np.float32, "f64": np.float64, "i32": np.int32, "i64": np.int64, "bool": np.bool_}


def random_input(dtype: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Standard normal floats, integers 0..9, or bools."""
    rng = np.random.default_rng(seed)
    if dtype in ("i32", "i64"):
        return rng.integers(0, 10, shape).astype(_NUMPY[dtype])
    return np.asarray(rng.integers(0, 2, shape), bool) if dtype == "bool" else np.asarray(rng.standard_normal(shape), _NUMPY[dtype])


def find_tests(text: str, filename: str, kernels: Mapping[str, KernelDef]) -> list[Test]:
    """All blocks of a text in order. MoaError 111 for one that cannot be read."""
    out = []
    lines = text.splitlines()
    n = 0
    while n < len(lines):
        line = lines[n].strip()
        n += 1
        if not re.match(r"##\s*test\b", line):
            continue
        at, block = Pos(filename, n, 1), []
        while n < len(lines) and (more := re.match(r"\s*##(?!\s*(?:test|typical)\b)(.*)", lines[n])):
            block.append((n + 1, more[1].strip()))
            n += 1
        above = [k for k in kernels.values() if k.pos.line < at.line]
        if not above:
            _fail(at, "a test stands after the kernel it is about")
        out.append(_block(line, block, at, max(above, key=lambda k: k.pos.line)))
    return out


def typical_sizes(text: str, filename: str, kernels: Mapping[str, KernelDef], kernel: str) -> dict[str, int]:
    """What a line `## typical { n = 1024 }` after a kernel says: the sizes its cost is judged at unless others are given. Empty without one."""
    found: dict[str, int] = {}
    for n, line in enumerate(text.splitlines(), 1):
        if m := re.fullmatch(r"\s*##\s*typical\s*\{(.*)\}\s*", line):
            above = [k for k in kernels.values() if k.pos.line < n]
            if above and max(above, key=lambda k: k.pos.line).name == kernel:
                found |= _sizes(m[1], Pos(filename, n, 1))
    return found


def _sizes(text: str, at: Pos) -> dict[str, int]:
    out: dict[str, int] = {}
    for item in filter(None, map(str.strip, text.split(","))):
        pair = re.fullmatch(r"(\w+)\s*=\s*(\d+)", item)
        if not pair:
            _fail(at, f"`{item}` is not a size")
        out[pair[1]] = int(pair[2])
    return out


def _fail(at: Pos, message: str) -> NoReturn:
    raise MoaError(111, message, at.file, at.line, at.col, hint="`## test name { n = 2 }`, then `## x = [1, 2]`, `## expect = 3`, `## within 1e-6`")


def _block(head: str, block: list[tuple[int, str]], at: Pos, kernel: KernelDef) -> Test:
    m = re.fullmatch(r"##\s*test\b\s*([^{]*?)\s*(?:\{(.*)\})?", head)
    if not m:
        _fail(at, "a test begins with `## test name { sizes }`")
    sizes = _sizes(m[2] or "", at)
    joined: list[tuple[int, str]] = []
    for line, text in block:  # a line that starts no entry continues the one before
        if re.match(r"(\w+|expect\s+\w+)\s*=|within\b|error\b|expect\b", text):
            joined.append((line, text))
        elif text and joined:
            joined[-1] = (joined[-1][0], f"{joined[-1][1]} {text}")
        elif text:
            _fail(Pos(at.file, line, 1), f"`{text}` is not part of a test")
    results = [r.name for r in kernel.results if r.name] or (["out"] if len(kernel.results) == 1 else [f"out{k}" for k in range(len(kernel.results))])
    inputs: dict[str, object] = {}
    seeds: dict[str, int] = {}
    expect: dict[str, object] = {}
    within, error = 1e-6, None
    for line, text in joined:
        here = Pos(at.file, line, 1)
        if found := re.fullmatch(r"within\s+([\d.eE+-]+)", text):
            within = float(found[1])
        elif found := re.fullmatch(r"error\s+MOA(\d{4})", text):
            error = int(found[1])
        elif found := re.fullmatch(r"expect(?:\s+(\w+))?\s*=?\s*(.+)", text):
            name = found[1] or results[0]
            if name not in results or (not found[1] and len(results) > 1):
                _fail(here, f"`expect` needs one of the results {', '.join(results)}")
            expect[name] = _literal(found[2], here)
        elif found := re.fullmatch(r"(\w+)\s*=\s*(.+)", text):
            name, value = found[1], found[2].strip()
            if name not in [p.name for p in kernel.params]:
                _fail(here, f"`{kernel.name}` has no parameter `{name}`")
            if seed := re.fullmatch(r"random(?:\s+(\d+))?", value):
                if seed[1]:
                    seeds[name] = int(seed[1])
            else:
                inputs[name] = _literal(value, here)
        else:
            _fail(here, f"`{text}` is not part of a test")
    return Test(m[1] or kernel.name, kernel.name, at, sizes, inputs, seeds, expect, within, error)


def _literal(text: str, at: Pos) -> object:
    """A number or nested lists of numbers; inf, true and false by name."""
    for name, python in (("inf", "1e999"), ("true", "True"), ("false", "False")):
        text = re.sub(rf"\b{name}\b", python, text)
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        _fail(at, f"`{text}` is not a number or a nested list of numbers")
