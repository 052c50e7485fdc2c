"""The other baseline: Stream-Framework 1.4.0 on the same Redis, in a process and an environment of its own."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.children import Answering, answering, run
from bench.deliveries import Deliveries

REQUIREMENTS = ("stream_framework==1.4.0", "redis<3")
INSTALL_S = 300.0
ANSWER_S = 900.0
LOG = "stream-framework.log"


class StreamFramework:
    """Fans the same sample of deliveries out again and again."""

    def __init__(self, child: Answering, deliveries: int) -> None:
        self._child = child
        self.deliveries = deliveries

    def seconds(self) -> float:
        """Everything that its Manager does for the sample."""
        return float(self._child.ask('{"do": "run"}')["seconds"])

    def fanout_seconds(self) -> float:
        """Only the writes to followers' feeds."""
        return float(self._child.ask('{"do": "run_fanout"}')["seconds"])


@contextmanager
def stream_framework(
    python: str, port: int, deliveries: Deliveries, sample: int, log: Path
) -> Iterator[StreamFramework]:
    """python: of its environment. sample: about how many deliveries it gets."""
    groups = deliveries.sample(sample)
    script = Path(__file__).with_name("stream_framework_child.py")
    with answering([python, "-I", str(script)], log, ANSWER_S) as child:
        given = [_as_fanout(deliveries, group) for group in groups]
        child.ask(json.dumps({"do": "load", "port": port, "groups": given}))
        yield StreamFramework(child, sum(map(len, groups)))


def environment(build: Path) -> str:
    """The Python of an environment with Stream-Framework in it, made once. Raises ChildError where it cannot be."""
    folder = build / "stream-framework-env"
    python = folder / "bin" / "python"
    stamp = folder / "installed"
    if not stamp.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        log = build / "stream-framework-install.log"
        run([sys.executable, "-m", "venv", "--clear", str(folder)], log, INSTALL_S)
        run([str(python), "-m", "pip", "install", "--quiet", *REQUIREMENTS], log, INSTALL_S)
        stamp.touch()
    return str(python)


def _as_fanout(deliveries: Deliveries, group: range) -> tuple[list[int], list[tuple[int, int]]]:
    """A group is one pin for many users, or many pins for one user."""
    users = sorted(set(deliveries.users[group.start : group.stop]))
    pins = sorted(
        set(
            zip(
                deliveries.pins[group.start : group.stop],
                deliveries.created_ms[group.start : group.stop],
                strict=True,
            )
        )
    )
    assert len(users) * len(pins) == len(group)
    return users, pins
