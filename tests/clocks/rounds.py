"""The clock of one process of an embedded home is off: no time steps, no page is wrong, nothing expires.

A round starts one process whose clock is off: a replay, a worker with all of its processes, or a server with a worker
in it. It lets that process work, housekeeping included, and ends it. From then on, at once: what a page says that it
may lack is all that it lacks; no watermark is ahead of the clock; `status` names the process and its offset; and
nothing has expired. A right worker then catches up, and `verify` finds nothing.
"""

import contextlib
import os
import random
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from feedstore.app import config as configuration
from tests.cli.command import Cli, eventually
from tests.replicas.rounds import Model, RoundError
from workers.app import wiring
from workers.following.topics import ACTIONS, DELIVERIES, RETRIES

PROCESSES: Final = ("replay", "worker", "server")
MINUTE_MS: Final = 60_000
DAY_MS: Final = 86_400_000
TRUE_MS: Final = 10_000
"""How far behind a cluster may be once the process is gone and all has landed."""


def library() -> Path | None:
    """The libfaketime for programs with threads; None if it is not installed (tests/clocks/install installs it)."""
    return next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)


def shifted(offset_ms: int) -> dict[str, str]:
    """The environment of a process whose clock is off. Its monotonic clocks are right, as after a step."""
    found = library()
    assert found is not None, "there is no libfaketime: tests/clocks/install installs it"
    return {
        "LD_PRELOAD": str(found),
        "FAKETIME": f"{offset_ms / 1_000:+.3f}",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "PYTHONPATH": str(Path(__file__).parent / "shifted"),
    }


