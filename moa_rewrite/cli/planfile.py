"""A plan as a small text to keep beside the program: ``moarw optimize FILE --plan PLAN`` makes the same kernel without a search among plans."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from ..errors import MoaError
from . import files, pipeline

if TYPE_CHECKING:
    from ..search.given import Named
    from ..search.optimize import Result

FORMAT = 1
HEAD = "# A plan that was chosen by measuring; moarw optimize {program} --plan {name} makes the same kernel again.\n"
KEYS: dict[str, type] = {"format": int, "kernel": str, "machine": str, "target": str, "sizes": dict, "fixed": dict, "form": str, "packed": list,
                         "loops": str, "tiles": dict, "text": str}  # fmt: skip


@dataclass(frozen=True)
class PlanFile:
    """``text``: digest of the emitted kernel. ``about``: what was measured and with what, for readers."""

    kernel: str
    machine: str
    target: str
    sizes: dict[str, int]
    fixed: dict[str, int]
    plan: Named
    text: str
    about: dict[str, Any]

    def dump(self, program: str, name: str) -> str:
        named = self.plan
        data = {
            "format": FORMAT, "kernel": self.kernel, "machine": self.machine, "target": self.target, "sizes": self.sizes, "fixed": self.fixed,
            "form": named.form, "packed": list(named.packed), "loops": named.loops, "tiles": named.tiles, "text": self.text, "measured": self.about,
        }  # fmt: skip
        return HEAD.format(program=program, name=name) + yaml.safe_dump(data, sort_keys=False, width=160, allow_unicode=True, default_flow_style=None)


def load(path: str) -> PlanFile:
    """MoaError 751 if it cannot be read, 763 if it is no plan."""
    from ..search.given import Named

    text = files.read(path)
    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError as e:
        raise MoaError(763, f"{path} is no plan: {' '.join(str(e).split())[:120]}", file="moarw", hint=_HINT) from None
    if not isinstance(data, dict):
        raise MoaError(763, f"{path} is no plan", file="moarw", hint=_HINT)
    for key, kind in KEYS.items():
        if not isinstance(data.get(key), kind) or (kind is dict and not all(isinstance(n, str) and type(v) is int and v >= 0 for n, v in data[key].items())):
            raise MoaError(763, f"{path} is no plan: {key!r} is missing or of another kind", file="moarw", hint=_HINT)
    if data["format"] != FORMAT:
        raise MoaError(763, f"{path} is a plan of format {data['format']}; this moarw reads format {FORMAT}", file="moarw", hint=_HINT)
    if bad := sorted(n for n, v in data["tiles"].items() if v < 1):
        raise MoaError(763, f"{path} has no tile size for {bad[0]}", file="moarw", hint=_HINT)
    named = Named(data["form"], tuple(map(str, data["packed"])), data["loops"], data["tiles"])
    return PlanFile(data["kernel"], data["machine"], data["target"], data["sizes"], data["fixed"], named, data["text"], {})


_HINT = "moarw optimize FILE --tune 4 writes one"


def fill_in(args: argparse.Namespace, plan: PlanFile) -> None:
    """What the command line leaves open is taken from the plan; MoaError 763 where the two disagree."""
    for flag, pairs, own in (("-D", args.define, plan.sizes), ("--fix", args.fix, plan.fixed)):
        for name, value in pipeline.options.integers(pairs, flag).items():
            if own.get(name) != value and (flag == "--fix" or name in own):
                ours = f"{name} = {own[name]}" if name in own else f"no fixed {name}"
                raise MoaError(763, f"{flag} {name} {value}: the plan {args.plan} is of {ours}", file="moarw", hint=f"no {flag} {name}, or --tune anew")
    args.define += [[n, str(v)] for n, v in plan.sizes.items()]
    args.fix = [[n, str(v)] for n, v in plan.fixed.items()]
    for flag, given, own_name in (("--kernel", args.kernel, plan.kernel), ("--target", args.target, plan.target)):
        if given is not None and given != own_name:
            raise MoaError(763, f"{flag} {given}: the plan {args.plan} is for {own_name}", file="moarw", hint=f"{flag} {own_name}, or --tune anew")
    args.kernel, args.target = plan.kernel, plan.target


def search(j: pipeline.Job, args: argparse.Namespace, plan: PlanFile) -> Result:
    """The plan in place of a search. MoaError 763 for another machine, 764 if there is no such plan any more; a kernel of another text than the measured
    one is told on standard error."""
    if j.machine.name != plan.machine:
        hint = f"-m {plan.machine}, or --tune anew"
        raise MoaError(763, f"the plan {args.plan} is for the machine {plan.machine}, not for {j.machine.name}", file="moarw", hint=hint)
    r = planned(j, args, plan.plan, str(args.plan))
    if text_digest(j, r) != plan.text:
        print(f"moarw: warning: the text of this kernel is not the one that {Path(args.plan).name} was measured with", file=sys.stderr)
    return r


def planned(j: pipeline.Job, args: argparse.Namespace, named: Named, where: str) -> Result:
    """MoaError 764 if the plan does not exist."""
    from ..search import given

    told = pipeline.Progress(args)
    try:
        return given.planned(j.kernel, j.rules, j.machine, j.sizes, pipeline.search_options(j, args, told), named)
    except given.NoPlan as e:
        raise MoaError(
            764, f"{where}: the plan no longer exists for {j.kernel.name}: {e}", file="moarw",
            notes=[f"form  {named.form}", f"plan  {named.loops}"], hint="the program, the rules or moarw changed: --tune anew",
        ) from None  # fmt: skip
    finally:
        told.done()


def text_digest(j: pipeline.Job, r: Result) -> str:
    """Of the text that a plan gives, whatever the name of its file."""
    from . import emission

    e = emission.emit(r.kernel, j.target, j.kernel.name, j.fix, j.machine)
    return digest_of(e)


def digest_of(e: Any) -> str:
    import hashlib

    return "sha256:" + hashlib.sha256(b"\0".join(n.encode() + b"\0" + t for n, t in sorted(e.files.items()))).hexdigest()
