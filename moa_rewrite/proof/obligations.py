"""The proof obligations of an operational form, from its text alone.

Each is SMT-LIB text that is unsatisfiable exactly when the obligation holds (kind "admissible": satisfiable). Facts assumed are the ranges of
loops, the conditions on the path, and the kernel's ``where``. Claims of the form "every cell is reached" are stated with the iteration that
reaches it (found by inverting index expressions), so no quantifier alternates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from ..rules.masks import idle
from ..terms import Array, I, Kernel, Term, axis, free_axes, ix, show, subterms
from ..terms.kernel import Stage
from .reach import Witness, invert, search
from .smt import Script, conj, disj, lit
from .storage import Limits, Storage, around, memory_limit, storages, stored_shape
from .touch import first_touch
from .walk import DIVISOR, SEQUENTIAL, Access, Frame, Frames, accesses, bases, bound_names, common, loops_in, refused, scope

Shown = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Obligation:
    """``kind`` admissible, bounds, offset, lemma, cover, defined, once, race, layout, capacity or touch. ``name`` is unique in a kernel and stable.
    ``shown``: (label, SMT expression) pairs printed with a counterexample; ``complaint``: what one means. ``confirm`` decides from the
    values of the symbols whether a counterexample is real, by enumeration."""

    kind: str
    name: str
    smt: str
    shown: Shown = ()
    complaint: str = ""
    confirm: Callable[[Witness], bool] | None = field(default=None, compare=False, repr=False)


def obligations(kernel: Kernel, limits: Limits, dnf: Kernel) -> list[Obligation]:
    """All obligations of ``kernel``. ``dnf`` (same outputs; one ``emit(once)`` each) says which reductions an output consists of; stages carry
    their definitions. Raises MoaError for a form for which none can be stated (an unbound axis, a stage outside its ``new``)."""
    return list(_named(_Generator(kernel, limits, dnf).all()))


def _named(items: Iterator[Obligation]) -> Iterator[Obligation]:
    """Equal texts under one name once; other clashes of names get a number."""
    seen: dict[str, list[str]] = {}
    for o in items:
        texts = seen.setdefault(f"{o.kind} {o.name}", [])
        if o.smt not in texts:
            texts.append(o.smt)
            yield replace(o, name=o.name if len(texts) == 1 else f"{o.name} #{len(texts)}")


class _Generator:
    def __init__(self, kernel: Kernel, limits: Limits, dnf: Kernel) -> None:
        self.kernel, self.limits, self.dnf = kernel, limits, dnf
        self.accesses = accesses(kernel)
        self.storages = storages(kernel, limits, self.accesses)
        self.emissions = {str(t.args[1]): t for t in subterms(dnf.body) if t.op == "emit"}
        for a in self.accesses:
            if a.write and a.array in self.emissions and a.monoid not in ("once", _monoid(self.emissions[a.array].args[3])):
                raise refused(f"{a.where}: emission under {a.monoid} to an output that is no such reduction")

    def all(self) -> Iterator[Obligation]:
        yield from self.admissible()
        for a in self.accesses:
            yield self.divisor(a) if a.array == DIVISOR else self.bounds(a)
        for x in (*self.kernel.inputs, *self.kernel.outputs):
            yield self.offset(x.name, x.shape, 2**63 - 1)
        for s in self.storages:
            yield self.offset(s.stage.name, stored_shape(s), memory_limit(s.memory, self.limits) or 2**63 - 1)
        yield from lemmas()
        for out in self.kernel.outputs:
            yield self.cover(out.name)
        for a in self.accesses:
            if not a.write and a.array != DIVISOR and a.array not in [x.name for x in self.kernel.inputs]:
                yield self.defined(a)
        yield from self.once()
        yield from self.races()
        for s in self.storages:
            yield self.layout(s.stage)
            yield from self.capacity(s)
        for kind, name, script, shown, complaint in first_touch(self.kernel, self.accesses):
            yield Obligation(kind, name, script.text(), shown, complaint)

    # --- preconditions ---------------------------------------------------------------------------------------------------------
    def admissible(self) -> Iterator[Obligation]:
        """Some sizes satisfy ``where``; contradictory preconditions would prove everything. Divisors in it and in shapes are positive."""
        sizes = tuple((n, f"|s:{n}|") for n in self.kernel.sizes)
        yield Obligation("admissible", "where", Script(self.kernel).text(), sizes, "no sizes satisfy where")
        headers: list[Array | Stage] = [*self.kernel.inputs, *self.kernel.outputs, *self.kernel.stages]
        shapes = [d for a in headers for d in a.shape]
        for k, t in enumerate((*self.kernel.where, *shapes)):
            given = replace(self.kernel, where=self.kernel.where[:k])
            for u in _divisors(t):
                s = Script(given)
                s.fact(f"(<= {s.int(u, {})} 0)")
                yield Obligation("bounds", f"divisor {show(u)} in {show(t)}", s.text(), sizes, f"{show(u)} is not positive")

    # --- accesses --------------------------------------------------------------------------------------------------------------
    def start(self, frames: Frames) -> tuple[Script, dict[str, str]]:
        s = Script(self.kernel)
        return s, s.bind(frames, {})

    def sizes_shown(self, t: Script) -> Shown:
        return tuple((n, t.size(n)) for n in self.kernel.sizes)

    def labelled(self, env: dict[str, str], other: dict[str, str] | None = None) -> Shown:
        """The axes of an iteration with their names; of a second iteration those that differ, as i'."""
        names = {a: f"axis {a}" if a in self.kernel.sizes else a for a in [*env, *(other or {})]}
        return (*[(names[a], v) for a, v in env.items()], *[(f"{names[a]}'", v) for a, v in (other or {}).items() if env.get(a) != v])

    def divisor(self, a: Access) -> Obligation:
        s, env = self.start(a.frames)
        s.fact(f"(<= {s.int(a.index[0], env)} 0)")
        text = show(a.index[0]).replace("@", "")
        shown = (*self.sizes_shown(s), *self.labelled(env))
        return Obligation("bounds", f"divisor {text} in {a.where}", s.text(), shown, f"the divisor {text} is not positive")

    def bounds(self, a: Access) -> Obligation:
        """Every index in [0, extent) of the array; in local storage the index without its outer part in [0, local extent); the index of a reduction
        that an emission runs over in [0, extent) of the reduction."""
        s, env = self.start(a.frames)
        index = [s.int(i, env) for i in a.index]
        claims = [_within(v, s.int(n, {})) for v, n in zip(index, self.kernel.array(a.array).shape, strict=True)]
        at = scope(a.frames, a.array)
        for st in self.storages:
            if at and st.frames == a.frames[:at]:
                for v, o, e in zip(index, st.outer, st.extents, strict=True):
                    if o is not I(0) or e is I(1):
                        claims.append(_within(f"(- {v} {s.int(o, env)})", s.int(e, {})))
        if a.write:
            key = dict(zip(self.reductions(a.array)[0], index, strict=True))
            for r, extent in self.left_over(a):
                if not bases(self.kernel, r, bound_names(a.frames)) - bound_names(a.frames):
                    key[r] = s.int(axis(r), env)
                    claims.append(_within(key[r], s.int(extent, key)))
        s.fact(f"(not {conj(*claims)})")
        shape = ", ".join(show(n) for n in self.kernel.array(a.array).shape)
        shown = (*self.sizes_shown(s), *self.labelled(env), *[(f"index {k} of {a.array}", v) for k, v in enumerate(index)])
        inside = [a.array + f" of shape ({shape})", *["its local storage"][:at], *["the reduction"][: a.write and len(self.left_over(a))]]
        complaint = f"{a} is outside {' or '.join(inside)}"
        return Obligation("bounds", f"{a} in {a.where}", s.text(), shown, complaint)

    def offset(self, name: str, shape: tuple[Term, ...], most: int) -> Obligation:
        """The row-major offset of an index in bounds, and all its Horner intermediates, are below the limit of the index type. Assumed: at most ``most``
        cells, by the entry check or by capacity. The two lemmas are given as instances, so that the argument is linear."""
        s = Script(self.kernel)
        top = lit(2 ** (self.limits.index_bits - 1) - 1)
        dims = [s.int(n, {}) for n in shape]
        index = [s.variable(f"i:{k}", n) for k, n in enumerate(dims)]
        value, count = (index[0], dims[0]) if shape else ("0", "1")
        claims = [_within(value, f"(+ {top} 1)")]
        for i, n in zip(index[1:], dims[1:], strict=True):
            s.nonlinear = True
            step, product = f"(* {value} {n})", f"(* {count} {n})"
            s.fact(_step_lemma(value, count, i, n))
            s.fact(_grow_lemma(count, n))
            value, count = f"(+ {step} {i})", product
            claims += [_within(step, f"(+ {top} 1)"), _within(value, f"(+ {top} 1)")]
        s.fact(f"(<= {count} {most})")
        s.fact(f"(not {conj(*claims)})")
        shown = (*self.sizes_shown(s), *[(f"index {k}", v) for k, v in enumerate(index)], ("offset", value))
        text = ", ".join(show(n) for n in shape)
        return Obligation("offset", f"{name} of shape ({text})", s.text(), shown, f"the offset does not fit a {self.limits.index_bits}-bit index")

    # --- what is reached -------------------------------------------------------------------------------------------------------
    def reductions(self, array: str) -> tuple[tuple[str, ...], list[tuple[str, Term]]]:
        """(key axes, [(reduction axis, extent)]) of a stage or output: the reductions its definition begins with."""
        a = self.kernel.array(array)
        if isinstance(a, Stage):
            return a.axes, _leading(a.definition)
        _, _, index, value = self.emissions[array].args
        assert isinstance(index, Term) and isinstance(value, Term)
        return tuple(str(i.args[0]) if i.op == "axis" else "" for i in index.kids()), _leading(value)

    def left_over(self, e: Access) -> list[tuple[str, Term]]:
        """The reductions of the definition that loops must run over: those the emitted value does not contain itself (in a stage or a reduce)."""
        value = e.value
        while value is not None and value.op == "get" and any(s.name == value.args[0] for s in self.kernel.stages):
            value = self.kernel.stage(str(value.args[0])).definition
        assert value is not None
        return [r for r in self.reductions(e.array)[1] if r not in _leading(value)]

    def target(self, s: Script, array: str, cell: list[str], e: Access) -> dict[str, str]:
        """Variables for one contribution to a cell: an index of every reduction that emission ``e`` runs over."""
        key = {k: c for k, c in zip(self.reductions(array)[0], cell, strict=True) if k}
        out: dict[str, str] = {}
        for name, extent in self.left_over(e):
            out[name] = s.variable(f"r:{name}", s.int(extent, {**key, **out}))
        q = None if e.value is None else idle(self.kernel, Term("emit", e.monoid, array, ix(*e.index), e.value))
        if q is not None and free_axes(q) <= key.keys() | out.keys() and sum(a.write and a.array == array for a in self.accesses) == 1:
            s.fact(s.bool(q, {**key, **out}))  # where it fails the contribution may be left out
        return out

    def reached(self, s: Script, e: Access, shared: int, env: dict[str, str], cell: list[str], red: dict[str, str]) -> str:
        """Some iteration of ``e``, equal to ``env`` in its first ``shared`` frames, contributes index ``red`` to the cell: named, not searched."""
        bound, env = bound_names(e.frames), {f.name: env[f.name] for f in loops_in(e.frames[:shared])}
        if any(bases(self.kernel, r, bound) - bound for r in red):
            return "false"
        for t, value in [*zip(e.index, cell, strict=True), *[(axis(r), v) for r, v in red.items()]]:
            invert(s, t, value, env, bound)
        for f in loops_in(e.frames):
            env.setdefault(f.name, "0")
        same = [f"(= {s.int(t, env)} {value})" for t, value in zip(e.index, cell, strict=True)]
        same += [f"(= {s.int(axis(r), env)} {v})" for r, v in red.items()]
        return conj(*s.holds(e.frames[shared:], env), *same)

    def cover(self, array: str) -> Obligation:
        """Every cell of an output gets every index of the reductions it consists of."""
        s = Script(self.kernel)
        found = [a for a in self.accesses if a.write and a.array == array]
        cell = [s.variable(f"c:{k}", s.int(n, {})) for k, n in enumerate(self.kernel.array(array).shape)]
        red: dict[str, str] = {}
        for e in found:
            red |= self.target(s, array, cell, e)
        s.fact(f"(not {disj(*[self.reached(s, e, 0, {}, cell, red) for e in found])})")
        names = self.reductions(array)[0]
        shown = (*self.sizes_shown(s), *[(n or f"index {k}", c) for k, (n, c) in enumerate(zip(names, cell, strict=True))], *red.items())
        ways = ", ".join(dict.fromkeys(f.name for e in found for f in loops_in(e.frames))) or "(none)"
        confirm = search(self.kernel, [(e, 0) for e in found], {}, cell, red)
        return Obligation("cover", array, s.text(), shown, f"no iteration of for {ways} reaches it", confirm)

    def defined(self, a: Access) -> Obligation:
        """The cell a stage (or output) is read at has received all its contributions: from emissions earlier in sequence, in the same instance of the stage
        and the same iteration of the loops around both."""
        s, env = self.start(a.frames)
        at = scope(a.frames, a.array)
        cell = [s.symbol(f"c:{k}") for k in range(len(a.index))]
        for c, i in zip(cell, a.index, strict=True):
            s.fact(f"(= {c} {s.int(i, env)})")
        ways: list[tuple[Access, int]] = []
        red: dict[str, str] = {}
        for e in self.accesses:
            if e.write and e.array == a.array and e.frames[:at] == a.frames[:at]:
                red |= self.target(s, a.array, cell, e)
                n = common(e.frames, a.frames)
                if n < min(len(e.frames), len(a.frames)) and e.frames[n].kind == a.frames[n].kind == "seq" and e.frames[n].branch < a.frames[n].branch:
                    ways.append((e, n))
        around_both = {f.name: f"|a:{f.name}|" for f in loops_in(a.frames)}  # not env: a reduce around the read may hide a loop
        s.fact(f"(not {disj(*[self.reached(s, e, n, around_both, cell, red) for e, n in ways])})")
        shown = (*self.sizes_shown(s), *self.labelled(env), *[(f"contribution {r}", v) for r, v in red.items()])
        confirm = search(self.kernel, ways, around_both, cell, red)
        return Obligation("defined", f"{a} in {a.where}", s.text(), shown, f"{a} is read before it is complete", confirm)

    # --- what is reached twice ---------------------------------------------------------------------------------------------------
    def once(self) -> Iterator[Obligation]:
        """Two iterations of the emissions to an array that contribute the same reduction index to the same cell are one iteration."""
        writes = [a for a in self.accesses if a.write]
        for k, a in enumerate(writes):
            for b in writes[k:]:
                at = scope(a.frames, a.array)
                if a.array != b.array or a.frames[:at] != b.frames[:at]:
                    continue
                s, env = self.start(a.frames[:at])
                one, two = s.bind(a.frames[at:], env, "#1"), s.bind(b.frames[at:], env, "#2")
                bound = bound_names(a.frames) & bound_names(b.frames)
                red = [axis(r) for r, _ in self.left_over(a) if not bases(self.kernel, r, bound) - bound]
                for t, u in [*zip(a.index, b.index, strict=True), *zip(red, red, strict=True)]:
                    s.fact(f"(= {s.int(t, one)} {s.int(u, two)})")
                inner = loops_in(a.frames[at:])
                if a is b:
                    s.fact(disj(*[f"(distinct {one[f.name]} {two[f.name]})" for f in inner]))
                cells = [(f"index {k} of {a.array}", s.int(t, one)) for k, t in enumerate(a.index)]
                name = f"{a}" if a is b else f"{a} and {b}"
                yield Obligation("once", name, s.text(), (*self.sizes_shown(s), *self.labelled(one, two), *cells), f"two iterations contribute the same to {a}")

    def races(self) -> Iterator[Obligation]:
        """Different iterations of a loop that run at the same time never touch the same cell of an array that lives outside the loop, unless all only read
        (or are lanes of one accumulation, which lowering gives a partial result each)."""
        news = dict.fromkeys((f, a.frames[: n + 1]) for a in self.accesses for n, f in enumerate(a.frames) if f.kind == "for" and f.place not in SEQUENTIAL)
        for loop, prefix in news:
            n = len(prefix)
            inside = [a for a in self.accesses if a.frames[:n] == prefix and a.array != DIVISOR and scope(a.frames, a.array) < n]
            for k, a in enumerate(inside):
                for j, b in enumerate(inside):
                    if a.array != b.array or not a.write or (b.write and j < k) or self.lanes(loop, n, a, b):
                        continue
                    s, env = self.start(prefix[:-1])
                    one, two = s.bind(a.frames[n - 1 :], env, "#1"), s.bind(b.frames[n - 1 :], env, "#2")
                    s.fact(f"(distinct |a:{loop.name}#1| |a:{loop.name}#2|)")  # not one, two: a reduce inside may hide the loop
                    for t, u in zip(a.index, b.index, strict=True):
                        s.fact(f"(= {s.int(t, one)} {s.int(u, two)})")
                    text = f"two iterations of {loop.name}, which run at the same time, touch the same cell of {a.array}"
                    name = f"{loop.place} {loop.name}: {a.where} {a}" + ("" if a is b else f" and {b.where} {b}")
                    yield Obligation("race", name, s.text(), (*self.sizes_shown(s), *self.labelled(one, two)), text)

    def lanes(self, loop: Frame, n: int, a: Access, b: Access) -> bool:
        """Whether a and b are one emission and the simd loop, ``n`` frames down, accumulates into its cells with nothing but loops between."""
        keyed = any(loop.name in bases(self.kernel, x, bound_names(a.frames)) for t in a.index for x in free_axes(t))
        return loop.place == "simd" and a is b and a.monoid != "once" and not keyed and all(f.kind == "for" for f in a.frames[n:])

    # --- storage -----------------------------------------------------------------------------------------------------------------
    def layout(self, stage: Stage) -> Obligation:
        """The storage order is a permutation of the key axes."""
        s, rank = Script(self.kernel), len(stage.shape)
        order = [lit(k) for k in (stage.layout or range(rank))]
        claims = [f"(= {len(order)} {rank})", *[_within(k, str(rank)) for k in order], *([f"(distinct {' '.join(order)})"] if len(order) > 1 else [])]
        s.fact(f"(not {conj(*claims)})")
        return Obligation("layout", stage.name, s.text(), (), f"layout {stage.layout} of {stage.name} is no permutation of its {rank} axes")

    def capacity(self, s: Storage) -> Iterator[Obligation]:
        """Stages of one memory that are alive together fit it, for all sizes; for some, where the emitted code checks. The heap's limit is the entry check."""
        limit = memory_limit(s.memory, self.limits)
        if limit is None:
            return
        t = Script(self.kernel)
        total = []
        for o in [*[x for x in around(s, self.storages) if x.memory == s.memory], s]:
            dims = [t.int(e, {}) for e in stored_shape(o)]
            t.nonlinear |= sum(e.op != "int" for e in stored_shape(o)) > 1
            total.append(f"(* {o.cell_bytes} {' '.join(dims)})" if dims else str(o.cell_bytes))
        used = f"(+ {' '.join(total)})" if len(total) > 1 else total[0]
        shown = (*self.sizes_shown(t), ("bytes", used))
        if s.memory == "shared" and self.limits.shared_checked and s.constant is None:
            for n in self.kernel.sizes:
                t.fact(f"(<= 1 {t.size(n)})")
            t.fact(f"(<= {used} {limit})")
            yield Obligation("admissible", f"{s.stage.name} in {s.memory} memory", t.text(), shown, f"no sizes fit the {limit} bytes of {s.memory} memory")
            return
        t.fact(f"(not (<= {used} {limit}))")
        yield Obligation("capacity", f"{s.stage.name} in {s.memory} memory", t.text(), shown, f"more than the {limit} bytes of {s.memory} memory")


