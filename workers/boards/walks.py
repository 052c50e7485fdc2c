"""Long work on boards, in parts: finding them, checking them, making room."""

from collections.abc import Iterator
from typing import Final

from feedstore.boards import MAX_ROWS, BoardFindings, Boards, Respaced
from feedstore.domain import RespaceAsked

FRUITLESS: Final = 64
"""The most plans in a row that write nothing, before a re-spacing is given up. Other writers may be faster a few times;
in a store that was damaged a plan may be made again and again.
"""


def every_arranged(boards: Boards) -> Iterator[int]:
    """Yields the boards with placed pins, ascending. Raises FollowStoreUnavailableError."""
    board: int | None = 0
    while board is not None:
        board = boards.next_arranged(board)
        if board is not None:
            yield board


def checked(boards: Boards, board: int) -> Iterator[BoardFindings]:
    """Checks a board and yields the findings of each part, from the top. Raises the errors of `Boards.check`."""
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
    """Makes room around a pin, in transactions of at most `rows` rows, one for each step of the iteration. The last
    step says if the work is done, or was given up; it may be left at any time.

    rows_again: replaces `rows` if each transaction looks again at all that those before it have passed.

    Raises FollowStoreUnavailableError.
    """
    going = None
    fruitless = 0
    while fruitless < FRUITLESS:
        looks_again = going is not None and going.quiet is None
        step = boards.respace(asked, rows_again if looks_again else rows, going)
        yield step
        going = step.going
        if step.done:
            return
        if step.rows:
            fruitless = 0
        elif going is None:
            fruitless += 1
