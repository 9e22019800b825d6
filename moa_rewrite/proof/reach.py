"""Which iteration reaches a given cell: by inverting index expressions (symbolic), and by enumeration (to confirm that none does)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from ..terms import Kernel, Term, free_axes
from .smt import Script
from .walk import Access, Frames, bases, bound_names

Witness = Mapping[str, int]  # values of the SMT symbols (text as in the script) of a counterexample
_MOST = 200_000  # iterations enumerated at most


def invert(s: Script, t: Term, value: str, env: dict[str, str], bound: frozenset[str]) -> None:
    """Give axes of ``bound`` that ``env`` does not bind yet values such that ``t`` = ``value``, where ``t`` has one of the shapes that rules make.
    A guess: the obligation checks what comes out."""

    def open_(u: Term) -> frozenset[str]:
        return frozenset().union(*[bases(s.kernel, a, bound) for a in free_axes(u)]) - env.keys()

    if not open_(t):
        return
    args: tuple = t.args
    match t.op:
        case "axis":
            definition = s.kernel.definition(args[0])
            if args[0] in bound:
                env[args[0]] = value
            elif definition is not None:
                invert(s, definition, value, env, bound)
        case "add":
            for a, b in ((args[0], args[1]), (args[1], args[0])):
                if not open_(b):
                    invert(s, a, f"(- {value} {s.int(b, env)})", env, bound)
                    return
            for a, b in ((args[0], args[1]), (args[1], args[0])):
                members = s.members.get(a.args[0].args[0]) if a.op == "mul" and a.args[0].op == "axis" and a.args[1].op != "int" else None
                if members is not None and not open_(a.args[1]):  # x < members
                    rows = s.int(a.args[1], env)
                    which = s.part(value, rows, members)
                    invert(s, a.args[0], which, env, bound)
                    invert(s, b, f"(- {s.name(value)} {s.product(which, rows)})", env, bound)
                    return
                if a.op == "mul" and not open_(a.args[1]):  # x*T + y with 0 <= y < T
                    divisor = s.int(a.args[1], env)
                    s.nonlinear |= a.args[1].op != "int"
                    invert(s, a.args[0], f"(div {value} {divisor})", env, bound)
                    invert(s, b, f"(mod {value} {divisor})", env, bound)
                    return
        case "sub":
            if not open_(args[1]):
                invert(s, args[0], f"(+ {value} {s.int(args[1], env)})", env, bound)
            elif not open_(args[0]):
                invert(s, args[1], f"(- {s.int(args[0], env)} {value})", env, bound)
        case "mul":
            for a, b in ((args[0], args[1]), (args[1], args[0])):
                if not open_(b):
                    s.nonlinear |= b.op != "int"
                    invert(s, a, f"(div {value} {s.int(b, env)})", env, bound)
                    return


class Unknown(Exception):
    """A value that enumeration cannot decide (data, or too many iterations)."""


def number(kernel: Kernel, t: Term, sizes: Mapping[str, int], env: Mapping[str, int]) -> int:
    """An integer or boolean term in numbers."""
    args: tuple = t.args
    match t.op:
        case "int" | "bool":
            return args[0]
        case "size":
            return sizes[args[0]]
        case "axis":
            definition = kernel.definition(args[0])
            return env[args[0]] if args[0] in env or definition is None else number(kernel, definition, sizes, env)
        case "select":
            return number(kernel, args[1] if number(kernel, args[0], sizes, env) else args[2], sizes, env)
    x = [number(kernel, a, sizes, env) for a in args if isinstance(a, Term)]
    match t.op:
        case "add":
            return x[0] + x[1]
        case "sub":
            return x[0] - x[1]
        case "mul":
            return x[0] * x[1]
        case "idiv" if x[1]:
            return x[0] // x[1]
        case "mod" if x[1]:
            return x[0] % x[1]
        case "max":
            return max(x)
        case "min":
            return min(x)
        case "neg":
            return -x[0]
        case "abs":
            return abs(x[0])
        case "lt":
            return x[0] < x[1]
        case "le":
            return x[0] <= x[1]
        case "eq":
            return x[0] == x[1]
        case "ne":
            return x[0] != x[1]
        case "and":
            return x[0] and x[1]
        case "or":
            return x[0] or x[1]
        case "not":
            return not x[0]
    raise Unknown(t.op)


def iterations(kernel: Kernel, frames: Frames, sizes: Mapping[str, int], env: dict[str, int]) -> Iterator[dict[str, int]]:
    """Every iteration of the loops in ``frames`` for which the conditions hold."""
    if not frames:
        yield env
        return
    f, rest = frames[0], frames[1:]
    if f.kind == "for":
        assert f.term is not None
        for v in range(number(kernel, f.term, sizes, env)):
            yield from iterations(kernel, rest, sizes, {**env, f.name: v})
    elif f.kind != "if" or number(kernel, f.term, sizes, env):  # type: ignore[arg-type]
        yield from iterations(kernel, rest, sizes, env)


def search(kernel: Kernel, ways: list[tuple[Access, int]], env: Mapping[str, str], cell: list[str], red: Mapping[str, str]) -> Callable[[Witness], bool]:
    """A function that enumerates, for the numbers of a counterexample, whether no iteration contributes index ``red`` to the cell.
    A way is (emission, how many of its outer frames are shared with the reader, whose iteration is ``env``)."""

    def confirm(w: Witness) -> bool:
        sizes = {n: w.get(f"|s:{n}|", 0) for n in kernel.sizes}
        want, index = [w[c] for c in cell], {r: w[v] for r, v in red.items()}
        count = 0
        for e, shared in ways:
            bound = bound_names(e.frames)
            if any(bases(kernel, r, bound) - bound for r in red):
                continue  # no loop runs over a reduction index
            names = {f.name for f in e.frames[:shared] if f.kind == "for"}
            fixed = {k: w[v] for k, v in env.items() if k in names}
            for it in iterations(kernel, e.frames[shared:], sizes, fixed):
                count += 1
                if count > _MOST:
                    raise Unknown("too many iterations")
                have = [number(kernel, t, sizes, it) for t in e.index]
                if have == want and all(number(kernel, Term("axis", r), sizes, it) == v for r, v in index.items()):
                    return False
        return True

    return confirm
