"""Certificates: exact round trips, and the checker refuses every certificate that was changed in any field."""

from __future__ import annotations

import copy
import functools
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from proof_forms import RIGHT, P, array, nest

from moa_rewrite import rules
from moa_rewrite.errors import MoaError
from moa_rewrite.proof import Limits, certify, check, discharge, kernel_from_json, kernel_to_json, replay, to_json
from moa_rewrite.proof.certificate import digest, dump, from_json, permissions, read, write
from moa_rewrite.proof.checker import FLAGS, is_dnf
from moa_rewrite.rules import Step, apply_step, match, psi_normalise
from moa_rewrite.terms import I, Kernel, Term, at, parse_term, positions

RULES = rules.load()
FILES = {"matmul.c": b"/* the kernel */\n", "matmul.h": b"/* its header */\n"}
FLAGS_C = ("-std=c11", "-O3", "-march=native", "-fopenmp", "-fno-math-errno", "-ffp-contract=fast")


class Path_:
    """A derivation under construction."""

    def __init__(self, kernel: Kernel) -> None:
        self.source = self.kernel = kernel
        self.kernel, self.steps = psi_normalise(kernel, RULES)

    def __call__(self, rule: str, where: str, op: str = "for", forward: bool = True, **params: Any) -> None:
        """Apply a rule at the first statement of kind ``op`` whose name (axis, stage, or written array) is ``where``; "" the root."""
        arg = {"for": 0, "new": 0, "emit": 1}
        path = next(p for p, t in positions(self.kernel.body) if (not where and not p) or (t.op == op and t.args[arg[op]] == where))
        subst = match(RULES[rule], self.kernel, path, forward, params)
        assert subst is not None, (rule, where, at(self.kernel.body, path))
        self.steps.append(Step(rule, path, subst, forward))
        self.kernel = apply_step(self.kernel, RULES, self.steps[-1])


@functools.cache
def source() -> Kernel:
    """A matrix product times a scalar, elaborated."""
    product = 'red("add", 1, "l", k, spread(2, m, arr("A")) * spread(0, n, arr("B")))'
    body = nest("i:n j:m", f'emit("once", "C", <@i, @j>, psi(<@i, @j>, fill(<n, m>, arr("a")) * {product}))')
    return Kernel("matmul", ("n", "m", "k"), (P("0 < m"),), (array("a"), array("A", "n", "k"), array("B", "k", "m")), (array("C", "n", "m"),), P(body))


def derivation() -> Path_:
    """Materialise the product, tile a loop, place it and one for vectors: steps with all kinds of values."""
    d = Path_(source())
    e = next(t for _, t in positions(d.kernel.body) if t.op == "reduce")
    d("materialise", "", T="S", dtype="f32", axes=(Term("axis", "i"), Term("axis", "j")), e=e)
    d("reduce-loop", "S", "emit")
    d("layout", "", T="S", order=(I(1), I(0)))
    d("lift", "i", T=I(8))
    d("place", "i.o", level="core")
    d("place", "j", level="simd")
    return d


@pytest.fixture(scope="module")
def good() -> dict[str, Any]:
    d = derivation()
    c = certify(
        d.source, d.steps, RULES, Limits(), file="matmul.moa", text="kernel matmul ...", machine="host", compiler="gcc 12", flags=FLAGS_C, files=FILES,
        error_model="gamma(k)",
    )  # fmt: skip
    return to_json(c)


def findings(data: Any, files: dict[str, bytes] | None = FILES) -> list[str]:
    report = check(data, source(), files, RULES)
    assert report.ok == (not report.findings and not report.undecided) == (report.exit_code == 0)
    return [*report.findings, *report.undecided]


def test_a_good_certificate_passes(good: dict[str, Any]) -> None:
    report = check(good, source(), FILES, RULES)
    assert report.findings == [] and report.ok and report.exit_code == 0
    assert report.steps == len(good["derivation"]["steps"]) > 8 and report.proved == len(good["obligations"]) > 15


