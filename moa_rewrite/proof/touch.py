"""First touch: the domain whose memory a row of an array lies in is the domain that computes it.

The header says that domain ``r // rows`` first writes the cells with index r along one axis. The loops placed ``numa`` say which domain computes what.
That both are one partition is stated from the operational form alone: every row has a domain, and every emission of domain o to a row r
has o * rows <= r < (o + 1) * rows, that is r // rows = o.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..terms import Kernel, Term, Touch, show, subterms
from .smt import Script, conj
from .walk import Access, is_index, loops_in, refused

Claim = tuple[str, str, Script, tuple[tuple[str, str], ...], str]  # kind, name, script, shown, complaint: the fields of an obligation


def first_touch(kernel: Kernel, accesses: Sequence[Access]) -> Iterator[Claim]:
    """What must be refuted for each array of the header. MoaError for a header that means nothing: no such array or axis, rows that are not over sizes."""
    for t in kernel.touches:
        _well_formed(kernel, t)
        yield _placed(kernel, t)
        for a in accesses:
            if a.write and a.array == t.array:
                yield _computed(kernel, t, a)


def _well_formed(kernel: Kernel, t: Touch) -> None:
    shapes = {o.name: o.shape for o in kernel.outputs} | {s.name: s.shape for s in kernel.stages}
    if not 0 <= t.axis < len(shapes.get(t.array, ())):
        raise refused(f"first touch of {t.array} along axis {t.axis}: there is no such output or stage")
    divisors = [u.args[1] for u in subterms(t.rows) if u.op in ("idiv", "mod")]
    constant = all(isinstance(d, Term) and d.op == "int" and int(d.args[0]) > 0 for d in divisors)  # type: ignore[arg-type]
    if t.domains < 1 or not constant or not is_index(t.rows) or any(u.op == "axis" for u in subterms(t.rows)):
        raise refused(f"first touch of {t.array}: {show(t.rows)} rows for each of {t.domains} domains")


def _placed(kernel: Kernel, t: Touch) -> Claim:
    """Every row lies in the part of some domain."""
    s = Script(kernel)
    row = s.variable("row", s.int(kernel.array(t.array).shape[t.axis], {}))
    rows = s.name(s.int(t.rows, {}))
    s.fact(f"(not (< {row} (* {t.domains} {rows})))")
    return "touch", f"rows of {t.array}", s, (*_sizes(kernel, s), ("row", row)), f"no domain first touches this row of {t.array}"


def _computed(kernel: Kernel, t: Touch, a: Access) -> Claim:
    """The domain that computes a row is the one that touches it."""
    s = Script(kernel)
    env = s.bind(a.frames, {})
    row, rows = s.name(s.int(a.index[t.axis], env)), s.name(s.int(t.rows, {}))
    over = [f for f in loops_in(a.frames) if f.place == "numa"]
    touched = s.part(row, rows, t.domains)
    shown = (*_sizes(kernel, s), ("row", row), ("touched by domain", touched))
    text = f"{t.array}, axis {t.axis}, in {a.where} {a}"
    if len(over) != 1 or over[0].term is None or over[0].term.op != "int":
        return "touch", text, s, shown, f"this row of {t.array} is computed by no one domain"
    domain = env[over[0].name]
    start = s.product(domain, rows)
    s.fact(f"(not {conj(f'(<= {start} {row})', f'(< {row} (+ {start} {rows}))')})")
    return "touch", text, s, (*shown, ("computed by domain", domain)), f"another domain computes this row of {t.array} than first touches it"


def _sizes(kernel: Kernel, s: Script) -> tuple[tuple[str, str], ...]:
    return tuple((n, s.size(n)) for n in kernel.sizes)
