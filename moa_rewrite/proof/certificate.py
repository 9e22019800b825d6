"""Certificates: what is claimed of an emitted kernel, as JSON that ``checker.py`` checks again from the source on.

Format 1. Kernels are held as text of terms. The terms of the derivation's substitutions share one table of nodes ``[operator, argument, ...]`` where
``[k]`` is node k, so a certificate grows with what a step changes and not with the program. Keys are sorted; equal certificates are equal bytes.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path as File
from typing import Any

from ..rules import Rule, Step
from ..rules.rule import Value
from ..terms import Array, Kernel, Stage, Term, Touch, parse_term, show, subterms
from ..terms.ops import ARGS
from .storage import Limits

FORMAT = 1
SUFFIX = {"c": ".c", "fortran": ".f90", "cuda": ".cu"}  # of the emitted source
EXACT = ("psi", "simplify", "structure", "placement", "storage")  # groups of laws that keep every operation on floats as it is
FUNCTIONS = ("exp", "log", "sin", "cos", "tanh", "erf", "pow")  # computed by approximation in the emitted code


@dataclass(frozen=True)
class Proved:
    """An obligation as stored. ``rlimit``: the resource units that the proof took."""

    kind: str
    name: str
    smt: str
    verdict: str
    rlimit: int


@dataclass(frozen=True)
class Certificate:
    """``rules``: digest of every rule used. ``flags``: of the compiler, those that the files must be built with. ``files``: sha256 of every emitted file.
    ``floating_point``: see ``permissions``. ``error_model``: the bound on rounding that tests use, in words. ``tiles``: lifted axis -> tile."""

    moarw: str
    file: str
    text: str
    source: Kernel
    rules: Mapping[str, str]
    steps: Sequence[Step]
    onf: Kernel
    obligations: Sequence[Proved]
    solver: str
    machine: str
    limits: Limits
    tiles: Mapping[str, int]
    compiler: str
    flags: Sequence[str]
    floating_point: Mapping[str, Any]
    error_model: str
    files: Mapping[str, str]


def to_json(c: Certificate) -> dict[str, Any]:
    """The certificate as JSON data, digest included."""
    table = _Table()
    steps = [[s.rule, list(s.path), {k: table.value(v) for k, v in sorted(s.subst.items())}, s.forward] for s in c.steps]
    data: dict[str, Any] = {
        "format": FORMAT,
        "moarw": c.moarw,
        "source": {"file": c.file, "text": c.text, "kernel": kernel_to_json(c.source)},
        "rules": dict(c.rules),
        "derivation": {"terms": table.nodes, "steps": steps},
        "onf": kernel_to_json(c.onf),
        "obligations": [asdict(o) for o in c.obligations],
        "solver": c.solver,
        "target": {"machine": c.machine, "tiles": dict(c.tiles), **asdict(c.limits)},
        "build": {"compiler": c.compiler, "flags": list(c.flags)},
        "floating_point": dict(c.floating_point),
        "error_model": c.error_model,
        "files": dict(c.files),
    }
    return {**data, "digest": digest(data)}


def from_json(data: Mapping[str, Any]) -> Certificate:
    """The certificate of ``to_json``; claims are not checked here. ValueError for anything that ``to_json`` does not make, a wrong digest included."""
    try:
        found = _read(data)
        if dump(to_json(found)) != dump(data):
            raise ValueError("the digest is not that of the certificate: it was edited" if digest(data) != data["digest"] else "not in canonical form")
        return found
    except (KeyError, TypeError, AttributeError, IndexError, SyntaxError) as e:
        raise ValueError(f"not a certificate: {type(e).__name__} {e}") from None
    except Exception as e:  # lark's errors share no base class with SyntaxError
        if type(e).__module__.startswith("lark"):
            raise ValueError("not a certificate: text that is no term") from None
        raise


def _read(d: Mapping[str, Any]) -> Certificate:
    if d["format"] != FORMAT or type(d["format"]) is not int:
        raise ValueError(f"a certificate of format {d['format']}; this moarw reads format {FORMAT}")
    src, der, target, build = d["source"], d["derivation"], d["target"], d["build"]
    terms = _terms(der["terms"])
    limits = Limits(**{k: target[k] for k in Limits.__dataclass_fields__})
    if limits.target not in SUFFIX or limits.index_bits not in (32, 64) or type(limits.shared_checked) is not bool:
        raise ValueError("not a target")
    return Certificate(
        _text(d["moarw"]), _text(src["file"]), _text(src["text"]), kernel_from_json(src["kernel"]), _strings(d["rules"]),
        [Step(_text(r), tuple(map(_whole, p)), {k: _value(v, terms) for k, v in s.items()}, _flag(f)) for r, p, s, f in der["steps"]],
        kernel_from_json(d["onf"]),
        [Proved(_text(o["kind"]), _text(o["name"]), _text(o["smt"]), _text(o["verdict"]), _whole(o["rlimit"])) for o in d["obligations"]],
        _text(d["solver"]), _text(target["machine"]), limits, {k: _whole(v) for k, v in target["tiles"].items()},
        _text(build["compiler"]), [_text(f) for f in build["flags"]], dict(d["floating_point"]), _text(d["error_model"]), _strings(d["files"]),
    )  # fmt: skip


def dump(data: Mapping[str, Any]) -> str:
    """Canonical text of JSON data."""
    return json.dumps(data, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def digest(data: Mapping[str, Any]) -> str:
    """sha256 of the canonical text without the key ``digest``."""
    return sha256(dump({k: v for k, v in data.items() if k != "digest"}).encode())


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def write(data: Mapping[str, Any], path: File) -> None:
    """Write atomically: a reader sees the old file or the new one, never a part."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    part.write_text(dump(data), encoding="utf-8")
    os.replace(part, path)