# --- pieces ------------------------------------------------------------------------------------------------------------------------
def lemmas() -> Iterator[Obligation]:
    """The two facts about products that offsets use, proved in general."""
    for name, lemma in [("step", _step_lemma("|x:g|", "|x:p|", "|x:i|", "|x:n|")), ("grow", _grow_lemma("|x:p|", "|x:n|"))]:
        names = [n for n in ("g", "p", "i", "n") if f"|x:{n}|" in lemma]
        text = "\n".join(["(set-logic QF_NIA)", *[f"(declare-fun |x:{n}| () Int)" for n in names], f"(assert (not {lemma}))", "(check-sat)", ""])
        yield Obligation("lemma", name, text, tuple((n, f"|x:{n}|") for n in names), "the lemma fails")


def _step_lemma(g: str, p: str, i: str, n: str) -> str:
    """0 <= g < p and 0 <= i < n: 0 <= g*n and g*n + i < p*n."""
    return f"(=> (and (<= 0 {g}) (< {g} {p}) (<= 0 {i}) (< {i} {n})) (and (<= 0 (* {g} {n})) (< (+ (* {g} {n}) {i}) (* {p} {n}))))"


def _grow_lemma(p: str, n: str) -> str:
    """p >= 0 and n >= 1: p <= p*n."""
    return f"(=> (and (<= 0 {p}) (<= 1 {n})) (<= {p} (* {p} {n})))"