def test_certificates_are_deterministic_and_survive_json(good: dict[str, Any], tmp_path: Path) -> None:
    write(good, tmp_path / "certificate.json")
    assert [f.name for f in tmp_path.iterdir()] == ["certificate.json"]
    again = read(tmp_path / "certificate.json")
    assert again == good and dump(again) == dump(good) and to_json(from_json(again)) == good
    (tmp_path / "twice.json").write_text('{"format": 1, "format": 1}')
    with pytest.raises(ValueError, match="twice"):
        read(tmp_path / "twice.json")


@pytest.mark.parametrize("name", RIGHT)
def test_kernels_survive_json(name: str) -> None:
    f = RIGHT[name]()
    for k in (f.onf, f.dnf):
        data = json.loads(json.dumps(kernel_to_json(k)))
        assert kernel_from_json(data) == k and kernel_to_json(kernel_from_json(data)) == data


def test_replay_ends_in_the_form_and_finds_the_dnf() -> None:
    d = derivation()
    end = replay(d.source, d.steps, RULES)
    assert end.onf == d.kernel and not is_dnf(end.onf) and is_dnf(end.dnf) and not is_dnf(d.source)
    assert repr(end.dnf.body) == 'for("i", n, "seq", for("j", m, "seq", emit("once", "C", <@i, @j>, a[] * reduce("add", "l", k, A[@i, @l] * B[@l, @j]))))'


# --- tampering -------------------------------------------------------------------------------------------------------------------------
def _places(data: Any, path: tuple = ()) -> Iterator[tuple[tuple, Any]]:
    yield path, data
    if isinstance(data, dict):
        for k, v in data.items():
            yield from _places(v, (*path, k))
    elif isinstance(data, list):
        for k, v in enumerate(data):
            yield from _places(v, (*path, k))


def _changes(v: Any) -> Iterator[Any]:
    """Other values for one place of the JSON."""
    if isinstance(v, bool):
        yield not v
    elif isinstance(v, int):
        yield from (v + 1, v - 1, str(v))
    elif isinstance(v, str):
        yield v + "x"
        yield v[1:] if v else "y"
        yield 0
        yield None
    elif isinstance(v, list):
        for k in range(len(v)):
            yield v[:k] + v[k + 1 :]
            yield v[: k + 1] + v[k:]
        if len(v) > 1:
            yield v[1:] + v[:1]
    elif isinstance(v, dict):
        for k in v:
            yield {a: b for a, b in v.items() if a != k}
        yield {**v, "new": "x"}


# What the certificate merely records: nothing in it, nor the files, nor the machine at hand says otherwise. Only the digest covers these.
RECORDED = {("moarw",), ("source", "file"), ("source", "text"), ("build", "compiler"), ("build", "flags"), ("error_model",),
            *[("target", k) for k in ("machine", "shared_bytes", "stack_bytes", "shared_checked")]}  # fmt: skip


def _mutants(good: dict[str, Any]) -> Iterator[tuple[tuple, dict[str, Any]]]:
    """(place, changed certificate) for every change of every place; the same object each time, changed back afterwards."""
    data = copy.deepcopy(good)
    for path, v in list(_places(data))[1:]:
        target = data
        for k in path[:-1]:
            target = target[k]
        for new in _changes(v):
            if json.dumps(new) != json.dumps(v):
                target[path[-1]] = new
                yield path, data
        target[path[-1]] = v


def test_every_field_is_covered_by_the_digest(good: dict[str, Any]) -> None:
    """Every change of every string, number, list and object, with the digest as it was."""
    count = 0
    for path, mutant in _mutants(good):
        if path != ("digest",):
            assert digest(mutant) != good["digest"], path
            count += 1
    assert count > 2500
    for new in (good["digest"][1:], good["digest"] + "0", None):
        assert findings({**good, "digest": new})


