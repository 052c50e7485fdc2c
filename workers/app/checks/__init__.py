"""What can be wrong with a home before anything is written: what is looked at (`facts`), and what is said of it
(`policy`).
"""

from workers.app.checks.facts import HomeFacts, gather
from workers.app.checks.policy import CHECKS, Check, CheckFinding, findings

__all__ = ["CHECKS", "Check", "CheckFinding", "HomeFacts", "findings", "gather"]
