"""Loops over memory domains: a loop placed "numa" with the loops over cores inside it is one parallel region in C, and one loop over cores elsewhere.

The C text shares each domain's iterations out among the threads that serve it by one function, ``moarw_share``, so the loops that compute and the
loops that first touch pages have the same partition over domains whenever their extents have, which is what the obligation of first touch says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from ..terms import I, Kernel, Term, Touch, axis, free_axes, loops, show
from .fold import const, fold
from .loops import Buffer, Let, Loop, Node, Store, nodes, replaced

Fresh = Callable[[str], str]


@dataclass(frozen=True)
class Pair:
    """for(outer, D, "numa", for(inner, min(T, n - outer*T), "core", ...)) with the definition whole = outer*T + inner of an axis of extent n."""

    whole: str
    outer: Term
    inner: Term
    n: Term


def pairs(k: Kernel) -> Iterator[Pair]:
    """The loops over domains that stand for a lifted axis together with the loop inside."""
    for f in loops(k.body):
        g = f.args[3]
        if f.args[2] != "numa" or not isinstance(g, Term) or g.op != "for" or g.args[2] != "core":
            continue
        for a, d in k.defs:
            before, inner = d.kids() if d.op == "add" else (d, d)
            x, rows = before.kids() if before.op == "mul" else (before, I(1))  # parts of length 1 when sizes are compiled in
            if x is axis(str(f.args[0])) and inner is axis(str(g.args[0])):
                extent: Term = g.args[1]  # type: ignore[assignment]
                if extent.op == "min" and extent.kids()[0] is rows and extent.kids()[1].op == "sub" and extent.kids()[1].kids()[1] is before:
                    yield Pair(a, f, g, extent.kids()[1].kids()[0])


def joined(k: Kernel) -> Kernel:
    """The kernel with such pairs made one loop over cores: the same iterations, for languages in which threads are not told their domain."""
    found = {p.outer: p for p in pairs(k)}

    def walk(t: Term) -> Term:
        if (p := found.get(t)) is not None:
            return Term("for", p.whole, p.n, "core", walk(p.inner.args[3]))  # type: ignore[arg-type]
        return t.map(lambda a: walk(a) if a.op in ("for", "seq", "new", "guard") else a) if t.op in ("for", "seq", "new", "guard") else t

    gone = {p.whole for p in found.values()}
    return replace(k, body=walk(k.body), defs=tuple((a, d) for a, d in k.defs if a not in gone), touches=())


def extents(k: Kernel) -> dict[str, Term]:
    """The extent of each axis that a pair stands for."""
    return {p.whole: p.n for p in pairs(k)}


def positive(n: Loop) -> frozenset[Term]:
    """Terms that are at least 1 where a loop over domains runs its loop over cores, of extent min(T, n - x): n itself."""
    cores = [b.extent for b in n.body if isinstance(b, Loop) and b.kind == "core"] if n.kind == "numa" else []
    return frozenset(e.kids()[0] for c in cores if c.op == "min" for e in c.kids() if e.op == "sub")


def filled(b: Buffer, value: Term, fresh: Fresh, t: Touch | None = None, row: int = 0, rows: Term = I(0)) -> Node:
    """Loops that store a value in every cell of a buffer; with ``t``, each domain those with the indices along axis ``row`` that are its own."""
    at = [axis(fresh(f"c{n}")) for n in range(len(b.shape))]
    extent = list(b.shape)
    first = "core" if b.space in ("output", "shared") else "seq"
    if t is not None:
        domain = fresh("domain")
        start = Term("mul", axis(domain), rows)
        extent[row] = fold(Term("min", rows, Term("sub", b.shape[row], start)))
    index = tuple(Term("add", start, x) if t is not None and n == row else x for n, x in enumerate(at))
    body: Node = Store(b.name, index, value)
    for n in reversed(range(len(at))):
        kind = first if n == 0 and (t is not None or len(at) > 1) else "simd" if n == len(at) - 1 else "seq"
        body = Loop(str(at[n].args[0]), extent[n], kind, (body,), const(extent[n]))
    return body if t is None else Loop(domain, I(t.domains), "numa", (body,), t.domains)


def with_parts(body: tuple[Node, ...], fresh: Fresh) -> tuple[Node, ...]:
    """The body with a name for the length of each domain's part."""
    lengths = {e.kids()[0] for n in nodes(body) if isinstance(n, Loop) for e in [n.extent] if e.op == "min" and _part(e)}
    lets = []
    for t in sorted(lengths, key=lambda t: (-len(show(t)), show(t))):
        lets.append(Let(fresh("part"), t))
        body = tuple(replaced(n, t, axis(lets[-1].name)) for n in body)
    return (*lets, *body)