def test_no_change_of_a_checkable_field_passes_with_a_new_digest(good: dict[str, Any]) -> None:
    """Whoever changes a certificate can compute the digest anew. Every field that the checker can recompute must be refused all the same."""
    passed, count = [], 0
    for path, mutant in _mutants(good):
        if path[:2] in RECORDED or path[:1] in RECORDED or path == ("digest",):
            continue
        if path[:1] == ("obligations",) and len(path) > 2 and path[1] % 6:  # the same fields each time: a sample is enough
            continue
        count += 1
        mutant["digest"] = digest(mutant)
        if not findings(mutant):
            passed.append(path)
    assert passed == [] and count > 800


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c["derivation"]["steps"].pop(3), "step"),
        (lambda c: c["derivation"]["steps"][-1].__setitem__(0, "lift"), "step"),
        (lambda c: c["derivation"]["steps"][-1][1].append(3), "does not end"),
        (lambda c: c["derivation"]["steps"][-1][2].__setitem__("level", "grid"), "does not end in the certificate's operational form"),
        (lambda c: c["derivation"]["steps"][-1].__setitem__(3, False), "does not apply from right to left"),
        (lambda c: c["obligations"].pop(2), "missing bounds"),
        (lambda c: c["obligations"].append(dict(c["obligations"][0], name="more")), "the obligations are not those"),
        (lambda c: c["obligations"][2].__setitem__("smt", "(assert false)(check-sat)"), "not as stored"),
        (lambda c: c["onf"].__setitem__("body", c["onf"]["body"].replace("min(8, ", "min(9, ")), "does not end in the certificate's operational form"),
        (lambda c: c["source"]["kernel"].__setitem__("body", "skip()"), "does not mean the certificate's source"),
        (lambda c: c["rules"].__setitem__("lift", "0" * 64), 'rule "lift" is not the one'),
        (lambda c: c["build"]["flags"].append("-ffast-math"), "does not cover code built with -ffast-math"),
        (lambda c: c["build"]["flags"].__setitem__(1, "-Ofast"), "does not cover code built with -Ofast"),
        (lambda c: c["build"]["flags"].pop(), "the flags must say once"),
        (lambda c: c["build"]["flags"].__setitem__(-1, "-ffp-contract=off"), "floating-point permissions"),
        (lambda c: c["floating_point"].__setitem__("reassociation", False), "floating-point permissions"),
        (lambda c: c["target"]["tiles"].__setitem__("i", 16), "tiles"),
        (lambda c: c["files"].pop("matmul.h"), "matmul.h is not the file"),
        (lambda c: c["files"].__setitem__("matmul.c", "0" * 64), "matmul.c is not the file"),
        (lambda c: c.__setitem__("solver", "z3 0.0.0"), "made with z3 0.0.0"),
    ],
)
def test_what_is_said_of_a_changed_certificate(good: dict[str, Any], change: Any, message: str) -> None:
    mutant = copy.deepcopy(good)
    change(mutant)
    assert any("edited" in f for f in findings(mutant))
    mutant["digest"] = digest(mutant)
    assert any(message in f for f in findings(mutant)), findings(mutant)


@pytest.mark.parametrize("data", [{}, [], None, "x", {"format": 1}, {"format": 2}])
def test_other_data_is_refused(data: Any) -> None:
    assert len(findings(data)) == 1 and "certificate" in findings(data)[0]


def test_changed_files_are_refused(good: dict[str, Any]) -> None:
    assert findings(good, {**FILES, "matmul.c": b"/* another */"}) == ["matmul.c is not the file that was certified"]
    assert findings(good, {"matmul.c": FILES["matmul.c"]}) == ["matmul.h is not the file that was certified"]
    assert findings(good, {**FILES, "extra.c": b""}) == ["extra.c is not the file that was certified"]
    assert findings(good, None) == []


def test_without_the_source_a_certificate_does_not_pass(good: dict[str, Any]) -> None:
    assert check(good, None, FILES, RULES).findings == ["the source was not elaborated anew"]


