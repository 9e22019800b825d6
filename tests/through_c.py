"""A program's text all the way to a loaded C kernel: search, replay, proof of every obligation, C, compiler."""

from __future__ import annotations

from pathlib import Path

from test_search import Machine

from moa_rewrite import build, emit, lang, proof, rules, search


def compiled(source: str, folder: Path, kernel: str | None = None, **sizes: int) -> build.LoadedKernel:
    """``sizes``: what cost is judged at, 64 for those not given."""
    k = lang.elaborate(lang.load(source), kernel)
    laws = rules.load()
    result = search.optimize(k, laws, Machine, {s: sizes.get(s, 64) for s in k.sizes}, search.Options(timeout=300))
    end = proof.replay(k, result.steps, laws)
    proof.discharge(end.onf, end.dnf, proof.Limits("c", 64))
    text = emit.print_c(emit.lower(result.kernel, "c"))
    return build.load(build.compile_c(text.c_text, text.h_text, folder, name=k.name), k, k.name)
