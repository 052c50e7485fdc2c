"""reorder-pin: moves a pin of a board to another place."""

import click

from feedstore.boards import BoardCrowdedError, Boards, Move, ReorderRefusedError
from workers.cli.output import answer, emit_json, note
from workers.cli.session import ID, CommandRefusedError, Session, TryLaterError, json_option, pass_session


@click.command()
@click.argument("board", type=ID)
@click.argument("pin", type=ID)
@click.option("--before", type=ID, help="The pin directly above the new place.")
@click.option("--after", type=ID, help="The pin directly below the new place.")
@click.option("--top", is_flag=True, help="To the top of the board.")
@click.option("--bottom", is_flag=True, help="To the bottom of the board.")
@json_option
@pass_session
def reorder_pin(
    session: Session,
    board: int,
    pin: int,
    before: int | None,
    after: int | None,
    *,
    top: bool,
    bottom: bool,
    as_json: bool,
) -> None:
    """Move PIN to another place of BOARD.

    Name the pin directly above the new place (--before), the pin directly below it (--after), or both; or give --top or
    --bottom. If you name both, they must be neighbours. Otherwise the move is refused, and the answer names up to ten
    pins between them. All other pins keep their order. You may repeat the command: a pin that is already at its place
    stays there.

    \b
    Examples:
      feedctl reorder-pin 9 5 --before 7 --after 3
      feedctl reorder-pin 9 5 --after 3
      feedctl reorder-pin 9 5 --top
    """
    if sum([before is not None or after is not None, top, bottom]) != 1:
        raise click.UsageError("give --before, --after or both; or --top; or --bottom")
    move = Move(board, pin, before, after, "top" if top else "bottom" if bottom else None)
    try:
        with session.follows() as follows:
            placed = Boards(follows).reorder(move)
    except ReorderRefusedError as error:
        if as_json:
            emit_json({"refused": error.reason, "message": str(error), "between": error.between})
        between = f"; between them: {', '.join(map(str, error.between))}" if error.between else ""
        raise CommandRefusedError(f"refused ({error.reason}): {error}{between}") from error
    except BoardCrowdedError as error:
        raise TryLaterError(f"{error}; a worker makes room: feedctl work") from error
    text = f"pin {pin} is {_where(move)}{'' if placed.changed else ', as before'}: feedctl board {board}"
    value = placed._asdict() | {"sequence": str(placed.sequence)}  # of up to 38 digits
    answer(value, text, as_json=as_json, tell=note)


def _where(move: Move) -> str:
    if move.to is not None:
        return f"at the {move.to} of board {move.board}"
    places = [
        f"directly {side} pin {neighbour}"
        for side, neighbour in (("below", move.before), ("above", move.after))
        if neighbour is not None
    ]
    return " and ".join(places)
