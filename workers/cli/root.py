"""The command `feedctl` itself: the options of all commands, and how errors end them."""

import difflib
import errno
import faulthandler
import os
import signal
import sys
import traceback
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource

from feedstore.domain import InvalidValueError
from feedstore.domain.cursors import MalformedCursorError
from feedstore.errors import MisconfiguredError, NeverError, NotNowError, PortError
from workers.app import hints, logs, memory_tuning
from workers.app import home as home_files
from workers.app.hints import shown
from workers.cli import output
from workers.cli.output import Heartbeat, OutputClosedError, OutputError, ProgressLine, note
from workers.cli.session import (
    BUG,
    CLOSED,
    INTERRUPTED,
    NOT_NOW,
    USAGE,
    CommandRefusedError,
    MisusedError,
    Session,
    TryLaterError,
)
from workers.pipeline.runtime import WorkerFailedError
from workers.queue.port import PositionLostError

_FAILED: Final[dict[type[Exception], type[click.ClickException]]] = {
    MisconfiguredError: MisusedError,  # some are a NotNowError as well: running processes wait for the operator
    NotNowError: TryLaterError,
    NeverError: CommandRefusedError,
    PositionLostError: CommandRefusedError,
    PortError: TryLaterError,
    InvalidValueError: MisusedError,
    MalformedCursorError: MisusedError,
    WorkerFailedError: CommandRefusedError,
    OutputError: TryLaterError,
}
"""The exception that ends a command after an error: the first class that fits counts."""
_EXPECTED = tuple(_FAILED)
_WORKERS = ("work", "relay", "expand", "write", "serve")
_FORKING = ("rebuild", "repair")
"""Commands that fork before there are threads, and begin their `heartbeat` only afterwards."""
_STDERR: Final = 2
"""A handler of faulthandler writes to a descriptor, because the interpreter may hang, and a stream may have none."""
SECTIONS: Final = {
    "Run": ("init", "work", "relay", "expand", "write", "serve", "demo"),
    "Act": ("follow", "unfollow", "save-pin", "delete-pin", "reorder-pin", "replay"),
    "Look": ("feed", "board", "export", "status", "top", "canary", "check", "verify"),
    "Repair": ("repair", "rebuild", "rewind", "reindex", "reconcile", "dead"),
    "Operate": ("catalog", "schema", "topics", "table", "trim", "migrate", "clock", "token", "drill"),
}
"""Every command, as `feedctl --help` groups them."""
_MODULES: Final = {
    **dict.fromkeys(("relay", "expand", "write"), "work"),
    **dict.fromkeys(("follow", "unfollow", "save-pin", "delete-pin"), "actions"),
    "drill": "drills",
}
"""The module of a command, if it is not in the module of its own name."""


