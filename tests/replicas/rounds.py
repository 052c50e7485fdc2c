"""Faults on one replica at a time, while actions are recorded: no page is wrong, status says so, its command heals.

A round records actions and lands them, harms one replica while no worker runs, and then asks: every page equals the
model, but for what it says itself that it may lack (`behind_ms`), whichever replica it comes from; if the replica lacks
anything, `status` exits with 1 and names it; the command that it prints heals it; and `verify` is clean then.
"""

import random
import re
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from feedstore.serving import config as configuration
from feedstore.serving.wiring import open_service
from feedstore.widecolumn import DeleteColumns
from tests.cli.command import Cli

STATUS_S: Final = 5.0
USERS: Final = range(1, 13)
AUTHORS: Final = range(100, 105)
CLUSTERS: Final = ("a", "b")
FAULTS: Final = ("put back", "copied alive", "deleted", "cut", "flipped", "emptied", "another's", "one url")


class RoundError(AssertionError):
    """What did not hold; the message names round, seed and fault."""


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


class Rounds:
    """One home, harmed again and again. rng: decides everything; the same one does the same rounds."""

    def __init__(self, home: Path, rng: random.Random, say: Callable[[str], None]) -> None:
        self.cli = Cli(home)
        self._rng = rng
        self._say = say
        self._model = Model()
        self._copy = home.with_name("copy")
        self.noticed = 0
        self.cli("init")
        self.cli.set("tick", '"50ms"')

    def run(self, number: int, fault: str | None = None) -> None:
        """One round. fault: one of FAULTS; by chance if it is not given. Raises RoundError."""
        fault, cluster = fault or self._rng.choice(FAULTS), self._rng.choice(CLUSTERS)
        self._record()
        if fault == "copied alive":
            with self.cli.worker():
                self._take_copy(cluster)
                self._record()
        elif fault == "put back":
            self.cli.work()
            self._take_copy(cluster)
            self._record()
        self.cli.work()
        harmed = self._harm(fault, cluster)
        what = f"round {number}: {harmed} of {cluster}"
        if fault == "one url":
            return
        self._check_pages(what)
        began_s = time.monotonic()
        status = self.cli("status", "--json", code=None)
        took_s = time.monotonic() - began_s
        self._say(f"{what}: status {status.exit_code} in {took_s:.1f} s")
        if took_s > STATUS_S:
            raise RoundError(f"{what}: status took {took_s:.1f} s")
        if status.exit_code:
            self.noticed += 1
            self._heal(what, cluster, self.cli("status", code=None).stdout)
        self._check(what)

    def _record(self) -> None:
        lines = []
        actions: list[tuple[int, int | None]] = []
        for _ in range(self._rng.randrange(5, 25)):
            user, author = self._rng.choice(USERS), self._rng.choice(AUTHORS)
            kind = self._rng.choice(("follow", "unfollow", "save_pin", "save_pin"))
            following = self._model.following.setdefault(user, set())
            actions.append((author, None if kind == "save_pin" else user))
            if kind == "save_pin":
                pin = len(self._model.pins) + 1
                created_ms = 1_000 + pin
                self._model.pins.append((created_ms, pin, author))
                words = f'"pin":{pin},"owner":{author},"board":{author + 1_000},"ts":{created_ms}'
            else:
                (following.add if kind == "follow" else following.discard)(author)
                words = f'"follower":{user},"user":{author},"ts":{_now_ms()}'
            lines.append(f'{{"type":"{kind}",{words}}}\n')
        self.cli("replay", "-", stdin="".join(lines))
        ended_ms = _now_ms()
        self._model.recorded += [(ended_ms, author, follower) for author, follower in actions]

    def _take_copy(self, cluster: str) -> None:
        shutil.rmtree(self._copy, ignore_errors=True)
        for _ in range(20):
            try:
                shutil.copytree(self._data(cluster), self._copy)
            except shutil.Error:  # a file went while its directory was copied
                shutil.rmtree(self._copy)
            else:
                return
        raise RoundError("no copy could be taken")

    def _data(self, cluster: str) -> Path:
        return self.cli.home / "data" / cluster

    def _harm(self, fault: str, cluster: str) -> str:
        """Returns what it did."""
        there = self._data(cluster)
        if fault in {"put back", "copied alive"}:
            shutil.rmtree(there)
            shutil.copytree(self._copy, there)
        elif fault == "another's":
            shutil.rmtree(there)
            shutil.copytree(self._data("b" if cluster == "a" else "a"), there)
        elif fault == "emptied":
            self._empty(cluster)
        elif fault == "one url":
            self._share_url()
        else:
            files = [file for file in sorted(there.iterdir()) if file.stat().st_size and file.name != "LOCK"]
            file = self._rng.choice(files)
            content = bytearray(file.read_bytes())
            if fault == "deleted":
                file.unlink()
            elif fault == "cut":
                file.write_bytes(content[: self._rng.randrange(len(content))])
            else:
                content[self._rng.randrange(len(content))] ^= 1 << self._rng.randrange(8)
                file.write_bytes(content)
            return f"{fault} {file.name}"
        return fault

    def _empty(self, cluster: str) -> None:
        with self.cli.ports(access="owner") as ports:
            feeds = ports.replicas[cluster].feeds
            for row, columns in list(feeds.scan()):
                newest = max(cell.timestamp for cell in feeds.cells(row))
                feeds.apply([DeleteColumns([(row, newest)], columns)])

    def _share_url(self) -> None:
        file = self.cli.home / configuration.FILE_NAME
        text = file.read_text()
        file.write_text(text.replace("rocksdb:data/b", "rocksdb:data/../data/a"))
        refused = self.cli("status", code=2).stderr
        file.write_text(text)
        if "a and b are one place" not in refused:
            raise RoundError(f"one url is not refused: {refused}")

    def _check_pages(self, what: str) -> None:
        config = configuration.load(self.cli.home, {})
        with open_service(config) as service:
            for user in USERS:
                now_ms = _now_ms()
                page = service.page(user, 1_000)
                found, wanted = [entry.pin for entry in page.entries], self._model.feed(user)
                # What was recorded a few seconds ago may be missing, if the page says that it may.
                since_ms = 0 if page.behind_ms is None else now_ms - page.behind_ms
                if not set(found) ^ set(wanted) <= self._model.may_lack(user, since_ms):
                    raise RoundError(f"{what}: user {user} got {found} from {page.served_by}, not {wanted}")

    def _heal(self, what: str, cluster: str, said: str) -> None:
        line = next((line for line in said.splitlines() if line.startswith(f"cluster   {cluster}:")), "")
        command = re.search(r"feedctl (rebuild --all --cluster \w+|work)", line)
        if command is None:
            raise RoundError(f"{what}: status names no command: {said}")
        words = command[1].split()
        self.cli("--log-level", "critical", *words, *(["--until-idle"] if words == ["work"] else []))

    def _check(self, what: str) -> None:
        self.cli.work()  # what pages have asked for
        verified = self.cli("verify", code=None)
        if verified.exit_code:
            raise RoundError(f"{what}: verify: {verified.stdout}{verified.stderr}")
        status = self.cli("status", code=None)
        if status.exit_code:
            raise RoundError(f"{what}: status is not well afterwards: {status.stdout}")
        self._check_pages(what)


def _now_ms() -> int:
    return int(time.time() * 1_000)
