"""Making a certificate: the same replay and obligations as the checker's, with a clear refusal where one fails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .. import __version__
from ..errors import REFUTED, UNDECIDED, MoaError
from ..rules import RuleSet, Step
from ..terms import Kernel
from .certificate import Certificate, Proved, permissions, rule_digest, sha256, tiles
from .checker import replay
from .obligations import obligations
from .solver import RLIMIT, prove_all, version
from .storage import Limits


def discharge(onf: Kernel, dnf: Kernel, limits: Limits, rlimit: int = RLIMIT) -> list[Proved]:
    """Prove every obligation of an operational form. MoaError with the witness if one is refuted (exit 2) or undecided (exit 3)."""
    items = obligations(onf, limits, dnf)
    verdicts = prove_all(items, rlimit)
    for status, code, exit_code in (("refuted", 652, REFUTED), ("undecided", 653, UNDECIDED)):
        bad = [(o, v) for o, v in zip(items, verdicts, strict=True) if v.status == status]
        if bad:
            o, v = bad[0]
            more = [f"{x.kind} {x.name}: {y.witness}" for x, y in bad[1:]]
            raise MoaError(code, f"{status}: {o.kind} {o.name}", notes=more, witness=v.witness, exit_code=exit_code)
    return [Proved(o.kind, o.name, o.smt, v.status, v.rlimit) for o, v in zip(items, verdicts, strict=True)]


def certify(
    source: Kernel, steps: Sequence[Step], rules: RuleSet, limits: Limits, *, file: str, text: str, machine: str, compiler: str, flags: Sequence[str],
    files: Mapping[str, bytes], error_model: str, proved: Sequence[Proved] | None = None,
) -> Certificate:  # fmt: skip
    """The certificate of a derivation from ``source``. ``proved``: the outcome of ``discharge``, when it is at hand already."""
    end = replay(source, steps, rules)
    done = discharge(end.onf, end.dnf, limits) if proved is None else proved
    used = {name: rule_digest(rules[name]) for name in sorted({s.rule for s in steps})}
    return Certificate(
        __version__, file, text, source, used, tuple(steps), end.onf, tuple(done), version(), machine, limits, tiles(end.onf), compiler, tuple(flags),
        permissions(end.onf, flags, steps, rules), error_model, {name: sha256(data) for name, data in sorted(files.items())},
    )  # fmt: skip