def read(path: File) -> dict[str, Any]:
    """JSON data of a file; ValueError if it is not JSON, or an object in it repeats a key."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) != len(pairs):
            raise ValueError("a key occurs twice")
        return dict(pairs)

    return json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=once)


# --- what follows from the other fields ----------------------------------------------------------------------------------------------
def rule_digest(rule: Rule) -> str:
    """sha256 of the law: its sides, guards and definitions (of a builtin its name and params)."""
    return sha256(f"{rule.name}: {rule}".encode())


def tiles(onf: Kernel) -> dict[str, int]:
    """Tile of every lifted axis: T of ``i = i.o*T + i.i``."""
    return {name: int(t.args[0].args[1].args[0]) for name, t in onf.defs if t.op == "add" and t.args[0].op == "mul" and t.args[0].args[1].op == "int"}  # type: ignore


def permissions(onf: Kernel, flags: Sequence[str], steps: Sequence[Step], rules: Mapping[str, Rule]) -> dict[str, Any]:
    """What the emitted code may do that differs from exact evaluation in source order. ``real_laws``: laws used that hold over the reals only.
    ``reassociation``: sums and products are collected in another order. ``contraction``: a*b + c may round once. ``approximate``: elementary functions
    that are computed by approximation."""
    ops = {t.op for t in subterms(onf.body)} | {str(t.args[0]) for t in subterms(onf.body) if t.op in ("emit", "reduce")}
    functions = sorted(set(FUNCTIONS) & (ops | ({"exp"} if "osm" in ops else set())))
    contract = [f for f in flags if f.startswith(("-ffp-contract=", "-fmad="))]
    reassociated = {str(t.args[0]) for t in subterms(onf.body) if t.op in ("emit", "reduce")} & {"add", "mul", "osm"}
    laws = sorted({s.rule for s in steps if rules[s.rule].group not in EXACT})
    return {
        "real_laws": laws, "reassociation": bool(reassociated), "approximate": functions,
        "contraction": contract not in (["-ffp-contract=off"], ["-fmad=false"]),
    }  # fmt: skip


# --- kernels and terms as JSON -----------------------------------------------------------------------------------------------------------
def kernel_to_json(k: Kernel) -> dict[str, Any]:
    """A kernel as JSON data, terms as text; ``kernel_from_json`` gives the equal kernel back."""

    def array(a: Array) -> dict[str, Any]:
        return {"name": a.name, "dtype": a.dtype, "shape": [show(n) for n in a.shape]}

    def stage(s: Stage) -> dict[str, Any]:
        return {
            "name": s.name, "dtype": s.dtype, "axes": list(s.axes), "shape": [show(n) for n in s.shape], "monoid": s.monoid,
            "definition": show(s.definition), "layout": list(s.layout), "panel": s.panel,
        }  # fmt: skip

    touches = [{"array": t.array, "axis": t.axis, "rows": show(t.rows), "domains": t.domains} for t in k.touches]
    return {
        "name": k.name, "sizes": list(k.sizes), "where": [show(w) for w in k.where], "inputs": [array(a) for a in k.inputs],
        "outputs": [array(a) for a in k.outputs], "stages": [stage(s) for s in k.stages], "defs": [[n, show(t)] for n, t in k.defs], "body": show(k.body),
        **({"touches": touches} if touches else {}),
    }  # fmt: skip


def kernel_from_json(d: Mapping[str, Any]) -> Kernel:
    """The kernel of ``kernel_to_json``."""

    def terms(texts: Sequence[str]) -> tuple[Term, ...]:
        return tuple(_term(_text(t)) for t in texts)

    def array(a: Mapping[str, Any]) -> Array:
        return Array(_text(a["name"]), _text(a["dtype"]), terms(a["shape"]))

    def stage(s: Mapping[str, Any]) -> Stage:
        axes, layout = tuple(map(_text, s["axes"])), tuple(map(_whole, s["layout"]))
        return Stage(_text(s["name"]), _text(s["dtype"]), axes, terms(s["shape"]), _text(s["monoid"]), _term(s["definition"]), layout, _whole(s["panel"]))

    return Kernel(
        _text(d["name"]), tuple(map(_text, d["sizes"])), terms(d["where"]), tuple(map(array, d["inputs"])), tuple(map(array, d["outputs"])),
        _term(d["body"]), tuple(map(stage, d["stages"])), tuple((_text(n), _term(t)) for n, t in d["defs"]),
        tuple(Touch(_text(t["array"]), _whole(t["axis"]), _term(_text(t["rows"])), _whole(t["domains"])) for t in d.get("touches", ())),
    )  # fmt: skip

class _Table:
    """Terms to nodes, each once, children first."""

    def __init__(self) -> None:
        self.nodes: list[list[Any]] = []
        self.known: dict[Term, int] = {}

    def node(self, t: Term) -> list[int]:
        if t not in self.known:
            args = [self.node(a) if isinstance(a, Term) else a for a in t.args]
            self.known[t] = len(self.nodes)
            self.nodes.append([t.op, *args])
        return [self.known[t]]

    def value(self, v: Value) -> Any:
        return self.node(v) if isinstance(v, Term) else {"terms": [self.node(t) for t in v]} if isinstance(v, tuple) else v


def _terms(nodes: Sequence[Sequence[Any]]) -> list[Term]:
    """The terms of a table, each well-formed by the table of operators."""
    out: list[Term] = []
    for op, *args in nodes:
        signature = ARGS[op] if ARGS[op] != "*" else "E" * len(args)
        out.append(Term(op, *[_argument(a, kind, out) for a, kind in zip(args, signature, strict=True)]))
    return out


def _argument(a: Any, kind: str, known: list[Term]) -> Term | str | int:
    if kind in "si":
        return _text(a) if kind == "s" else _integer(a)
    (k,) = a
    if not 0 <= _whole(k) < len(known):
        raise ValueError("a node refers to a later one")
    return known[k]


def _value(v: Any, terms: list[Term]) -> Value:
    if isinstance(v, dict):
        return tuple(terms[_whole(k)] for (k,) in v["terms"])
    if isinstance(v, list):
        (k,) = v
        return terms[_whole(k)]
    return v if type(v) is int else _text(v)


def _text(v: Any) -> str:
    if type(v) is not str:
        raise ValueError(f"{v!r} is no text")
    return v


def _integer(v: Any) -> int:
    if type(v) is not int:
        raise ValueError(f"{v!r} is no integer")
    return v


def _whole(v: Any) -> int:
    if _integer(v) < 0:
        raise ValueError(f"{v} is negative")
    return v


def _flag(v: Any) -> bool:
    if type(v) is not bool:
        raise ValueError(f"{v!r} is no flag")
    return v


@functools.lru_cache(4096)
def _term(text: str) -> Term:
    return parse_term(text)


def _strings(d: Mapping[str, Any]) -> dict[str, str]:
    return {_text(k): _text(v) for k, v in d.items()}


__all__ = ["Certificate", "Proved", "digest", "dump", "from_json", "kernel_from_json", "kernel_to_json", "permissions", "read", "to_json", "write"]
