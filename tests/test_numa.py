"""Loops split over memory domains: derived, proved, emitted and run; the rows a domain first touches are those it computes."""

from __future__ import annotations

import ctypes
import functools
import re
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onf
import pytest
from rules_cases import BAD
from test_emit_c import agree, build, values
from test_rules_structure import kernel, outcome

from moa_rewrite import lang, machine, rules
from moa_rewrite.build import WARNINGS, LoadedKernel, compile_c, load
from moa_rewrite.build.apart import call_apart
from moa_rewrite.emit import Options, lower, print_c
from moa_rewrite.emit.cprint import CSource
from moa_rewrite.emit.numa import joined
from moa_rewrite.errors import MoaError
from moa_rewrite.proof import Limits, certify, check, discharge, kernel_from_json, kernel_to_json, obligations, prove, replay, to_json
from moa_rewrite.proof.certificate import digest
from moa_rewrite.proof.checker import Replay
from moa_rewrite.rules import RuleError, Step, apply_step, match, psi_normalise
from moa_rewrite.rules.rule import Value
from moa_rewrite.rules.step import apply_rule
from moa_rewrite.search import numa
from moa_rewrite.search.optimize import Options as Search
from moa_rewrite.search.optimize import optimize
from moa_rewrite.semantics.agree import disagreement
from moa_rewrite.semantics.statements import run
from moa_rewrite.terms import I, Kernel, Term, Touch, evaluate, loops, parse_term, show

R = rules.load()
MACHINE = Path(__file__).with_name("numa8.yaml")
ALWAYS = Options(parallel_if=Term("bool", 1))  # threads at any size
PROGRAMS = {
    "matmul": ("kernel f(A: f32[n, k], B: f32[k, m]) -> f32[n, m] = A +.× B", {"n": 4096, "k": 64, "m": 256}),
    "softmax": ("kernel f(x: f32[n, m]) -> f32[n, m] where m >= 1 = softmax Ω<1> x", {"n": 4096, "m": 256}),
    "attention": (
        """kernel f(Q: f32[h, n, d], K: f32[h, m, d], V: f32[h, m, e]) -> f32[h, n, e] where d >= 1, m >= 1
        = def head(q, k, v) = softmax Ω<1> ((q +.× ⍉k) ÷ sqrt(f32(d))) +.× v in head Ω<2,2,2> (Q, K, V)""",
        {"h": 16, "n": 64, "d": 16, "m": 64, "e": 16},
    ),
    "stencil": (
        "kernel f(a: f32[n, m]) -> f32[n, m] where n >= 1, m >= 1 = 0.25 × ((1 θ a) + (-1 θ a) + (1 θ Ω<0,1> a) + (-1 θ Ω<0,1> a))",
        {"n": 4096, "m": 4096},
    ),
    "sums": ("kernel f(x: f32[n, m]) -> (f32[n], f32[n, m]) = (+ red Ω<1> x, x × x)", {"n": 8192, "m": 64}),
}
NAMES = sorted(PROGRAMS)


@dataclass(frozen=True)
class Case:
    source: Kernel
    steps: list[Step]
    end: Replay

    @property
    def onf(self) -> Kernel:
        return self.end.onf


@functools.cache
def case(name: str) -> Case:
    text, sizes = PROGRAMS[name]
    k = lang.elaborate(lang.load(text))
    steps = tiled(k, sizes) if name == "matmul" else optimize(k, R, machine.load(MACHINE), sizes, Search(top=1)).steps
    return Case(k, steps, replay(k, steps, R))


def tiled(source: Kernel, sizes: dict[str, int]) -> list[Step]:
    """Both axes of a product in tiles, the tiles spread over the cores with those of columns outside: a plan of the kind that the search makes."""
    k, steps = psi_normalise(source, R)

    def do(rule: str, depth: int, **params: Value) -> None:
        nonlocal k
        subst = match(R[rule], k, (3,) * depth, params=params)
        assert subst is not None
        steps.append(Step(rule, (3,) * depth, subst))
        k = apply_step(k, R, steps[-1])

    do("reduce-loop", 2)
    for rule, depth, params in [("lift", 1, {"T": I(64)}), ("lift", 0, {"T": I(12)}), ("interchange", 1, {}), ("interchange", 0, {})]:
        do(rule, depth, **params)
    for depth, level in [(0, "core"), (1, "core"), (2, "unroll")]:
        do("place", depth, level=level)
    return [*steps, *numa.split(k, R, 8, 16, sizes)[1]]


