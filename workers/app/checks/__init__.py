"""Finds faults of a home before anything is written: `facts` gathers facts, and `policy` judges them."""

from workers.app.checks.facts import HomeFacts, files_of, gather
from workers.app.checks.policy import CHECKS, Check, CheckFinding, findings, open_to_others

__all__ = ["CHECKS", "Check", "CheckFinding", "HomeFacts", "files_of", "findings", "gather", "open_to_others"]
