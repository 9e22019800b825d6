"""Terms, names, positions, free axes, text: the first stage, which imports no other."""

from .axes import alpha_normal, free_axes, reads, substitute, writes
from .evaluate import evaluate
from .kernel import Array, Kernel, Stage, Touch, emissions, loops
from .ops import I, axis, get, identity, ix, num, seq, size
from .syntax import parse_term, show
from .term import Path, Term, at, positions, put, replace, subterms

__all__ = [
    "Array", "I", "Kernel", "Path", "Stage", "Term", "Touch", "alpha_normal", "at", "axis", "emissions", "evaluate", "free_axes", "get", "identity",
    "ix", "loops",
    "num", "parse_term", "positions", "put", "reads", "replace", "seq", "show", "size", "substitute", "subterms", "writes",
]  # fmt: skip
