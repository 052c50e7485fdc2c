"""What `status` and `top` say of a home, and of which homes an operator must know."""

import contextlib
import os
import pty
import re
import select
import signal
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from feedstore.app import config as configuration
from feedstore.clocks import Process
from tests.cli.command import DEADLINE_S, Cli, eventually
from tests.cli.template import run
from workers.app import home
from workers.app.rebuild import recreate
from workers.cli.condition import BEHIND_MS, PARKED_MS, WAITS_MS, ClusterStatus, Condition, Disk, problems
from workers.cli.session import Session
from workers.cli.signals import Stop
from workers.cli.status import workers
from workers.cli.top import LastLook, rendered
from workers.cli.work import recorded_landed, run_until
from workers.following.landed import REBUILDING_MS

MINUTE_MS = 60_000
WELL = ClusterStatus(1_000_000, 500, None, "ticks", {"put_off": 0, "refill": 0, "fanout": 0, "parked": 0}, None)
GROUPS: Mapping[str, int] = {"relay": 0, "expander": 0, "writer-a": 0, "retries-a": 0}
HEALTHY = Condition(
    worker=12,
    stopped=None,
    has_worker=True,
    quiet=True,
    groups=GROUPS,
    members={},
    done={"expander": 100, "writer-a": 50, "retries-a": 0},
    waits_ms=None,
    dead=0,
    clusters={"a": WELL, "b": WELL},
    clocks={},
    own_off_ms=None,
    off=(),
    disks=(Disk("cluster a", 10 << 30, 100 << 30),),
)


def cluster(**changes: Any) -> Mapping[str, ClusterStatus]:
    return {"a": WELL, "b": replace(WELL, **changes)}


def test_of_a_healthy_home_there_is_nothing_to_know():
    assert problems(HEALTHY, None) == []
    assert problems(HEALTHY, MINUTE_MS) == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"stopped": "KeyError"}, "the worker has stopped, and only serves: KeyError"),
        ({"clusters": cluster(error="cluster b does not answer: refused")}, "cluster b does not answer: refused"),
        ({"clusters": cluster(behind_ms=BEHIND_MS + 1)}, "cluster b is 3.0 min behind, more than 3.0 min"),
        (
            {"clusters": cluster(behind_ms=None, watermark_ms=None)},
            None,  # a new one, or one whose clock was brought back: it tells the time within seconds
        ),
        ({"clusters": cluster(parked_ms=PARKED_MS + 1)}, "deliveries have been parked for cluster b for 10.0 min"),
        ({"clusters": cluster(parked_ms=PARKED_MS)}, None),
        ({"clocks": {1: 400_000}}, "the clock of shard 1 is 6.7 min ahead of this machine"),
        ({"off": (Process(7, "host", "feedctl serve", 90_000, 1),)}, "the clock of feedctl serve (pid 7 on host) is"),
        (
            {
                "own_off_ms": -90_000,
                "off": (Process(7, "host", "feedctl serve", -90_003, 1), Process(8, "host", "feedctl top", -89_900, 1)),
                "clocks": {1: 400_000},
            },
            "this machine's clock is 90 s behind the home's time",  # and that is all: the rest follows from it
        ),
        ({"disks": (Disk("the queue", 5 << 20, 1 << 40),)}, "the disk of the queue has 5 MiB left"),
        (
            {"disks": (Disk("cluster a", 4_096, 1 << 40, ("cluster b", "the follow store")),)},
            "the disk of cluster a, cluster b, the follow store is full: actions are refused until there is room",
        ),
        ({"disks": (Disk("cluster b", 0, 1 << 40),)}, "the disk of cluster b is full: nothing lands there until"),
        ({"dead": 1}, "there is 1 dead letter"),
        ({"dead": 2}, "there are 2 dead letters"),
        (
            {"unsafe": "feed.actions: retention.ms: expected 5, found 4 (unsafe); feedctl topics apply mends it"},
            "acknowledged messages could be lost: feed.actions: retention.ms: expected 5, found 4 (unsafe); feedctl",
        ),
    ],
)
def test_each_thing_that_an_operator_must_know_has_a_sentence(changes: dict[str, Any], said: str | None):
    found = problems(replace(HEALTHY, **changes), None)
    assert len(found) == (said is not None)
    assert not found or found[0].startswith(said or "")


def test_a_process_that_differs_from_a_machine_whose_clock_was_set_is_named_too():
    off = (Process(7, "host", "feedctl serve", -90_003, 1), Process(8, "host", "feedctl replay", 3_600_000, 1))
    machine, process = problems(replace(HEALTHY, own_off_ms=-90_000, off=off), None)
    assert "feedctl clock set" in machine
    assert process.startswith("the clock of feedctl replay (pid 8 on host) is 60.0 min ahead of the home's time")


