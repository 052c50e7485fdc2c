"""Boards in an order that users choose: the operations, their arithmetic and their decisions.

boards = Boards(follows)
boards.reorder(Move(board=9, pin=5, before=7, after=3))
page = boards.page(9, 25, None)
"""

from feedstore.boards.port import (
    FROM_BOTTOM,
    MAX_PAGE,
    MAX_ROWS,
    BoardCrowdedError,
    BoardFindings,
    BoardPage,
    BoardPin,
    Mark,
    Move,
    Place,
    Placed,
    ReorderRefusedError,
    Respaced,
    RoomSpread,
)
from feedstore.boards.sequences import SPACING, Spacing, Spot, between, room
from feedstore.boards.store import Boards

__all__ = [
    "FROM_BOTTOM",
    "MAX_PAGE",
    "MAX_ROWS",
    "SPACING",
    "BoardCrowdedError",
    "BoardFindings",
    "BoardPage",
    "BoardPin",
    "Boards",
    "Mark",
    "Move",
    "Place",
    "Placed",
    "ReorderRefusedError",
    "Respaced",
    "RoomSpread",
    "Spacing",
    "Spot",
    "between",
    "room",
]
