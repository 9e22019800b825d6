"""Programs to kernels: names, types, shapes, definitions unfolded, Ω lifted away. The result is a ``terms.Kernel``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from ..terms import Array, Kernel, Term, axis, ix, num, seq
from . import builtins as B
from .poly import Poly
from .prove import Prover
from .scalar import apply_scalar, shapes, symbol, type_name
from .structural import apply_structural, fold, inner, outer, vector
from .tree import App, Body, Bool, Def, Expr, Fn, Fold, Hole, Inner, KernelDef, Let, Name, Num, Outer, Param, Part, Pos, Prim, Rank, Ref, Tuple, Type, Vector
from .values import Context, Shape, Val, Value, adapt, static_int, text

AXES = ("i", "j", "k", "l", "p", "q", "s", "t", "u", "v", "w")


@dataclass(frozen=True)
class Closure:
    """A definition and the names it sees."""

    definition: Def
    env: Mapping[str, Entry]


@dataclass(frozen=True)
class Dtype:
    """What a type variable stands for in this application."""

    dtype: str


Entry = Val | Closure | Dtype
Env = dict[str, Entry]


def elaborate_kernel(kernel: KernelDef, prelude: tuple[Def, ...], definitions: tuple[Def, ...]) -> Kernel:
    """The source kernel: loops around ``psi`` of one array term per output. Raises MoaError MOA02xx, MOA03xx."""
    return _Elaborator().kernel(kernel, prelude, definitions)


class _Elaborator:
    def __init__(self) -> None:
        self.c = Context()

    # --- kernels ---
    def kernel(self, k: KernelDef, prelude: tuple[Def, ...], definitions: tuple[Def, ...]) -> Kernel:
        c = self.c
        env = self.top_level(prelude, definitions)
        sizes: list[str] = []
        places: dict[str, Pos] = {}
        inputs: list[Array] = []
        nonnegative: list[Term] = []
        for p in k.params:
            if p.name in places:
                c.fail(202, f"`{p.name}` is defined twice", p.pos, [f"first at {places[p.name]}"], hint="rename one of them")
            places[p.name] = p.pos
            if p.type is not None and p.type.name and p.type.name not in B.DTYPES:
                c.fail(209, f"`{p.type.name}` is not a type", p.type.pos, hint=f"the types are {', '.join(B.DTYPES)}")
            if p.type is None or not p.type.name:
                c.fail(107, f"the kernel parameter `{p.name}` needs a type", p.pos, hint=f"for example `{p.name}: f32[n]`; a scalar is `{p.name}: f32`")
            for d in p.type.dims or ():
                if isinstance(d, Name) and d.id not in sizes:
                    sizes.append(d.id)
                    places.setdefault(f"size {d.id}", d.pos)
        for p in k.params:
            for d in p.type.dims or ():  # type: ignore[union-attr]
                self.new_sizes(d, sizes, places)
        for n in sizes:
            if n in places:
                notes = [f"as a size at {places[f'size {n}']}"]
                c.fail(202, f"`{n}` is both a size and a parameter", places[n], notes, hint="rename one of them; a size needs no parameter")
            env[n] = static_int(Poly.atom(Term("size", n)), "i64", places[f"size {n}"])
        for p in k.params:
            assert p.type is not None
            shape = self.dims(p.type, env)
            nonnegative += [_nonnegative(s) for s in shape if _may_be_negative(s)]
            inputs.append(Array(p.name, p.type.name, tuple(s.term() for s in shape)))
            env[p.name] = Val(Term("arr", p.name), shape, p.type.name, p.pos)
        for r in k.results:
            if all(s.id in env for d in r.type.dims or () for s in _names(d)):  # otherwise an error of `result`
                nonnegative += [_nonnegative(s) for s in self.dims(r.type, env) if _may_be_negative(s)]
        where = tuple(dict.fromkeys([*[w for e in k.where for w in self.constraint(e, env)], *nonnegative]))
        c.prover = Prover(where)
        c.taken = {*sizes, *[p.name for p in k.params], *[r.name for r in k.results if r.name], "out", *[f"out{n}" for n in range(len(k.results))]}
        values = self.body(k.body, env)
        parts = values if isinstance(values, tuple) else (values,)
        if len(parts) != len(k.results):
            message, hint = f"`{k.name}` promises {len(k.results)} result(s), its body gives {len(parts)}", "several results: `-> (f32[n], f32) = (a, b)`"
            c.fail(310, message, k.body.result.pos, [f"promised at {k.results[0].pos}"], hint=hint)
        outputs, nests = self.outputs(k, parts, env)
        return Kernel(k.name, tuple(sizes), where, tuple(inputs), outputs, seq(*nests))

    def top_level(self, prelude: tuple[Def, ...], definitions: tuple[Def, ...]) -> Env:
        """Definitions see those before them, so there is no recursion. A file may redefine a name of the prelude."""
        env: Env = {}
        for d in (*prelude, *definitions):
            env[d.name] = Closure(d, dict(env))
        return env

    def new_sizes(self, e: Expr, sizes: list[str], places: dict[str, Pos]) -> None:
        match e:
            case Name(id):
                if id not in sizes:
                    sizes.append(id)
                    places[f"size {id}"] = e.pos
            case App(_, args):
                for a in args:
                    self.new_sizes(a, sizes, places)

    def dims(self, t: Type, env: Mapping[str, Entry]) -> Shape:
        return tuple(self.size(d, env) for d in t.dims or ())

    def size(self, e: Expr, env: Mapping[str, Entry]) -> Poly:
        """A size expression."""
        v = self.value(e, env)
        if not isinstance(v.static, Poly) or v.rank:
            self.c.fail(207, "a size is an integer expression over sizes", e.pos, hint="for example `n`, `2*n`, `n + 1`, `n // 2`")
        return v.static

    def constraint(self, e: Expr, env: Mapping[str, Entry]) -> list[Term]:
        """A `where` constraint as boolean terms over sizes."""
        if isinstance(e, App) and isinstance(e.fn, Prim):
            op = e.fn.name
            if op == "and":
                return [w for a in e.args for w in self.constraint(a, env)]
            if op in (*B.ORDER, *B.EQUAL):
                a, b = (self.size(x, env) for x in e.args)
                if op in ("gt", "ge"):
                    a, b, op = b, a, {"gt": "lt", "ge": "le"}[op]
                return [Term(op, a.term(), b.term())]
        self.c.fail(212, "a `where` constraint compares sizes", e.pos, hint="for example `where m >= 1, n % 4 == 0`")

    def outputs(self, k: KernelDef, parts: tuple[Val, ...], env: Env) -> tuple[tuple[Array, ...], list[Term]]:
        c = self.c
        names = [r.name or ("out" if len(parts) == 1 else f"out{n}") for n, r in enumerate(k.results)]
        for n, name in enumerate(names):
            if name in names[:n] or any(p.name == name for p in k.params):
                c.fail(202, f"`{name}` is the name of another parameter or result", k.results[n].pos, hint="name the results: `-> (mean: f32[n], var: f32[n])`")
        free = [a for a in (*AXES, *[f"{a}{n}" for n in range(1, 9) for a in AXES]) if a not in c.taken]
        given: dict[str, Poly] = {}
        arrays, nests = [], []
        for name, r, v in zip(names, k.results, parts, strict=True):
            v = self.result(k, r.type, v, env)
            axes: list[str] = []
            for extent in v.shape:  # an axis name stands for one extent; outputs of the same extents share their names
                a = next(a for a in free if a not in axes and given.get(a, extent) == extent)
                given[a] = extent
                axes.append(a)
            index = ix(*[axis(a) for a in axes])
            nest = Term("emit", "once", name, index, Term("psi", index, v.term))
            for a, extent in reversed(list(zip(axes, v.shape, strict=True))):
                nest = Term("for", a, extent.term(), "seq", nest)
            nests.append(nest)
            arrays.append(Array(name, v.dtype, tuple(s.term() for s in v.shape)))
        return tuple(arrays), nests

    def result(self, k: KernelDef, t: Type, v: Val, env: Env) -> Val:
        """The value in the promised type; its shape is written as promised."""
        c = self.c
        if t.name not in B.DTYPES:
            message = f"`{t.name}` is not a type" if t.name else "a result needs a type"
            c.fail(209, message, t.pos, hint=f"the types are {', '.join(B.DTYPES)}; for example `-> f32[n]`")
        weak = (v.dtype == "int" and t.name != "bool") or (v.dtype == "float" and t.name in B.FLOATS)
        if v.dtype != t.name and not weak:
            message = f"`{k.name}` promises {t.name}, its body gives {type_name(v.dtype)}"
            c.fail(209, message, v.pos, [f"{t.name} promised at {t.pos}"], hint=f"cast the result: `{t.name}(...)`")
        v = adapt(v, t.name)
        for d in t.dims or ():
            for s in _names(d):
                if s.id not in env:
                    hint = "results have shapes made of the parameters' sizes"
                    c.fail(211, f"the size `{s.id}` of the result is not a size of any parameter", s.pos, hint=hint)
        shape = self.dims(t, env)
        if len(shape) != v.rank or not (verdict := c.same_shape(shape, v.shape)).proved:
            witness = "" if len(shape) != v.rank else verdict.witness
            notes = [f"promised {text(shape)} at {t.pos}", f"the body gives {text(v.shape)} at {v.pos}"]
            hint = f"write `-> {t.name}[{text(v.shape)[1:-1]}]`, or change the body"
            c.fail(310, f"the result of `{k.name}` has another shape than promised", v.pos, notes, witness, hint)
        return replace(v, shape=shape)

    # --- bodies and calls ---
    def body(self, b: Body, env: Mapping[str, Entry]) -> Value:
        if not b.bindings:
            return self.expr(b.result, env)
        inner_env = dict(env)
        for x in b.bindings:
            if isinstance(x, Def):
                inner_env[x.name] = Closure(x, dict(inner_env))
            else:
                self.bind(x, inner_env)
        return self.expr(b.result, inner_env)

    def bind(self, x: Let, env: Env) -> None:
        v = self.body(x.value, env)
        if len(x.names) == 1:
            if isinstance(v, tuple):
                self.c.fail(206, f"`{x.names[0]}` is one name for {len(v)} values", x.pos, hint="write `let (a, b) = ...`")
            env[x.names[0]] = replace(v, pos=v.pos)
        else:
            parts = v if isinstance(v, tuple) else (v,)
            if len(parts) != len(x.names):
                self.c.fail(206, f"{len(x.names)} names for {len(parts)} value(s)", x.pos)
            env.update(zip(x.names, parts, strict=True))

    def call(self, f: Closure, args: list[Val], pos: Pos) -> Value:
        d = f.definition
        if len(args) != len(d.params):
            hint = f"write `{d.name}({', '.join(p.name for p in d.params)})`"
            self.c.fail(203, f"`{d.name}` takes {len(d.params)} argument(s), not {len(args)}", pos, [f"defined at {d.pos}"], hint=hint)
        env: Env = dict(f.env)
        places: dict[str, Pos] = {}
        self.c.calls.append((d.name, pos))
        for p, v in zip(d.params, args, strict=True):
            if p.type is not None:
                v = self.check_param(d, p, v, env, places)
        for p, v in zip(d.params, args, strict=True):
            if p.type is not None and p.type.name:
                entry = env.get(p.type.name)
                v = adapt(v, entry.dtype if isinstance(entry, Dtype) else p.type.name)
            env[p.name] = v
        out = self.body(d.body, env)
        self.c.calls.pop()
        # a result stands where the definition was applied
        return tuple(replace(v, pos=pos) for v in out) if isinstance(out, tuple) else replace(out, pos=pos)

    def check_param(self, d: Def, p: Param, v: Val, env: Env, places: dict[str, Pos]) -> Val:
        """A parameter of a definition against its type: a new name binds a size or a type, a known one must agree."""
        c, t = self.c, p.type
        assert t is not None
        if t.name in B.DTYPES:
            if v.dtype != t.name and not ((v.dtype == "int" and t.name != "bool") or (v.dtype == "float" and t.name in B.FLOATS)):
                c.fail(204, f"`{p.name}` of `{d.name}` is {t.name}, not {type_name(v.dtype)}", v.pos, [f"{t.name} at {t.pos}"], hint=f"cast: `{t.name}(...)`")
        elif t.name:
            known = env.get(t.name)
            if not isinstance(known, Dtype) or t.name not in places:
                env[t.name] = Dtype(v.dtype)
                places[t.name] = v.pos
            elif known.dtype in ("int", "float") and v.dtype not in ("int",):
                env[t.name] = Dtype(v.dtype)
            elif v.dtype not in (known.dtype, "int") and not (v.dtype == "float" and known.dtype in B.FLOATS):
                notes = [f"{type_name(known.dtype)} at {places[t.name]}", f"{type_name(v.dtype)} at {v.pos}"]
                c.fail(204, f"`{d.name}` needs one type {t.name}, not {type_name(known.dtype)} and {type_name(v.dtype)}", v.pos, notes, hint="cast one of them")
        if t.dims is None:
            return v
        if len(t.dims) != v.rank:
            hint = f"apply it to cells: `{d.name} Ω<{len(t.dims)}>`" if v.rank > len(t.dims) else ""
            c.fail(309, f"`{p.name}` of `{d.name}` has rank {len(t.dims)}, not {v.rank}", v.pos, [f"rank {len(t.dims)} at {t.pos}", *shapes(v)], hint=hint)
        for e, extent in zip(t.dims, v.shape, strict=True):
            if isinstance(e, Name) and e.id not in env:
                env[e.id] = static_int(extent, "i64", v.pos)
                places[f"size {e.id}"] = v.pos
                continue
            want = self.size(e, env)
            verdict = c.equal(want, extent)
            if not verdict.proved:
                first = places.get(f"size {e.id}") if isinstance(e, Name) else None
                notes = [f"{want} at {first or e.pos}", *shapes(v)]
                message = f"`{p.name}` of `{d.name}` needs length {want}, not {extent}"
                c.fail(301, message, v.pos, notes, verdict.witness, "the same size name means the same length")
        return v

    # --- expressions ---
    def expr(self, e: Expr, env: Mapping[str, Entry]) -> Value:
        match e:
            case Num(written):
                if e.is_float:
                    return Val(num(written), (), "float", e.pos)
                return static_int(Poly.const(int(written)), "int", e.pos)
            case Bool(value):
                return Val(Term("bool", int(value)), (), "bool", e.pos)
            case Name(id):
                return self.name(id, e.pos, env)
            case Hole(k):
                hole = env.get(f"_{k}")
                if not isinstance(hole, Val):
                    self.c.fail(206, "`_` marks the argument of a function under Ω", e.pos, hint="for example `take(2, _) Ω<1> x`")
                return hole
            case Vector(items):
                return vector(self.c, self.values(items, env), e.pos)
            case Tuple(items):
                return tuple(self.values(items, env))
            case App(fn, args):
                return self.apply(fn, self.values(args, env), e.pos, env)
        raise AssertionError(e)

    def name(self, id: str, pos: Pos, env: Mapping[str, Entry]) -> Val:
        if id == "pi":
            return Val(num(repr(math.pi)), (), "float", pos)
        if id == "inf":
            return Val(num("inf"), (), "float", pos)
        found = env.get(id)
        if found is None:
            self.unknown(id, pos, env)
        if not isinstance(found, Val):
            kind = "type" if isinstance(found, Dtype) else "function"
            self.c.fail(206, f"`{id}` is a {kind}, not an array", pos, hint=f"apply it: `{id}(...)` or `{id} Ω<...> x`")
        return replace(found, pos=pos)

    def unknown(self, id: str, pos: Pos, env: Mapping[str, Entry]) -> None:
        import difflib

        if id in B.RESERVED:
            self.c.fail(206, f"`{id}` is a function, not an array", pos, hint=f"apply it: `{id}(...)`")
        near = difflib.get_close_matches(id, sorted({*env, *B.RESERVED}), 1)
        self.c.fail(201, f"`{id}` is not defined", pos, hint=f"did you mean `{near[0]}`?" if near else "names are defined before they are used")

    def value(self, e: Expr, env: Mapping[str, Entry]) -> Val:
        v = self.expr(e, env)
        if isinstance(v, tuple):
            self.c.fail(206, f"{len(v)} values where one is needed", e.pos, hint="take them apart: `let (a, b) = ...`")
        return v

    def values(self, es: tuple[Expr, ...], env: Mapping[str, Entry]) -> list[Val]:
        return [self.value(e, env) for e in es]

    def apply(self, fn: Fn, args: list[Val], pos: Pos, env: Mapping[str, Entry]) -> Value:
        c = self.c
        match fn:
            case Prim(name):
                if len(args) not in B.arity(name):
                    if name == "sub" and len(args) == 1:
                        return apply_scalar(c, "neg", args, pos)
                    c.fail(203, f"{symbol(name)} takes {' or '.join(map(str, B.arity(name)))} argument(s), not {len(args)}", pos)
                return apply_scalar(c, name, args, pos) if name in B.SCALAR else apply_structural(c, name, args, pos)
            case Ref(name):
                found = env.get(name)
                if isinstance(found, Dtype):
                    return apply_scalar(c, found.dtype if found.dtype in B.DTYPES else {"int": "i64", "float": "f64"}[found.dtype], args, pos)
                if isinstance(found, Closure):
                    return self.call(found, args, pos)
                if found is None:
                    self.unknown(name, pos, env)
                c.fail(206, f"`{name}` is an array, not a function", pos, [f"defined at {found.pos}"], hint=f"to select, write `{name}[i]`")  # type: ignore[union-attr]
            case Fold(kind, op):
                (a,) = self.exactly(1, args, kind, pos)
                return fold(c, kind, op, a, pos)
            case Outer(op):
                a, b = self.exactly(2, args, "outer", pos)
                return outer(c, op, a, b, pos)
            case Inner(op, by):
                a, b = self.exactly(2, args, "inner", pos)
                return inner(c, op, by, a, b, pos)
            case Rank(f, ranks):
                return self.omega(f, ranks, args, pos, env)
            case Part(e, holes):
                return self.expr(e, {**env, **{f"_{k}": v for k, v in enumerate(self.exactly(holes, args, "this function", pos))}})
        raise AssertionError(fn)

    def exactly(self, n: int, args: list[Val], what: str, pos: Pos) -> list[Val]:
        if len(args) != n:
            self.c.fail(203, f"`{what}` takes {n} argument(s), not {len(args)}", pos)
        return args

    # --- Ω ---
    def omega(self, f: Fn, ranks: tuple[int, ...], args: list[Val], pos: Pos, env: Mapping[str, Entry]) -> Value:
        """``f Ω<ranks> args``: frames align on the right, a shorter frame is constant along the extra axes of a longer one."""
        c = self.c
        for v, r in zip(args, ranks, strict=True):
            if v.rank < r:
                c.fail(309, f"Ω<{r}> needs cells of rank {r}, the argument has rank {v.rank}", pos, shapes(v), hint="give a rank the argument has")
        frames = [v.shape[: v.rank - r] for v, r in zip(args, ranks, strict=True)]
        longest = max(range(len(args)), key=lambda n: len(frames[n]))
        frame = frames[longest]
        for v, f_ in zip(args, frames, strict=True):
            verdict = c.same_shape(f_, frame[len(frame) - len(f_) :])
            if not verdict.proved:
                notes = [f"frame {text(frame)} of {text(args[longest].shape)} at {args[longest].pos}", f"frame {text(f_)} of {text(v.shape)} at {v.pos}"]
                c.fail(302, "the frames of Ω do not agree", pos, notes, verdict.witness, "frames align on the right; change the ranks or transpose an argument")
        outer_frame, base = c.frame, len(c.frame)
        cells: list[Val] = []
        for v, f_ in zip(args, frames, strict=True):
            if frame and f_:
                v = c.at_depth(v, base)
                term = v.term
                for k, n in enumerate(frame[: len(frame) - len(f_)]):
                    term = Term("spread", base + k, n.term(), term)
                v = replace(v, term=term, shape=v.shape[len(f_) :], depth=base + len(frame), static=None)
            cells.append(v)
        c.frame = outer_frame + frame
        out = self.apply(f, cells, pos, env)
        c.frame = outer_frame
        return tuple(self.close(v, base, frame, pos) for v in out) if isinstance(out, tuple) else self.close(out, base, frame, pos)

    def close(self, v: Val, base: int, frame: Shape, pos: Pos) -> Val:
        """A cell result as a value outside the frame that Ω opened."""
        if not frame:
            return replace(v, pos=pos)
        term, depth = v.term, v.depth
        # what did not use the new axes is constant along them
        for k in range(max(depth - base, 0), len(frame)):
            term = Term("spread", min(depth, base) + k, frame[k].term(), term)
        return Val(term, frame + v.shape, v.dtype, pos, min(depth, base))


def _names(e: Expr) -> list[Name]:
    if isinstance(e, Name):
        return [e]
    return [n for a in e.args for n in _names(a)] if isinstance(e, App) else []


def _may_be_negative(p: Poly) -> bool:
    return any(c < 0 for _, c in p.items)


def _nonnegative(p: Poly) -> Term:
    """0 <= p, with the negative part on the left: 1 <= n for n - 1."""
    positive = Poly.of({m: c for m, c in p.items if c > 0})
    return Term("le", (positive - p).term(), positive.term())
