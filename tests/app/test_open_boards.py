"""What a Python web tier calls for boards, opened from a home."""

from pathlib import Path

import pytest

from feedstore.app import config as configuration
from feedstore.app import wiring
from feedstore.app.services import open_boards, open_services
from feedstore.boards import ReorderRefusedError
from feedstore.domain import InvalidValueError, Pin, SavePin
from feedstore.domain.cursors import MalformedCursorError
from feedstore.follows.port import Request

BOARD = 9


def test_boards_of_a_home_are_arranged_by_pages_and_moves(tmp_path: Path):
    config = configuration.parse(tmp_path, configuration.DEFAULT, {})
    wiring.create_follows(config)
    with open_services(config) as services, open_boards(config) as boards:
        pins = [SavePin(Pin(pin, 2, BOARD, 1_000 + pin)) for pin in range(1, 5)]
        follows = wiring.open_follows(config, lambda: 1_000_000)
        follows.index(pins=follows.record([Request(pin) for pin in pins]))  # type: ignore[arg-type]  # none is refused
        follows.close()

        assert boards.reorder_board_pin(BOARD, 1, 4, 3).changed
        assert not services.boards.reorder_board_pin(BOARD, 1, before=4).changed
        with pytest.raises(ReorderRefusedError, match="pin 9") as refused:
            boards.reorder_board_pin(BOARD, 9, to="top")
        assert refused.value.reason == "pin_unknown"

        first = boards.page(BOARD, limit=3)
        rest = services.boards.page(BOARD, cursor=first.cursor)
        assert [pin.pin for pin in first.pins + rest.pins] == [4, 1, 3, 2]
        assert rest.cursor is None
        with pytest.raises(MalformedCursorError):
            boards.page(8, cursor=first.cursor)
        with pytest.raises(InvalidValueError):
            boards.page(BOARD, limit=501)

        assert boards.reset(BOARD)
        assert [pin.pin for pin in boards.page(BOARD).pins] == [4, 3, 2, 1]
