"""Finds faults of a home before anything is written: `facts` gathers facts, and `policy` judges them."""

from workers.app.checks.facts import HomeFacts, gather
from workers.app.checks.policy import CHECKS, Check, CheckFinding, findings

__all__ = ["CHECKS", "Check", "CheckFinding", "HomeFacts", "findings", "gather"]
