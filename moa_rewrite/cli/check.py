"""``moarw check PATH``: a certificate again, from the source text on, by the independent checker. Loads neither egglog nor the search."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import OK, REFUTED, UNDECIDED, MoaError
from . import bundle, certificates, options

if TYPE_CHECKING:
    from ..terms import Kernel


def arguments(p: argparse.ArgumentParser) -> None:
    p.add_argument("path", metavar="PATH", nargs="+", help="a certificate, or the directory of a bundle")
    p.add_argument("--certificate-only", action="store_true", help="do not compare the emitted files beside it")
    options.add(p, "rules", "json")


def run(args: argparse.Namespace) -> int:
    worst = OK
    reports = []
    for path in args.path:
        report = check(path, args)
        reports.append(report)
        worst = max(worst, report["exit_code"])
        if not args.json:
            print("\n".join(lines(report)))
    if args.json:
        print(json.dumps(reports[0] if len(reports) == 1 else reports, indent=1))
    return worst


def check(path: str, args: argparse.Namespace) -> dict[str, Any]:
    """What the checker says of one certificate."""
    from .. import rules
    from ..proof import checker

    start = time.perf_counter()
    file = certificates.locate(path)
    data = certificates.read(file)
    source, why = elaborated(data)
    emitted = None if args.certificate_only else certificates.beside(file, data)
    report = checker.check(data, source, emitted, rules.load(args.rules))
    findings = [*([why] if why else []), *report.findings, *(differing(data, emitted) if emitted is not None and not report.findings else [])]
    code = REFUTED if findings else UNDECIDED if report.undecided else OK
    return {
        "certificate": str(file), "verdict": {OK: "valid", REFUTED: "refuted", UNDECIDED: "undecided"}[code], "exit_code": code, "findings": findings,
        "undecided": report.undecided, "narrowed": report.narrowed, "steps": report.steps, "proved": report.proved,
        "files": sorted(emitted) if emitted is not None else None, "seconds": round(time.perf_counter() - start, 3),
    }  # fmt: skip


def differing(data: Mapping[str, Any], emitted: Mapping[str, bytes]) -> list[str]:
    """What the manifest beside a well-formed certificate says otherwise; its text is that of the certified digest."""
    if bundle.MANIFEST not in emitted:
        return [f"there is no {bundle.MANIFEST} beside it"]
    m = json.loads(emitted[bundle.MANIFEST])
    listed = {name: str(d).removeprefix("sha256:") for name, d in m["files"].items()}
    pairs = {
        "moarw": (data["moarw"], m["moarw"]), "program": (data["source"]["file"], m["program"]), "kernel": (data["source"]["kernel"]["name"], m["kernel"]),
        "target": (data["target"]["target"], m["target"]), "machine": (data["target"]["machine"], m["machine"]),
        "compiler": (data["build"]["compiler"], m["compiler"]), "flags": (data["build"]["flags"], m["flags"]),
        "where": (data["onf"]["where"], m["sizes"]["where"]),
        "files": ({n: d for n, d in data["files"].items() if n != bundle.MANIFEST}, listed),
    }  # fmt: skip
    return [f"{name} in the certificate and in {bundle.MANIFEST} differ" for name, (a, b) in pairs.items() if a != b]


def elaborated(data: dict[str, Any]) -> tuple[Kernel | None, str]:
    """The kernel that the certificate's source text means, and what is wrong with that text."""
    from .. import lang

    try:
        src = data["source"]
        return lang.elaborate(lang.load(src["text"], src["file"]), src["kernel"]["name"]), ""
    except MoaError as e:
        return None, f"the source text is refused: {str(e).splitlines()[0]}"
    except (KeyError, TypeError):
        return None, ""  # the checker says what is missing


def lines(r: dict[str, Any]) -> list[str]:
    from ..report.table import paint
    from ..report.units import count

    name = Path(r["certificate"])
    if r["verdict"] == "valid":
        compared = f", {count(len(r['files']), 'file')} compared" if r["files"] is not None else ", files not compared"
        done = f"{count(r['steps'], 'step')} replayed, {count(r['proved'], 'obligation')} proved{compared}"
        only = f", for {', '.join(r['narrowed'])} only" if r["narrowed"] else ""
        return [f"{name}: {paint('valid', 'green')}{only} ({done}, {r['seconds']:.1f} s)"]
    out = [f"{name}: {paint(r['verdict'], 'red')}"]
    return [*out, *[f"  {f}" for f in r["findings"]], *[f"  undecided: {u}" for u in r["undecided"]]]
