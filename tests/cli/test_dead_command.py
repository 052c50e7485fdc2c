"""Messages that cannot be read: the good ones flow, the bad ones are kept with their reasons (rule 12)."""

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from feedstore.clocks import wall_ms
from feedstore.domain import Pin, PinSaved
from tests.cli.command import Cli, eventually
from workers.following.messages import Task, encode_action
from workers.following.redeliver import SET_ASIDE
from workers.following.topics import ACTIONS, DELIVERIES, RETRIES
from workers.queue.embedded import EmbeddedQueue
from workers.queue.port import MAX_MESSAGE_BYTES, MessageRefusedError, Topic, lag_of, single

ROOT = Path(__file__).resolve().parents[2]
GOOD = encode_action(Task(PinSaved(Pin(60, 2, 20, 3_000), 1_000)))
BAD = {
    "truncated": (GOOD[:-9], "not_json"),
    "oversized": (b'{"v":1,"pad":"' + b"x" * (MAX_MESSAGE_BYTES - 20) + b'"}', "malformed"),
    "wrongly typed": (GOOD.replace(b'"pin":60', b'"pin":"60"'), "malformed"),
    "of another version": (b'{"v":4,"body":{"type":"task"}}', "unknown_version"),
    "of another kind": (b'{"v":1,"body":{"type":"delivery"}}', "malformed"),
    "empty": (b"", "not_json"),
    "zero bytes": (bytes(40), "not_json"),
}


def letters(cli: Cli) -> list[dict[str, object]]:
    return [json.loads(line) for line in cli("dead", "list", "--json").stdout.splitlines()]


def test_rule_12_one_bad_message_in_ten_stops_nobody(filled: Cli) -> None:
    with filled.ports() as ports:
        for number, (value, _) in enumerate(BAD.values()):
            # Good tasks are recorded actions, as the relay would send them.
            for pin in range(100 + 9 * number, 109 + 9 * number):
                action = Task(PinSaved(Pin(pin, 2, 20, pin), ports.follows.now()))
                ports.queue.publish(ACTIONS, [encode_action(action)])
            ports.queue.publish(ACTIONS, [value])
    filled.work()

    found = letters(filled)
    assert [letter["reason"] for letter in found] == [reason for _, reason in BAD.values()]
    assert {letter["group"] for letter in found} == {"expander"}
    assert set(range(100, 100 + 9 * len(BAD))) <= set(filled.feed(1))
    assert filled.json("status", code=1)["dead_letters"] == len(BAD)


END_MS = 2**63 - 1
PIN_OF_2 = {"pin": 60, "owner": 2, "board": 20, "created_ms": 3_000}
IMPOSSIBLE = [
    (ACTIONS, {"type": "tick", "settled_ms": 1, "source": 0, "sources": 1_000}),
    (ACTIONS, {"type": "tick", "settled_ms": 1, "source": 2**33, "sources": 2**34}),
    (DELIVERIES, {"type": "tick", "settled_ms": 1, "source": 0, "sources": 1, "partitions": 2**33}),
    (DELIVERIES, {"type": "hold", "since_ms": 1, "until_ms": END_MS - 1}),
    (DELIVERIES, {"type": "hold", "since_ms": 1, "until_ms": END_MS - 1, "kind": "fanout"}),
    (
        ACTIONS,
        {
            "type": "task",
            "action": {
                "type": "follow",
                "follower": 77,
                "followee": {"kind": "user", "id": 2},
                "ts": END_MS,
                "committed_ms": 1,
            },
        },
    ),
    (
        RETRIES,
        {
            "type": "parked",
            "cluster": "a",
            "id": 5,
            "due_ms": 1,
            "delivery": {
                "type": "delivery",
                "action": {"type": "save_pin", "pin": PIN_OF_2, "committed_ms": END_MS},
                "read_ms": 1,
            },
        },
    ),
]


OF_ANOTHER_FOLLOWEE = {
    "v": 3,
    "range": {"followee": {"kind": "user", "id": 77}, "after": 1, "until": 2},
    "actions": [{"type": "save_pin", "pin": PIN_OF_2, "committed_ms": 1}],
}


def test_rule_12_what_is_well_formed_and_cannot_be_true_stops_nobody(filled: Cli) -> None:
    with filled.ports() as ports:
        for topic, body in IMPOSSIBLE:
            ports.queue.publish(topic, [json.dumps({"v": 1, "body": body}).encode()])
        ports.queue.publish(ACTIONS, [json.dumps(OF_ANOTHER_FOLLOWEE).encode()])
    filled.work()
    filled("save-pin", 61, "--owner", 2, "--board", 20)
    filled.work()

    assert filled.feed(1)[0] == 61
    # In any order: each group buries its own, in a thread of its own.
    assert sorted(letter["group"] for letter in letters(filled)) == ["expander", "expander", "retries-a", "retries-b"]
    assert "no difference" in filled("verify").stderr


