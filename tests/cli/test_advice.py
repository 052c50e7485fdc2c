"""Two faults at once. Nothing is known of them: what the messages say is done, word by word, until `status` has nothing
more to say. Then every feed is right.
"""

import itertools
import random
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from feedstore.widecolumn.progress import Progress
from tests.cli.command import Cli
from tests.cli.test_reindex import Model, _drop_actions, _lose, _make_actions_again, _record, _relay_all, _right
from tests.effort import FULL
from workers.following.applied import NUMBERS
from workers.following.topics import DELIVERIES

STEPS_MAX = 12


def _data(cli: Cli, name: str) -> Path:
    return cli.home / "data" / name


def _gone(name: str) -> Callable[[Cli], None]:
    return lambda cli: shutil.rmtree(_data(cli, name), ignore_errors=True)


def _damaged(name: str) -> Callable[[Cli], None]:
    return lambda cli: (_data(cli, name) / "CURRENT").unlink(missing_ok=True)


def _put_back(cli: Cli) -> None:
    _gone("b")(cli)
    shutil.copytree(cli.home.parent / "earlier-b", _data(cli, "b"))


def _another(cli: Cli) -> None:
    if _data(cli, "a").exists():
        _gone("b")(cli)
        shutil.copytree(_data(cli, "a"), _data(cli, "b"))


def _lost_deliveries(cli: Cli) -> None:
    if (_data(cli, "b") / "CURRENT").exists() and _data(cli, "queue.db").exists():
        with cli.ports(access="write") as ports:
            Progress(ports.replicas["b"].progress).note_applied({(NUMBERS[DELIVERIES], 0): 10**6})


def _no_queue(cli: Cli) -> None:
    _lose(cli)
    _data(cli, "queue.db").write_bytes(b"no database" * 1_000)


FAULTS: dict[str, Callable[[Cli], None]] = {
    # Those that need a home that can be opened come first.
    "actions dropped": _drop_actions,
    "actions made again": _make_actions_again,
    "b lost deliveries": _lost_deliveries,
    "b put back": _put_back,
    "b is another": _another,
    "a gone": _gone("a"),
    "b gone": _gone("b"),
    "a damaged": _damaged("a"),
    "b damaged": _damaged("b"),
    "no queue": _no_queue,
    "queue gone": _lose,
}
STRIDE = 1 if FULL else 13
PAIRS = [*itertools.combinations(FAULTS, 2)][::STRIDE]


class Operator:
    """Does what messages say."""

    def __init__(self, cli: Cli) -> None:
        self._cli = cli
        self.log: list[str] = []
        self._moved = itertools.count()

    def follow(self) -> None:
        """Until `status` has nothing to say."""
        while said := self._run(["status"]):
            while said:
                said = self._do(said)

    def _run(self, words: list[str]) -> str:
        """What a command says that must be done; nothing if it is content."""
        assert len(self.log) < STEPS_MAX, "it leads nowhere"
        result = self._cli(*words, code=None)
        problems = "".join(re.findall("^problem .*\n", result.stdout, re.MULTILINE))
        said = (problems or result.stderr) if result.exit_code else ""
        self.log.append(f"$ feedctl {shlex.join(words)}\n{said}")
        return said

    def _do(self, said: str) -> str:
        """Does the first thing that a message says. Returns what the command then says."""
        if "move the file away" in said:
            self._move_away("queue.db")
        for name in re.findall(r"move the directory of cluster (\w+) away", said):
            self._move_away(name)
        command = re.search(rf"{re.escape(self._cli.hint(''))}([\w -]+)", said)
        assert command is not None, said
        words = command[1].split()
        return self._run([*words, *(["--until-idle"] if words == ["work"] else [])])

    def _move_away(self, name: str) -> None:
        _data(self._cli, name).rename(self._cli.home.parent / f"{name}-{next(self._moved)}")


@pytest.mark.parametrize("pair", PAIRS, ids=" and ".join)
def test_whatever_two_things_are_wrong_the_messages_lead_out(cli: Cli, pair: tuple[str, str]) -> None:
    model = Model(random.Random(21))
    _record(cli, model, 40)
    cli.work()
    shutil.copytree(_data(cli, "b"), cli.home.parent / "earlier-b")
    _record(cli, model, 20)
    cli.work()
    _record(cli, model, 20)
    _relay_all(cli)
    for fault in pair:
        FAULTS[fault](cli)
    operator = Operator(cli)
    try:
        operator.follow()
        cli.work()
        _right(cli, model)
        assert cli.json("status")["problems"] == []
    finally:
        print("\n".join(operator.log))
