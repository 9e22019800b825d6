"""Hand-written operational forms for the tests of obligations, and an executor that finds operational mistakes by running them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from moa_rewrite.terms import Array, Kernel, Stage, Term, parse_term, show


def P(text: str) -> Term:
    return parse_term(" ".join(text.split()))


def array(name: str, *shape: str, dtype: str = "f32") -> Array:
    return Array(name, dtype, tuple(map(P, shape)))


def stage(name: str, axes: str, shape: str, monoid: str, definition: str, dtype: str = "f32") -> Stage:
    return Stage(name, dtype, tuple(axes.split()), tuple(map(P, shape.split())), monoid, P(definition))


def nest(loops: str, body: str, place: str = "seq") -> str:
    """``"i:n j:m"`` around a statement."""
    for item in reversed(loops.split()):
        axis, extent, *at = item.split(":")
        body = f'for("{axis}", {extent}, "{at[0] if at else place}", {body})'
    return body


def tiled(axis: str, extent: str, tile: int) -> tuple[str, str]:
    """The loops of a lifted axis, in the notation of ``nest``."""
    return f"{axis}.o:({extent}+{tile}-1)//{tile}", f"{axis}.i:min({tile},{extent}-@{axis}.o*{tile})"


def lifted(**tile: int) -> tuple[tuple[str, Term], ...]:
    return tuple((a, P(f"@{a}.o*{t}+@{a}.i")) for a, t in tile.items())


@dataclass
class Form:
    """An ONF with its DNF. ``reductions``: per array the (axis, extent) pairs its cells collect over, as the author of the form knows them.
    ``local``: (key position, tile, outer axis) per stage: storage holds only the cells whose index divided by tile is the outer axis."""

    onf: Kernel
    dnf: Kernel
    reductions: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    local: dict[str, list[tuple[int, int, str]]] = field(default_factory=dict)

    def storing(self, **local: list[tuple[int, int, str]]) -> Form:
        return replace(self, local=local)

    def but(self, old: str, new: str) -> Form:
        """The same form with a piece of the body replaced; fails when it is not there."""
        text = show(self.onf.body)
        assert old in text, f"{old} is not in {text}"
        return replace(self, onf=self.onf.with_body(P(text.replace(old, new))))


def form(dnf: Kernel, body: str, stages: tuple[Stage, ...] = (), defs: tuple = (), **reductions: list[tuple[str, str]]) -> Form:
    return Form(replace(dnf, body=P(body), stages=stages, defs=defs), dnf, reductions)


# --- right forms -----------------------------------------------------------------------------------------------------------------
def matmul(t: tuple[int, int, int] = (4, 3, 2)) -> Form:
    dnf = Kernel("matmul", ("n", "m", "k"), (), (array("A", "n", "k"), array("B", "k", "m")), (array("C", "n", "m"),),
                 P(nest("i:n j:m", 'emit("once", "C", <@i, @j>, reduce("add", "l", k, A[@i, @l] * B[@l, @j]))')))  # fmt: skip
    (io, ii), (jo, ji), (lo, li) = tiled("i", "n", t[0]), tiled("j", "m", t[1]), tiled("l", "k", t[2])
    body = nest(f"{io}:core {jo} {lo} {ii} {li} {ji}:simd", 'emit("add", "C", <@i, @j>, A[@i, @l] * B[@l, @j])')
    return form(dnf, body, (), lifted(i=t[0], j=t[1], l=t[2]), C=[("l", "k")])


def softmax() -> Form:
    m, s = ('reduce("max", "{0}", m, X[@i, @{0}])', 'reduce("add", "{0}", m, exp(X[@i, @{0}] - {1}))')
    top = f'exp(X[@i, @j] - {m.format("k")}) / {s.format("k", m.format("l"))}'
    dnf = Kernel("softmax", ("n", "m"), (), (array("X", "n", "m"),), (array("Y", "n", "m"),), P(nest("i:n j:m", f'emit("once", "Y", <@i, @j>, {top})')))
    stages = (stage("M", "i", "n", "max", m.format("j")), stage("S", "i", "n", "add", s.format("j", m.format("l"))))
    body = nest("i:n:core", f'''new("M", new("S", seq({nest("j:m", 'emit("max", "M", <@i>, X[@i, @j])')},
        seq({nest("j:m", 'emit("add", "S", <@i>, exp(X[@i, @j] - M[@i]))')},
            {nest("j:m:simd", 'emit("once", "Y", <@i, @j>, exp(X[@i, @j] - M[@i]) / S[@i])')}))))''')
    return form(dnf, body, stages, (), M=[("j", "m")], S=[("j", "m")])


def stencil() -> Form:
    e = "X[(@i + n - 1) % n, @j] + X[(@i + 1) % n, @j] + X[@i, (@j + m - 1) % m] + X[@i, (@j + 1) % m]"
    dnf = Kernel("stencil", ("n", "m"), (), (array("X", "n", "m"),), (array("Y", "n", "m"),), P(nest("i:n j:m", f'emit("once", "Y", <@i, @j>, {e})')))
    (io, ii), (jo, ji) = tiled("i", "n", 3), tiled("j", "m", 4)
    return form(dnf, nest(f"{io}:core {jo}:core {ii} {ji}:simd", f'emit("once", "Y", <@i, @j>, {e})'), (), lifted(i=3, j=4))


def cat() -> Form:
    e = "select(@i < n, X[@i], Y[@i - n])"
    dnf = Kernel("cat", ("n", "m"), (), (array("X", "n"), array("Y", "m")), (array("Z", "n+m"),), P(nest("i:n+m", f'emit("once", "Z", <@i>, {e})')))
    return form(dnf, nest("i:n+m:core", f'emit("once", "Z", <@i>, {e})'))


def cat_split() -> Form:
    f = cat()
    body = f'seq({nest("i:n", """emit("once", "Z", <@i>, X[@i])""")}, {nest("j:m", """emit("once", "Z", <@j + n>, Y[@j])""")})'
    return form(f.dnf, body)


def guarded() -> Form:
    f = cat()
    body = nest("i:n+m", 'seq(guard(@i < n, emit("once", "Z", <@i>, X[@i])), guard(not (@i < n), emit("once", "Z", <@i>, Y[@i - n])))')
    return form(f.dnf, body)


def transpose() -> Form:
    dnf = Kernel("transpose", ("n", "m"), (), (array("X", "n", "m"),), (array("Y", "m", "n"),), P(nest("j:m i:n", 'emit("once", "Y", <@j, @i>, X[@i, @j])')))
    (io, ii), (jo, ji) = tiled("i", "n", 3), tiled("j", "m", 2)
    return form(dnf, nest(f"{jo}:core {io} {ji} {ii}:unroll", 'emit("once", "Y", <@j, @i>, X[@i, @j])'), (), lifted(i=3, j=2))


def attention(ti: int = 3, tj: int = 2, place: str = "core") -> Form:
    s = 'reduce("add", "k", d, Q[@h, @i, @k] * K[@h, @j, @k])'
    w, r = f'snd(reduce("osm", "j", m, pair({s}, V[@h, @j, @e])))', f'snd(reduce("osm", "j", m, pair({s}, 1.0)))'
    dnf = Kernel("attention", ("h", "n", "m", "d"), (), (array("Q", "h", "n", "d"), array("K", "h", "m", "d"), array("V", "h", "m", "d")),
                 (array("O", "h", "n", "d"),), P(nest("h:h i:n e:d", f'emit("once", "O", <@h, @i, @e>, {w} / {r})')))  # fmt: skip
    stages = (stage("S", "h i j", "h n m", "add", s), stage("W", "h i e", "h n d", "osm", w), stage("L", "h i", "h n", "osm", r))
    (io, ii), (jo, ji) = tiled("i", "n", ti), tiled("j", "m", tj)
    body = nest(f"h:h:{place} {io}:{place}", f'''new("W", new("L", seq({nest(jo, f"""new("S", seq(
        {nest(f"{ii} k:d {ji}:simd", 'emit("add", "S", <@h, @i, @j>, Q[@h, @i, @k] * K[@h, @j, @k])')},
        seq({nest(f"{ii} {ji}:simd", 'emit("osm", "L", <@h, @i>, pair(S[@h, @i, @j], 1.0))')},
            {nest(f"{ii} {ji} e:d:simd", 'emit("osm", "W", <@h, @i, @e>, pair(S[@h, @i, @j], V[@h, @j, @e]))')})))""")},
        {nest(f"{ii} e:d:simd", 'emit("once", "O", <@h, @i, @e>, W[@h, @i, @e] / L[@h, @i])')})))''')
    return form(dnf, body, stages, lifted(i=ti, j=tj), S=[("k", "d")], W=[("j", "m")], L=[("j", "m")]).storing(
        S=[(1, ti, "i.o"), (2, tj, "j.o")], W=[(1, ti, "i.o")], L=[(1, ti, "i.o")])  # fmt: skip


def triangle() -> Form:
    """Row sums of the lower triangle of X Xᵀ, of which tiles above the diagonal are not made."""
    s = 'reduce("add", "k", m, X[@i, @k] * X[@j, @k])'
    dnf = Kernel("triangle", ("n", "m"), (), (array("X", "n", "m"),), (array("Y", "n"),),
                 P(nest("i:n", f'emit("once", "Y", <@i>, reduce("add", "j", n, select(@j <= @i, {s}, 0.0)))')))  # fmt: skip
    (io, ii), (jo, ji) = tiled("i", "n", 3), tiled("j", "n", 2)
    fill = nest(f"{ii} k:m {ji}:simd", 'emit("add", "S", <@i, @j>, X[@i, @k] * X[@j, @k])')
    body = nest(f"{io}:core", f'''new("S", seq({nest(jo, f"guard(0 <= @i.o * 3 + 2 - @j.o * 2, {fill})")},
        {nest(f"{ii} {jo} {ji}", 'emit("add", "Y", <@i>, select(@j <= @i, S[@i, @j], 0.0))')}))''')
    return form(dnf, body, (stage("S", "i j", "n n", "add", s),), lifted(i=3, j=2), S=[("k", "m")], Y=[("j", "n")]).storing(S=[(0, 3, "i.o")])


def scan() -> Form:
    dnf = Kernel("scan", ("n",), (), (array("X", "n"),), (array("Y", "n"),), P(nest("i:n", 'emit("once", "Y", <@i>, reduce("add", "k", @i + 1, X[@k]))')))
    io, ii = tiled("i", "n", 3)
    return form(dnf, nest(f"{io}:core {ii} k:@i+1", 'emit("add", "Y", <@i>, X[@k])'), (), lifted(i=3), Y=[("k", "@i+1")])


def dot() -> Form:
    dnf = Kernel("dot", ("n",), (), (array("X", "n"), array("Y", "n")), (array("Z"),), P('emit("once", "Z", <>, reduce("add", "k", n, X[@k] * Y[@k]))'))
    return form(dnf, nest("k:n:simd", 'emit("add", "Z", <>, X[@k] * Y[@k])'), (), (), Z=[("k", "n")])


def two_levels() -> Form:
    """An axis lifted twice, and a stage between the levels that is read one row further up."""
    dnf = Kernel("two", ("n",), (), (array("X", "n"),), (array("Y", "n"),), P(nest("i:n", 'emit("once", "Y", <@i>, exp(X[@i]) * 2.0)')))
    loops = nest("i.i.o:(min(6,n-@i.o*6)+2-1)//2 i.i.i:min(2,min(6,n-@i.o*6)-@i.i.o*2)", "{}")
    body = nest("i.o:(n+6-1)//6:core", f'new("T", seq({loops}, {loops}))'.replace("{}", "{0}", 1).replace("{}", "{1}", 1)
                .format('emit("once", "T", <@i>, exp(X[@i]))', 'emit("once", "Y", <@i>, T[@i] * 2.0)'))  # fmt: skip
    defs = (("i", P("@i.o*6+@i.i")), ("i.i", P("@i.i.o*2+@i.i.i")))
    return form(dnf, body, (stage("T", "i", "n", "once", "exp(X[@i])"),), defs, T=[]).storing(T=[(0, 6, "i.o")])


def reverse() -> Form:
    dnf = Kernel("reverse", ("n",), (), (array("X", "n"),), (array("Y", "n"),), P(nest("i:n", 'emit("once", "Y", <@i>, X[n - 1 - @i])')))
    return form(dnf, nest("i:n:core", 'emit("once", "Y", <n - 1 - @i>, X[@i])'))


def gather() -> Form:
    e = "select(0 <= E[@i] and E[@i] < m, X[E[@i]], 0.0)"
    dnf = Kernel("gather", ("n", "m"), (), (array("E", "n", dtype="i64"), array("X", "m")), (array("Y", "n"),), P(nest("i:n", f'emit("once", "Y", <@i>, {e})')))
    return form(dnf, nest("i:n:core", f'emit("once", "Y", <@i>, {e})'))


RIGHT = {f.__name__: f for f in (matmul, softmax, stencil, cat, cat_split, guarded, transpose, attention, triangle, scan, dot, two_levels, reverse, gather)}


# --- running a form ----------------------------------------------------------------------------------------------------------------
_FOLD = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "idiv": lambda a, b: a // b, "mod": lambda a, b: a % b, "min": min,
    "max": max, "lt": lambda a, b: a < b, "le": lambda a, b: a <= b, "eq": lambda a, b: a == b, "and": lambda a, b: a and b, "or": lambda a, b: a or b,
}  # fmt: skip


class Run:
    """Executes a form for given sizes without values of floats, and collects operational mistakes in ``wrong`` (bounds, once, cover, defined, race)."""

    def __init__(self, f: Form, sizes: dict[str, int], data: dict[str, list[int]] | None = None) -> None:
        self.k, self.f, self.sizes, self.data = f.onf, f, sizes, data or {}
        self.wrong: set[str] = set()
        self.defs = dict(self.k.defs)
        self.cells: dict[str, tuple[int, dict]] = {o.name: (0, {}) for o in self.k.outputs}
        self.instances = self.executions = 0
        self.touched: dict[tuple, list[tuple[int, bool]]] = {}
        self.parallel: list[tuple[int, int]] = []
        self.run(self.k.body, {})
        for o in self.k.outputs:
            for cell in itertools.product(*[range(self.num(n, {})) for n in o.shape]):
                if self.cells[o.name][1].get(cell, set()) != self.expected(o.name, cell):
                    self.wrong.add("cover")
        for touches in self.touched.values():
            writers = {i for i, w in touches if w}
            if writers and len({i for i, _ in touches}) > 1:
                self.wrong.add("race")

    def num(self, t: Term, env: dict[str, int]) -> int:
        a: tuple = t.args
        match t.op:
            case "int":
                return a[0]
            case "size":
                return self.sizes[a[0]]
            case "axis":
                return env[a[0]] if a[0] in env else self.num(self.defs[a[0]], env)
            case "not":
                return not self.num(a[0], env)
            case "get":
                return self.data[a[0]][self.num(a[1].args[0], env)]
        return _FOLD[t.op](self.num(a[0], env), self.num(a[1], env))

    def key_axes(self, name: str) -> list[str]:
        found = [s.axes for s in self.k.stages if s.name == name]
        if found:
            return list(found[0])
        t = self.f.dnf.body
        while t.op == "for":
            t = t.args[3]
        return [i.args[0] for i in t.args[2].args]

    def expected(self, name: str, cell: tuple) -> set[tuple]:
        env = dict(zip(self.key_axes(name), cell, strict=True))
        return set(itertools.product(*[range(self.num(P(n), env)) for _, n in self.f.reductions.get(name, [])]))

    def touch(self, name: str, cell: tuple, write: bool) -> None:
        instance = self.cells[name][0] if name in self.cells else -1
        for execution, iteration in self.parallel:
            self.touched.setdefault((execution, name, instance, cell), []).append((iteration, write))

    def inside(self, name: str, cell: tuple, env: dict[str, int]) -> bool:
        if any(cell[k] // tile != env[outer] for k, tile, outer in self.f.local.get(name, []) if outer in env):
            return False
        return all(0 <= c < self.num(n, {}) for c, n in zip(cell, self.k.array(name).shape, strict=True))

    def read(self, t: Term, env: dict[str, int]) -> None:
        a: tuple = t.args
        if t.op == "select":
            self.read(a[0], env)
            self.read(a[1] if self.num(a[0], env) else a[2], env)
        elif t.op == "reduce":
            for v in range(self.num(a[2], env)):
                self.read(a[3], {**env, a[1]: v})
        elif t.op == "get":
            for i in a[1].args:
                self.read(i, env)
            cell = tuple(self.num(i, env) for i in a[1].args)
            if not self.inside(a[0], cell, env):
                self.wrong.add("bounds")
            elif a[0] in self.cells:
                self.touch(a[0], cell, False)
                if self.cells[a[0]][1].get(cell, set()) != self.expected(a[0], cell):
                    self.wrong.add("defined")
        else:
            for u in t.kids():
                self.read(u, env)

    def run(self, t: Term, env: dict[str, int]) -> None:
        a: tuple = t.args
        match t.op:
            case "for":
                self.executions += 1
                execution, parallel = self.executions, a[2] not in ("seq", "unroll")
                lanes = a[2] == "simd" and self.accumulates(a[3], a[0])
                for v in range(self.num(a[1], env)):
                    if parallel and not lanes:
                        self.parallel.append((execution, v))
                    self.run(a[3], {**env, a[0]: v})
                    if parallel and not lanes:
                        self.parallel.pop()
            case "seq":
                self.run(a[0], env)
                self.run(a[1], env)
            case "new":
                self.instances += 1
                self.cells[a[0]] = (self.instances, {})
                self.run(a[1], env)
                del self.cells[a[0]]
            case "guard":
                if self.num(a[0], env):
                    self.run(a[1], env)
            case "emit":
                self.read(a[3], env)
                cell = tuple(self.num(i, env) for i in a[2].args)
                part = tuple(self.num(Term("axis", r), env) for r, _ in self.f.reductions.get(a[1], []) if self.known(r, env))
                have = self.cells[a[1]][1].setdefault(cell, set())
                if not self.inside(a[1], cell, env) or part not in self.expected(a[1], cell):
                    self.wrong.add("bounds")
                if part in have:
                    self.wrong.add("once")
                have.add(part)
                self.touch(a[1], cell, True)

    def known(self, name: str, env: dict[str, int]) -> bool:
        return name in env or (name in self.defs and all(self.known(u.args[0], env) for u in _axes(self.defs[name])))

    def accumulates(self, t: Term, axis: str) -> bool:
        """Lanes of one accumulation: only loops down to an emission under a monoid whose cells the axis does not select."""
        while t.op == "for":
            t = t.args[3]
        used = {u.args[0] for i in t.args[2].args for u in _axes(i)} if t.op == "emit" else set()
        return t.op == "emit" and t.args[0] != "once" and axis not in used | {u.args[0] for n in used & self.defs.keys() for u in _axes(self.defs[n])}


def _axes(t: Term) -> Iterator[Term]:
    if t.op == "axis":
        yield t
    for a in t.kids():
        yield from _axes(a)