def text(k: Kernel) -> CSource:
    return print_c(lower(k, options=ALWAYS))


@functools.cache
def compiled(name: str, folder: Path) -> LoadedKernel:
    c = text(case(name).onf)
    return load(compile_c(c.c_text, c.h_text, folder / name, "f", extra=(*WARNINGS, "-Werror")), case(name).onf, "f")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("numa")


def some_sizes(k: Kernel, rows: int) -> dict[str, int]:
    """The first size, which is the split one, as given, the others odd."""
    return dict(zip(k.sizes, (rows, 13, 5, 9, 7), strict=False))


# --- the laws ------------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("members", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("place", ["seq", "core"])
def test_split_changes_no_output(members: int, place: str) -> None:
    k = kernel(f'for("i", n, "{place}", for("j", m, "seq", seq(emit("add", "X", <@i>, A[@i, @j]), emit("once", "Z", <@i, @j>, a[@i]))))')
    subst = match(R["split"], k, (), params={"D": I(members)})
    assert subst is not None
    after = apply_step(k, R, Step("split", (), subst))
    assert [(f.args[0], f.args[2]) for f in loops(after.body)][:2] == [("i.o", "seq"), ("i.i", place)]
    assert outcome(k) == outcome(after) != "undefined"
    assert parse_term(show(after.body)) is after.body


@pytest.mark.parametrize(
    ("guard", "path", "members", "body"),
    [
        ("tile", (), 0, 'for("i", n, "seq", emit("once", "X", <@i>, a[@i]))'),
        ("over_sizes", (3,), 2, 'for("i.o", n, "seq", for("i", @i.o + 1, "seq", emit("add", "x", <>, a[@i])))'),
        ("absent i.o", (3,), 2, 'for("i.o", n, "seq", for("i", m, "seq", emit("add", "X", <@i.o>, b[@i])))'),
        ("absent i.i", (3,), 2, 'for("i.i", n, "seq", for("i", m, "seq", emit("add", "X", <@i.i>, b[@i])))'),
    ],
)
def test_conditions_of_split_are_needed(guard: str, path: tuple[int, ...], members: int, body: str) -> None:
    k, rule = kernel(body), R["split"]
    assert match(rule, k, path, params={"D": I(members)}) is None
    word, *which = guard.split()
    without = replace(rule, guards=tuple(g for g in rule.guards if g.op != word or (which and repr(g.args[0]) != which[0])))
    assert len(without.guards) == len(rule.guards) - 1
    subst = match(without, k, path, params={"D": I(members)})
    assert subst is not None, "another condition refuses as well"
    assert outcome(apply_rule(k, without, Step("split", path, subst))) != outcome(k) != "undefined"


def test_exchange_is_interchange_on_any_level() -> None:
    body = 'for("i", n, "core", for("j", m, "core", emit("add", "X", <@i>, A[@i, @j])))'
    k = kernel(body)
    assert match(R["interchange"], k, ()) is None
    subst = match(R["exchange"], k, ())
    assert subst is not None
    after = apply_step(k, R, Step("exchange", (), subst))
    assert [f.args[0] for f in loops(after.body)] == ["j", "i"] and outcome(after) == outcome(k) != "undefined"
    assert match(R["exchange"], kernel(body.replace('m, "core"', 'm, "simd"')), ()) is None  # the levels would change places
    assert {g.op for g in R["exchange"].guards} == {g.op for g in R["interchange"].guards}


