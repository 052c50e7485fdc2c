"""replay: records a history of actions in the follow store."""

import os
import signal
import stat
import sys
from collections.abc import Callable
from types import FrameType
from typing import BinaryIO, cast

import click

from feedstore.boards import Boards
from feedstore.follows.store import FollowStore
from workers.app import memory_tuning
from workers.app import replay as replaying
from workers.app.replay import ByteStream, InterruptedReplayError, Replayed
from workers.cli.output import ProgressLine, answer, note, plural
from workers.cli.session import REFUSED, MisusedError, Session, StoppedError, TryLaterError, json_option, pass_session
from workers.cli.signals import handled


@click.command(short_help="Record the actions of a file of JSON lines.")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option("--from-line", type=click.IntRange(1), default=1, help="Start at this line.  [default: 1]")
@json_option
@pass_session
def replay(session: Session, file: str, from_line: int, *, as_json: bool) -> None:
    """Record the actions of FILE (- for stdin), JSON lines, in order.

    \b
      {"type":"follow","ts":1341100972000,"follower":1,"user":2}
      {"type":"unfollow","ts":1341100973000,"follower":1,"board":8}
      {"type":"save_pin","ts":1341100974000,"pin":7,"owner":2,"board":8}
      {"type":"delete_pin","ts":1341100975000,"pin":7}
      {"type":"reorder_pin","ts":1341100976000,"board":8,"pin":7,"before":5,"after":3}

    A reorder names the pin above the new place (before), the one below it (after), or both; or "to": "top" or "bottom".
    A pin keeps its recorded time; everything else gets the store's clock, in the order of the lines. If a line is bad,
    the command reports its number on stderr, continues with the next line, and ends with the exit status 1. If the
    command is stopped, it prints the number of the line to continue from.

    \b
    Examples:
      feedctl replay actions.jsonl
      feedctl replay actions.jsonl --from-line 40001
      zcat actions.jsonl.gz | feedctl replay -
    """
    memory_tuning.relax()
    with session.follows() as follows:
        if file == "-":
            done = _replay(sys.stdin.buffer, follows, from_line)
        else:
            with open(file, "rb") as source:  # noqa: PTH123 - click gives a name
                done = _replay(source, follows, from_line)
    if from_line > done.lines + 1:  # one past the last is fine: a replay that stopped at the end continues there
        raise MisusedError(f"--from-line {from_line}: there are only {plural(done.lines, 'line')}")
    bad = f", {plural(done.bad, 'bad line')}" if done.bad else ""
    text = f"{plural(done.lines, 'line')}: {plural(done.recorded, 'action')} recorded{bad}"
    answer(vars(done), text, as_json=as_json, tell=note)
    if done.bad:
        sys.exit(REFUSED)


def _replay(source: BinaryIO, follows: FollowStore, from_line: int) -> Replayed:
    progress = ProgressLine("replay")
    total = _size(source)

    def show(done: Replayed, bytes_read: int) -> None:
        if progress.due():
            rate = done.recorded / max(0.001, progress.elapsed_s())
            share = min(1.0, bytes_read / total) if total else None
            progress.show(f"{done.lines:,} lines, {rate:,.0f} a second", share)

    def bad_line(number: int, reason: str) -> None:
        note(f"line {number}: {reason}")

    signals = _Signals(source)
    with handled(signals.note, signal.SIGINT, signal.SIGTERM):
        try:
            return replaying.replay(
                signals,
                follows,
                Boards(follows),
                from_line=from_line,
                bad_line=bad_line,
                progress=lambda done, bytes_read: signals.passed(show, done, bytes_read),
            )
        except InterruptedReplayError as error:
            # Whatever ends it, it says where to continue.
            by_ctrl_c = isinstance(error.__cause__, KeyboardInterrupt) and signals.came == signal.SIGINT
            raise (StoppedError if by_ctrl_c else TryLaterError)(
                f"{error}; stopped before line {error.next_line}, all lines before it are recorded:"
                f" continue with --from-line {error.next_line}"
            ) from error


class _Signals:
    """Input that ends at SIGINT or SIGTERM: between two batches, or while input is awaited. If the first signal
    interrupted a batch, it could be lost there, or leave the follow store in any state; a second signal does interrupt
    it.

    came: the signal that came, if any.
    """

    def __init__(self, source: BinaryIO) -> None:
        self.came: int | None = None
        self._source = source
        self._reading = False

    def read1(self, size: int) -> bytes:
        """Reads. Raises KeyboardInterrupt if a signal came."""
        self._reading = True
        try:
            self._refuse()
            return cast("ByteStream", self._source).read1(size)
        finally:
            self._reading = False

    def passed(self, show: Callable[[Replayed, int], None], done: Replayed, bytes_read: int) -> None:
        """Notes that a batch was recorded. Raises KeyboardInterrupt if a signal came."""
        show(done, bytes_read)
        self._refuse()

    def note(self, number: int, frame: FrameType | None) -> None:
        again = self.came is not None
        self.came = number
        if again or self._reading:
            signal.default_int_handler(number, frame)

    def _refuse(self) -> None:
        if self.came is not None:
            raise KeyboardInterrupt


def _size(source: BinaryIO) -> int:
    """The bytes of a file; 0 for anything else."""
    try:
        status = os.fstat(source.fileno())
    except OSError:
        return 0
    return status.st_size if stat.S_ISREG(status.st_mode) else 0
