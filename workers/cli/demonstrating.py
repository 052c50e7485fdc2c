"""demo: the main job, start to end, with every promise checked."""

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import click
import msgspec
from click.core import ParameterSource

from feedstore.serving.config import Config, ConfigError
from feedstore.serving.wiring import wall_ms
from workers import demo as demonstration
from workers import graph, home, logs, replay, wiring
from workers.cli import serving
from workers.cli.output import Progress, heading, note, say
from workers.cli.running import stopping
from workers.cli.session import RefusedError, Session, pass_session

_MONTH_MS = 30 * 86_400_000


@click.command()
@click.option(
    "--actions", "file", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Actions as for replay."
)
@click.option("--users", type=click.IntRange(2, 1_000_000), default=3_000, help="Users of the made-up graph.")
@click.option("--count", type=click.IntRange(1_000, 10_000_000), default=30_000, help="Actions of the made-up graph.")
@click.option("--seed", type=int, default=1, help="Another seed makes another graph.")
@click.option("--serve", is_flag=True, help="Serve its home at the end, until SIGINT or SIGTERM.")
@pass_session
@click.pass_context
def demo(
    ctx: click.Context, session: Session, file: Path | None, users: int, count: int, seed: int, *, serve: bool
) -> None:
    """Runs the main job on a made-up social graph, or on your actions, and shows what it promises.

    A graph goes through the whole pipeline into two replicas. Then: a feed; the same feed after an unfollow that is
    delivered before the follow; a replica that is taken away while the other serves; its return; every feed checked.
    Each promise is checked, and the exit status is 1 where one does not hold. The home is a new one in a temporary
    directory that is removed at the end; with --home it is made there, and kept.

    \b
    Examples:
      feedctl demo
      feedctl demo --actions actions.jsonl
      feedctl demo --serve
      feedctl --home /tmp/look demo --users 500 --seed 7
    """
    if ctx.find_root().get_parameter_source("home") is ParameterSource.COMMANDLINE:
        config = run(session.home, file, graph.Shape(users, count, seed))
        note(f"kept in {session.home}: feedctl --home {session.home} status")
        if serve:
            _serve(config)
        return
    directory = Path(tempfile.mkdtemp(prefix="feed-demo-"))
    try:
        config = run(directory / "home", file, graph.Shape(users, count, seed))
        if serve:
            _serve(config)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _serve(config: Config) -> None:
    """Where the usual port is taken, another one does."""
    with stopping() as stop:
        try:
            opened = serving.listening(config, "127.0.0.1", serving.PORT)
        except ConfigError:
            opened = serving.listening(config, "127.0.0.1", 0)
        with opened as listener:
            serving.run(config, listener, stop)


def run(path: Path, file: Path | None, shape: graph.Shape) -> Config:
    """Returns the configuration of the home that it made. Raises RefusedError where a promise does not hold."""
    level = click.get_current_context().find_root().params.get("log_level")
    # A replica is taken away on purpose: its writer would complain.
    logs.configure(level or "critical", Progress.clear_any)
    started_s = time.monotonic()
    config = home.create(path, os.environ)
    console = _Console()
    with home.worker_lock(path), contextlib.ExitStack() as stack:
        shown = demonstration.Demo(config, wiring.open_ports(config, "owner"), console.stage())
        stack.callback(shown.close)
        try:
            console.title("A made-up social graph" if file is None else f"The actions of {file}")
            console.total = _record(shown, file or _made_up(path / "actions.jsonl", shape), console)
            console.title("Through the pipeline: relay, expander, and a writer for each replica")
            shown.pipeline()
            user = shown.a_feed()
            shown.unfollow_before_follow(user)
            shown.replica_away(user)
            shown.verified()
        except demonstration.ClaimError as error:
            raise RefusedError(str(error)) from error
    console.title(f"Everything held, in {time.monotonic() - started_s:.0f} s")
    return config


def _made_up(path: Path, shape: graph.Shape) -> Path:
    now_ms = wall_ms()
    encoder = msgspec.json.Encoder()
    with path.open("wb") as out:
        for action in graph.actions(shape, now_ms - _MONTH_MS, now_ms):
            out.write(encoder.encode(graph.line(action, now_ms)) + b"\n")
    return path


def _record(shown: demonstration.Demo, path: Path, console: "_Console") -> int:
    """Replays a file; returns how many actions it recorded."""
    progress = Progress("  replay")
    size = max(1, path.stat().st_size)

    def show(done: replay.Replayed, bytes_read: int) -> None:
        if progress.due():
            progress.show(f"{done.recorded:,} actions", min(1.0, bytes_read / size))

    with path.open("rb") as source:
        done = replay.replay(
            source, shown.follows, bad_line=lambda number, reason: note(f"line {number}: {reason}"), progress=show
        )
    progress.clear()
    bad = f"; {done.bad:,} lines were refused" if done.bad else ""
    console.say(f"{done.recorded:,} actions recorded in {progress.elapsed_s():.1f} s{bad}")
    return done.recorded


class _Console:
    """Shows the demonstration on stdout, and how far it is on stderr."""

    def __init__(self) -> None:
        self.total = 1
        self._progress: Progress | None = None

    def stage(self) -> demonstration.Stage:
        return demonstration.Stage(self.title, self.say, self.claim, self.waiting)

    def title(self, text: str) -> None:
        self._clear()
        heading(text)

    def say(self, text: str) -> None:
        self._echo(f"  {text}")

    def claim(self, text: str) -> None:
        self._echo(text, click.style("  \N{CHECK MARK} ", fg="green"))

    def waiting(self, ask: Callable[[], dict[str, int]]) -> None:
        if self._progress is None:
            self._progress = Progress("  work", redraw_s=0.5)
        if self._progress.due():
            lags = ask()
            left = lags[wiring.RELAY] + lags[wiring.EXPANDER]
            on_their_way = "  ".join(f"{name} {lag:,}" for name, lag in lags.items())
            self._progress.show(f"to do: {on_their_way}", max(0.0, 1 - left / self.total))

    def _echo(self, text: str, mark: str = "") -> None:
        self._clear()
        say(text, mark)

    def _clear(self) -> None:
        Progress.clear_any()
        self._progress = None


COMMANDS = (demo,)