@pytest.mark.parametrize("key", [k for k in BAD if k[0] == "interchange"], ids=" ".join)
def test_conditions_of_exchange_are_needed(key: tuple[str, str]) -> None:
    path, forward, params, body, stages, defs = BAD[key]
    k, rule = kernel(body, stages, defs), R["exchange"]
    assert match(rule, k, path, forward, params) is None
    word, *which = key[1].split()
    without = replace(rule, guards=tuple(g for g in rule.guards if g.op != word or (which and repr(g.args[0]) != which[0])))
    assert len(without.guards) == len(rule.guards) - 1
    subst = match(without, k, path, forward, params)
    assert subst is not None
    assert outcome(apply_rule(k, without, Step("exchange", path, subst))) != outcome(k) != "undefined"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"array": "Q"}, "no output or stage Q"),
        ({"array": "A"}, "no output or stage A"),
        ({"axis": 2}, "no output or stage Z with an axis 2"),
        ({"domains": 0}, "no number of rows"),
        ({"rows": parse_term("@i + 1")}, "no number of rows"),
    ],
)
def test_touch_refuses(change: dict, says: str) -> None:
    k = kernel('for("i", n, "seq", for("j", m, "seq", emit("once", "Z", <@i, @j>, a[@i])))')
    good = {"array": "Z", "axis": 0, "rows": parse_term("(n + 7) // 8"), "domains": 8}
    once = apply_step(k, R, Step("touch", (), good))
    assert once.touches == (Touch("Z", 0, parse_term("(n + 7) // 8"), 8),)
    for k_, params, text_ in [(k, {**good, **change}, says), (once, good, "placed already")]:
        with pytest.raises(RuleError, match=text_):
            apply_step(k_, R, Step("touch", (), params))
    with pytest.raises(RuleError, match="root"):
        apply_step(k, R, Step("touch", (3,), good))


# --- what the search does ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", NAMES)
def test_outputs_are_split_and_touched(name: str) -> None:
    c = case(name)
    assert [f.args[1] for f in loops(c.onf.body) if f.args[2] == "numa"] and {I(8)} == {f.args[1] for f in loops(c.onf.body) if f.args[2] == "numa"}
    assert {(t.array, t.axis, t.domains) for t in c.onf.touches} == {(o.name, 0, 8) for o in c.onf.outputs}
    assert numa.whole(c.onf, 8, 16, PROGRAMS[name][1]) == []
    assert disagreement(c.source, c.onf) is None
    assert parse_term(show(c.onf.body)) is c.onf.body
    assert kernel_from_json(kernel_to_json(c.onf)) == c.onf


def test_a_product_is_split_or_the_report_says_why_not() -> None:
    text_, _ = PROGRAMS["matmul"]
    k, sizes = lang.elaborate(lang.load(text_)), {"n": 2000, "k": 2000, "m": 2000}
    r = optimize(k, R, machine.load(MACHINE), sizes, Search(top=1))
    end = replay(k, r.steps, R)
    assert {o.verdict for o in discharge(end.onf, end.dnf, Limits())} == {"proved"}
    over = [f for f in loops(end.onf.body) if f.args[2] == "numa"]
    assert len(over) + len(numa.whole(end.onf, 8, 16, sizes)) >= 1 and bool(over) == bool(end.onf.touches)


def test_other_domains_mean_other_parts_and_one_means_none() -> None:
    text_, sizes = PROGRAMS["softmax"]
    k = lang.elaborate(lang.load(text_))
    m = machine.load(MACHINE)
    rows = {}
    for d in (1, 2, 4):
        r = optimize(k, R, replace(m, numa_domains=d), sizes, Search(top=1))
        rows[d] = [show(t.rows) for t in r.kernel.touches]
        assert any(f.args[2] == "numa" for f in loops(r.kernel.body)) == (d > 1)
        assert ("moarw_numa.h" in text(r.kernel).c_text) == ("_touch" in text(r.kernel).h_text) == (d > 1)
        assert ("touches" in kernel_to_json(r.kernel)) == (d > 1)
    assert rows == {1: [], 2: ["(n + 2 - 1) // 2"], 4: ["(n + 4 - 1) // 4"]}


def test_a_certificate_with_first_touch_is_checked_and_an_edited_one_refused() -> None:
    c = case("softmax")
    emitted = {"f.c": b"/* the kernel */\n", "f.h": b"/* its header */\n"}
    about = {"file": "f.moa", "text": "", "machine": "numa8", "compiler": "gcc", "flags": ("-ffp-contract=fast",), "files": emitted, "error_model": ""}
    made = to_json(certify(c.source, c.steps, R, Limits(), **about))
    report = check(made, c.source, emitted, R)
    assert report.findings == [] and report.ok
    assert [o["name"] for o in made["obligations"] if o["kind"] == "touch"] == ["rows of out", "out, axis 0, in emit out out[i, j]"]
    made["onf"]["touches"][0]["rows"] = "n"
    made["digest"] = digest(made)
    assert not check(made, c.source, emitted, R).ok


