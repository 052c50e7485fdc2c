"""follow, unfollow, save-pin, delete-pin: actions by hand."""

import click

from feedstore.app.wiring import clock_of
from feedstore.domain import (
    MAX_ID,
    Action,
    DeletePin,
    Follow,
    Followee,
    Pin,
    SavePin,
    Unfollow,
    refuse_reserved,
)
from feedstore.follows.port import ActionRefusedError, Request
from workers.cli.output import emit_json, note
from workers.cli.session import ID, CommandRefusedError, Session, json_option, pass_session

_key_option = click.option("--key", help="Idempotency key: a command repeated with the same key has no second effect.")


def _followee(user: int | None, board: int | None) -> Followee:
    if user is not None and board is None:
        return Followee("user", user)
    if board is not None and user is None:
        return Followee("board", board)
    raise click.UsageError("give either --user or --board")


def _record(
    session: Session, action: Action, key: str | None, done: str, *, as_json: bool, is_dated: bool = True
) -> None:
    refuse_reserved(action)
    with session.follows() as follows:
        [answer] = follows.record([Request(action, key, is_dated)])
    if isinstance(answer, ActionRefusedError):
        if as_json:
            emit_json({"refused": answer.reason, "message": str(answer)})
        raise CommandRefusedError(f"refused ({answer.reason}): {answer}")
    if as_json:
        emit_json(answer)
    else:
        note(done if session.worker() is not None else f"{done}; a worker puts it into feeds: feedctl work")


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
    """Make FOLLOWER follow a user or a board.

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
    """Make FOLLOWER unfollow a user or a board.

    \b
    Examples:
      feedctl unfollow 1 --user 2
    """
    followee = _followee(user, board)
    _record(session, Unfollow(follower, followee), key, f"user {follower} unfollows {followee}", as_json=as_json)


@click.command()
@click.argument("pin", type=ID)
@click.option("--owner", type=ID, required=True, help="The user who saves the pin.")
@click.option("--board", type=ID, required=True, help="The board to save it on.")
@click.option("--created-ms", type=click.IntRange(1, MAX_ID), help="The pin's own time, ms since 1970.  [default: now]")
@_key_option
@json_option
@pass_session
def save_pin(
    session: Session, pin: int, owner: int, board: int, created_ms: int | None, key: str | None, *, as_json: bool
) -> None:
    """Save PIN on a board.

    \b
    Examples:
      feedctl save-pin 7 --owner 2 --board 8
      feedctl save-pin 7 --owner 2 --board 8 --created-ms 1341100972000
    """
    action = SavePin(Pin(pin, owner, board, created_ms or clock_of(session.config)()))
    _record(session, action, key, f"pin {pin} is saved", as_json=as_json, is_dated=created_ms is not None)


@click.command()
@click.argument("pin", type=ID)
@_key_option
@json_option
@pass_session
def delete_pin(session: Session, pin: int, key: str | None, *, as_json: bool) -> None:
    """Delete PIN, permanently.

    \b
    Examples:
      feedctl delete-pin 7
    """
    _record(session, DeletePin(pin), key, f"pin {pin} is deleted", as_json=as_json)