def test_a_changed_law_is_noticed(good: dict[str, Any]) -> None:
    short = parse_term('for(i.o, n // T, "seq", for(i.i, T, "seq", s))', pattern=True)  # no remainder
    wrong = rules.RuleSet({**RULES, "lift": replace(RULES["lift"], rhs=short)})
    assert any('rule "lift"' in f for f in check(good, source(), FILES, wrong).findings)
    # the wrong law, used in earnest: the derivation replays, and the obligations refuse its result with a witness
    d = derivation()
    steps = [*d.steps[:-3]]
    kernel = replay(d.source, steps, RULES).onf
    path = next(p for p, t in positions(kernel.body) if t.op == "for" and t.args[0] == "i")
    subst = match(wrong["lift"], kernel, path, True, {"T": I(4)})
    assert subst is not None
    end = replay(d.source, [*steps, Step("lift", path, subst)], wrong)
    with pytest.raises(MoaError) as e:
        discharge(end.onf, end.dnf, Limits())
    assert e.value.exit_code == 2 and "refuted" in e.value.message and "n = 1" in e.value.witness


def test_sizes_that_a_derivation_gives_up_are_reported(good: dict[str, Any]) -> None:
    assert check(good, source(), FILES, RULES).narrowed == []
    d = derivation()
    d("admit", "", c=P("k <= 256"))
    c = certify(
        d.source, d.steps, RULES, Limits(), file="matmul.moa", text="", machine="host", compiler="gcc 12", flags=FLAGS_C, files=FILES, error_model="",
    )  # fmt: skip
    report = check(to_json(c), source(), FILES, RULES)
    assert report.ok and report.narrowed == ["k <= 256"]
    d("admit", "", c=P("m < 1"))  # against `where 0 < m`: nothing is left
    with pytest.raises(MoaError, match="admissible where"):
        discharge(d.kernel, replay(d.source, d.steps, RULES).dnf, Limits())


def test_undecided_is_not_proved() -> None:
    """With next to no budget nothing is proved, and the refusal has its own exit code; the verdict repeats."""
    d = derivation()
    end = replay(d.source, d.steps, RULES)
    seen = set()
    for _ in range(2):
        with pytest.raises(MoaError) as e:
            discharge(end.onf, end.dnf, Limits(), rlimit=1)
        assert e.value.exit_code == 3
        seen.add(str(e.value))
    assert len(seen) == 1 and "undecided" in seen.pop()


def test_permissions_follow_from_form_and_flags() -> None:
    f = RIGHT["attention"]().onf
    steps = [Step("div-mul", ()), Step("lift", ()), Step("psi-add", ())]
    found = permissions(f, ["-ffp-contract=off"], steps, RULES)
    assert found == {"real_laws": ["div-mul"], "reassociation": True, "contraction": False, "approximate": ["exp"]}
    plain = permissions(RIGHT["transpose"]().onf, ["-fmad=true"], [], RULES)
    assert plain == {"real_laws": [], "reassociation": False, "contraction": True, "approximate": []}


@pytest.mark.parametrize("flag", ["-ffast-math", "-Ofast", "-funsafe-math-optimizations", "-fassociative-math", "-ffinite-math-only", "--use_fast_math",
                                  "-freciprocal-math", "-O4", "-DX=1", "-include x.h", "-Wl,-x", "-fno-strict-overflow -Ofast"])  # fmt: skip
def test_other_flags_are_refused(flag: str) -> None:
    assert not FLAGS.fullmatch(flag)


def test_the_checker_is_independent_of_the_search(good: dict[str, Any], tmp_path: Path) -> None:
    """In a process of its own, with what it loaded: no e-graph, no search, no cost model, no emitter; and in time."""
    write(good, tmp_path / "c.json")
    code = (
        "import json, sys\n"
        "from moa_rewrite.proof import checker, certificate\n"
        "import pathlib\n"
        f"data = certificate.read(pathlib.Path({str(tmp_path / 'c.json')!r}))\n"
        "report = checker.check(data, certificate.kernel_from_json(data['source']['kernel']), None)\n"
        "print(json.dumps([report.findings, report.proved, sorted(sys.modules)]))\n"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found, proved, modules = json.loads(out.stdout)
    assert found == [] and proved > 15
    away = ("egglog", *[f"moa_rewrite.{p}" for p in ("search", "emit", "machine", "build", "cli", "report")])
    assert [m for m in modules if m.startswith(away)] == []
