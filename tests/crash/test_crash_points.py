"""kill -9 at every named crash point, then a restart: nothing acknowledged is lost, nothing unwanted appears (rules 1,
7, 8, 11).
"""

import os
import random
import shutil
import signal
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from feedstore.clocks import wall_ms
from tests.crash import harness, victim
from tests.crash.harness import Verdict
from tests.crash.points import PARKING, POINTS
from tests.crash.victim import Spec
from workers.app import wiring

pytestmark = [
    pytest.mark.processes,
    pytest.mark.xdist_group("crash_points"),  # `outcomes` runs the drills of all points, wherever it is asked for
]

ACTIONS = 24
ONCE = (
    "follows.ask_refill",
    "follows.redate",
    "publish.deliveries.delivery",
    "publish.deliveries.hold",
    "dead.bury",
    "between",
    *PARKING,
)
"""What happens rarely: the victim dies the first time. Everything else has worked once before."""
LATE = ("follows.redate", "publish.deliveries.hold")
"""What only happens where actions and deliveries have waited too long (rule 8)."""
GROUPS = ("expander", "writer-a", "writer-b")
DRILLS_AT_ONCE = 2
DRILL = "test_rule_11_a_kill_at_any_point_loses_nothing_acknowledged"


@dataclass(frozen=True)
class Outcome:
    died: int
    reached: list[str]
    at_death: Verdict
    acknowledged: list[int]
    verdict: Verdict
    letters: list[tuple[str, str]]


def drill(directory: Path, template: Path, point: str) -> Outcome:
    home = directory / "home"
    shutil.copytree(template, home)
    acks = directory / "acks"
    dated_ms = wall_ms() - 100 * harness.HOUR_MS
    lines = harness.some_actions(seed=POINTS.index(point), first=100, count=ACTIONS, now_ms=dated_ms)
    if point.startswith(LATE):
        early = wall_ms() - 60 * harness.HOUR_MS
        harness.record_at(home, lines[:8], lambda: early)
        harness.expand_at(home, lambda: early)
        harness.record_at(home, lines[8:16], lambda: early, first_key=8)
        acks.write_text("".join(f"ack {number}\n" for number in range(16)))
    if point.startswith("dead."):
        harness.publish_malformed(home)
    nth = 1 if point.startswith(ONCE) else 2
    spec = Spec(str(home), str(acks), lines, point=point, nth=nth, flapping=point.startswith(PARKING))
    died = harness.kill_at(point, spec, directory / "stderr")
    passed = victim.reached(acks)
    at_death = harness.check(home, lines)
    harness.recover(replace(spec, point=None))
    with closing(wiring.open_ports(harness.config_of(home), "read")) as ports:
        letters = sorted((letter.group, letter.reason) for letter in ports.dead.letters(0, 100))
    return Outcome(died, passed, at_death, victim.acknowledged(acks), harness.check(home, lines), letters)


@pytest.fixture(scope="module")
def outcomes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[Outcome]]]:
    """The drills of all points that were asked for; two at a time, because a drill waits for half of its time."""
    asked = [
        item.callspec.params["point"]
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.originalname == DRILL
    ]
    template = harness.make_home(tmp_path_factory.mktemp("template") / "home")
    with ThreadPoolExecutor(DRILLS_AT_ONCE) as pool:
        yield {point: pool.submit(drill, tmp_path_factory.mktemp("drill"), template, point) for point in asked}


@pytest.mark.parametrize("point", POINTS)
def test_rule_11_a_kill_at_any_point_loses_nothing_acknowledged(
    point: str, outcomes: dict[str, Future[Outcome]]
) -> None:
    outcome = outcomes[point].result()

    assert outcome.reached == [point]
    assert outcome.died == -signal.SIGKILL
    assert outcome.acknowledged == list(range(ACTIONS))
    assert outcome.verdict == Verdict({"a": 0, "b": 0}, {"a": 0, "b": 0}, divergent=False)
    if point.startswith("between"):
        assert outcome.at_death.divergent
    letters = [(group, reason) for group in GROUPS for reason in ("not_json", "unknown_version")]
    assert outcome.letters == (letters if point.startswith("dead.") else [])


def test_kills_at_random_moments_lose_nothing_acknowledged(tmp_path: Path) -> None:
    seed = int(os.environ.get("CRASH_SEED") or random.randrange(2**32))
    print(f"CRASH_SEED={seed}")
    rng = random.Random(seed)
    home = harness.make_home(tmp_path / "home")
    acks = tmp_path / "acks"
    lines = harness.some_actions(seed, first=1_000, count=120, now_ms=wall_ms())
    spec = Spec(str(home), str(acks), lines, together=2)
    for stop_after in sorted(rng.sample(range(1, 100), 4)):
        process = harness.start_victim(spec, tmp_path / "stderr")
        deadline = time.monotonic() + victim.DEADLINE_S
        while len(victim.acknowledged(acks)) < stop_after and process.exitcode is None:
            assert time.monotonic() < deadline
            time.sleep(rng.random() / 100)
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL
    harness.recover(spec)

    assert victim.acknowledged(acks) == list(range(len(lines)))
    assert harness.check(home, lines).clean
