"""What counts losses after a drill notices a single cell, in real feeds on a real HBase."""

from collections.abc import Callable, Iterator

import pytest

from deploy.drills import running
from deploy.drills.samples import Loss, loss
from deploy.local import Stack
from feedstore.domain import Pin
from feedstore.following import row_key
from feedstore.following.mutations import put, remove
from feedstore.widecolumn import WideColumnStore
from tests.cli.command import Cli
from tests.stack import homes
from tests.stack.own_home import own_home

pytestmark = [pytest.mark.stack, pytest.mark.xdist_group("checker")]

OWNER, BOARD = 7, 9
USERS = [11, 12, 13]
PINS = [Pin(100 + number, OWNER, BOARD, 1_341_100_000_000 + number) for number in range(40)]
NEVER_ASKED_FOR = 999

Stores = dict[str, WideColumnStore]
Counted = Callable[[], Loss]


@pytest.fixture(scope="module")
def cli(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    """A home whose feeds the real workers have filled."""
    with own_home(stack, tmp_path_factory.mktemp("checked") / "home") as made:
        follows = [f'{{"type":"follow","ts":1341100000000,"follower":{user},"board":{BOARD}}}' for user in USERS]
        pins = [
            f'{{"type":"save_pin","ts":{pin.created_ms},"pin":{pin.pin},"owner":{OWNER},"board":{BOARD}}}'
            for pin in PINS
        ]
        homes.replay(made, [line.encode() for line in follows + pins])
        made.process("work", "--until-idle")
        yield made


@pytest.fixture
def stores(cli: Cli) -> Iterator[Stores]:
    with running._opened(homes.config_of(cli)) as opened:
        yield opened


@pytest.fixture
def counted(stores: Stores) -> Counted:
    pins = frozenset(pin.pin for pin in PINS)
    return lambda: loss(running._feeds(stores, USERS), USERS, pins, pins)


@pytest.mark.parametrize("cluster", homes.CLUSTERS)
def test_one_cell_that_is_removed_by_hand_is_missing_and_differs(
    stores: Stores, counted: Counted, cluster: str
) -> None:
    store, user, pin = stores[cluster], USERS[1], PINS[17]
    edge_ms = max(cell.timestamp for cell in store.cells(row_key(user)))
    gone = [(pin.pin, pin.created_ms)]
    assert counted() == Loss(0, 0, 0)
    store.apply([remove([(user, edge_ms)], gone)])
    assert counted() == Loss(missing=1, extra=0, differing=1)
    # Newer than the marker: what the next test finds is whole again.
    store.apply([put([(user, edge_ms + 1)], gone)])
    assert counted() == Loss(0, 0, 0)


def test_one_cell_that_nobody_asked_for_is_extra_and_differs(stores: Stores, counted: Counted) -> None:
    phantom = [(NEVER_ASKED_FOR, PINS[0].created_ms)]
    edge_ms = max(cell.timestamp for cell in stores["b"].cells(row_key(USERS[0])))
    stores["b"].apply([put([(USERS[0], edge_ms)], phantom)])
    assert counted() == Loss(missing=0, extra=1, differing=1)
    stores["b"].apply([remove([(USERS[0], edge_ms)], phantom)])
    assert counted() == Loss(0, 0, 0)


def test_the_same_cell_gone_from_both_is_missing_although_nothing_differs(stores: Stores, counted: Counted) -> None:
    gone, user = [(PINS[3].pin, PINS[3].created_ms)], USERS[2]
    edge_ms = max(cell.timestamp for cell in stores["a"].cells(row_key(user)))
    for store in stores.values():
        store.apply([remove([(user, edge_ms)], gone)])
    assert counted() == Loss(missing=2, extra=0, differing=0)
    for store in stores.values():
        store.apply([put([(user, edge_ms + 1)], gone)])
    assert counted() == Loss(0, 0, 0)
