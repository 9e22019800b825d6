"""Certificates, the checker that replays them, and the obligations an operational form must meet. docs/trust.md says what is trusted."""

from .certificate import Certificate, kernel_from_json, kernel_to_json, to_json
from .certify import certify, discharge
from .checker import CheckReport, check, replay
from .obligations import Obligation, obligations
from .solver import Verdict, prove, prove_all
from .storage import Limits

__all__ = [
    "Certificate", "CheckReport", "Limits", "Obligation", "Verdict", "certify", "check", "discharge", "kernel_from_json", "kernel_to_json",
    "obligations", "prove", "prove_all", "replay", "to_json",
]  # fmt: skip
