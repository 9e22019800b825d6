"""The work that `optimize`, `run` and `cost` share: program to job, job to plan, plan to proved and emitted bundle."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import REFUTED, MoaError
from ..terms import Kernel
from . import bundle, emission, options, sizes

if TYPE_CHECKING:
    from ..proof.certificate import Proved
    from ..rules import RuleSet
    from ..search.optimize import Options, Result

SEARCH_OPTIONS = ("machine", "target", "kernel", "rules", "without", "top", "timeout", "seed")
ERROR_MODEL = (
    "a running bound per cell: each operation adds its unit roundoff, a sum of n terms in any order n*u/(1 - n*u) times the sum of magnitudes, an elementary "
    "function 4 roundoffs; results that may underflow add the smallest normal number"
)


@dataclass(frozen=True)
class Job:
    """What is to be done: ``sizes`` are those that cost is judged at, ``fix`` those compiled in."""

    file: str
    text: str
    kernel: Kernel
    rules: RuleSet
    machine: Any
    target: str
    sizes: dict[str, int]
    fix: dict[str, int]


def arguments(p: argparse.ArgumentParser, *more: str) -> None:
    """The options of a command that searches."""
    options.add_sizes(p, "a size that cost is judged at (repeatable)")
    options.add_fix(p)
    options.add(p, *SEARCH_OPTIONS, *more)


def job(args: argparse.Namespace, most: int = 2**20) -> Job:
    """Load the program, the laws and the machine that a command line names. ``most``: see ``sizes.complete``."""
    from .. import lang, machine, rules

    program = lang.load_file(args.file)
    kernel = lang.elaborate(program, args.kernel)
    fix = options.integers(args.fix, "--fix")
    given = options.integers(args.define, "-D")
    if clash := sorted(n for n in fix.keys() & given.keys() if fix[n] != given[n]):
        raise MoaError(753, f"--fix {clash[0]} {fix[clash[0]]} and -D {clash[0]} {given[clash[0]]} disagree", file="moarw")
    sizes.check(kernel, fix, "--fix")
    target_machine = machine.load(args.machine)
    return Job(
        args.file, program.text, kernel, rules.load(args.rules, args.without), target_machine, target_of(args.target, target_machine),
        sizes.complete(kernel, {**given, **fix}, most=most, typical=program.typical(kernel.name)), fix,
    )  # fmt: skip


def target_of(wanted: str | None, machine: Any) -> str:
    """The language to write. MoaError 759 when the machine cannot run it."""
    gpu = machine.kind == "gpu"
    target = wanted or ("cuda" if gpu else "c")
    if gpu != (target == "cuda"):
        hint = "--target cuda, or a machine without a GPU" if gpu else "-m delta-a100, or another machine with a GPU"
        raise MoaError(759, f"{machine.name} does not run kernels written in {target}", file="moarw", hint=hint)
    return target


def search(j: Job, args: argparse.Namespace, keep: int = 0) -> Result:
    """The search for a plan; ``keep``: how many should be ranked at least."""
    from ..search.optimize import optimize

    told = Progress(args)
    try:
        return optimize(j.kernel, j.rules, j.machine, j.sizes, search_options(j, args, told, keep))
    finally:
        told.done()


def search_options(j: Job, args: argparse.Namespace, told: Progress, keep: int = 0) -> Options:
    from ..search.optimize import Options

    return Options(
        top=args.top, timeout=args.timeout, seed=args.seed, fix=j.fix, target=j.target, verbose=args.verbose, progress=told.say, keep=keep
    )  # fmt: skip


class Progress:
    """One line on a terminal that says what is going on; with -v every message on a line of its own; else silence."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.start = time.monotonic()
        self.verbose = bool(args.verbose)
        self.live = sys.stderr.isatty() and not self.verbose

    def say(self, text: str) -> None:
        if self.verbose:
            print(f"[{time.monotonic() - self.start:6.2f} s] {text}", file=sys.stderr)
        elif self.live:
            print(f"\r\x1b[K{text} ...", end="", file=sys.stderr, flush=True)

    def done(self) -> None:
        if self.live:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Outcome:
    job: Job
    result: Result
    proved: list[Proved]
    prove_s: float
    emitted: emission.Emitted
    bundle: bundle.Bundle
    compiled: bool
    tried: list[dict[str, int]] | None  # sizes that the emitted text was called at; None if that was not asked for


def limits(j: Job) -> Any:
    from ..proof import Limits

    return Limits(j.target, 64, shared_bytes=j.machine.shared_bytes) if j.target == "cuda" else Limits(j.target, 64)


def compare(kernel: Kernel, result: Result) -> None:
    """MoaError 654 (refuted) if the derived form computes something else than the source at some small sizes: some law is wrong."""
    from ..semantics.agree import disagreement

    witness = disagreement(kernel, result.kernel)
    if witness is not None:
        used = dict.fromkeys(s.rule for s in result.steps)
        notes = [f"laws used: {', '.join(used)}"]
        hint = "a law given by --rules may be wrong: leave it out, or bisect with --without"
        raise MoaError(654, f"refuted: the form derived for {kernel.name} computes something else", notes=notes, witness=witness, hint=hint, exit_code=REFUTED)


def certified(j: Job, result: Result, stem: str | None = None, progress: Progress | None = None, trial_seed: int | None = None) -> Outcome:
    """Prove what a plan must meet, write its text, let a compiler read it, call it on random inputs (from ``trial_seed``, if given), and put it in a
    bundle with its certificate. Nothing is written to disk.

    MoaError with exit code 2 if an obligation is refuted, 3 if one stays undecided, 4 if the text does not compute what its program says."""
    from ..proof.certificate import dump, to_json
    from ..proof.certify import certify, discharge
    from ..proof.checker import replay

    say = progress.say if progress else lambda text: None
    say("proving")
    start = time.perf_counter()
    end = replay(j.kernel, result.steps, j.rules)
    assert end.onf == result.kernel, "the derivation does not end in the plan"
    proved = discharge(end.onf, end.dnf, limits(j))
    prove_s = time.perf_counter() - start
    say("comparing values")
    compare(j.kernel, result)
    say("writing and compiling")
    e = emission.emit(result.kernel, j.target, stem or j.kernel.name, j.fix, j.machine)
    about = bundle.manifest(e, j.machine.name, j.sizes, Path(j.file).name)
    tried = None
    with tempfile.TemporaryDirectory() as folder:
        built = emission.built(e, Path(folder))
        if trial_seed is not None:
            from . import trial

            say("trying")
            tried = trial.attempt(e, about, built, result.kernel, end.dnf, trial_seed, Path(folder))
    say("certifying")
    files = bundle.described(e.files, about)
    c = certify(
        j.kernel, result.steps, j.rules, limits(j), file=Path(j.file).name, text=j.text, machine=j.machine.name, compiler=e.compiler, flags=e.flags,
        files=files, error_model=ERROR_MODEL, proved=proved,
    )  # fmt: skip
    made = bundle.Bundle({**files, bundle.CERTIFICATE: dump(to_json(c)).encode()})
    if progress:
        progress.done()
    return Outcome(j, result, proved, prove_s, e, made, built is not None, tried)