ROWS_AND_COLUMNS = 'for("i", n, "core", for("j", m, "core", for("k", n, "seq", emit("add", "Z", <@i, @j>, a[@k] * A[@i, @j]))))'


def split_of(k: Kernel, cores: int = 16, **sizes: int) -> tuple[list[str], list[str]]:
    after, _ = numa.split(k, R, 8, cores, sizes)
    return [str(f.args[0]) for f in loops(after.body) if f.args[2] == "numa"], numa.whole(after, 8, cores, sizes)


def test_the_loop_whose_parts_are_contiguous_is_split() -> None:
    columns_first = ROWS_AND_COLUMNS.replace('for("i", n, "core", for("j", m, "core", ', 'for("j", m, "core", for("i", n, "core", ')
    for body in (ROWS_AND_COLUMNS, columns_first):
        assert split_of(kernel(body), n=4096, m=4096) == (["i.o"], [])


def test_what_is_left_whole_says_why() -> None:
    rows = kernel('for("i", n, "core", for("j", m, "seq", emit("once", "Z", <@i, @j>, a[@i])))')
    assert split_of(rows, n=4096, m=4096) == (["i.o"], [])
    assert split_of(rows, n=64, m=4)[1] == ["i is not split over 8 memory domains: its parts of every array are in pieces smaller than a page"]
    # 9 rows on 16 cores: two rows in each of four domains and one in a fifth
    assert split_of(rows, n=9, m=4096) == (["i.o"], [])
    assert split_of(rows, cores=8, n=9, m=4096) == (["i.o"], [])
    assert split_of(rows, cores=9, n=9, m=4096)[1] == ["i is not split over 8 memory domains: the parts would take 2 rounds, all together take 1"]
    below = kernel('for("i", n, "core", for("j", @i + 1, "seq", emit("add", "X", <@i>, a[@j])))')
    assert split_of(below, n=10**6, m=1)[1] == ["i is not split over 8 memory domains: its iterations differ in work"]
    guarded = kernel('for("i", n, "core", guard(@i < m, for("j", m, "seq", emit("add", "X", <@i>, A[@i, @j]))))')
    assert split_of(guarded, n=10**6, m=4)[1] == ["i is not split over 8 memory domains: its iterations differ in work"]
    first = 'for("i", n, "core", for("j", m, "seq", emit("once", "Z", <@i, @j>, a[@i])))'
    lifted = 'for("i.o", (n + 3) // 4, "core", for("i.i", min(4, n - @i.o * 4), "seq", emit("once", "X", <@i>, a[@i])))'
    both = kernel(f"seq({lifted}, {first})", defs="i=@i.o * 4 + @i.i")
    assert split_of(both, n=10**6, m=4) == (["i.o.o"], ["i is not split over 8 memory domains: it has other parts elsewhere"])


# --- the obligation ------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", NAMES)
def test_first_touch_is_proved_for_all_sizes(name: str) -> None:
    c = case(name)
    proved = discharge(c.onf, c.end.dnf, Limits())
    assert {o.verdict for o in proved} == {"proved"}
    about = [o.name for o in proved if o.kind == "touch"]
    for o in c.onf.outputs:
        assert f"rows of {o.name}" in about and any(n.startswith(f"{o.name}, axis 0, in emit") for n in about)


def refuted(c: Case, **change: object) -> list[str]:
    """Witnesses of the obligations that fail when the header is changed; nothing but first touch may fail."""
    t, *others = c.onf.touches
    k = replace(c.onf, touches=(replace(t, **change), *others))  # type: ignore[arg-type]
    out = []
    for o in obligations(k, Limits(), c.end.dnf):
        v = prove(o)
        if v.status != "proved":
            assert (o.kind, v.status) == ("touch", "refuted"), (o.name, v)
            out.append(v.witness)
    return out


