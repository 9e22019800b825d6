"""Extraction: dynamic programming over the frozen classes. Every class keeps a few entries, the cheapest and the cheapest of each kind.

A kind is what may matter further out: which stages are closed and how large, which layouts are fixed, whether the outer loop may run in parallel.
"""

from __future__ import annotations

import math
from collections import defaultdict
from itertools import product
from operator import attrgetter

from .cost import Cost, Entry
from .structure import Space

_price = attrgetter("price")


class Extractor:
    def __init__(self, space: Space, cost: Cost, keep: int = 4, kinds: int = 6, pairs: int = 6) -> None:
        self.pairs = pairs
        self.s, self.c, self.keep, self.kinds = space, cost, keep, kinds
        self.memo: dict[int, list[Entry]] = {}

    def best(self, cls: int) -> list[Entry]:
        if cls in self.memo:
            return self.memo[cls]
        self.memo[cls] = []  # a class inside itself offers nothing
        if cls in self.s.leaf_of:
            found = [self.c.leaf(self.s.leaf_of[cls])]
        else:
            found = []
            for node in self.s.nodes[cls]:
                if node[0] == "for":
                    for e in self.best(node[4][0]):
                        found += self.c.loop(node[1], e)
                elif node[0] == "seq":
                    left, right = (sorted(map(self.c.closed, self.best(n[0])), key=_price)[: self.pairs] for n in node[1:3])
                    for a, b in product(left, right):
                        e2 = self.c.seq(a, b)
                        if e2 is not None:
                            found.append(e2)
        self.memo[cls] = self.prune(found)
        return self.memo[cls]

    def prune(self, found: list[Entry]) -> list[Entry]:
        found.sort(key=_price)  # stable: ties stay in the order of the graph's rows
        per_kind: dict[tuple, int] = defaultdict(int)
        kept: list[Entry] = []
        for e in found:
            kind = self.kind(e)
            if (per_kind[kind] == 0 and len(per_kind) <= self.kinds) or (len(kept) < self.keep and per_kind[kind] < 2):
                per_kind[kind] += 1
                kept.append(e)
        # memory is not free: of those that are not much dearer, the one that stores least goes on too
        near = [e for e in found if e.price < 1.3 * found[0].price]
        least = min(near, key=self.stored, default=None)
        if least is not None and least not in kept:
            kept.append(least)
        return kept

    def stored(self, e: Entry) -> int:
        """The orders of magnitude of what each stage takes, together."""
        return sum(math.frexp(e.foot[k])[1] for k in self.c.users)

    def kind(self, e: Entry) -> tuple:
        open_block = (e.block.simd, e.block.unroll) if e.block else ()
        sizes = tuple(math.frexp(e.foot[k])[1] for k in self.c.users if e.foot[k] and not e.cold[k])
        return (e.block is None, open_block, e.layout, sizes, e.par >= self.c.m.cores)

    def root(self) -> list[Entry]:
        return [self.c.closed(e) for e in self.best(self.s.root)]