@pytest.mark.parametrize(
    ("changes", "tells"),
    [
        ({"waits_ms": WAITS_MS + 1, "groups": {**GROUPS, "relay": 2_996}}, True),
        ({"waits_ms": WAITS_MS, "groups": {**GROUPS, "relay": 2_996}}, False),
        ({"clusters": cluster(behind_ms=WAITS_MS + 1), "groups": {**GROUPS, "writer-a": 2_996}}, True),
        ({"quiet": True, "clusters": cluster(behind_ms=86_400_000 * 400)}, False),
    ],
)
def test_what_waits_without_a_worker_is_known_after_a_minute(changes: dict[str, Any], *, tells: bool):
    alone: dict[str, Any] = {"worker": None, "has_worker": False, "quiet": False}
    found = problems(replace(HEALTHY, **(alone | changes)), None)
    assert len(found) == tells
    how = "for" if "waits_ms" in changes else "for up to"
    assert not found or re.match(rf"2,996 messages have waited {how} (1.0 min|60.0 s)", found[0])
    assert not found or "no worker runs in this home" in found[0]


ON_SERVERS: Mapping[str, int] = {"expander": 1, "writer-a": 2, "retries-a": 2, "writer-b": 1, "retries-b": 1}
BEHIND: Mapping[str, ClusterStatus] = {"a": replace(WELL, behind_ms=WAITS_MS + 1), "b": WELL}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, None),
        (
            {"waits_ms": WAITS_MS + 1, "groups": {"relay": 2_996}},
            "2,996 actions to relay, the oldest for 60.0 s, and nothing relays them: feedctl relay",
        ),
        ({"waits_ms": WAITS_MS, "groups": {"relay": 2_996}}, None),
        (
            {"members": ON_SERVERS | {"expander": 0}, "groups": {"expander": 7}, "clusters": BEHIND},
            "7 messages to do for expander, and no process does them: feedctl expand",
        ),
        (
            {"members": ON_SERVERS | {"writer-a": 0}, "groups": {"writer-a": 1}, "clusters": BEHIND},
            "1 message to do for writer-a, and no process does them: feedctl write --cluster a",
        ),
        (
            {"members": ON_SERVERS | {"writer-b": 0}, "groups": {"writer-b": 1}, "clusters": BEHIND},
            None,  # what waits for b is younger than a minute: its writer may be starting
        ),
        ({"members": ON_SERVERS | {"writer-a": 0}, "groups": {"writer-a": 0}, "clusters": BEHIND}, None),
        ({"groups": {"writer-a": 9}, "clusters": BEHIND}, None),  # it is at work
    ],
)
def test_on_servers_what_no_process_reads_is_told_with_the_command_that_does(changes: dict[str, Any], said: str | None):
    servers: dict[str, Any] = {"worker": None, "members": ON_SERVERS, "quiet": False}
    given = servers | changes | {"groups": {**GROUPS, **changes.get("groups", {})}}
    assert problems(replace(HEALTHY, **given), None) == ([] if said is None else [said])


def test_who_works_is_said_as_far_as_it_is_known():
    assert workers(HEALTHY) == "pid 12"
    assert workers(replace(HEALTHY, worker=None, has_worker=False)) == "none runs"
    assert workers(replace(HEALTHY, worker=None)) == "unknown", "only the queue knows"
    assert workers(replace(HEALTHY, worker=None, members={"expander": 2, "writer-a": 0})) == "expander 2, writer-a NONE"


def test_a_bound_that_is_given_holds_whatever_the_reason():
    alone = replace(HEALTHY, worker=None, has_worker=False, clusters=cluster(behind_ms=2 * MINUTE_MS))
    assert problems(alone, None) == []
    assert problems(alone, MINUTE_MS) == [
        "cluster b is 2.0 min behind, more than 60.0 s, and no worker runs in this home"
    ]
    rebuilding = replace(HEALTHY, clusters=cluster(watermark_ms=REBUILDING_MS, behind_ms=None))
    assert problems(rebuilding, None) == ["cluster b is being rebuilt"]
    idle = replace(rebuilding, worker=None, has_worker=False, quiet=False, groups={**GROUPS, "expander": 3})
    assert not [each for each in problems(idle, None) if "waited for" in each], "that is no age"
    assert "rebuilt" in "\n".join(rendered("home", None, LastLook(0.0, rebuilding)))


def test_a_rebuild_that_was_given_up_is_known_though_no_worker_runs():
    alone = replace(HEALTHY, worker=None, has_worker=False)
    rebuilding = cluster(watermark_ms=REBUILDING_MS, behind_ms=None)
    assert problems(replace(alone, clusters=rebuilding), None) == [
        "cluster b is being rebuilt, and no worker runs in this home"
    ]


