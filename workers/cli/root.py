"""The command `feedctl` itself: the options of all commands, and what becomes of errors."""

import os
import signal
import sys
from pathlib import Path
from typing import Any

import click

from feedstore.domain import InvalidValueError
from feedstore.feeds import MalformedCursorError
from feedstore.follows.port import FollowStoreError, OutdatedStoreError
from feedstore.serving.config import ConfigError
from feedstore.widecolumn import StoreError
from workers import home as home_files
from workers import logs, wiring
from workers.cli import (
    acting,
    administering,
    checking,
    demonstrating,
    drilling,
    letters,
    migrating,
    output,
    reading,
    reindexing,
    repairing,
    running,
    serving,
    showing,
    tables,
    verifying,
)
from workers.cli.output import OutputClosedError, OutputError, Progress, note
from workers.cli.session import CLOSED, NOT_NOW, MisusedError, NotNowError, RefusedError, Session
from workers.drills.hosts import HostError, NotDrillableError
from workers.home import HomeBusyError
from workers.queue.port import QueueError
from workers.runtime import WorkerFailedError
from workers.shown import shown
from workers.table_tool import TableToolError

_FAILED: dict[type[Exception], type[click.ClickException]] = {
    ConfigError: MisusedError,
    InvalidValueError: MisusedError,
    MalformedCursorError: MisusedError,
    HomeBusyError: NotNowError,
    NotDrillableError: NotNowError,
    HostError: NotNowError,
    FollowStoreError: NotNowError,
    QueueError: NotNowError,
    StoreError: NotNowError,
    TableToolError: RefusedError,
    WorkerFailedError: RefusedError,
    OutputError: NotNowError,
}
_EXPECTED = tuple(_FAILED)
_WORKERS = ("work", "relay", "expand", "write", "serve")


class _Feedctl(click.Group):
    """Turns errors that have a name into one line and an exit code. Anything else is a bug, and shows its traceback."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        output.fill_streams()
        try:
            try:
                with home_files.private():
                    return super().main(*args, **kwargs)
            finally:
                output.flush()
        except OutputClosedError:
            sys.exit(CLOSED)
        except OutputError as error:
            note(f"Error: {error}")
            sys.exit(NOT_NOW)
        except OSError as error:
            # Of help, or of an error's own line: neither is written by us.
            note(f"Error: the output cannot be written: {error.strerror}")
            sys.exit(NOT_NOW)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return self._invoke(ctx)
        except click.ClickException as error:
            error.message = shown(error.message)  # type: ignore[misc]  # final in its types only
            raise

    def _invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except OutputClosedError as error:
            raise click.exceptions.Exit(CLOSED) from error
        except OutdatedStoreError as error:
            raise NotNowError(wiring.outdated(error)) from error
        except _EXPECTED as error:
            Progress.clear_any()
            failed = next(failed for kind, failed in _FAILED.items() if isinstance(error, kind))
            raise failed(str(error)) from error
        except OSError as error:
            if error.filename is None:
                raise
            Progress.clear_any()
            raise NotNowError(f"{os.fsdecode(error.filename)}: {error.strerror}") from error
        except KeyboardInterrupt:
            # As shells have it, and no exit code of ours: nothing was found or refused.
            raise click.exceptions.Exit(128 + signal.SIGINT) from None
        finally:
            Progress.clear_any()

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(self.commands)


@click.group(cls=_Feedctl, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option(
    "--home",
    type=click.Path(path_type=Path, file_okay=False),
    default=lambda: Path(os.environ.get("FEED_HOME") or ".feed"),
    help="The directory of feed.toml and of the embedded stores.  [default: $FEED_HOME or ./.feed]",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error", "critical"]),
    help="What is logged to stderr.  [default: info for workers, warning for everything else]",
)
@click.version_option(package_name="feedstore", prog_name="feedctl")
@click.pass_context
def main(ctx: click.Context, home: Path, log_level: str | None) -> None:
    """Runs, watches and repairs following feeds.

    Data goes to stdout, everything else to stderr.

    \b
    Exit codes:
      0  done
      1  something was found or refused: differences, bad lines, dead letters, a worker that failed
      2  the command line or the configuration is wrong
      3  not now: a store is unavailable, a worker holds the home, or an answer cannot be had yet
    141  whoever reads the output closed it

    \b
    Begin with:
      feedctl init
      feedctl replay actions.jsonl
      feedctl work --until-idle
      feedctl feed 12
    """
    level = log_level or ("info" if ctx.invoked_subcommand in _WORKERS else "warning")
    ctx.obj = Session(home, level)
    logs.configure(level, Progress.clear_any)


for _module in (
    running,
    checking,
    serving,
    acting,
    reading,
    showing,
    verifying,
    repairing,
    reindexing,
    migrating,
    letters,
    administering,
    tables,
    drilling,
    demonstrating,
):
    for _command in _module.COMMANDS:
        main.add_command(_command)
