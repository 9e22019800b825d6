"""Loops that move much memory: stores that go past the caches, elements fetched before they are needed, running sums on lanes. For C.

    stream    an output that the kernel never reads is stored past the caches: a plain store first reads the line it overwrites, and pushes out what is still of
              use. It holds for loops over a contiguous row, one store in each iteration; with rows.py it makes a second version of the kernel, which runs
              where the outputs are larger than a part of the last cache, see SHARE
    prefetch  rows that a streaming loop reads are fetched AHEAD bytes before their use; a row that several loops of one iteration read, and all but the
              first find in the cache, is fetched for the next iteration by the one of these that computes most
    scan      a loop that carries a running sum and stores it takes a piece of PIECE bytes at a time: the values on lanes, their running sums in log2 steps,
              the carry added. The order of additions changes

None of them changes what is computed except for the order of the additions of a scan. What a marked loop looks like in C is in cstream.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from ..terms import I, Term, axis, free_axes, get, num, reads, substitute, subterms
from .context import BYTES
from .fold import bounded, fold, steps_by_one
from .loops import Buffer, If, Let, Loop, Node, Store, Update, expressions, nodes

LINE = 64  # bytes of a line of the caches: a prefetch each; a larger line only makes some of them idle
PIECE = 256  # bytes that are computed, then stored past the caches
AHEAD = 4096  # bytes
ROW = 4096  # bytes of the least row that streams
SHARE = 4  # of the last cache, which also holds inputs and others' data. Measured on repeated calls: 0.6 to 1.1 times as fast at 1 / 8, 1.0 to 2.0 at 1 / 4
SCANS = ("add", "mul", "max", "min")
_WORK = {"div": 5, "sqrt": 5, "exp": 10, "expn": 10, "log": 10, "sin": 10, "cos": 10, "tanh": 10, "erf": 10, "pow": 10}

Env = Mapping[str, Term]
Notes = list[tuple[str, str]]
Piece = Callable[[str, int], Buffer]


def scans(body: tuple[Node, ...], buffers: Mapping[str, Buffer], piece: Piece) -> tuple[tuple[Node, ...], Notes]:
    """The body with its running sums marked, and notes, (rule, text). ``piece`` makes a buffer of so many elements of a type."""
    m = _Marks(buffers, set(), piece)
    return tuple(map(m.marked, body)), list(m.notes)


def stream(body: tuple[Node, ...], buffers: Mapping[str, Buffer], cache: int, piece: Piece) -> tuple[tuple[Node, ...], Term, Notes] | None:
    """The body for arrays that are too large for a cache of so many bytes, the condition over sizes that they are, and notes; None where nothing streams."""
    m = _Marks(buffers, _write_only(body, buffers), piece)
    body = tuple(map(m.marked, body))
    if not m.streamed:
        return None
    m.reused(body, {}, None)
    return m.rebuilt(body), _larger([buffers[b] for b in m.streamed], cache // SHARE), list(m.notes)


def contiguous(at: tuple[Term, ...], var: str, env: Env) -> tuple[Term, ...] | None:
    """The index with ``env`` looked through when consecutive values of ``var`` are consecutive elements of the last axis; else None."""
    full = inlined(at, env)
    if not full or any(var in free_axes(e) for e in full[:-1]):
        return None
    return full if steps_by_one(full[-1], var) else None


def inlined(at: tuple[Term, ...], env: Env) -> tuple[Term, ...]:
    return tuple(substitute(e, env) for e in at)


def lets_of(body: tuple[Node, ...], env: Env) -> dict[str, Term]:
    """``env`` with the definitions that stand directly in a body, looked through."""
    out = dict(env)
    for n in body:
        if isinstance(n, Let):
            out[n.name] = substitute(n.value, out)
    return out


def _write_only(body: tuple[Node, ...], buffers: Mapping[str, Buffer]) -> set[str]:
    out = {b.name for b in buffers.values() if b.space == "output" and b.shape}
    for n in nodes(body):
        if isinstance(n, Update):
            out.discard(n.buffer)
        for e in expressions(n):
            out -= reads(e)
    return out


def _larger(outputs: list[Buffer], bound: int) -> Term:
    """Whether outputs together have more bytes, and rows long enough that their ends do not count; in floating point, so that nothing overflows."""
    total: Term | None = None
    rows: Term | None = None
    for b in outputs:
        product: Term = num(f"{BYTES[b.dtype]}.0")
        for e in b.shape:
            product = Term("mul", product, Term("cast", "f64", e))
        total = product if total is None else Term("add", total, product)
        long = Term("le", I(ROW // BYTES[b.dtype]), b.shape[-1])
        rows = long if rows is None else Term("and", rows, long)
    assert total is not None and rows is not None
    return Term("and", Term("lt", num(f"{bound}.0"), total), rows)


def work(terms: Iterator[Term]) -> int:
    """Operations of expressions, roughly, in multiples of an addition."""
    return sum(_WORK.get(u.op, 1) for t in terms for u in subterms(t) if u.op not in ("get", "ix", "axis", "int", "num", "size"))


@dataclass(frozen=True)
class _Use:
    """A row of an input read in a loop: ``target`` is the loop that may fetch, ``at`` the index of what it reads, definitions looked through; in ``near``
    only those inside the target are."""

    buffer: str
    at: tuple[Term, ...]
    near: tuple[Term, ...]
    target: Loop
    lane: str

    @property
    def row(self) -> tuple[str, tuple[Term, ...]]:
        return self.buffer, self.at[:-1]


class _Marks:
    def __init__(self, buffers: Mapping[str, Buffer], outputs: set[str], piece: Piece) -> None:
        self.buffers, self.outputs, self.piece = buffers, outputs, piece
        self.pieces: dict[str, str] = {}  # type -> buffer
        self.streamed: dict[str, None] = {}
        self.ahead: dict[int, list[Term]] = {}  # id of a loop -> what it fetches
        self.done: set[tuple[int, tuple[str, tuple[Term, ...]]]] = set()  # (id of a loop, row) that it fetches
        self.notes: dict[tuple[str, str], None] = {}

    # --- streams and scans ---

    def marked(self, n: Node) -> Node:
        if isinstance(n, If):
            return replace(n, then=tuple(map(self.marked, n.then)), other=tuple(map(self.marked, n.other)))
        if not isinstance(n, Loop):
            return n
        out = self.scans(n) or self.stores(n)
        return out or replace(n, body=tuple(map(self.marked, n.body)))

    def stores(self, n: Loop) -> Loop | None:
        """A loop over a row with one store to an output."""
        work_ = [b for b in n.body if not isinstance(b, Let)]
        top, _ = bounded(n.extent)
        if n.kind != "simd" or len(work_) != 1 or not isinstance(s := work_[0], Store) or (top is not None and top < ROW // BYTES["f32"]):
            return None
        if s.buffer not in self.outputs or contiguous(s.index, n.var, lets_of(n.body, {})) is None:
            return None
        return replace(n, stream=self.past(s.buffer), piece=self.piece_of(s.buffer), trip=None)

    def piece_of(self, buffer: str) -> str:
        ty = self.buffers[buffer].dtype
        if ty not in self.pieces:
            self.pieces[ty] = self.piece(ty, PIECE // BYTES[ty]).name
        return self.pieces[ty]

    def past(self, buffer: str) -> bool:
        self.streamed[buffer] = None
        self.notes["stream", f"{self.buffers[buffer].source} goes past the caches where it is larger than 1 / {SHARE} of the last"] = None
        return True

    def scans(self, n: Loop) -> Loop | None:
        """A loop that adds to a scalar and stores it, or something computed from it, element after element."""
        lets, rest = [b for b in n.body if isinstance(b, Let)], [b for b in n.body if not isinstance(b, Let)]
        match rest:
            case [Update(monoid=m, buffer=c, index=(), value=e), Store() as s] if n.kind == "seq" and m in SCANS:
                b, x = self.buffers[c], self.buffers[s.buffer]
                # the values may use anything but what the loop changes
                if b.shape or b.dtype == "bool" or {c, s.buffer} & reads(e) or s.buffer in reads(s.value) or any(reads(t.value) for t in lets):
                    return None
                if n.trip is not None or contiguous(s.index, n.var, lets_of(n.body, {})) is None or any(c in reads(i) for i in s.index):
                    return None
                plain = s.value == get(c) and x.dtype == b.dtype and s.buffer in self.outputs
                self.notes["scan", f"{b.name}: running sums over {n.var} on lanes"] = None
                return replace(n, scan=m, stream=plain and self.past(s.buffer), piece=self.piece_of(c))
        return None

    # --- prefetches ---

    def reused(self, body: tuple[Node, ...], env: Env, around: Loop | None) -> None:
        """Marks the loops that fetch rows: for the next iteration of ``around``, the innermost loop around the body, or a little ahead."""
        env = lets_of(body, env)
        seen: set[tuple[str, tuple[Term, ...]]] = set()
        best: dict[tuple[str, tuple[Term, ...]], tuple[int, _Use]] = {}
        for n in body:
            uses = list(self.uses(n, env))
            for u in uses:
                if u.row in seen and around is not None and around.var in free_axes(get(u.buffer, *u.at[:-1])):
                    weight = work(e for m in nodes(u.target.body) for e in expressions(m))
                    if weight > best.get(u.row, (0, u))[0]:
                        best[u.row] = weight, u
            self.near([u for u in uses if u.target is n and u.row not in seen], around)
            seen |= {u.row for u in uses}
            match n:
                case Loop():
                    self.reused(n.body, env, n)
                case If():
                    for part in (n.then, n.other):
                        self.reused(part, env, around)
        for _, u in best.values():
            if around is None or (id(u.target), u.row) in self.done:
                continue
            self.done.add((id(u.target), u.row))
            step = {around.var: fold(Term("add", axis(around.var), I(1)))}
            self.fetch(u, inlined(u.at, step))
            self.notes["prefetch", f"{self.buffers[u.buffer].source}: the row of the next {around.var} while {u.target.var} runs"] = None

    def near(self, uses: list[_Use], around: Loop | None) -> None:
        """Streaming loops fetch AHEAD what no loop before them has read; what every iteration around reads again stays in the cache without."""
        for u in uses:
            loop, size = u.target, BYTES[self.buffers[u.buffer].dtype]
            if (id(loop), u.row) in self.done or not loop.piece or (around is not None and free_axes(get(u.buffer, *u.at)) <= {u.lane}):
                continue
            self.done.add((id(loop), u.row))
            self.fetch(u, (*u.near[:-1], fold(Term("add", u.near[-1], I(AHEAD // size)))))
            self.notes["prefetch", f"{self.buffers[u.buffer].source}: {AHEAD} bytes ahead of {loop.var}"] = None

    def fetch(self, u: _Use, at: tuple[Term, ...]) -> None:
        """One prefetch for each line that an iteration of the target reads."""
        size = BYTES[self.buffers[u.buffer].dtype]
        found = self.ahead.setdefault(id(u.target), [])
        if u.target.piece:
            found.append(get(u.buffer, *at))
            return
        inner = next(b for b in u.target.body if isinstance(b, Loop))
        assert inner.trip is not None
        for first in range(0, inner.trip, max(1, LINE // size)):
            found.append(get(u.buffer, *(fold(substitute(e, {u.lane: I(first)})) for e in at)))

    def uses(self, n: Node, env: Env) -> Iterator[_Use]:
        """Rows of inputs, the same in all of a node, that are read by loops in it that can fetch: streaming ones, and those whose body is a loop over lanes."""
        if isinstance(n, If):
            for part in (n.then, n.other):
                for m in part:
                    yield from self.uses(m, lets_of(part, env))
        if not isinstance(n, Loop):
            return
        env = lets_of(n.body, env)
        inner = [b for b in n.body if not isinstance(b, Let)]
        lanes = n if n.piece else None
        if n.kind == "seq" and len(inner) == 1 and isinstance(only := inner[0], Loop) and only.kind == "simd" and only.trip is not None:
            lanes = only
        if lanes is None:
            for m in n.body:
                yield from (u for u in self.uses(m, env) if not any(n.var in free_axes(e) for e in u.at[:-1]))
            return
        env, own = lets_of(lanes.body, env), lets_of(lanes.body, lets_of(n.body, {}))
        for t in (t for m in lanes.body for e in expressions(m) for t in subterms(e)):
            if t.op == "get" and self.buffers[str(t.args[0])].space == "input":
                index: tuple[Term, ...] = t.args[1].args  # type: ignore[union-attr, assignment]
                if (at := contiguous(index, lanes.var, env)) is not None:
                    yield _Use(str(t.args[0]), at, inlined(index, own), n, lanes.var)

    def rebuilt(self, body: tuple[Node, ...]) -> tuple[Node, ...]:
        out: list[Node] = []
        for n in body:
            match n:
                case Loop():
                    ahead = tuple(self.ahead.get(id(n), ()))
                    out.append(replace(n, body=self.rebuilt(n.body), ahead=ahead))
                case If():
                    out.append(replace(n, then=self.rebuilt(n.then), other=self.rebuilt(n.other)))
                case _:
                    out.append(n)
        return tuple(out)
