"""A loaded program, and the entry points of the language."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import MoaError
from ..terms import Kernel
from .parse import parse
from .tree import Def, KernelDef

if TYPE_CHECKING:
    import numpy as np

    from .checks import Test


@dataclass(frozen=True)
class Program:
    text: str
    filename: str
    kernels: dict[str, KernelDef]
    definitions: tuple[Def, ...]

    def tests(self, kernel: str | None = None) -> list[Test]:
        """The tests written in the source, of one kernel or of all. MoaError 111 for one that cannot be read."""
        from .checks import find_tests

        return [t for t in find_tests(self.text, self.filename, self.kernels) if kernel in (None, t.kernel)]

    def typical(self, kernel: str) -> dict[str, int]:
        """The sizes that the source names as typical of a kernel (`## typical { n = 1024 }`), to judge cost at. MoaError 111 for a wrong line."""
        from .checks import typical_sizes

        return typical_sizes(self.text, self.filename, self.kernels, kernel)

    def kernel(self, name: str | None = None) -> KernelDef:
        """A kernel by name; the last of the file by default."""
        if not self.kernels:
            raise MoaError(213, "no kernel in this program", self.filename, hint="a program needs `kernel name(...) -> type = ...`")
        if name is None:
            return list(self.kernels.values())[-1]
        if name not in self.kernels:
            raise MoaError(213, f"no kernel `{name}` in this program", self.filename, hint=f"it has {', '.join(self.kernels)}")
        return self.kernels[name]


@functools.cache
def prelude() -> tuple[Def, ...]:
    """The definitions of prelude.moa."""
    path = Path(__file__).with_name("prelude.moa")
    return tuple(d for d in parse(path.read_text(encoding="utf-8"), path.name) if isinstance(d, Def))


def load(text: str, filename: str = "<text>") -> Program:
    """Parse a program. Raises MoaError MOA01xx, MOA02xx."""
    kernels: dict[str, KernelDef] = {}
    definitions: dict[str, Def] = {}
    for d in parse(text, filename):
        first = kernels.get(d.name) or definitions.get(d.name)
        if first:
            raise MoaError(202, f"`{d.name}` is defined twice", d.pos.file, d.pos.line, d.pos.col, [f"first at {first.pos}"], hint="rename one of them")
        if isinstance(d, KernelDef):
            kernels[d.name] = d
        else:
            definitions[d.name] = d
    return Program(text, filename, kernels, tuple(definitions.values()))


def load_file(path: str | Path) -> Program:
    """Read and parse a .moa file (UTF-8)."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as e:
        raise MoaError(100, f"cannot read the program: {e.strerror}", str(path)) from None
    except UnicodeDecodeError:
        raise MoaError(100, "the program is not UTF-8 text", str(path)) from None
    return load(text, str(path))


def elaborate(program: Program, kernel: str | None = None) -> Kernel:
    """The kernel as terms: body `for ax:extent ... emit("once", X, <@ax...>, psi(<@ax...>, array term))`, one nest per output."""
    from .elaborator import elaborate_kernel  # brings in Z3, which parsing and formatting do without

    return elaborate_kernel(program.kernel(kernel), prelude(), program.definitions)


def interpret(program: Program, kernel: str | None, inputs: Mapping[str, object], sizes: Mapping[str, int]) -> dict[str, np.ndarray]:
    """Values of a kernel's results by name, by the naive interpreter of the source in float64 and int64.

    The program is assumed to be well-formed (elaboration decides that) and the sizes to be those of the inputs (``bind_sizes``).
    """
    from .interpreter import interpret_kernel

    return interpret_kernel(program.kernel(kernel), prelude(), program.definitions, inputs, sizes)
