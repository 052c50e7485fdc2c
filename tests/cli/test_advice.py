"""Two faults at once of a home with a queue in a file. Nothing is known of them, and the messages lead out.
`tests/queue/test_advice_on_a_broker.py` does the same with a queue on a broker.
"""

import itertools
import shutil

import pytest

from feedstore.widecolumn.progress import Progress
from tests.cli.advice import CLUSTERS, Fault, data, leads_out, put_back
from tests.cli.command import Cli
from tests.cli.test_reindex import _drop_actions, _lose, _make_actions_again
from tests.effort import FULL
from workers.following.applied import NUMBERS
from workers.following.topics import DELIVERIES


def _another(cli: Cli) -> None:
    if data(cli, "a").exists():
        shutil.rmtree(data(cli, "b"), ignore_errors=True)
        shutil.copytree(data(cli, "a"), data(cli, "b"))


def _lost_deliveries(cli: Cli) -> None:
    if (data(cli, "b") / "CURRENT").exists() and data(cli, "queue.db").exists():
        with cli.ports(access="write") as ports:
            Progress(ports.replicas["b"].progress).note_applied({(NUMBERS[DELIVERIES], 0): 10**6})


def _queue_put_back(cli: Cli) -> None:
    _lose(cli)
    shutil.copy(cli.home.parent / "earlier-queue.db", data(cli, "queue.db"))


def _no_queue(cli: Cli) -> None:
    _lose(cli)
    data(cli, "queue.db").write_bytes(b"no database" * 1_000)


FAULTS: dict[str, Fault] = {
    # Those that need a home that can be opened come first.
    "actions dropped": _drop_actions,
    "actions made again": _make_actions_again,
    "b lost deliveries": _lost_deliveries,
    "b put back": put_back,
    "b is another": _another,
    **CLUSTERS,
    "queue put back": _queue_put_back,
    "no queue": _no_queue,
    "queue gone": _lose,
}
STRIDE = 1 if FULL else 13
PAIRS = [*itertools.combinations(FAULTS, 2)][::STRIDE]


@pytest.mark.parametrize("pair", PAIRS, ids=" and ".join)
def test_whatever_two_things_are_wrong_the_messages_lead_out(cli: Cli, pair: tuple[str, str]) -> None:
    leads_out(cli, [FAULTS[each] for each in pair])
