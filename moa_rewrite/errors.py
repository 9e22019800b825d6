"""The one exception for a user's mistake, and the exit codes.

``file:line:col: error[MOAnnnn]: message``, then the two things that disagree, a witness, and what to try. docs/errors.md lists the codes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

OK, USER_ERROR, REFUTED, UNDECIDED, FAULT = 0, 1, 2, 3, 4


@dataclass
class MoaError(Exception):
    """A clear refusal. ``code`` is the number in ``MOAnnnn``; ``notes`` are lines such as the two shapes and their places."""

    code: int
    message: str
    file: str = ""
    line: int = 0
    col: int = 0
    notes: list[str] = field(default_factory=list)
    witness: str = ""
    hint: str = ""
    exit_code: int = USER_ERROR

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.col}: " if self.line else (f"{self.file}: " if self.file else "")
        lines = [f"{place}error[MOA{self.code:04d}]: {self.message}", *[f"  {n}" for n in self.notes]]
        if self.witness:
            lines.append(f"  witness: {self.witness}")
        if self.hint:
            lines.append(f"  try: {self.hint}")
        return "\n".join(lines)
