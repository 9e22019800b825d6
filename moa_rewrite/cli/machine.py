"""``moarw machine list|show|check|detect``."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from typing import TYPE_CHECKING

from ..errors import OK, USER_ERROR
from ..report import units
from ..report.table import columns, labelled
from . import options

if TYPE_CHECKING:
    from ..machine import Machine


def arguments(p: argparse.ArgumentParser) -> None:
    sub = p.add_subparsers(dest="action", metavar="list|show|check|detect", required=True)
    options.add(sub.add_parser("list", help="names of the machines that come with moarw"))
    for action, text in (("show", "levels, memories and rates of a machine"), ("check", "does the machine file hold together?")):
        one = sub.add_parser(action, help=text)
        one.add_argument("name", metavar="NAME", help="a name from `machine list`, host, or a file")
        options.add(one, "json")
    options.add(sub.add_parser("detect", help="describe this computer as a machine file"), "json")


def run(args: argparse.Namespace) -> int:
    from .. import machine

    if args.action == "list":
        rows = []
        for name in machine.names():
            m = machine.load(name)
            rows.append([name, m.kind, f"{m.cores} {'SMs' if m.kind == 'gpu' else 'cores'}", m.model])
        print("\n".join(columns(rows)))
    elif args.action == "detect":
        found = machine.detect()
        print(json.dumps(found.document, indent=1) if args.json else machine.dump(found).rstrip("\n"))
    elif args.action == "check":
        return check(args)
    else:
        m = machine.load(args.name)
        print(json.dumps(m.document, indent=1) if args.json else "\n".join(show(m)))
    return OK


def check(args: argparse.Namespace) -> int:
    """Every problem of a machine file, or that there is none."""
    from .. import machine

    problems = machine.check(args.name)
    if args.json:
        print(json.dumps([{"line": p.line, "code": p.code, "message": p.message, "hint": p.hint} for p in problems], indent=1))
    elif problems:
        for p in problems:
            print(p, file=sys.stderr)
    else:
        print(f"{args.name}: no problems found")
    return USER_ERROR if problems else OK


def show(m: Machine) -> list[str]:
    """A machine as people read it: what there is, its memories, and where the figures come from."""
    what = f"{m.sms} SMs, {m.gpus} GPUs" if m.kind == "gpu" else f"{m.cores} cores, {m.numa_domains} NUMA domains"
    compute = (
        f"{units.rate(m.fp32_flops, 'FLOP/s')} f32, {units.rate(m.fp64_flops, 'FLOP/s')} f64, {units.size(m.shared_per_block)} shared memory per block"
        if m.kind == "gpu"
        else f"{m.isa}, {m.simd_bytes * 8}-bit vectors, {m.vector_registers} registers, {m.fma_per_cycle:g} FMA a cycle, exp {m.exp_cycles:g} cycles"
    )
    rows = [["memory", "size", "shared by", "bandwidth", "latency"]]
    rows += [[lv.name, units.size(lv.bytes), f"{lv.shared_by}", units.rate(lv.bandwidth, "B/s"), units.seconds(lv.latency)] for lv in m.levels]
    rows.append(["main", units.size(m.memory_bytes), f"{m.cores}", units.rate(m.memory_bandwidth, "B/s"), units.seconds(m.memory_latency)])
    origins = [f"{kind} {n}" for kind, n in Counter(p.kind for _, p in m.provenance).items()]
    built = f"{m.compiler.nvcc} -arch={m.arch}" if m.kind == "gpu" else f"{m.compiler.cc} -march={m.march}"
    text = labelled(
        [
            (m.name, f"{m.model}: {what}, {units.rate(m.clock_hz, 'Hz')}"),
            ("compute", compute),
            ("", columns(rows, right=frozenset([1, 2, 3, 4]))),
            ("compiler", built),
            ("figures", f"{', '.join(origins)} (moarw machine show {m.name} --json has them all)"),
        ]
    )
    return [text, *(["", "host", *show(m.host)] if m.host else [])]
