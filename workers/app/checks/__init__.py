"""Faults of a home, found before anything is written: the facts that are looked at (`facts`), and their verdicts
(`policy`).
"""

from workers.app.checks.facts import HomeFacts, gather
from workers.app.checks.policy import CHECKS, Check, CheckFinding, findings

__all__ = ["CHECKS", "Check", "CheckFinding", "HomeFacts", "findings", "gather"]
