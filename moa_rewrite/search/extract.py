"""Extraction: dynamic programming over the frozen classes. Every class keeps a few entries, the cheapest and the cheapest of each kind.

A kind is what may matter further out: which stages are closed and how large, which layouts are fixed, whether the outer loop may run in parallel.
"""

from __future__ import annotations

import math
from itertools import product, takewhile
from operator import attrgetter

from .cost import Cost, Entry, Pair
from .structure import Space

LONG, SHORT = 8, 3  # leaves of a sequence above which one of its parts has at most so many
_price = attrgetter("price")


class Extractor:
    def __init__(self, space: Space, cost: Cost, keep: int = 4, kinds: int = 6, pairs: int = 6) -> None:
        self.pairs = pairs
        self.s, self.c, self.keep, self.kinds = space, cost, keep, kinds
        self.memo: dict[int, list[Entry]] = {}
        self.counts: dict[int, int] = {}
        self.ends: dict[int, list[Entry]] = {}
        self.sizes: dict[int, tuple[tuple[int, ...], int]] = {}

    def best(self, cls: int) -> list[Entry]:
        if cls in self.memo:
            return self.memo[cls]
        self.memo[cls] = []  # a class inside itself offers nothing
        found: list[Entry | Pair] = []
        if cls in self.s.leaf_of:
            found.append(self.c.leaf(self.s.leaf_of[cls]))
        else:
            sequences: list[tuple[Entry, Entry]] = []
            for node in self.s.nodes[cls]:
                if node[0] == "for":
                    for e in self.best(node[4][0]):
                        found += self.c.loop(node[1], e)
                elif node[0] == "seq" and self.near_end(node):
                    sequences += product(self.part(node[1][0]), self.part(node[2][0]))
            found += self.c.pairs(sequences)
        self.memo[cls] = [e if isinstance(e, Entry) else self.c.entry(e) for e in self.prune(found)]
        return self.memo[cls]

    def near_end(self, node: tuple) -> bool:
        """Whether one part of a sequence is short, or the whole: long sequences are not cut in the middle, so the cuts do not grow with the program."""
        parts = sorted(self.leaves(kid[0]) for kid in node[1:3])
        return sum(parts) <= LONG or parts[0] <= SHORT

    def leaves(self, cls: int) -> int:
        if cls not in self.counts:
            self.counts[cls] = 1  # of a class inside itself
            node = self.s.nodes[cls][0]
            if cls not in self.s.leaf_of and node[0] != "emit":  # the emission of a scan lies inside its leaf
                self.counts[cls] = sum(self.leaves(kid[0]) for kid in (node[4:5] if node[0] == "for" else node[1:3]))
        return self.counts[cls]

    def part(self, cls: int) -> list[Entry]:
        """The cheapest entries of a class as parts of a sequence."""
        if cls in self.ends:
            return self.ends[cls]
        found = sorted(map(self.c.closed, self.best(cls)), key=_price)[: self.pairs]
        if self.memo[cls]:  # not while the class is being searched
            self.ends[cls] = found
        return found

    def prune(self, found: list[Entry | Pair]) -> list[Entry | Pair]:
        found.sort(key=_price)  # stable: ties stay in the order of the graph's rows
        per_kind: dict[tuple, int] = {}
        kept: list[Entry | Pair] = []
        for e in found:
            if len(per_kind) >= self.kinds and len(kept) >= self.keep:
                break
            kind = self.kind(e)
            n = per_kind.setdefault(kind, 0)
            if (n == 0 and len(per_kind) <= self.kinds) or (len(kept) < self.keep and n < 2):
                per_kind[kind] = n + 1
                kept.append(e)
        # memory is not free: of those that are not much dearer, the one that stores least goes on too
        near = takewhile(lambda e: e.price < 1.3 * found[0].price, found)
        least = min(near, key=self.stored, default=None)
        if least is not None and least not in kept:
            kept.append(least)
        return kept

    def touched(self, e: Entry | Pair) -> tuple[tuple[int, ...], int]:
        """The order of magnitude of what each closed stage takes, and those of all stages together."""
        if e.bytes not in self.sizes:
            foot, cold = self.c.touched[e.bytes]
            sizes = {k: math.frexp(foot[k])[1] for k in self.c.users}
            self.sizes[e.bytes] = tuple(n for k, n in sizes.items() if foot[k] and not cold[k]), sum(sizes.values())
        return self.sizes[e.bytes]

    def stored(self, e: Entry | Pair) -> int:
        return self.touched(e)[1]

    def kind(self, e: Entry | Pair) -> tuple:
        open_block = (e.block.simd, e.block.unroll) if e.block else ()
        return (e.block is None, open_block, e.layout, self.touched(e)[0], e.par >= self.c.m.cores)

    def root(self) -> list[Entry]:
        return [self.c.closed(e) for e in self.best(self.s.root)]