@pytest.mark.processes
def test_rule_12_with_only_bad_messages_the_worker_stops_instead_of_draining_the_queue(
    filled: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled.set("dead_letters_in_a_row", "10")
    with filled.ports() as ports:
        for number in range(50):
            ports.queue.publish(DELIVERIES, [b'{"v":9,"number":%d}' % number])

    result = filled.process("--log-level", "error", "work", "--until-idle", code=1)

    last = result.stderr.splitlines()[-1]
    assert last.startswith("Error: ")
    assert "messages in a row could not be done; stopped" in last
    assert filled.hint("dead list") in last
    status = filled.json("status", code=1)
    assert status["groups"]["writer-a"] + status["groups"]["writer-b"] > 0 or status["dead_letters"] <= 100

    page = Path(re.findall(r"\S+\.md", last)[0])
    [(name, value, command)] = re.findall(r"`(FEED_\w+)=(\d+) feedctl (.*)`", (ROOT / page).read_text(encoding="utf-8"))
    monkeypatch.setenv(name, value)
    filled.process(*command.split())
    filled("dead", "drop", "--all")
    assert "no difference" in filled("verify").stderr
    assert filled.json("status")["problems"] == []


def test_list_and_show(filled: Cli) -> None:
    with filled.ports() as ports:
        ports.queue.publish(ACTIONS, [b"nonsense"])
    filled.work()

    listed = filled("dead", "list")
    assert "not_json" in listed.stdout
    assert "1 dead letter" in listed.stderr
    [letter] = letters(filled)
    shown = filled("dead", "show", letter["id"])
    assert "nonsense" in shown.stdout
    assert filled.json("dead", "show", letter["id"])["value_base64"] == "bm9uc2Vuc2U="
    assert "no dead letter 99" in filled("dead", "show", 99, code=1).stderr


def test_what_this_program_cannot_read_is_not_sent_again(filled: Cli) -> None:
    with filled.ports() as ports:
        ports.queue.publish(ACTIONS, [b"nonsense"])
    filled.work()

    said = filled("dead", "retry", "--all", code=1).stderr
    assert "kept: not_json" in said
    assert f"{filled.hint('dead drop ID')} drops it" in said
    assert len(letters(filled)) == 1
    filled("dead", "drop", "--all")
    assert letters(filled) == []
    filled.json("status")


def bury(cli: Cli, value: bytes = GOOD, group: str = "expander") -> int:
    with cli.ports() as ports:
        ports.dead.bury(ACTIONS, group, "failed", "it was a full moon", 1, value)
        return ports.dead.letters(0, 10)[-1].id


def test_a_letter_that_can_be_done_now_is_sent_again_as_it_was(filled: Cli) -> None:
    filled("save-pin", 60, "--owner", 2, "--board", 20, "--created-ms", 3_000)
    filled.work()
    letter_id = bury(filled)

    assert "1 sent again" in filled("dead", "retry", letter_id).stderr

    assert letters(filled) == []
    with filled.ports() as ports:
        consumer = ports.queue.consumer(ACTIONS, "test")
        assert consumer.poll(10_000, 0)[-1].value == GOOD
        consumer.close()
    filled.work()
    assert filled.feed(1)[0] == 60


def test_a_retry_that_was_interrupted_is_repeated(filled: Cli) -> None:
    """Between its steps the letter has another name; it is never gone before its message is out."""
    bury(filled, group=SET_ASIDE + "expander")

    assert "1 sent again" in filled("dead", "retry", "--all").stderr
    assert letters(filled) == []


def test_a_letter_of_a_topic_that_this_program_does_not_know_is_kept(filled: Cli) -> None:
    with filled.ports() as ports:
        ports.dead.bury(
            Topic("feed.later", durable=True, decode=single(bytes)), "later", "failed", "of a newer program", 1, b"x"
        )

    assert "knows no topic feed.later" in filled("dead", "retry", "--all", code=1).stderr

    (letter,) = letters(filled)
    assert (letter["topic"], letter["group"]) == ("feed.later", "later")


def test_a_message_that_its_topic_refuses_keeps_no_other_one_from_being_sent(
    filled: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on brokers whose limit was lowered."""
    publish = EmbeddedQueue.publish
    for value in (GOOD + b" ", GOOD):
        bury(filled, value)

    def strict(queue: EmbeddedQueue, topic: Topic[object], values: Sequence[bytes], partition: int | None) -> None:
        if len(values[0]) > len(GOOD):
            raise MessageRefusedError("feed.actions: too large")
        publish(queue, topic, values, partition)

    with monkeypatch.context() as patch:
        patch.setattr(EmbeddedQueue, "publish", strict)
        said = filled("dead", "retry", "--all", code=1).stderr

    assert "kept: refused: feed.actions: too large" in said
    assert "1 sent again, 1 kept" in said
    (letter,) = letters(filled)
    assert letter["bytes"] == len(GOOD) + 1
    with filled.ports() as ports:
        assert lag_of(ports.queue, ACTIONS, "expander") == 1


@pytest.mark.parametrize("words", [["retry"], ["drop"], ["retry", 1, "--all"]])
def test_either_ids_or_all(filled: Cli, words: list[object]) -> None:
    assert "either ids or --all" in filled("dead", *words, code=2).stderr


def test_an_unknown_id_is_refused_before_anything_is_done(filled: Cli) -> None:
    letter_id = bury(filled)

    filled("dead", "drop", letter_id, 99, code=1)

    assert len(letters(filled)) == 1


@pytest.mark.processes
def test_a_worker_lets_old_letters_go_and_logs_each(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEED_WORKER_HOUSEKEEPING", "50ms")
    monkeypatch.setenv("FEED_LIMITS_DEAD_LETTER_AGE", "1d")
    with cli.ports() as ports:
        ports.dead.bury(ACTIONS, "expander", "malformed", "long ago", 1, b"old")
        ports.dead.bury(ACTIONS, "expander", "malformed", "just now", wall_ms(), b"new")
    worker = cli.spawn("work")
    try:
        eventually(lambda: cli.json("status", code=1)["dead_letters"] == 1, "the old one is gone")
    finally:
        worker.terminate()
        _, stderr = worker.communicate(timeout=60)

    (line,) = [json.loads(line) for line in stderr.splitlines() if b"dead_letter.expired" in line]
    assert (line["letter"], line["reason"], line["level"]) == (1, "malformed", "error")
    assert "just now" in cli("dead", "show", 2).stdout