def _within(value: str, extent: str) -> str:
    return conj(f"(<= 0 {value})", f"(< {value} {extent})")


def _divisors(t: Term) -> list[Term]:
    own = [t.args[1]] if t.op in ("idiv", "mod") and not (t.args[1].op == "int" and t.args[1].args[0] > 0) else []  # type: ignore
    return [*[u for a in t.kids() for u in _divisors(a)], *own]  # type: ignore[list-item]


def _monoid(t: Term | str | int) -> str:
    """The monoid of the reductions a term begins with; "" if none."""
    while isinstance(t, Term) and t.op in ("fst", "snd"):
        t = t.args[0]
    return str(t.args[0]) if isinstance(t, Term) and t.op == "reduce" else ""


def _leading(t: Term) -> list[tuple[str, Term]]:
    """The reductions a scalar term begins with: those an emission may turn into loops. All must be under one monoid."""
    out: list[tuple[str, Term]] = []
    monoid = None
    while t.op in ("fst", "snd") or (t.op == "reduce" and monoid in (None, t.args[0])):
        if t.op == "reduce":
            monoid = t.args[0]
            out.append((str(t.args[1]), t.args[2]))  # type: ignore[arg-type]
        t = t.kids()[-1]
    return out


__all__ = ["Limits", "Obligation", "lemmas", "obligations"]