def _part(e: Term) -> bool:
    """min(T, n - x*T) with a T that sizes decide."""
    rows, rest = e.kids()
    return const(rows) is None and not free_axes(rows) and rest.op == "sub" and rest.kids()[1].op == "mul" and rest.kids()[1].kids()[1] is rows


def collapsed(n: Loop) -> tuple[list[Loop], list[Let], tuple[Node, ...]]:
    """(loops over cores that are perfectly nested and independent of each other, the Lets between them, the body of the last)."""
    chain, body, lets = [n], n.body, list[Let]()
    while True:
        early = [b for b in body if isinstance(b, Let)]
        rest = [b for b in body if not isinstance(b, Let)]
        if len(rest) != 1 or not isinstance(rest[0], Loop) or rest[0].kind != "core":
            return chain, lets, body
        bound = {c.var for c in chain} | {b.name for b in (*lets, *early)}
        if free_axes(rest[0].extent) & bound:
            return chain, lets, body
        lets += early
        chain.append(rest[0])
        body = rest[0].body


def over_cores(n: Loop) -> tuple[list[Let], Loop]:
    """The Lets and the loop over cores in the body of a loop over domains. ValueError for another body: lowering makes none."""
    lets, rest = [b for b in n.body if isinstance(b, Let)], [b for b in n.body if not isinstance(b, Let)]
    if len(rest) != 1 or not isinstance(rest[0], Loop) or rest[0].kind != "core" or const(n.extent) is None:
        raise ValueError("a loop over domains is a constant number of loops over cores")
    return lets, rest[0]


def shared(n: Loop, text: Callable[[Term], str]) -> tuple[list[str], list[str], list[Let], tuple[Node, ...]]:
    """C lines that open the loop over the domains that a thread serves, lines that open the loop over its share of a domain's iterations with their indices,
    the Lets that belong before the second, and the body. ``text`` prints a term as an operand of any operator. Both loops are left open."""
    lets, cores = over_cores(n)
    chain, early, body = collapsed(cores)
    d = const(n.extent)
    first = [
        "const int64_t moarw_t = moarw_thread(), moarw_nt = moarw_team();",
        f"for (int64_t {n.var} = moarw_first({d}, moarw_t, moarw_nt); {n.var} < moarw_last({d}, moarw_t, moarw_nt); {n.var}++) {{",
    ]
    counts = [f"moarw_n{k}" for k in range(len(chain))]
    second = [f"const int64_t {c} = {text(x.extent)};" for c, x in zip(counts, chain, strict=True)]
    total = counts[0]
    for c in counts[1:]:
        total = f"moarw_all({total}, {c})"
    at = chain[0].var if len(chain) == 1 else "moarw_q"
    second += [
        "int64_t moarw_lo, moarw_hi;",
        f"moarw_share({n.var}, {d}, {total}, moarw_t, moarw_nt, &moarw_lo, &moarw_hi);",
        f"for (int64_t {at} = moarw_lo; {at} < moarw_hi; {at}++) {{",
    ]
    if len(chain) > 1:
        for k, x in enumerate(chain):
            after = " * ".join(counts[k + 1 :])
            index = "moarw_q" if not after else f"moarw_q / {after}" if len(chain) - k == 2 else f"moarw_q / ({after})"
            second.append(f"    const int64_t {x.var} = {index if k == 0 else f'{index} % {counts[k]}'};")
    return first, second, lets, (*early, *body)
