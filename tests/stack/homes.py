"""What works on homes of the real servers, and what must hold there."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import MappingProxyType
from typing import Any

from deploy.local import NAMES, Stack, logs
from feedstore.app import config as configuration
from feedstore.app.config import Config
from feedstore.follows.port import FollowStoreUnavailableError
from feedstore.widecolumn import UnavailableError
from feedstore.widecolumn.progress import Progress
from tests.cli import command
from tests.cli.command import FEEDCTL, Cli
from workers.following import landed as of_home
from workers.following.ports import Ports
from workers.queue.port import QueueUnavailableError

DEADLINE_S = 180.0
NOT_NOW = (FollowStoreUnavailableError, QueueUnavailableError, UnavailableError)
CLUSTERS = ("a", "b")

_SHOWN_LINES = 25


def eventually(holds: Callable[[], Any], what: str) -> Any:
    """What `holds` returns, once that is true. What is unavailable is asked again."""

    def found() -> Any:
        with suppress(*NOT_NOW):
            return holds()
        return None

    return command.eventually(found, what, DEADLINE_S)


def config_of(cli: Cli) -> Config:
    return configuration.load(cli.home, {})


def exported(cli: Cli, cluster: str) -> bytes:
    return cli("export", "--cluster", cluster).stdout_bytes


def replay(cli: Cli, lines: Sequence[bytes]) -> None:
    cli("replay", "-", stdin=b"\n".join(lines) + b"\n")


def check(cli: Cli, wanted: bytes) -> None:
    """Nothing is missing, nothing is extra, the clusters are equal."""
    assert "no difference" in cli("verify").stderr
    for cluster in CLUSTERS:
        assert_same(exported(cli, cluster), wanted, f"cluster {cluster}")


def assert_same(found: bytes, wanted: bytes, what: str) -> None:
    """Byte for byte; says where, instead of showing megabytes."""
    if found == wanted:
        return
    have, must = found.splitlines(), wanted.splitlines()
    pairs = zip(have, must, strict=False)
    number = next((at for at, (one, other) in enumerate(pairs) if one != other), min(len(have), len(must)))
    raise AssertionError(
        f"{what}: {len(have)} feeds instead of {len(must)}; the first difference is in line {number + 1}:"
        f" {have[number : number + 1]} instead of {must[number : number + 1]}"
    )


def landed(ports: Ports, clusters: Sequence[str] = CLUSTERS) -> None:
    """Returns when everything that was recorded is in these clusters, as their watermarks say (rule 10)."""
    until_ms = eventually(ports.follows.now, "the follow store has a time")
    for cluster in clusters:
        eventually(
            lambda cluster=cluster: watermark(ports, cluster) > until_ms,
            f"everything lands in {cluster}; waiting: {lags(ports)}",
        )


def lags(ports: Ports) -> dict[str, int] | str:
    try:
        return of_home.lags(ports)
    except NOT_NOW as error:
        return str(error)


def watermark(ports: Ports, cluster: str) -> int:
    return Progress(ports.replicas[cluster].progress).watermark() or 0


class Part:
    """One of feedctl's worker processes, which can be started again. environ: besides that of the tests. code: of the
    process.
    """

    def __init__(
        self,
        cli: Cli,
        name: str,
        *words: str,
        environ: Mapping[str, str] = MappingProxyType({}),
        code: str = FEEDCTL,
    ) -> None:
        self.name = name
        self.log = cli.home.parent / f"{name}.log"
        self._environ = {**os.environ, **environ}
        self._command = [sys.executable, "-c", code, "--home", str(cli.home), "--log-level", "info", *words]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        assert not self.running(), self.name
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._environ
            )

    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def status(self) -> int | None:
        """Its exit status; None if it runs or was never started."""
        return None if self._process is None else self._process.poll()

    def gained(self) -> int:
        """How often it was given partitions, as its log says."""
        return sum(bool(event["partitions"]) for event in self._events("partitions.gained"))

    def waits(self) -> int:
        """How often it could not reach a server when it was started, as its log says."""
        return sum(1 for _ in self._events("start.waits"))

    def gave_up(self) -> int:
        """How often it had to leave partitions to others."""
        return sum(bool(event["partitions"]) for event in self._events("partitions.given_up"))

    def _events(self, name: str) -> Iterator[dict[str, Any]]:
        """Libraries may write into the log too, and its last line may be half written."""
        for line in self.log.read_text(errors="replace").splitlines():
            with suppress(json.JSONDecodeError):
                event = json.loads(line)
                if isinstance(event, dict) and event.get("event") == name:
                    yield event

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        assert self.running(), f"{self.name} has ended by itself"
        self._process.send_signal(number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        assert self._process is not None
        assert self._process.wait(DEADLINE_S) == -signal.SIGKILL

    def end(self) -> int:
        """Asks it to end, and returns its exit status."""
        self.signal(signal.SIGTERM)
        assert self._process is not None
        return self._process.wait(DEADLINE_S)

    def remove(self) -> None:
        """Whatever it does."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()


def parts_of(cli: Cli) -> dict[str, Part]:
    """A process for each part of a worker, by the name of what it works off."""
    return {
        "relay": Part(cli, "relay", "relay"),
        "expander": Part(cli, "expander", "expand"),
        "writer-a": Part(cli, "writer-a", "write", "--cluster", "a"),
        "writer-b": Part(cli, "writer-b", "write", "--cluster", "b"),
    }


@contextmanager
def running(parts: Sequence[Part]) -> Iterator[None]:
    """All of them run; none is left behind."""
    try:
        for part in parts:
            part.start()
        yield
    finally:
        for part in parts:
            part.remove()


@contextmanager
def telling(stack: Stack, parts: Sequence[Part] = ()) -> Iterator[None]:
    """A failure shows how the logs end."""
    try:
        yield
    except BaseException:
        for name, log in [*((part.name, part.log) for part in parts), *((name, stack.log(name)) for name in NAMES)]:
            print(f"--- {name}: the end of {log}\n{logs.tail(log, _SHOWN_LINES)}")
        raise
