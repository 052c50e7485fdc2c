"""Somebody who knows nothing of what is wrong with a home, and does what the messages say, word by word."""

import itertools
import random
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import click

from tests.cli.command import DEADLINE_S, Cli
from tests.cli.steps import expand_all, relay_all
from tests.cli.test_reindex import Model, _record, _right
from workers.cli import main

STEPS_MAX = 14

Fault = Callable[[Cli], None]


def data(cli: Cli, name: str) -> Path:
    return cli.home / "data" / name


def _gone(name: str) -> Fault:
    return lambda cli: shutil.rmtree(data(cli, name), ignore_errors=True)


def _damaged(name: str) -> Fault:
    return lambda cli: (data(cli, name) / "CURRENT").unlink(missing_ok=True)


def put_back(cli: Cli) -> None:
    _gone("b")(cli)
    shutil.copytree(cli.home.parent / "earlier-b", data(cli, "b"))


CLUSTERS: Final[Mapping[str, Fault]] = {
    "a gone": _gone("a"),
    "b gone": _gone("b"),
    "a damaged": _damaged("a"),
    "b damaged": _damaged("b"),
}
"""Faults of clusters, whatever their queue is."""


def leads_out(cli: Cli, faults: Iterable[Fault]) -> None:
    """Some actions have landed, others are on their way to the writers, others on their way to the expander. Then the
    faults come, one after the other, while no worker runs. What the messages say is done until `status` is content, and
    every feed is right.
    """
    model = _filled(cli)
    _record(cli, model, 20)
    expand_all(cli)
    _record(cli, model, 20)
    relay_all(cli)
    for fault in faults:
        fault(cli)
    _followed(cli, model, Operator(cli))


def leads_out_of_what_a_worker_meets(cli: Cli, faults: Iterable[Fault]) -> None:
    """As `leads_out`, but the faults come while a worker runs. It is stopped if a message says so."""
    model = _filled(cli)
    with cli.worker() as worker:
        for fault in faults:
            fault(cli)
            _record(cli, model, 20)
        _followed(cli, model, Operator(cli, worker))


def _filled(cli: Cli) -> Model:
    model = Model(random.Random(21))
    _record(cli, model, 40)
    cli.work()
    shutil.copytree(data(cli, "b"), cli.home.parent / "earlier-b")
    if data(cli, "queue.db").exists():
        shutil.copy(data(cli, "queue.db"), cli.home.parent / "earlier-queue.db")
    _record(cli, model, 20)
    cli.work()
    return model


def _followed(cli: Cli, model: Model, operator: "Operator") -> None:
    try:
        operator.follow()
        operator.stop()
        cli.work()
        _right(cli, model)
        assert cli.json("status")["problems"] == []
    finally:
        print("\n".join(operator.log))


class Operator:
    """Does what messages say. worker: that of the home, if it has one."""

    def __init__(self, cli: Cli, worker: "subprocess.Popen[bytes] | None" = None) -> None:
        self._cli = cli
        self._worker = worker
        self.log: list[str] = []
        self._moved = itertools.count()

    def follow(self) -> None:
        """Until `status` has nothing to say."""
        while said := self._run(["status"]):
            while said:
                said = self._do(said)

    def _run(self, words: Sequence[str]) -> str:
        """What a command says that must be done; nothing if it is content."""
        assert len(self.log) < STEPS_MAX, "it leads nowhere"
        result = self._cli(*words, code=None)
        problems = "".join(re.findall("^problem .*\n", result.stdout, re.MULTILINE))
        said = (problems or result.stderr) if result.exit_code else ""
        self.log.append(f"$ feedctl {shlex.join(words)}\n{said}")
        if self._worker is not None and "stop it" in said:
            self.stop()
            return self._run(words)
        return said

    def stop(self) -> None:
        """Stops the worker, as one stops any."""
        if self._worker is not None:
            self._worker.terminate()
            self._worker.wait(DEADLINE_S)
            self._worker = None

    def _do(self, said: str) -> str:
        """Does the first thing that a message says. Returns what the command then says."""
        if "move the file away" in said:
            self._move_away("queue.db")
        for name in re.findall(r"move the directory of cluster (\w+) away", said):
            self._move_away(name)
        settings = re.findall(r"set queue\.(\w+) in feed\.toml to (\d+)", said)
        for key, value in settings:
            self._cli.set(key, value)
        found = re.search(rf"{re.escape(self._cli.hint(''))}([\w -]+)", said)
        assert found is not None or settings, said
        words = ["status"] if found is None else _command(found[1].split())
        return self._run([*words, *(["--until-idle"] if words == ["work"] else [])])

    def _move_away(self, name: str) -> None:
        data(self._cli, name).rename(self._cli.home.parent / f"{name}-{next(self._moved)}")


def _command(words: Sequence[str]) -> list[str]:
    """The command with which a text begins; the text may continue."""
    command: click.Command = main
    taken: list[str] = []
    left = iter(words)
    for word in left:
        if isinstance(command, click.Group):
            found = command.get_command(click.Context(command), word)
            assert found is not None, words
            command = found
        elif option := next((each for each in command.params if word in each.opts), None):
            if not getattr(option, "is_flag", False):
                taken.append(word)
                word = next(left)  # noqa: PLW2901 - its value
        else:
            break
        taken.append(word)
    return taken
