"""Long work on boards, in parts: finding them, checking them, making room."""

from collections.abc import Iterator

from feedstore.boards import MAX_ROWS, BoardFindings, Boards, Respaced
from feedstore.domain import RespaceAsked


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
    """Makes room around a pin, in transactions of at most `rows` rows, one for each step of the iteration. The work is
    done when the iteration ends; it may be left at any time.

    rows_again: replaces `rows` if each transaction looks again at all that those before it have passed.

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
