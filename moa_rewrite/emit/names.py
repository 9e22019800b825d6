"""Identifiers that C, Fortran and CUDA all accept."""

from __future__ import annotations

import re

_WORDS = """
    auto break case char const continue default do double else enum extern float for goto if inline int long register restrict return
    short signed sizeof static struct switch typedef union unsigned void volatile while bool true false complex imaginary asm typeof main
    class new delete template this try catch throw operator private public protected virtual namespace using friend mutable explicit export
    typename wchar_t and or not xor bitand bitor compl and_eq or_eq not_eq xor_eq alignas alignof nullptr constexpr decltype noexcept
    static_assert thread_local concept requires
    program subroutine function module end call then real integer logical character dimension allocatable intent in out parameter contains
    allocate deallocate select where result implicit none use exp log sqrt sin cos tan tanh erf floor ceil abs max min mod pow sign round
    int8_t int16_t int32_t int64_t uint8_t uint32_t uint64_t size_t malloc free printf exit null inf nan infinity stdin stdout errno
    j0 j1 jn y0 y1 yn gamma index shape size huge tiny
    merge aint modulo shiftl transfer c_int c_float c_double c_int32_t c_int64_t c_bool
    threadidx blockidx blockdim griddim warpsize __global__ half float2 float4 int2 int4 status
"""
_RESERVED = frozenset(_WORDS.split())


class Names:
    """Gives each name its own identifier, unique without regard to case and apart from reserved words."""

    def __init__(self) -> None:
        self.taken: set[str] = set()
        self.given: dict[tuple[str, str], str] = {}

    def of(self, kind: str, name: str) -> str:
        """The identifier of a kernel's name; ``kind`` is "size", "array" or "axis": a size and an axis may have the same name."""
        key = (kind, name)
        if key not in self.given:
            self.given[key] = self.fresh(name)
        return self.given[key]

    def fresh(self, name: str) -> str:
        base = re.sub(r"[^A-Za-z0-9_]", "_", name)
        base = base if re.match(r"[A-Za-z]", base) else "v" + base
        base = re.sub(r"_+", "_", base)[:40].rstrip("_")
        out, k = base, 0
        while out.lower() in _RESERVED or out.lower() in self.taken or out.lower().startswith("moarw"):
            k += 1
            out = f"{base}_{k}"
        self.taken.add(out.lower())
        return out
