"""Which boards have placed pins, on every adapter, with one shard and with three."""

from follow_places import NOW

from feedstore.boards import Boards, Move
from feedstore.domain import Pin, SavePin
from feedstore.follows.port import Request
from feedstore.follows.store import FollowStore
from workers.boards.walks import every_arranged


def test_every_board_with_placed_pins_is_named_once_in_order(store: FollowStore):
    boards = Boards(store)
    assert list(every_arranged(boards)) == []
    for board in range(1, 13):
        older, newer = (Pin(100 * board + n, 2, board, NOW + n) for n in (1, 2))
        store.record([Request(SavePin(pin)) for pin in (older, newer)])
        if board % 3:
            boards.reorder(Move(board, older.pin, after=newer.pin))
    assert list(every_arranged(boards)) == [1, 2, 4, 5, 7, 8, 10, 11]
    while not boards.reset(4):
        pass
    assert list(every_arranged(boards)) == [1, 2, 5, 7, 8, 10, 11]