class _Feedctl(click.Group):
    """Turns known errors into one line and an exit code. Any other error is a bug, and shows its traceback."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        output.fill_streams()
        if not faulthandler.is_enabled():  # a crash in native code says at which line each thread was
            faulthandler.enable(_STDERR)
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
        except FileNotFoundError as error:
            note(f"Error: {error.filename or 'the directory in which this was called'}: {error.strerror}")
            sys.exit(USAGE)
        except OSError as error:
            # From help, or from an error's own line: click writes both.
            note(f"Error: the output cannot be written: {error.strerror}")
            sys.exit(NOT_NOW)
        except Exception:  # noqa: BLE001 - whatever it is: programs that start this one must know it from a refusal
            traceback.print_exc()
            sys.exit(BUG)
        finally:
            hints.forget_home()

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        with output.written():  # --help and --version write at once
            return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return self._invoke(ctx)
        except click.ClickException as error:
            error.message = shown(hints.said(error.message))  # type: ignore[misc]  # final in its types only
            raise

    def _invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (OutputClosedError, BrokenPipeError) as error:  # click writes the help of a command
            raise click.exceptions.Exit(CLOSED) from error
        except _EXPECTED as error:
            ProgressLine.clear()
            failed = next(failed for kind, failed in _FAILED.items() if isinstance(error, kind))
            raise failed(str(error)) from error
        except OSError as error:
            if error.filename is not None:
                what = os.fsdecode(error.filename)
            elif error.errno in (errno.EMFILE, errno.ENFILE):
                what = "raise the limit of open files (ulimit -n)"
            else:
                raise
            ProgressLine.clear()
            raise TryLaterError(f"{what}: {error.strerror}") from error
        except KeyboardInterrupt:
            # The shells' exit code, not one of ours: nothing was found or refused.
            raise click.exceptions.Exit(INTERRUPTED) from None
        finally:
            ProgressLine.clear()

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            if near := difflib.get_close_matches(args[0], self.list_commands(ctx), n=1):
                error.message += f" Did you mean '{near[0]}'?"  # type: ignore[misc]  # final in its types only
            raise

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return [name for names in SECTIONS.values() for name in names]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return _command(cmd_name) if cmd_name in self.list_commands(ctx) else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        limit = formatter.width - 6 - max(map(len, self.list_commands(ctx)))
        for title, names in SECTIONS.items():
            found = [each for name in names if (each := self.get_command(ctx, name)) is not None]
            with formatter.section(title):
                formatter.write_dl([(each.name or "", each.get_short_help_str(limit)) for each in found])


@cache
def _command(name: str) -> click.Command:
    """A command of SECTIONS. Its module is loaded only now, so that no command waits for the modules of others."""
    function = name.replace("-", "_")
    with memory_tuning.loading():
        module = import_module(f"workers.cli.{_MODULES.get(name, function)}")
    found: click.Command = getattr(module, function)
    _take_home(found)
    return found


def _take_home(command: click.Command) -> None:
    """Adds the option --home to a command and to those below it."""

    def go_to(ctx: click.Context, _: click.Parameter, home: Path | None) -> None:
        session = ctx.find_object(Session)
        if home is not None and session is not None:  # there is none while a shell completes a line
            session.go_to(home)
            _name_home(home, is_named=True)

    path = click.Path(path_type=Path, file_okay=False)
    option = click.Option(
        ["--home"],
        type=path,
        expose_value=False,
        callback=go_to,
        help="The home; it may also be given before the command.",
    )
    command.params.append(option)
    if isinstance(command, click.Group):
        for each in command.commands.values():
            _take_home(each)


def _name_home(home: Path, *, is_named: bool) -> None:
    hints.name_home(home, [name for names in SECTIONS.values() for name in names], is_named=is_named)


@click.group(cls=_Feedctl, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option(
    "--home",
    type=click.Path(path_type=Path, file_okay=False),
    default=lambda: Path(os.environ.get("FEED_HOME") or ".feed"),
    help="The directory of feed.toml and the embedded stores.  [default: $FEED_HOME or ./.feed]",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error", "critical"]),
    help="The lowest level that is logged to stderr.  [default: info for workers, warning for everything else]",
)
@click.version_option(package_name="feedstore", prog_name="feedctl")
@click.pass_context
def main(ctx: click.Context, home: Path, log_level: str | None) -> None:
    """Run, watch and repair following feeds.

    Data goes to stdout, everything else to stderr.

    \b
    Exit codes:
      0  done
      1  something was found or refused: differences, bad lines, dead letters, a worker that failed
      2  the command line or the configuration is wrong, or a store is lost, damaged or of another version
      3  try later: a store is unavailable, a worker holds the home, or there is no answer yet
     70  a bug of the program, with its traceback on stderr
    130  stopped by Ctrl-C
    141  the reader of the output closed it

    \b
    Start with:
      feedctl init
      feedctl replay actions.jsonl
      feedctl work --until-idle
      feedctl feed 12
    """
    level = log_level or ("info" if ctx.invoked_subcommand in _WORKERS else "warning")
    is_named = ctx.get_parameter_source("home") is ParameterSource.COMMANDLINE
    ctx.obj = Session(home, level, is_named=is_named)
    _name_home(home, is_named=is_named)
    logs.configure(level, ProgressLine.clear)
    if ctx.invoked_subcommand in _WORKERS:
        faulthandler.register(signal.SIGQUIT, _STDERR)  # the same on request, as a JVM does; it continues
    if ctx.invoked_subcommand is not None and ctx.invoked_subcommand not in (*_WORKERS, *_FORKING):
        ctx.with_resource(Heartbeat(ctx.invoked_subcommand))