def numbers(witness: str) -> dict[str, int]:
    return {name.strip(): int(value) for name, value in re.findall(r"([\w ]+) = (-?\d+)", witness)}


def computing(c: Case, array: str, axis: int, sizes: dict[str, int], row: int) -> set[int]:
    """The domains that compute a row, by running through the loops of the operational form."""
    from moa_rewrite.proof.reach import iterations, number
    from moa_rewrite.proof.walk import accesses

    out = set()
    for a in accesses(c.onf):
        if a.write and a.array == array:
            domain = next(f.name for f in a.frames if f.place == "numa")
            out |= {it[domain] for it in iterations(c.onf, a.frames, sizes, {}) if number(c.onf, a.index[axis], sizes, it) == row}
    return out


@pytest.mark.parametrize("name", ["matmul", "softmax", "attention", "stencil"])
@pytest.mark.parametrize("by", [1, -1])
def test_a_wrong_part_is_refuted_with_the_row(name: str, by: int) -> None:
    c = case(name)
    t = c.onf.touches[0]
    wrong = Term("add", t.rows, I(by))
    found = [w for w in refuted(c, rows=wrong) if "touched by domain" in w]
    assert found
    for w in found:
        at = numbers(w)
        sizes = {s: at[s] for s in c.onf.sizes}
        assert "another domain computes this row of out than first touches it" in w
        assert at["touched by domain"] == min(at["row"] // evaluate(wrong, sizes), 7) if evaluate(wrong, sizes) > 0 else True
        assert computing(c, "out", t.axis, sizes, at["row"]) == {at["computed by domain"]} != {at["touched by domain"]}


@pytest.mark.parametrize("name", ["matmul", "softmax", "attention", "stencil"])
def test_a_wrong_axis_is_refuted_with_the_row(name: str) -> None:
    c = case(name)
    found = [numbers(w) for w in refuted(c, axis=1) if "touched by domain" in w]
    assert found
    for at in found:
        sizes = {s: at[s] for s in c.onf.sizes}
        assert at["computed by domain"] in computing(c, "out", 1, sizes, at["row"]) and at["computed by domain"] != at["touched by domain"]


def test_rows_of_no_domain_are_refuted() -> None:
    (witness,) = refuted(case("softmax"), domains=7)
    at = numbers(witness)
    assert at["row"] // -(-at["n"] // 8) >= 7 and at["row"] < at["n"] and "no domain first touches this row of out" in witness


def test_rows_computed_outside_the_domains_are_refuted() -> None:
    c = case("sums")
    t = next(t for t in c.onf.touches)
    body = joined(c.onf)
    o = [prove(o) for o in obligations(replace(body, touches=(t,)), Limits(), c.end.dnf) if o.kind == "touch"]
    assert [v.status for v in o] == ["proved", "refuted"] and "computed by no one domain" in o[1].witness


@pytest.mark.parametrize("change", [{"array": "x"}, {"axis": 5}, {"domains": 0}, {"rows": parse_term("@i")}, {"rows": parse_term("n // m")}])
def test_a_header_that_means_nothing_is_refused(change: dict) -> None:
    with pytest.raises(MoaError) as e:
        refuted(case("softmax"), **change)
    assert e.value.code == 651


# --- the emitted text ----------------------------------------------------------------------------------------------------------------
def numpy_answer(name: str, x: dict[str, np.ndarray]) -> list[np.ndarray]:
    with np.errstate(invalid="ignore"):
        a = [v.astype(np.float64) for v in x.values()]
        if name == "matmul":
            return [a[0] @ a[1]]
        if name == "stencil":
            return [0.25 * sum(np.roll(a[0], s, k) for s in (1, -1) for k in (0, 1))]
        if name == "sums":
            return [a[0].sum(1), a[0] ** 2]
        s = a[0] if name == "softmax" else a[0] @ a[1].swapaxes(1, 2) / np.sqrt(a[0].shape[2])
        p = np.exp(s - s.max(-1, keepdims=True)) if s.size else s
        p = p / p.sum(-1, keepdims=True) if s.size else p
        return [p if name == "softmax" else p @ a[2]]


ROWS = (0, 1, 2, 7, 8, 9, 63, 131)


@pytest.mark.parametrize("name", NAMES)
def test_c_equals_numpy_with_any_number_of_threads(name: str, folder: Path, tmp_path: Path) -> None:
    f = compiled(name, folder)
    k = f.kernel
    calls = []
    for rows in ROWS[name == "stencil" :]:
        sizes = some_sizes(k, rows)
        calls.append((sizes, values(k, sizes)))
    results = {t: call_apart(folder / name / "f.so", k, "f", calls, t, 60, tmp_path) for t in (1, 2, 3, 8)}
    for n, (sizes, inputs) in enumerate(calls):
        for want, o in zip(numpy_answer(name, inputs), k.outputs, strict=True):
            one = results[1][n]
            assert not isinstance(one, str), one
            np.testing.assert_allclose(one[o.name], want, rtol=2e-5, atol=2e-5, err_msg=str(sizes))
            for t in (2, 3, 8):
                assert results[t][n][o.name].tobytes() == one[o.name].tobytes(), (t, sizes)  # type: ignore[index]


def omp_threads(n: int) -> None:
    ctypes.CDLL("libgomp.so.1").omp_set_num_threads(n)


@pytest.fixture
def threads():
    before = ctypes.CDLL("libgomp.so.1").omp_get_max_threads()
    yield omp_threads
    omp_threads(before)


@pytest.mark.parametrize("name", NAMES)
def test_touch_reaches_every_byte_and_no_other(name: str, folder: Path, threads) -> None:
    f = compiled(name, folder)
    for t in (1, 2, 3, 8, 11):
        threads(t)
        for rows in ROWS:
            sizes = some_sizes(f.kernel, rows) if (name, rows) != ("stencil", 0) else some_sizes(f.kernel, 1)
            outputs, around = {}, {}
            for o in f.kernel.outputs:
                shape = tuple(evaluate(e, sizes) for e in o.shape)
                around[o.name] = np.full(int(np.prod(shape)) + 32, np.float32(-5.25))
                outputs[o.name] = around[o.name][16:-16].reshape(shape)
            assert f.touch(sizes, outputs)
            for name_, a in around.items():
                assert (a[:16] == -5.25).all() and (a[-16:] == -5.25).all() and not a[16:-16].any(), (name_, t, sizes)


def test_touch_refuses_sizes_that_the_kernel_refuses_and_is_not_there_without_domains(folder: Path, tmp_path: Path) -> None:
    f = compiled("softmax", folder)
    with pytest.raises(MoaError) as e:
        f.touch({"n": 3, "m": 0}, {"out": np.zeros((3, 0), np.float32)})  # m >= 1
    assert e.value.code == 615
    plain = build(onf.softmax_staged("f32"), tmp_path)
    assert plain.touch({"n": 2, "m": 2}, {}) is False


@pytest.mark.parametrize("name", ["matmul", "softmax", "stencil"])
@pytest.mark.parametrize("members", [8, 16])
def test_the_thread_that_touches_a_row_serves_the_domain_that_computes_it(name: str, members: int, tmp_path: Path, threads) -> None:
    """The text with what is stored replaced by the number of the thread: with 8 or 16 threads, one or two for each of the 8 domains."""
    c = text(case(name).onf)
    stores = r"(out_1\[[^;]*\]) \+?= [^;]*;"
    assert re.search(stores, c.c_text.split("int f(")[0] + c.c_text.split("int f(")[1])
    who = re.sub(stores, r"\1 = (float)moarw_thread();", c.c_text)
    f = load(compile_c(who, c.h_text, tmp_path, "f"), case(name).onf, "f")
    threads(members)
    for rows in (1, 7, 8, 9, 63, 131, 600):
        sizes = some_sizes(f.kernel, rows)
        inputs = values(f.kernel, sizes)
        computed, touched = f.outputs(sizes), f.outputs(sizes)
        f.run(sizes, inputs, computed)
        f.touch(sizes, touched)
        got, want = computed["out"] // (members // 8), touched["out"] // (members // 8)
        np.testing.assert_array_equal(got, want)
        t = case(name).onf.touches[0]
        np.testing.assert_array_equal(got[:, 0], np.arange(rows) // evaluate(t.rows, sizes))


def test_shares_cover_every_iteration_once_in_order_and_evenly(tmp_path: Path) -> None:
    source = """#include "moarw_numa.h"
    void share(int64_t o, int64_t D, int64_t n, int64_t t, int64_t nt, int64_t *r) {
        moarw_share(o, D, n, t, nt, r, r + 1);
        r[2] = moarw_first(D, t, nt), r[3] = moarw_last(D, t, nt), r[4] = moarw_all(n, o - 1);
    }
    """
    f = ctypes.CDLL(str(compile_c(source, "", tmp_path, "share"))).share
    f.argtypes = [*[ctypes.c_int64] * 5, ctypes.c_void_p]

    def share(*a: int) -> list[int]:
        r = np.zeros(5, np.int64)
        f(*a, r.ctypes.data)
        return r.tolist()

    for d in (1, 2, 3, 8):
        for nt in (1, 2, 3, 5, 8, 16, 24):
            for n in (-3, 0, 1, 2, 7, 48, 100):
                work = [0] * nt
                for o in range(d):
                    at = 0
                    for t in range(nt):
                        lo, hi, first, last, _ = share(o, d, n, t, nt)
                        if hi > lo:
                            assert lo == at and first <= o < last
                            at, work[t] = hi, work[t] + hi - lo
                            if nt % d == 0:
                                assert o == t * d // nt
                    assert at == max(n, 0)
                if n % nt == 0 and n >= 0:
                    assert work == [n * d // nt] * nt
    lo, hi, *_ = share(0, 1, 2**62, 1, 3)
    assert (lo, hi) == (2**62 // 3, 2**62 * 2 // 3)  # no overflow on the way
    assert share(3, 8, 5, 0, 1)[4] == 10 and share(3, 8, -5, 0, 1)[4] == 0 and share(0, 8, -5, 0, 1)[4] == 0


@pytest.mark.parametrize("name", NAMES)
def test_other_languages_get_the_loop_as_one(name: str) -> None:
    c = case(name)
    back = joined(c.onf)
    assert not any(f.args[2] == "numa" for f in loops(back.body)) and not back.touches
    assert len(list(loops(back.body))) == len(list(loops(c.onf.body))) - sum(f.args[2] == "numa" for f in loops(c.onf.body))
    sizes = some_sizes(c.onf, 11)
    data = values(c.onf, sizes)
    want, got = run(c.onf, data, sizes), run(back, data, sizes)
    for o in want:
        np.testing.assert_allclose(got[o], want[o], rtol=1e-12)
    assert lower(c.onf, "fortran") == lower(back, "fortran")


def test_fortran_equals_numpy(need, tmp_path: Path) -> None:
    need("gfortran")
    from moa_rewrite.build.fortran import compile_fortran
    from moa_rewrite.emit import print_fortran

    c = case("matmul")
    source = tmp_path / "f.f90"
    source.write_text(print_fortran(lower(c.onf, "fortran", ALWAYS)).f90_text)
    f = load(compile_fortran(source), c.onf, "f")
    for rows in (0, 1, 7, 131):
        x = values(c.onf, some_sizes(c.onf, rows))
        np.testing.assert_allclose(f(**x), numpy_answer("matmul", x)[0], rtol=2e-5, atol=2e-5)


def shared_stage() -> Kernel:
    """A stage that starts at 0 and is filled in one parallel loop and read in another, with columns slowest in storage."""
    first = onf.nest(["i:n:core", "l:p:seq", "j:m:simd"], 'emit("add", "P", <@i, @j>, X[@i, @l] * Y[@l, @j])')
    second = onf.nest(["i:n:core", "j:m:seq"], 'emit("once", "Z", <@i, @j>, P[@i, @j] + P[n - 1 - @i, @j])')
    stage = onf.stage("P", "f64", "i j", "n; m", "add", 'reduce("add", "l", p, X[@i, @l] * Y[@l, @j])', (1, 0))
    return onf.kernel("shared", "n m p", [onf.array("X", "f64", "n", "p"), onf.array("Y", "f64", "p", "m")], [onf.array("Z", "f64", "n", "m")],
                      onf.new("P", onf.block(first, second)), [stage])  # fmt: skip


@pytest.mark.parametrize(("layout", "panel"), [((), 0), ((1, 0), 0), ((), 4)])
def test_shared_stages_are_touched_by_the_domain_that_fills_them(layout: tuple[int, ...], panel: int, tmp_path: Path, threads) -> None:
    k = shared_stage()
    k = replace(k, stages=(replace(k.stages[0], layout=layout, panel=panel),))
    k, _ = numa.split(k, R, 8, 16, {"n": 4096, "m": 4096, "p": 16})
    assert [(t.array, t.axis) for t in k.touches] == [("Z", 0), ("P", 0)]
    f = build(k, tmp_path, ALWAYS)
    c = text(k).c_text
    zeros = c[: c.index("] = 0.0;")]  # the cells are set to 0 in the same parts
    assert "moarw_share" in zeros and re.search(r"moarw_min_i64\(part_1, n - domain \* part_1\)", zeros) and "omp for" not in c
    for t in (1, 3, 8):
        threads(t)
        for n in (0, 1, 7, 8, 9, 40):
            agree(f, {"n": n, "m": 5, "p": 3})


def test_a_stage_whose_rows_lie_in_panels_has_no_parts_of_its_own() -> None:
    k = shared_stage()
    k = replace(k, stages=(replace(k.stages[0], layout=(1, 0), panel=4),))
    assert [t.array for t in numa.split(k, R, 8, 16, {"n": 4096, "m": 4096, "p": 16})[0].touches] == ["Z"]


def test_sizes_compiled_in(tmp_path: Path) -> None:
    c = case("matmul")
    f = build(c.onf, tmp_path, replace(ALWAYS, fix={"n": 131, "m": 40}))
    agree(f, {"n": 131, "k": 9, "m": 40})
    tests = "12 <= 96 - i_o * 12"  # whether a tile is full
    for whole in (c.onf, joined(c.onf)):  # 12 divides 96
        assert tests not in print_c(lower(whole, options=replace(ALWAYS, fix={"n": 96}))).c_text
    assert tests.replace("96", "97") in print_c(lower(c.onf, options=replace(ALWAYS, fix={"n": 97}))).c_text


def test_the_text_is_as_good_as_without_domains() -> None:
    few = lower(case("softmax").onf).parallel_if
    assert few is not None and "- 4" not in show(few)  # judged by the first domain: the one in the middle may have nothing to do
    assert "const int64_t r = moarw_fmod_i64(i + 1, n);" in text(case("stencil").onf).c_text  # not in the loop over lanes: n is positive there


def test_a_loop_over_domains_without_cores_runs_a_thread_for_each(tmp_path: Path) -> None:
    k = onf.kernel("alone", "n", [onf.array("x", "f64", "n")], [onf.array("y", "f64", "n")],
                   'for("i", n, "numa", emit("once", "y", <@i>, x[@i] + 1.0))')  # fmt: skip
    f = build(k, tmp_path, ALWAYS)
    agree(f, {"n": 5})
    assert "#pragma omp for" in text(k).c_text and "moarw_share" not in text(k).c_text


@pytest.mark.parametrize("name", ["softmax", "stencil"])
def test_rows_past_the_caches_are_shared_out_alike(name: str, tmp_path: Path, threads) -> None:
    """Rows of 4 KiB and outputs larger than a small cache: the version that streams is split as well, and every thread waits for its own stores."""
    c = case(name)
    f = build(c.onf, tmp_path, replace(ALWAYS, cache_bytes=4096))
    text_ = print_c(lower(c.onf, options=replace(ALWAYS, cache_bytes=4096))).c_text
    assert text_.count("moarw_share") > text(c.onf).c_text.count("moarw_share") and "moarw_fence();" in text_
    sizes = {"n": 19, "m": 1031}
    x = values(c.onf, sizes)
    results = []
    for t in (1, 3, 8):
        threads(t)
        results.append(f(**x))
        np.testing.assert_allclose(results[-1], numpy_answer(name, x)[0], rtol=2e-5, atol=2e-5)
    assert results[0].tobytes() == results[1].tobytes() == results[2].tobytes()
