"""follow, unfollow, save-pin, delete-pin, replay: actions into the follow store. A worker does the rest."""

import os
import signal
import stat
import sys
from typing import BinaryIO, cast

import click

from feedstore.domain import Action, DeletePin, Follow, Followee, Pin, SavePin, Unfollow
from feedstore.follows.port import ActionRefusedError, FollowStore, Request
from feedstore.serving.wiring import open_follows, wall_ms
from workers import collector
from workers import replay as replaying
from workers.cli.output import Progress, emit_json, note, plural
from workers.cli.session import ID, REFUSED, NotNowError, RefusedError, Session, json_option, pass_session
from workers.replay import InterruptedReplayError, Replayed, Source

_key_option = click.option(
    "--key", help="With the same key, asking again does nothing twice and gives the first answer."
)


def _followee(user: int | None, board: int | None) -> Followee:
    if user is not None and board is None:
        return Followee("user", user)
    if board is not None and user is None:
        return Followee("board", board)
    raise click.UsageError("give either --user or --board")


def _record(session: Session, action: Action, key: str | None, done: str, *, as_json: bool) -> None:
    follows = open_follows(session.config, wall_ms)
    try:
        [answer] = follows.record([Request(action, key)])
    finally:
        follows.close()
    if isinstance(answer, ActionRefusedError):
        if as_json:
            emit_json({"refused": answer.reason, "message": str(answer)})
        raise RefusedError(f"refused ({answer.reason}): {answer}")
    if as_json:
        emit_json(answer)
    else:
        note(done if session.worker() is not None else f"{done}; it lands when a worker runs: feedctl work")


@click.command()
@click.argument("follower", type=ID)
@click.option("--user", type=ID, help="The user to follow.")
@click.option("--board", type=ID, help="The board to follow.")
@_key_option
@json_option
@pass_session
def follow(
    session: Session, follower: int, user: int | None, board: int | None, key: str | None, *, as_json: bool
) -> None:
    """Lets FOLLOWER follow a user or a board.

    \b
    Examples:
      feedctl follow 1 --user 2
      feedctl follow 1 --board 8 --key 5f0c
    """
    followee = _followee(user, board)
    _record(session, Follow(follower, followee), key, f"user {follower} follows {followee}", as_json=as_json)


@click.command()
@click.argument("follower", type=ID)
@click.option("--user", type=ID, help="The user to unfollow.")
@click.option("--board", type=ID, help="The board to unfollow.")
@_key_option
@json_option
@pass_session
def unfollow(
    session: Session, follower: int, user: int | None, board: int | None, key: str | None, *, as_json: bool
) -> None:
    """Lets FOLLOWER no longer follow a user or a board.

    \b
    Examples:
      feedctl unfollow 1 --user 2
    """
    followee = _followee(user, board)
    _record(session, Unfollow(follower, followee), key, f"user {follower} unfollows {followee}", as_json=as_json)


@click.command()
@click.argument("pin", type=ID)
@click.option("--owner", type=ID, required=True, help="The user who saves it.")
@click.option("--board", type=ID, required=True, help="The board that it is saved on.")
@click.option("--created-ms", type=ID, help="The pin's own time, ms since 1970.  [default: now]")
@_key_option
@json_option
@pass_session
def save_pin(
    session: Session, pin: int, owner: int, board: int, created_ms: int | None, key: str | None, *, as_json: bool
) -> None:
    """Saves PIN on a board.

    \b
    Examples:
      feedctl save-pin 7 --owner 2 --board 8
      feedctl save-pin 7 --owner 2 --board 8 --created-ms 1341100972000
    """
    action = SavePin(Pin(pin, owner, board, created_ms or wall_ms()))
    _record(session, action, key, f"pin {pin} is saved", as_json=as_json)


@click.command()
@click.argument("pin", type=ID)
@_key_option
@json_option
@pass_session
def delete_pin(session: Session, pin: int, key: str | None, *, as_json: bool) -> None:
    """Deletes PIN, for good.

    \b
    Examples:
      feedctl delete-pin 7
    """
    _record(session, DeletePin(pin), key, f"pin {pin} is deleted", as_json=as_json)


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option("--from-line", type=click.IntRange(1), default=1, help="Begin with this line.  [default: 1]")
@json_option
@pass_session
def replay(session: Session, file: str, from_line: int, *, as_json: bool) -> None:
    """Records the actions of FILE (- for stdin): JSON lines, in their order.

    \b
      {"type":"follow","ts":1341100972000,"follower":1,"user":2}
      {"type":"unfollow","ts":1341100973000,"follower":1,"board":8}
      {"type":"save_pin","ts":1341100974000,"pin":7,"owner":2,"board":8}
      {"type":"delete_pin","ts":1341100975000,"pin":7}

    A pin keeps its recorded time; everything else gets the store's clock, in the order of the lines. A bad line is
    reported with its number on stderr and does not stop the rest; the exit status is 1 then. If it is stopped, it says
    which line to go on with.

    \b
    Examples:
      feedctl replay actions.jsonl
      feedctl replay actions.jsonl --from-line 40001
      zcat actions.jsonl.gz | feedctl replay -
    """
    collector.relax()
    follows = open_follows(session.config, wall_ms)
    try:
        if file == "-":
            done = _replay(sys.stdin.buffer, follows, from_line)
        else:
            with open(file, "rb") as source:  # noqa: PTH123 - click gives a name
                done = _replay(source, follows, from_line)
    finally:
        follows.close()
    if as_json:
        emit_json({"lines": done.lines, "recorded": done.recorded, "bad": done.bad})
    else:
        bad = f", {plural(done.bad, 'bad line')}" if done.bad else ""
        note(f"{plural(done.lines, 'line')}: {plural(done.recorded, 'action')} recorded{bad}")
    if done.bad:
        sys.exit(REFUSED)


def _replay(source: BinaryIO, follows: FollowStore, from_line: int) -> Replayed:
    progress = Progress("replay")
    total = _size(source)

    def show(done: Replayed, bytes_read: int) -> None:
        if progress.due():
            rate = done.recorded / max(0.001, progress.elapsed_s())
            share = min(1.0, bytes_read / total) if total else None
            progress.show(f"{done.lines:,} lines, {rate:,.0f} a second", share)

    def bad_line(number: int, reason: str) -> None:
        note(f"line {number}: {reason}")

    # Ended either way, it says where to go on.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return replaying.replay(cast("Source", source), follows, from_line=from_line, bad_line=bad_line, progress=show)
    except InterruptedReplayError as error:
        raise NotNowError(
            f"{error}; stopped before line {error.next_line}, everything before it is done:"
            f" go on with --from-line {error.next_line}"
        ) from error
    finally:
        signal.signal(signal.SIGTERM, before)
        progress.clear()


def _size(source: BinaryIO) -> int:
    """The bytes of a file; 0 for anything else."""
    try:
        status = os.fstat(source.fileno())
    except OSError:
        return 0
    return status.st_size if stat.S_ISREG(status.st_mode) else 0


COMMANDS = (follow, unfollow, save_pin, delete_pin, replay)
