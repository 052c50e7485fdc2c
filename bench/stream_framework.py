"""The other baseline: Stream-Framework 1.4.0 on the same Redis, in a process and an environment of its own."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from bench.children import ChildError, run
from bench.deliveries import Deliveries

REQUIREMENTS = ("stream_framework==1.4.0", "redis<3")
INSTALL_S = 300.0
ANSWER_S = 900.0


class StreamFramework:
    """Fans the same sample of deliveries out again and again."""

    def __init__(self, process: subprocess.Popen[str], deliveries: int) -> None:
        self._process = process
        self.deliveries = deliveries

    def seconds(self) -> float:
        """Everything that its Manager does for the sample."""
        return float(ask(self._process, {"do": "run"})["seconds"])

    def fanout_seconds(self) -> float:
        """Only the writes to followers' feeds."""
        return float(ask(self._process, {"do": "run_fanout"})["seconds"])


@contextmanager
def stream_framework(python: str, port: int, deliveries: Deliveries, sample: int) -> Iterator[StreamFramework]:
    """python: of its environment. sample: about how many deliveries it gets."""
    groups = deliveries.sample(sample)
    script = Path(__file__).with_name("stream_framework_child.py")
    with subprocess.Popen(
        [python, "-I", str(script)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            ask(process, {"do": "load", "port": port, "groups": [_as_fanout(deliveries, group) for group in groups]})
            yield StreamFramework(process, sum(map(len, groups)))
        finally:
            process.kill()
            assert process.stdin
            with suppress(BrokenPipeError):  # what it did not read is no news
                process.stdin.close()


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


def ask(process: subprocess.Popen[str], request: dict[str, Any]) -> dict[str, Any]:
    assert process.stdin
    assert process.stdout
    try:
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
    except BrokenPipeError:
        raise ChildError("Stream-Framework's process ended") from None
    impatience = threading.Timer(ANSWER_S, process.kill)
    impatience.start()
    try:
        line = process.stdout.readline()
    finally:
        impatience.cancel()
    if not line:
        raise ChildError("Stream-Framework's process ended")
    answer: dict[str, Any] = json.loads(line)
    return answer


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
