"""The session of a command: the home, its configuration, its ports."""

import contextlib
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import click

from feedstore.app import config as configuration
from feedstore.app.config import Config
from feedstore.app.tracing import open_tracer
from feedstore.domain import MAX_ID
from feedstore.errors import ConfigError
from feedstore.metering import Program
from feedstore.settings import duration_ms
from feedstore.tracing import UNTRACED, Tracer
from feedstore.widecolumn import Access, DamagedError
from workers.app import home, logs
from workers.cli.output import note

if TYPE_CHECKING:
    from feedstore.follows.store import FollowStore
    from workers.app.writer_process import WriterProcess
    from workers.following.ports import Ports

DONE, REFUSED, USAGE, NOT_NOW, BUG, INTERRUPTED, CLOSED = 0, 1, 2, 3, 70, 130, 141
"""The exit codes; `feedctl --help` says what they mean. BUG is EX_SOFTWARE of sysexits(3): an interpreter ends with 1
after an error that is not caught, as if something had been refused. The last two are those of shells for SIGINT and
SIGPIPE.
"""


class CommandRefusedError(click.ClickException):
    exit_code = REFUSED


class MisusedError(click.ClickException):
    exit_code = USAGE


class TryLaterError(click.ClickException):
    exit_code = NOT_NOW


class StoppedError(click.ClickException):
    """Ctrl-C ended a command that has something to say about it."""

    exit_code = INTERRUPTED


class Parsed(click.ParamType):  # type: ignore[type-arg]  # generic in some versions of click only
    """A value as a function reads it from its text. read: raises ValueError or ConfigError if it cannot."""

    def __init__(self, name: str, read: Callable[[str], object]) -> None:
        self.name = name
        self._read = read

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> object:
        try:
            return self._read(value) if isinstance(value, str) else value
        except (ValueError, ConfigError) as error:
            self.fail(str(error), param, ctx)


def end_if_gone(path: Path, lock: int) -> None:
    """Ends this process if the home that it holds as a worker was removed, or another one was put in its place. lock:
    the home's.

    Nothing is closed: RocksDB writes its last files by their names, and so into the home that is there now. Nothing is
    lost by that, as if the process were killed. The processes of writers end with this one.
    """
    if home.is_gone(path, lock):
        note(f"Error: {path} was removed or replaced while this worker held it: start the worker again")
        os._exit(USAGE)


def read_id(digits: str) -> int:
    """An id of a user, board or pin. Only ASCII digits: `1_0` and digits of other scripts are slips."""
    # The length is checked first: Python refuses to read a number of thousands of digits.
    if not (digits.isascii() and digits.isdecimal() and len(digits) < 20 and 0 < int(digits) <= MAX_ID):
        raise ValueError(f"expected an id, a whole number from 1 to 2^63-1, got {digits[:40]!r}")
    return int(digits)


ID = Parsed("id", read_id)
DURATION = Parsed("duration", duration_ms)
"""A duration, written as in feed.toml; its value is in ms."""


@contextlib.contextmanager
def naming_damage(cluster: str) -> "Iterator[None]":
    """If the cluster is damaged, the error names it, and the command that makes it again."""
    try:
        yield
    except DamagedError as error:
        from workers.following.groups import damaged_message  # noqa: PLC0415 - other commands do not wait for it

        raise DamagedError(damaged_message(cluster, str(error))) from error


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")


class Session:
    """One call of the command line."""

    def __init__(self, path: Path, log_level: str, *, is_named: bool = False) -> None:
        """is_named: whether the command line names the home."""
        self.home = path
        self.log_level = log_level
        self.is_named = is_named
        self._lock: int | None = None

    def go_to(self, path: Path) -> None:
        """Takes the home that is named after the command. Raises UsageError if another one was named before it."""
        if self.is_named and path != self.home:
            raise click.UsageError(f"--home names two homes, {self.home} and {path}: give one")
        self.home, self.is_named = path, True

    @cached_property
    def config(self) -> Config:
        """The home's configuration. Raises ConfigError."""
        return configuration.load(self.home, os.environ)

    def follows(self) -> "contextlib.closing[FollowStore]":
        """The follow store of the home, closed at the end: for commands that need nothing else."""
        from feedstore.app.wiring import clock_of, open_follows  # noqa: PLC0415 - other commands do not wait for it

        return contextlib.closing(open_follows(self.config, clock_of(self.config)))

    def ports(
        self,
        access: Access,
        clusters: Collection[str] | None = None,
        *,
        feeds: bool = True,
        tracer: Tracer = UNTRACED,
    ) -> "contextlib.closing[Ports]":
        """The ports of the home, closed at the end. access: `write` only inside `lock`. clusters: only these; None:
        all. feeds: whether feeds are read or written. tracer: gets the traces.
        """
        from workers.app import wiring  # noqa: PLC0415 - commands that only record do not wait for it

        return contextlib.closing(wiring.open_ports(self.config, access, clusters=clusters, feeds=feeds, tracer=tracer))

    @contextlib.contextmanager
    def working_ports(self, access: Access, program: Program, *, feeds: bool = True) -> "Iterator[Ports]":
        """The ports of the home for a program that works: its work is traced, if the configuration says so. program:
        its name in spans.
        """
        with contextlib.closing(open_tracer(self.config, program)) as tracer:
            logs.name_traces(tracer)
            with self.ports(access, feeds=feeds, tracer=tracer) as ports:
                yield ports

    @contextlib.contextmanager
    def lock(self) -> "Iterator[None]":
        """Holds the home as its one worker. Raises HomeBusyError."""
        with home.worker_lock(self.config.home) as lock:
            self._lock = lock
            try:
                yield
            finally:
                self._lock = None

    def end_if_gone(self) -> None:
        """Ends this process if it holds the home, and the home is gone: `end_if_gone`."""
        if self._lock is not None:
            end_if_gone(self.config.home, self._lock)

    def writers(self) -> "AbstractContextManager[Sequence[WriterProcess]]":
        """The processes of the writers, inside `lock` and before anything is opened: `writer_process.forked`."""
        from workers.app import writer_process  # noqa: PLC0415 - other commands do not wait for it

        return writer_process.forked(self.config, self.log_level)

    def worker(self) -> int | None:
        """The process id of the worker that holds the home (0: unknown); None if there is none."""
        return home.worker_runs(self.home)

    def worker_stopped(self) -> str | None:
        """Why the worker that holds the home has stopped by itself; None if it works or there is none."""
        return home.worker_stopped(self.home)

    def clusters(self, cluster: str | None) -> list[str]:
        """The clusters that `--cluster` means; without it all. Raises ConfigError: there is no such cluster."""
        return [each.name for each in self.config.clusters] if cluster is None else [self.config.cluster(cluster).name]


pass_session = click.make_pass_decorator(Session)
