"""demo: the main job from start to end, with every promise checked."""

import contextlib
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import click
import msgspec

from feedstore.app.config import Config
from feedstore.boards import Boards
from feedstore.clocks import wall_ms
from feedstore.errors import ConfigError
from workers.app import home, logs, replay, wiring
from workers.cli import serve
from workers.cli.demonstration import Console, Demo
from workers.cli.output import Heartbeat, ProgressLine, note
from workers.cli.session import Session, TryLaterError, pass_session
from workers.cli.signals import handled, stopping
from workers.following import synthetic_actions

_MONTH_MS = 30 * 86_400_000


@click.command(short_help="Run everything once on a made-up graph: start here.")
@click.option(
    "--actions",
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A file of actions, as for replay.",
)
@click.option(
    "--users", type=click.IntRange(2, 1_000_000), default=3_000, show_default=True, help="Users of the made-up graph."
)
@click.option(
    "--count",
    type=click.IntRange(1_000, 10_000_000),
    default=30_000,
    show_default=True,
    help="Actions of the made-up graph.",
)
@click.option("--seed", type=int, default=1, show_default=True, help="Seed of the made-up graph.")
@click.option("--serve", is_flag=True, help="Serve the home at the end, until SIGINT or SIGTERM.")
@pass_session
def demo(session: Session, file: Path | None, users: int, count: int, seed: int, *, serve: bool) -> None:
    """Run the main job on a made-up social graph, or on your actions, and show what it promises.

    A graph goes through the whole pipeline into two replicas. Then the demo shows: a feed; a board of that feed, whose
    pins are moved; the same feed after an unfollow that is delivered before its follow; one replica that is taken away
    while the other one serves, and that comes back; and a check of every feed. The exit status is 1 if a promise does
    not hold. The home is a temporary directory, which is removed at the end. With --home, the demo creates the home
    there and keeps it.

    \b
    Examples:
      feedctl demo
      feedctl demo --actions actions.jsonl
      feedctl demo --serve
      feedctl --home /tmp/look demo --users 500 --seed 7
    """
    if session.is_named:
        shown = run(session.home, file, synthetic_actions.Shape(users, count, seed))
        note(f"kept in {session.home}: feedctl status")
        if serve:
            _serve(shown)
        return
    directory = Path(tempfile.mkdtemp(prefix="feed-demo-"))
    with _ended_by_sigterm():
        try:
            shown = run(directory / "home", file, synthetic_actions.Shape(users, count, seed))
            if serve:
                _serve(shown)
        finally:
            shutil.rmtree(directory, ignore_errors=True)


@contextlib.contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Lets SIGTERM end the block with TryLaterError; by default no `finally` of it would run."""
    stopped: list[TryLaterError] = []

    def end(number: int, _: FrameType | None) -> None:
        stopped.append(TryLaterError(f"stopped by {signal.Signals(number).name}"))
        raise stopped[-1]

    with handled(end, signal.SIGTERM):
        try:
            yield
        except Exception as error:
            if not stopped or error is stopped[-1]:
                raise
            # The signal came inside something that cannot be interrupted (an import, say), which then failed otherwise.
            raise stopped[-1] from error


class Shown(NamedTuple):
    """A home that the demonstration made, and the user and the board that it showed."""

    config: Config
    user: int
    board: int


def _serve(shown: Shown) -> None:
    """Serves the home; if the usual port is taken, on another one."""
    config = shown.config
    Heartbeat.end_any()
    with stopping() as stop:
        try:
            opened = serve.listening(config, "127.0.0.1", serve.PORT)
        except ConfigError:
            opened = serve.listening(config, "127.0.0.1", 0)
        with opened as listener:
            site = f"http://127.0.0.1:{listener.getsockname()[1]}"
            note(f"what was shown: {site}/?user={shown.user} and {site}/?board={shown.board}")
            serve.run(config, listener, stop)


def run(path: Path, file: Path | None, shape: synthetic_actions.Shape) -> Shown:
    """Runs the demonstration. Raises CommandRefusedError if a promise does not hold."""
    level = click.get_current_context().find_root().params.get("log_level")
    # A replica is taken away on purpose: its writer would log that.
    logs.configure(level or "critical", ProgressLine.clear)
    started_s = time.monotonic()
    config = home.create(path, os.environ)
    console = Console()
    with (
        home.worker_lock(path),
        contextlib.closing(Demo(config, wiring.open_ports(config, "write"), console)) as shown,
    ):
        console.title("A made-up social graph" if file is None else f"The actions of {file}")
        console.total = _record(shown, file or _made_up(path / "actions.jsonl", shape), console)
        console.title("Through the pipeline: relay, expander, and a writer for each replica")
        shown.pipeline()
        user = shown.a_feed()
        board = shown.board_arranged(user)
        shown.unfollow_before_follow(user)
        shown.replica_away(user)
        shown.verified()
    console.title(f"Everything held, in {time.monotonic() - started_s:.0f} s")
    return Shown(config, user, board)


def _made_up(path: Path, shape: synthetic_actions.Shape) -> Path:
    now_ms = wall_ms()
    encoder = msgspec.json.Encoder()
    with path.open("wb") as out:
        for action in synthetic_actions.actions(shape, now_ms - _MONTH_MS, now_ms):
            out.write(encoder.encode(replay.line(action, now_ms)) + b"\n")
    return path


def _record(shown: Demo, path: Path, console: Console) -> int:
    """Replays a file; returns how many actions it recorded."""
    progress = ProgressLine("  replay")
    size = max(1, path.stat().st_size)

    def show(done: replay.Replayed, bytes_read: int) -> None:
        if progress.due():
            progress.show(f"{done.recorded:,} actions", min(1.0, bytes_read / size))

    with path.open("rb") as source:
        done = replay.replay(
            source,
            shown.follows,
            Boards(shown.follows),
            bad_line=lambda number, reason: note(f"line {number}: {reason}"),
            progress=show,
        )
    bad = f"; {done.bad:,} lines were refused" if done.bad else ""
    console.say(f"{done.recorded:,} actions recorded in {progress.elapsed_s():.1f} s{bad}")
    return done.recorded