def test_a_cluster_that_is_being_rebuilt_is_known_before_its_first_tick(filled: Cli):
    """As after a rebuild that was killed."""
    session = Session(filled.home, "error")
    with home.worker_lock(filled.home), filled.ports(feeds=False) as ports:
        recreate(
            ports,
            configuration.load(filled.home, {}),
            "b",
            lambda worker: run_until(session, recorded_landed(ports, ports.replicas, worker), ports, worker, Stop()),
            lambda _: None,
        )
    assert filled.json("status", code=1)["clusters"]["b"]["behind_ms"] is None
    said = filled("status", code=1).stdout
    assert "cluster   b: being rebuilt" in said
    assert "problem   cluster b is being rebuilt, and no worker runs in this home" in said
    filled.work()
    assert "problem" not in filled("status").stdout
    filled("verify")


def test_a_problem_is_one_line():
    said = problems(replace(HEALTHY, clusters=cluster(error="cluster b is damaged: size\n  of a file")), None)
    assert said == ["cluster b is damaged: size of a file"]


def test_a_screen_says_rates_and_what_needs_attention():
    later = replace(
        HEALTHY,
        done={"expander": 300, "writer-a": 40, "retries-a": 0},
        groups={**GROUPS, "expander": 1_234},
        waits_ms=2_000,
        dead=3,
    )
    lines = list(rendered("/srv/home", LastLook(10.0, HEALTHY), LastLook(12.0, later)))
    assert lines[0] == "/srv/home   worker: pid 12"
    assert lines[1] == "! there are 3 dead letters"
    assert any(re.fullmatch(r"expander +1,234 +100", line) for line in lines)
    assert any(re.fullmatch(r"writer-a +0 +-", line) for line in lines), "one that went back has no rate"
    assert any(re.fullmatch(r"relay +0 +-", line) for line in lines)
    assert any(re.fullmatch(r"a +0.5 s  ticks +0 +0 +0 +0", line) for line in lines)
    assert "the oldest action that is not relayed: 2.0 s" in lines
    assert "disk            10.0 GiB free (10%): cluster a" in lines
    assert list(rendered("/srv/home", None, LastLook(0.0, HEALTHY)))[1] == "nothing needs attention"


def test_top_prints_once_and_ends_as_status_does(cli: Cli):
    shown = cli("top", "--once", "--every", "10ms").stdout
    assert "nothing needs attention" in shown
    assert "\x1b" not in shown
    with cli.ports() as ports:
        from workers.following.topics import ACTIONS  # noqa: PLC0415

        ports.dead.bury(ACTIONS, "expander", "malformed", "x", 1, b"x")
    assert "! there is 1 dead letter" in cli("top", "--once", "--every", "10ms", code=1).stdout
    assert cli.json("status", code=1)["problems"] == ["there is 1 dead letter"]
    assert "expected a duration" in cli("top", "--every", "often", code=2).stderr


def test_status_knows_of_actions_that_wait_for_a_worker(cli: Cli, monkeypatch: pytest.MonkeyPatch):
    cli("follow", 1, "--user", 2)
    assert cli.json("status")["problems"] == []
    monkeypatch.setattr("workers.cli.condition.WAITS_MS", -1)
    [said] = cli.json("status", code=1)["problems"]
    assert said.startswith("1 message has waited for ")


@pytest.mark.processes
def test_top_redraws_a_terminal_and_ends_quietly(cli: Cli):
    ours, theirs = pty.openpty()
    process = cli.interpreter("top", "--every", "50ms", stdin=theirs, stdout=theirs, start_new_session=True)
    os.close(theirs)
    said = bytearray()

    def read() -> bool:
        with contextlib.suppress(OSError):  # its end of the terminal is closed
            if select.select([ours], [], [], 0.1)[0]:
                said.extend(os.read(ours, 65_536))
        return said.count(b"\x1b[H") >= 3

    try:
        eventually(read, "it has drawn three times")
        process.send_signal(signal.SIGINT)
        while process.poll() is None:
            read()
        assert process.wait(DEADLINE_S) == 0
        assert process.stderr is not None
        assert process.stderr.read() == b""
        assert b"nothing needs attention\x1b[K" in said
    finally:
        process.kill()
        process.communicate()
        os.close(ours)


INTERRUPTED_IN_A_CALLBACK = """
import os, signal
from workers.cli import main, top
looked = top._looked

class Callback:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(100):
            pass

callbacks = [Callback()]

def look(*arguments):
    found = looked(*arguments)
    callbacks.clear()
    return found

top._looked = look
main()
"""


@pytest.mark.processes
def test_top_ends_though_the_interrupt_is_lost_in_a_callback(cli: Cli):
    """The interpreter can only print what is raised where nothing calls it."""
    done = run(INTERRUPTED_IN_A_CALLBACK, "--home", cli.home, "top", "--every", "50ms")
    assert (done.returncode, done.stdout.count("nothing needs attention")) == (0, 1)
    assert "KeyboardInterrupt" in done.stderr


def test_the_names_of_disks_are_those_of_stores(cli: Cli):
    [disk] = cli.json("status")["disks"]
    assert disk["store"] == "cluster a", "all are on one file system"
    assert 0 < disk["free_bytes"] <= disk["capacity_bytes"]
    assert Path(cli.home).exists()
