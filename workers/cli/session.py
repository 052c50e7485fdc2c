"""What every command works with: the home, its configuration, its ports."""

import contextlib
import os
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import click

from feedstore.domain import MAX_ID
from feedstore.serving import config as configuration
from feedstore.serving.config import Config, ConfigError
from feedstore.widecolumn import Access
from workers import home, wiring
from workers.wiring import Ports

DONE, REFUSED, USAGE, NOT_NOW, CLOSED = 0, 1, 2, 3, 141
"""The exit codes; `feedctl --help` says what they mean. CLOSED is a shell's own for a program that SIGPIPE ended."""


class RefusedError(click.ClickException):
    exit_code = REFUSED


class MisusedError(click.ClickException):
    exit_code = USAGE


class NotNowError(click.ClickException):
    exit_code = NOT_NOW


ID = click.IntRange(1, MAX_ID)

json_option = click.option("--json", "as_json", is_flag=True, help="Write JSON, for machines.")


class Session:
    """One call of the command line."""

    def __init__(self, path: Path, log_level: str) -> None:
        self.home = path
        self.log_level = log_level

    @cached_property
    def config(self) -> Config:
        """Raises ConfigError."""
        return configuration.load(self.home, os.environ)

    @contextlib.contextmanager
    def ports(self, access: Access, *, feeds: bool = True) -> Iterator[Ports]:
        """The ports of the home, closed at the end. access: `owner` only inside `lock`. feeds: `wiring.open_ports`."""
        ports = wiring.open_ports(self.config, access, feeds=feeds)
        try:
            yield ports
        finally:
            ports.close()

    @contextlib.contextmanager
    def lock(self) -> Iterator[int]:
        """Holds the home as its one worker; gives the lock's descriptor. Raises HomeBusyError."""
        with home.worker_lock(self.config.home) as lock:
            yield lock

    def worker(self) -> int | None:
        """The process id of the worker that holds the home (0: unknown), None where there is none."""
        return home.worker_runs(self.home)

    def worker_stopped(self) -> str | None:
        """Why the worker that holds the home has stopped by itself, None if it works or there is none."""
        return home.worker_stopped(self.home)

    def refuse_unknown(self, cluster: str) -> None:
        names = [each.name for each in self.config.clusters]
        if cluster not in names:
            raise ConfigError(f"no cluster {cluster!r}; there are: {', '.join(names)}")


pass_session = click.make_pass_decorator(Session)
