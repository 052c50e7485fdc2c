"""board, board check, board export, board respace, board reset: the order of a board."""

import sys
from pathlib import Path

import click

from feedstore.app.wiring import clock_of
from feedstore.boards import FROM_BOTTOM, MAX_PAGE, BoardFindings, BoardPin, Boards, cursors, room
from feedstore.domain import RespaceAsked
from workers.boards.files import export
from workers.boards.walks import checked, every_arranged, respaced
from workers.cli.output import ProgressLine, answer, emit_json, note, plural, say, when
from workers.cli.session import ID, REFUSED, Session, TryLaterError, json_option, pass_session


class _BoardGroup(click.Group):
    """`board 9` shows board 9: an argument that is no word is a board."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in self.commands and not args[0].isalpha():
            return "show", self.commands["show"], args
        return super().resolve_command(ctx, args)


@click.group(
    cls=_BoardGroup,
    subcommand_metavar="BOARD [OPTIONS] | COMMAND [ARGS]...",
    short_help="Show, check, export or re-space a board in its order.",
)
def board() -> None:
    """Show a board in its order; check it, export it, make room on it, reset it.

    \b
    Examples:
      feedctl board 9
      feedctl board 9 --limit 100 --sequences
      feedctl board check 9
      feedctl board check --all
      feedctl board export 9 board-9.parquet
      feedctl board respace 9
      feedctl board reset 9
    """


@board.command()
@click.argument("board_id", metavar="BOARD", type=ID)
@click.option(
    "--limit", type=click.IntRange(1, MAX_PAGE), default=25, help="How many pins to show at most.  [default: 25]"
)
@click.option("--bottom", is_flag=True, help="Show the last pins, not the first ones.")
@click.option("--cursor", help="The cursor of another page.")
@click.option("--sequences", is_flag=True, help="Also show each pin's sequence, and the room below it.")
@json_option
@pass_session
def show(
    session: Session, board_id: int, limit: int, cursor: str | None, *, bottom: bool, sequences: bool, as_json: bool
) -> None:
    """Show a page of BOARD, from the top down. `feedctl board 9` is the same as `feedctl board show 9`.

    A page may have few pins, or none, and still have a cursor, because pins near there were moved away. "room" is how
    many more pins, at least, can be dropped into the gap below the pin.

    \b
    Examples:
      feedctl board 9
      feedctl board 9 --limit 100 --sequences
      feedctl board 9 --bottom
      feedctl board 9 --json
    """
    if bottom and cursor is not None:
        raise click.UsageError("give either --bottom or --cursor")
    place = FROM_BOTTOM if bottom else None
    if cursor is not None:
        place = cursors.decode(board_id, cursor)
    with session.follows() as follows:
        page = Boards(follows).page(board_id, limit, place)
    below, above = cursors.around(board_id, page)
    if as_json:
        pins = [pin._asdict() | {"sequence": str(pin.sequence)} for pin in page.pins]
        emit_json({"board": board_id, "pins": pins, "cursor": below, "above": above})
        return
    for number, pin in enumerate(page.pins):
        moved = f"moved {when(pin.moved_ms)}" if pin.moved_ms else ""
        lower = page.pins[number + 1] if number + 1 < len(page.pins) else None
        numbers = f"  {_numbers(pin, lower)}" if sequences else ""
        say(f"{when(pin.created_ms)}  pin {pin.pin:<19}{numbers}  {moved}".rstrip())
    note(f"board {board_id}: {plural(len(page.pins), 'pin')}")
    if above is not None:
        note(f"above: feedctl board {board_id} --limit {limit} --cursor {above}")
    if below is not None:
        note(f"more: feedctl board {board_id} --limit {limit} --cursor {below}")


def _numbers(pin: BoardPin, below: BoardPin | None) -> str:
    space = "" if below is None else f"room {room(pin.sequence - below.sequence)}"
    return f"{pin.sequence:>38}  {space:<8}"


@board.command("export", short_help="Write every pin of BOARD into FILE, as Parquet.")
@click.argument("board_id", metavar="BOARD", type=ID)
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@json_option
@pass_session
def export_board(session: Session, board_id: int, file: Path, *, as_json: bool) -> None:
    """Write every pin of BOARD into FILE, Parquet in the board's order: pin, created_ms, sequence, moved_ms.

    If a pin is moved while the command runs, the file may have the pin twice, or not at all.

    \b
    Examples:
      feedctl board export 9 board-9.parquet
    """
    if not file.name or (file.exists() and not file.is_file()):  # it is replaced, and a device must not be
        raise click.UsageError(f"{str(file)!r}: expected a file")
    progress = ProgressLine("board export")
    try:
        with session.follows() as follows:
            pins = export(Boards(follows), board_id, file, lambda done: progress.count(done, "pin"))
    except OSError as error:
        raise click.FileError(str(file), error.strerror or str(error)) from error
    text = f"board {board_id}: {plural(pins, 'pin')} written to {file}"
    answer({"board": board_id, "pins": pins, "file": str(file)}, text, as_json=as_json, tell=note)


# Checking
# --------------------------------------------------------------------------------------------------------------------


@board.command(short_help="Name what is wrong with the order of BOARD, or of all.")
@click.argument("board_id", metavar="[BOARD]", type=ID, required=False)
@click.option("--all", "every", is_flag=True, help="Check every board on which pins were moved.")
@json_option
@pass_session
def check(session: Session, board_id: int | None, *, every: bool, as_json: bool) -> None:
    """Read all of BOARD, or of all boards on which pins were moved, and name what is wrong. The command changes
    nothing.

    \b
    narrow  a gap with little room left, or none; re-spacing should have been there
    dead    a moved pin that was deleted, or never saved, still has a place: the store was damaged

    A narrow gap is normal for a moment after a reorder, until a worker has made room. The exit status is 1 if there is
    a finding.

    \b
    Examples:
      feedctl board check 9
      feedctl board check --all --json
    """
    if (board_id is None) != every:
        raise click.UsageError("give a board or --all")
    progress, pins, found, count = ProgressLine("board check"), 0, 0, 0
    with session.follows() as follows:
        boards = Boards(follows)
        for each in every_arranged(boards) if board_id is None else [board_id]:
            count += 1
            for part in checked(boards, each):
                pins += part.pins
                found += _tell(each, part, as_json=as_json)
                if progress.due():
                    progress.show(f"{plural(count, 'board')}, {pins:,} pins, {plural(found, 'finding')}")
    text = f"{plural(count, 'board')}, {plural(pins, 'pin')}: {plural(found, 'finding')}"
    answer({"boards": count, "pins": pins, "findings": found}, text, as_json=as_json, tell=note)
    if found:
        note(
            "what to do if they are still there when the workers are idle: docs/recovering.md, Is every board in order?"
        )
        sys.exit(REFUSED)


def _tell(board_id: int, part: BoardFindings, *, as_json: bool) -> int:
    """Prints the findings of a part of a board; returns how many there are."""
    above = {lower: upper for upper, lower in part.ties}
    for pin in part.narrow:
        what = f"at the same place as pin {above[pin]}" if pin in above else "little room above it"
        text = f"narrow  board {board_id}, pin {pin}: {what}: feedctl board respace {board_id} {pin}"
        answer({"board": board_id, "finding": "narrow", "pin": pin}, text, as_json=as_json)
    for key in part.dead:
        what = "deleted, and still has a place"
        text = f"dead    board {board_id}, pin {key.pin}: {what}: feedctl board respace {board_id}"
        answer({"board": board_id, "finding": "dead", "pin": key.pin}, text, as_json=as_json)
    return len(part.narrow) + len(part.dead)


# Repairing
# --------------------------------------------------------------------------------------------------------------------


@board.command()
@click.argument("board_id", metavar="BOARD", type=ID)
@click.argument("pin", type=ID, required=False)
@json_option
@pass_session
def respace(session: Session, board_id: int, pin: int | None, *, as_json: bool) -> None:
    """Make room on BOARD: around PIN, or at every narrow gap. Without PIN, the command also removes the places of dead
    pins.

    Workers do this by themselves after a reorder that left little room. The order of the pins does not change. The
    command may run while workers run and pins are moved. If it is killed, run it again. It ends with 3 if it could not
    make room at a place.

    \b
    Examples:
      feedctl board respace 9
      feedctl board respace 9 5
    """
    progress, rows, looked = ProgressLine("board respace"), 0, 0
    given_up: list[int] = []
    now_ms = clock_of(session.config)()
    with session.follows() as follows:
        boards = Boards(follows)
        if pin is not None:
            boards.pins(board_id, [pin])  # refuses one that is not there: no room is made around it
        dropped = sum(boards.drop_dead(board_id, part.dead) for part in checked(boards, board_id)) if pin is None else 0
        narrow = (each for part in checked(boards, board_id) for each in part.narrow)
        for each in narrow if pin is None else [pin]:
            looked += 1
            done = False
            for step in respaced(boards, RespaceAsked(board_id, each, now_ms)):
                rows, done = rows + step.rows, step.done
                if progress.due():
                    progress.show(f"{plural(looked, 'place')}, {plural(rows, 'row')} written")
            given_up += [] if done else [each]
    if dropped and not as_json:
        note(f"board {board_id}: dropped {plural(dropped, 'place')} of pins that are dead")
    room_made = f"made room at {plural(looked - len(given_up), 'place')}, {plural(rows, 'row')} written"
    text = f"board {board_id}: {room_made if rows or given_up else 'no gap is narrow, nothing was written'}"
    answer({"board": board_id, "places": looked, "rows": rows, "dropped": dropped}, text, as_json=as_json, tell=note)
    if given_up:
        raise TryLaterError(
            f"board {board_id}: no room was made at {plural(len(given_up), 'place')}, the first at pin {given_up[0]}:"
            " other processes were faster each time, or more than two pins have one sequence. Run it again. If that"
            " does not help, move that pin: feedctl reorder-pin"
        )


@board.command(short_help="Bring BOARD back into the order of time, newest first.")
@click.argument("board_id", metavar="BOARD", type=ID)
@json_option
@pass_session
def reset(session: Session, board_id: int, *, as_json: bool) -> None:
    """Bring BOARD back into the order of time, newest first. The places of all moved pins are removed.

    The pins themselves stay. You cannot undo this command: you would have to move the pins again. If the command is
    killed, run it again.

    \b
    Examples:
      feedctl board reset 9
    """
    progress, steps = ProgressLine("board reset"), 1
    with session.follows() as follows:
        boards = Boards(follows)
        while not boards.reset(board_id):
            steps += 1
            progress.count(steps, "transaction")
    text = f"board {board_id} is in the order of time"
    answer({"board": board_id, "reset": True}, text, as_json=as_json, tell=note)