class Rounds:
    """One home, whose processes have clocks that are off in turn. rng: decides what happens."""

    def __init__(self, home: Path, rng: random.Random, say: Callable[[str], None]) -> None:
        self.cli = Cli(home)
        self._rng = rng
        self._say = say
        self._model = Model()
        self._away = home.with_name("away")
        self.cli("init")
        shards = self._rng.choice((1, 3))
        self.cli.set("shards", "[" + ", ".join(f'"sqlite:data/follows-{n}.db"' for n in range(shards)) + "]")
        self.cli.set("tick", '"250ms"')
        self.cli.set("housekeeping", '"1s"')
        self._config = configuration.load(home, {})
        wiring.create(self._config)
        self._say(f"{shards} shards")

    def run(self, number: int, process: str | None = None, offset_ms: int | None = None) -> None:
        """One round. process: one of PROCESSES; by chance if it is not given, as the offset. Raises RoundError."""
        process = process or self._rng.choice(PROCESSES)
        if offset_ms is None:
            size = int(MINUTE_MS * (400 * DAY_MS / MINUTE_MS) ** self._rng.random())
            offset_ms = self._rng.choice((-1, 1)) * size
        away = self._rng.random() < 0.5
        what = f"round {number}: a {process} whose clock is {offset_ms / 1_000:+,.0f} s off" + ", b away" * away
        self._record()
        before = self._kept()
        with self._without_b() if away else contextlib.nullcontext():
            {"replay": self._replay, "worker": self._works, "server": self._serves}[process](offset_ms)
        self._check_now(what, offset_ms, before)
        with self._running("work"):
            self._record()
            eventually(lambda: self._landed("a", "b"), f"{what}: all has landed")
            self._model.check_pages(self.cli.home, what)
            verified = self.cli("verify", "--wait", "60", code=None)
        if verified.exit_code:
            raise RoundError(f"{what}: verify: {verified.stdout}{verified.stderr}")
        self._check_kept(what, before)
        self._say(f"{what}: all is well")

    # What a process does whose clock is off
    # ----------------------------------------------------------------------------------------------------------------

    def _replay(self, offset_ms: int) -> None:
        def replay(lines: str) -> None:
            process = self.cli.interpreter("replay", "-", stdin=subprocess.PIPE, env=os.environ | shifted(offset_ms))
            _, said = process.communicate(lines.encode())
            if process.returncode:
                raise RoundError(f"replay: {said.decode()}")

        self._model.record(self._rng, replay)

    def _works(self, offset_ms: int) -> None:
        with self._running("work", env=os.environ | shifted(offset_ms)):
            self._record()
            eventually(lambda: self._landed("a"), "a worker whose clock is off does its work")

    def _serves(self, offset_ms: int) -> None:
        with self._running("serve", "--port", "0", env=os.environ | shifted(offset_ms)):
            self._record()
            eventually(lambda: self._landed("a"), "a server whose clock is off does its work")

    # Right processes
    # ----------------------------------------------------------------------------------------------------------------

    def _record(self) -> None:
        self._model.record(self._rng, lambda lines: self.cli("replay", "-", stdin=lines))

    @contextlib.contextmanager
    def _running(self, *words: str, **popen: Any) -> Iterator[None]:
        """A worker, in a process of its own. It is killed, or told to end."""
        log = self.cli.home.with_name("log")
        with log.open("wb") as errors:
            process = self.cli.interpreter(*words, stdout=subprocess.DEVNULL, stderr=errors, **popen)
        try:
            yield
        except AssertionError as error:
            said = log.read_text()[-2_000:]
            raise RoundError(f"{error}: {self.cli('status', code=None).stdout} {process.poll()} {said}") from error
        else:
            if process.poll() is not None:
                raise RoundError(f"feedctl {words[0]} ended: {process.returncode}: {log.read_text()[-2_000:]}")
        finally:
            (process.kill if self._rng.random() < 0.3 else process.terminate)()
            process.wait(60)

    @contextlib.contextmanager
    def _without_b(self) -> Iterator[None]:
        data = self.cli.home / "data" / "b"
        data.rename(self._away)
        try:
            yield
        finally:
            self._away.rename(data)

    # What must hold
    # ----------------------------------------------------------------------------------------------------------------

    def _landed(self, *clusters: str) -> bool:
        """Whether everything that has been recorded has landed, as the watermarks say, which are of now."""
        found = self.cli.json("status", code=None)["clusters"]
        since_ms = self._model.recorded[-1][0]
        known = [found[name] for name in clusters if found[name]["behind_ms"] is not None]
        landed = [each for each in known if each["watermark_ms"] > since_ms and each["behind_ms"] < TRUE_MS]
        return len(landed) == len(clusters)

    def _check_now(self, what: str, offset_ms: int, before: dict[str, int]) -> None:
        """What holds at once when the process is gone."""
        self._model.check_pages(self.cli.home, what)
        self._check_kept(what, before)
        status = self.cli.json("status", code=1)
        if not any(abs(each["offset_ms"] - offset_ms) < 2_000 for each in status["clocks_off"]):
            raise RoundError(f"{what}: status names no such process: {status['clocks_off']}")
        now_ms = int(time.time() * 1_000)
        ahead = [each for each in status["clusters"].values() if (each["watermark_ms"] or 0) > now_ms]
        if ahead or status["clocks_ahead_ms"]:
            raise RoundError(f"{what}: ahead of the clock: {ahead} {status['clocks_ahead_ms']}")

    def _kept(self) -> dict[str, int]:
        """How much of everything that expires is there; less than before means that some has expired."""
        kept: dict[str, int] = {}
        for path in self._config.shard_files:
            with closing(sqlite3.connect(path)) as connection:
                for what in ("outbox", "keys", "refills", "followers"):
                    [kept[f"{path.name}: {what}"]] = connection.execute(f"SELECT count(*) FROM {what}").fetchone()
        with self.cli.ports() as ports:
            for topic in (ACTIONS, DELIVERIES, RETRIES):
                kept[f"earliest of {topic}"] = -sum(ports.queue.earliest(topic).values())
            kept["dead letters"] = ports.dead.count()
        return kept

    def _check_kept(self, what: str, before: dict[str, int]) -> None:
        if gone := {name: count for name, count in self._kept().items() if count < before[name]}:
            raise RoundError(f"{what}: something expired: {gone}, before {before}")
