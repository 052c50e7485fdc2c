"""What every measurement gets: the actions, how often to repeat, scratch space, and a place to say how it goes."""

import tempfile
import time
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from bench import actions
from bench.deliveries import Deliveries, derive
from deploy.local.command import say


@dataclass(frozen=True)
class Context:
    """actions_file: JSON lines. scratch: a directory that is deleted at the end. build: one that stays, for what is
    expensive to set up. quick: shrink everything; the numbers then show only that the bench works.
    """

    actions_file: Path
    scratch: Path
    build: Path
    repeats: int
    quick: bool
    began: float = field(default_factory=time.monotonic)

    @cached_property
    def deliveries(self) -> Deliveries:
        self.say("deriving the deliveries of the actions")
        return derive(actions.read(self.actions_file))

    @cached_property
    def actions_count(self) -> int:
        with self.actions_file.open("rb") as lines:
            return sum(1 for _ in lines)

    def folder(self, name: str) -> Path:
        """An empty directory."""
        return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.scratch))

    def pick(self, full: int, quick: int) -> int:
        return quick if self.quick else full

    def say(self, what: str) -> None:
        say(f"[{time.monotonic() - self.began:7.1f} s] {what}")
