"""Long work on a whole board, in parts: looking at it, making room, bringing back the order of time."""

from collections.abc import Iterator

from feedstore.boards import MAX_ROWS, BoardFindings, Boards, Respaced
from feedstore.domain import RespaceAsked


def every_arranged(boards: Boards) -> Iterator[int]:
    """The boards with placed pins, ascending. Raises FollowStoreUnavailableError."""
    board: int | None = 0
    while board is not None:
        board = boards.next_arranged(board)
        if board is not None:
            yield board


def checked(boards: Boards, board: int) -> Iterator[BoardFindings]:
    """The parts of a board, from the top. Raises FollowStoreUnavailableError, InvalidValueError."""
    after = None
    while True:
        part = boards.check(board, after)
        yield part
        after = part.after
        if after is None:
            return


def respaced(
    boards: Boards, asked: RespaceAsked, rows: int = MAX_ROWS, rows_again: int = MAX_ROWS
) -> Iterator[Respaced]:
    """Makes room around a pin, a transaction of at most `rows` rows each. It is done when this ends; it may be left at
    any time.

    rows_again: instead of `rows`, if each transaction looks again at all that those before it have passed.

    Raises FollowStoreUnavailableError.
    """
    going = None
    while True:
        looks_again = going is not None and going.quiet is None
        step = boards.respace(asked, rows_again if looks_again else rows, going)
        yield step
        going = step.going
        if step.done:
            return
