"""Random histories of a board: stores with one shard and with three, in SQLite and in MySQL, with few labels and with
all of them, show the same pins as a list.
"""

from typing import Final

import mysql_places
import pytest
from board_tools import BOARD, delete, relay, respace, save
from board_tools import asked as requests
from board_tools import shown as walk
from follow_places import FakeClock
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from feedstore.boards import SPACING, BoardCrowdedError, Boards, Move, ReorderRefusedError, Spacing
from feedstore.follows import mysql
from feedstore.follows.store import FollowStore
from tests.effort import part
from tests.follows.memory_follows import open_in_memory

FEW: Final = Spacing(unit=64, step=1, last_id=63, ceiling=64 * 2_000, threshold=1, restored=3)
PINS: Final = 24
BEGIN_MS: Final = 100


class Agreement(RuleBasedStateMachine):
    """`order` is the model: the pins of the board, from the top."""

    def stores(self) -> list[FollowStore]:
        return [open_in_memory(self.clock, shards) for shards in (1, 3)]

    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock(BEGIN_MS)
        self.opened = self.stores()
        self.boards: list[Boards] = []
        self.order: list[int] = []
        self.saved: set[int] = set()

    def teardown(self) -> None:
        for store in self.opened:
            store.close()

    @initialize(few=st.booleans(), pins=st.integers(2, 12))
    def begin(self, few: bool, pins: int) -> None:
        self.boards = [Boards(store, FEW if few else SPACING) for store in self.opened]
        for pin in range(1, pins + 1):
            self.save(pin, 0, pin)

    @rule(pin=st.integers(1, PINS), ago=st.integers(0, 3), step=st.integers(0, 2))
    def save(self, pin: int, ago: int, step: int) -> None:
        if pin in self.saved:
            return
        self.clock.advance(step)
        self.saved.add(pin)
        before = list(self.order)
        for store in self.opened:
            save(store, [(pin, self.clock() - ago)])
        self.order = walk(self.boards[0])
        assert [each for each in self.order if each != pin] == before

    @precondition(lambda self: len(self.order) > 2)
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        pin = data.draw(st.sampled_from(self.order), "pin")
        others = [each for each in self.order if each != pin]
        to = data.draw(st.integers(0, len(others)), "to")
        how = data.draw(st.sampled_from(("both", "before", "after")), "how")
        before, after = others[to - 1] if to > 0 else None, others[to] if to < len(others) else None
        if before is None or after is None:
            end = "top" if to == 0 else "bottom"
            move = Move(BOARD, pin, to=end) if how == "both" else Move(BOARD, pin, before, after)
        else:
            move = Move(BOARD, pin, before if how != "after" else None, after if how != "before" else None)
        crowded = []
        for boards in self.boards:
            try:
                placed = boards.reorder(move)
            except BoardCrowdedError:
                crowded.append(boards)
            else:
                assert placed.changed == (self.order != [*others[:to], pin, *others[to:]])
        assert crowded in ([], self.boards)
        if not crowded:
            self.order = [*others[:to], pin, *others[to:]]

    @precondition(lambda self: len(self.order) > 3)
    @rule(data=st.data())
    def drop_apart(self, data: st.DataObject) -> None:
        pin, upper, lower = data.draw(st.permutations(self.order).map(lambda order: order[:3]), "pins")
        others = [each for each in self.order if each != pin]
        gap = others.index(lower) - others.index(upper)
        if gap == 1:
            return
        for boards in self.boards:
            with pytest.raises(ReorderRefusedError) as caught:
                boards.reorder(Move(BOARD, pin, upper, lower))
            assert caught.value.reason == ("neighbours_apart" if gap > 1 else "neighbours_reversed")
            first, last = sorted((others.index(upper), others.index(lower)))
            assert list(caught.value.between) == others[first + 1 : last][:10]

    @precondition(lambda self: len(self.order) > 2)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        pin = data.draw(st.sampled_from(self.order), "pin")
        for store in self.opened:
            delete(store, pin)
        self.order.remove(pin)

    @rule(rows=st.integers(1, 5))
    def work(self, rows: int) -> None:
        for store, boards in zip(self.opened, self.boards, strict=True):
            for request in requests(store):
                respace(boards, request, rows)
            relay(store)

    @rule()
    def reset(self) -> None:
        for boards in self.boards:
            while not boards.reset(BOARD, 5):
                pass
        self.order = walk(self.boards[0])

    @invariant()
    def all_show_the_list(self) -> None:
        for number, boards in enumerate(self.boards):
            assert walk(boards, (3, 500)[number % 2]) == self.order
            findings = boards.check(BOARD, None)
            assert (findings.pins, findings.dead) == (len(self.order), [])


class MySQLAgreement(Agreement):
    def stores(self) -> list[FollowStore]:
        return [mysql.open_store(mysql_places.fresh(shards, "boards"), self.clock) for shards in (1, 3)]


TestAgreement = Agreement.TestCase
TestAgreement.settings = settings(max_examples=part(150), stateful_step_count=30, deadline=None)


TestMySQLAgreement = pytest.mark.stack(pytest.mark.usefixtures("mariadb")(MySQLAgreement.TestCase))
TestMySQLAgreement.settings = settings(max_examples=15, stateful_step_count=25, deadline=None)
