"""One who loads one generation of ads after the other and puts others in use, whatever is away."""

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Final

from tests import threads
from tests.cli.command import FEEDCTL, Cli
from tests.soak.records import ADS, Ads, lines_of
from workers.cli.session import NOT_NOW, REFUSED

_PAUSE_S: Final = (0.5, 12.0)
_ENDS_S: Final = 300.0
_EXPECTED: Final = frozenset({0, REFUSED, NOT_NOW})
"""Exit statuses: it is done, it was refused or is done in one cluster, or a cluster is away."""


@dataclass
class Operator:
    """begun: how many commands. loaded, used: how many of them succeeded in each cluster. wrong: how others ended."""

    cli: Cli
    ads: Ads
    clock: Callable[[], int]
    begun: int = 0
    loaded: int = 0
    used: int = 0
    wrong: list[str] = field(default_factory=list)

    @contextmanager
    def running(self, seed: int) -> Iterator[None]:
        """Loads a generation, and then works until the end of the block."""
        ended, rng = threading.Event(), Random(f"{seed} operator")
        self._load()  # makes the tables, if nothing has

        def run() -> None:
            while not ended.wait(rng.uniform(*_PAUSE_S)):
                rng.choice([self._load, self._roll_back, lambda: self._use(rng)])()

        with threads.running([threading.Thread(target=run)], ended):
            yield

    def _load(self) -> None:
        as_of_ms = self.clock()
        file = self.cli.home.parent / "ads.jsonl"
        file.write_text(lines_of(self.ads.batch(as_of_ms)))
        self.loaded += self._does("load", ADS, str(file), "--as-of", str(as_of_ms))

    def _roll_back(self) -> None:
        self.used += self._does("rollback", ADS)

    def _use(self, rng: Random) -> None:
        """Another generation of any catalog, in one cluster."""
        clusters = [json.loads(line) for line in self._said("list", "--json").stdout.splitlines()]
        there = [each for each in clusters if each.get("generations")]
        if not there:
            return
        cluster = rng.choice(there)
        generation = rng.choice(cluster["generations"])["id"]
        self.used += self._does("use", cluster["catalog"], generation, "--cluster", cluster["cluster"])

    def _does(self, *words: str) -> bool:
        """Whether a command of the catalog has succeeded."""
        done = self._said(*words)
        if done.returncode not in _EXPECTED:
            self.wrong.append(f"catalog {' '.join(words)}: status {done.returncode}: {done.stderr[-1_000:]}")
        return done.returncode == 0

    def _said(self, *words: str) -> "subprocess.CompletedProcess[str]":
        # In an interpreter of its own: a runner of commands in this process would take the output of all threads.
        self.begun += 1
        line = [sys.executable, "-c", FEEDCTL, "--home", str(self.cli.home), "catalog", *words]
        return subprocess.run(line, capture_output=True, text=True, timeout=_ENDS_S, check=False)
