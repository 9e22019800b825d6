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
# A kernel is a global symbol: also the functions of the C library and of POSIX, which it would replace or contradict.
_FUNCTIONS = """
    acos asin atan atan2 acosh asinh atanh cbrt copysign cosh erfc exp2 expm1 fabs fdim fma fmax fmin fmod frexp hypot ilogb ldexp lgamma
    llrint llround log10 log1p log2 logb lrint lround modf nearbyint nextafter nexttoward remainder remquo rint round scalbln scalbn sinh tgamma
    trunc drem finite significand gamma_r lgamma_r exp10 pow10 sincos
    abort atexit atof atoi atol bsearch calloc div getenv labs ldiv llabs lldiv qsort rand random realloc srand strtod strtol system
    memchr memcmp memcpy memmove memset strcat strchr strcmp strcpy strlen strncpy strstr strtok bcmp bcopy bzero ffs rindex
    accept access alarm bind brk chdir chmod chown close connect creat dup execve fork fsync getpid ioctl kill link listen lseek mmap mount
    nice open pause pipe poll read readv recv rename rmdir sbrk select send signal sleep socket stat sync time times truncate umask unlink
    usleep utime wait write writev clock raise remove puts gets getc putc fopen fclose fread fwrite scanf sprintf perror
"""
_FUNCTION_NAMES = frozenset(f + end for f in _FUNCTIONS.split() for end in ("", "f", "l"))


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

    def function(self, name: str) -> str:
        """An identifier for a global symbol."""
        return self.fresh(name if name.lower() not in _FUNCTION_NAMES else f"{name}_kernel")

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
