"""Faults on one replica at a time, while actions are recorded: no page is wrong, status says so, its command heals.

A round records actions and lands them, harms one replica while no worker runs, and then asks: every page equals the
model, but for what it says itself that it may lack (`behind_ms`), whichever replica it comes from; if the replica lacks
anything, `status` exits with 1 and names it; the command that it prints heals it; and `verify` is clean then.
"""

import random
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from feedstore.app import config as configuration
from feedstore.app.services import open_service
from tests.cli.command import Cli

CAP: Final = 1_000
"""Of the homes, and the most entries of a page. A model may hold more."""
STATUS_S: Final = 5.0
USERS: Final = range(1, 13)
AUTHORS: Final = range(100, 105)
CLUSTERS: Final = ("a", "b")


class RoundError(AssertionError):
    """What did not hold; the message names round, seed and fault."""


class Faults(Protocol):
    """How the clusters of one kind of home are copied and harmed. kinds: those that `Rounds.run` knows by name are
    copies that are put back; all others are done at once.
    """

    kinds: Sequence[str]

    def copy(self, cluster: str) -> None:
        """Takes a copy, to be put back later; the one before it goes."""
        ...

    def harm(self, fault: str, cluster: str) -> str:
        """Returns what it did; REFUSED, if there is nothing to look at."""
        ...

    def move(self, cluster: str) -> None:
        """Gives the cluster another place in feed.toml."""
        ...


@dataclass
class Model:
    """What every feed must hold."""

    following: dict[int, set[int]] = field(default_factory=dict)
    pins: list[tuple[int, int, int]] = field(default_factory=list)
    """(created_ms, pin, author), oldest first."""
    recorded: list[tuple[int, int, int | None]] = field(default_factory=list)
    """Of each action: when it had been recorded, its author, and the follower if it is about an edge."""

    def feed(self, user: int) -> list[int]:
        wanted = self.following.get(user, set())
        return [pin for _, pin, author in reversed(self.pins) if author in wanted]

    def may_lack(self, user: int, since_ms: int) -> set[int]:
        """The pins in which a feed may differ that holds everything that was recorded before a time."""
        late = [(author, follower) for ms, author, follower in self.recorded if ms >= since_ms]
        authors = {author for author, follower in late if follower in {None, user}}
        return {pin for _, pin, author in self.pins if author in authors}

    def record(self, rng: random.Random, replay: Callable[[str], object]) -> None:
        """Some actions by chance. replay: records them, as lines."""
        lines = []
        actions: list[tuple[int, int | None]] = []
        for _ in range(rng.randrange(5, 25)):
            user, author = rng.choice(USERS), rng.choice(AUTHORS)
            kind = rng.choice(("follow", "unfollow", "save_pin", "save_pin"))
            following = self.following.setdefault(user, set())
            actions.append((author, None if kind == "save_pin" else user))
            if kind == "save_pin":
                pin = len(self.pins) + 1
                created_ms = 1_000 + pin
                self.pins.append((created_ms, pin, author))
                words = f'"pin":{pin},"owner":{author},"board":{author + 1_000},"ts":{created_ms}'
            else:
                (following.add if kind == "follow" else following.discard)(author)
                words = f'"follower":{user},"user":{author},"ts":{_now_ms()}'
            lines.append(f'{{"type":"{kind}",{words}}}\n')
        replay("".join(lines))
        ended_ms = _now_ms()
        self.recorded += [(ended_ms, author, follower) for author, follower in actions]

    def check_pages(self, home: Path, what: str) -> None:
        """Every page of a home is right, but for what it says that it may lack. Raises RoundError."""
        with open_service(configuration.load(home, {})) as service:
            for user in USERS:
                now_ms = _now_ms()
                page = service.page(user, CAP)
                found, wanted = [entry.pin for entry in page.entries], self.feed(user)
                if len(found) == CAP:
                    wanted = [pin for pin in wanted if pin >= found[-1]]
                # What was recorded a few seconds ago may be missing, if the page says that it may.
                since_ms = 0 if page.behind_ms is None else now_ms - page.behind_ms
                if not set(found) ^ set(wanted) <= self.may_lack(user, since_ms):
                    raise RoundError(f"{what}: user {user} got {found} from {page.served_by}, not {wanted}")


COPIED_ALIVE: Final = "copied alive"
PUT_BACK: Final = ("put back", "feeds put back", "progress put back")
"""A copy from a while ago is put back; of all tables, or of one. COPIED_ALIVE: a worker ran while it was taken."""
REFUSED: Final = "refused"


class Rounds:
    """One home, harmed again and again. rng: decides everything; the same one does the same rounds. status_s: what
    `status` may take.
    """

    def __init__(
        self, cli: Cli, faults: Faults, rng: random.Random, say: Callable[[str], None], status_s: float = STATUS_S
    ) -> None:
        self.cli = cli
        self._faults = faults
        self._rng = rng
        self._say = say
        self._status_s = status_s
        self._model = Model()
        self.noticed = 0

    def run(self, number: int, fault: str | None = None) -> None:
        """One round. fault: one of those that there are; by chance if it is not given. Raises RoundError."""
        fault, cluster = fault or self._rng.choice(self._faults.kinds), self._rng.choice(CLUSTERS)
        self._record()
        if fault == COPIED_ALIVE:
            with self.cli.worker():
                self._faults.copy(cluster)
                self._record()
        elif fault in PUT_BACK:
            self.cli.work()
            self._faults.copy(cluster)
            self._record()
        self.cli.work()
        harmed = self._faults.harm(fault, cluster)
        what = f"round {number}: {harmed} of {cluster}"
        if harmed == REFUSED:
            return
        self._model.check_pages(self.cli.home, what)
        began_s = time.monotonic()
        status = self.cli("status", "--json", code=None)
        took_s = time.monotonic() - began_s
        self._say(f"{what}: status {status.exit_code} in {took_s:.1f} s")
        if took_s > self._status_s:
            raise RoundError(f"{what}: status took {took_s:.1f} s")
        if status.exit_code:
            self.noticed += 1
            self._heal(what, cluster, self.cli("status", code=None).stdout)
        elif self.cli("verify", "--wait", 0, code=None).exit_code == 1:
            raise RoundError(f"{what}: status says nothing, and verify finds differences")
        self._check(what)

    def _record(self) -> None:
        self._model.record(self._rng, lambda lines: self.cli("replay", "-", stdin=lines))

    def _heal(self, what: str, cluster: str, said: str) -> None:
        line = next((line for line in said.splitlines() if line.startswith(f"cluster   {cluster}:")), "")
        command = re.search(r"feedctl --home \S+ (rebuild --all --cluster \w+|work)", line)
        if command is None:
            raise RoundError(f"{what}: status names no command: {said}")
        if "another namespace" in line:
            self._faults.move(cluster)
        words = command[1].split()
        self.cli.process("--log-level", "critical", *words, *(["--until-idle"] if words == ["work"] else []))

    def _check(self, what: str) -> None:
        self.cli.work()  # what pages have asked for
        verified = self.cli("verify", code=None)
        if verified.exit_code:
            raise RoundError(f"{what}: verify: {verified.stdout}{verified.stderr}")
        status = self.cli("status", code=None)
        if status.exit_code:
            raise RoundError(f"{what}: status is not well afterwards: {status.stdout}")
        self._model.check_pages(self.cli.home, what)


def _now_ms() -> int:
    return int(time.time() * 1_000)
