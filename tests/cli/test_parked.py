"""What is parked, as an operator meets it: in status, among the dead letters, in a rebuild."""

import shutil

import pytest

from feedstore.domain import Pin, PinSaved
from feedstore.widecolumn.progress import Progress
from tests.cli.command import Cli, eventually
from workers.app import wiring
from workers.following.applied import NUMBERS
from workers.following.messages import Block, Delivery, Parked, encode_parked
from workers.following.ports import Ports
from workers.following.topics import RETRIES


def parked(ports: Ports, cluster: str, pin: int) -> bytes:
    """A parked delivery of a pin that was never saved, to user 1."""
    now_ms = ports.follows.now()
    action = PinSaved(Pin(pin, 2, 20, 5_000), now_ms)
    return encode_parked(Parked(cluster, pin, 1, Delivery(action, now_ms, [Block([(1, now_ms)], [(pin, 5_000)])])))


def test_what_is_parked_is_left_to_do_recorded_landed(filled: Cli) -> None:
    with filled.ports() as ports:
        ports.queue.publish(RETRIES, [parked(ports, "b", 77)])
    status = filled.json("status", code=None)
    assert not status["idle"]
    assert (status["groups"]["retries-a"], status["groups"]["retries-b"]) == (1, 1)

    filled.work()

    status = filled.json("status")
    assert status["idle"]
    assert (status["groups"]["retries-a"], status["groups"]["retries-b"]) == (0, 0)
    assert [77, 5_000] in filled.export("b")[1]
    assert [77, 5_000] not in filled.export("a")[1]


@pytest.mark.processes
def test_rule_10_a_cluster_is_no_further_than_what_it_has_parked(filled: Cli) -> None:
    with filled.ports(access="write") as ports:
        noted_ms = ports.follows.now() // 10_000 * 10_000
        for name, offset in (("a", 0), ("b", 5)):
            Progress(ports.replicas[name].progress).park([noted_ms], {(NUMBERS[RETRIES], 0): offset})

    def marks() -> tuple[int, int]:
        states = filled.json("status", code=None)["clusters"]
        return states["a"]["watermark_ms"], states["b"]["watermark_ms"]

    with filled.worker():
        eventually(lambda: marks()[0] > noted_ms + 10_000, "the ticks have come through")
        assert marks()[1] == noted_ms


def test_rule_12_a_dead_letter_of_the_retries_is_sent_again_and_lands(filled: Cli) -> None:
    with filled.ports() as ports:
        ports.dead.bury(RETRIES, "retries-a", "failed", "once", 1, parked(ports, "a", 77))
        ports.queue.publish(RETRIES, [b"nonsense"])
    filled.work()
    assert "retries-b" in filled("dead", "list").stdout

    assert "1 sent again, 2 kept" in filled("dead", "retry", "--all", code=1).stderr
    filled.work()

    assert [77, 5_000] in filled.export("a")[1]


def test_a_cluster_that_is_made_anew_gets_nothing_of_what_was_parked_for_the_old_one(filled: Cli) -> None:
    with filled.ports() as ports:
        ports.queue.publish(RETRIES, [parked(ports, "a", 76), parked(ports, "b", 77)])
    shutil.rmtree(filled.home / "data" / "b")

    filled("rebuild", "--all", "--cluster", "b")

    assert [77, 5_000] not in filled.export("b")[1]
    assert [76, 5_000] in filled.export("a")[1]
    assert filled.json("status")["idle"]


@pytest.mark.processes
def test_rule_8_what_retention_took_from_the_retries_is_lost_and_the_cluster_rebuilt(
    filled: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    with filled.ports() as ports:
        ports.queue.publish(RETRIES, [parked(ports, "b", 77)])
        ports.queue.expire(-1, {})

    monkeypatch.setattr(wiring, "is_embedded", lambda _: False)
    assert "lost deliveries" in filled("--log-level", "critical", "write", "--cluster", "b", code=1).stderr
    monkeypatch.undo()
    last = filled.process("--log-level", "critical", "work", "--until-idle", code=1).stderr.splitlines()[-1]
    assert last.startswith("Error: cluster ")
    assert "lost deliveries: rebuild it" in last
    for cluster in ("a", "b"):
        assert "lost deliveries" in filled.json("status", code=1)["clusters"][cluster]["error"]
        filled.process("rebuild", "--all", "--cluster", cluster, code=None)

    filled.work()
    assert filled.export("a") == filled.export("b")
    assert "no difference" in filled("verify").stderr
