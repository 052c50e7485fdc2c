"""When a worker may end, if there is always a tick on its way."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing

import pytest

from feedstore.app import config as configuration
from feedstore.follows.port import FollowStoreUnavailableError
from tests.cli.command import Cli
from workers.app import until, wiring
from workers.following.groups import EXPANDER
from workers.following.ports import Ports
from workers.following.topics import ACTIONS, DELIVERIES
from workers.queue.port import lag_of

LOOK_S = 0.05
LOOKS = 12


class Tickers:
    """Those of a worker. They are in a step when they are asked to pause for the first time."""

    def __init__(self) -> None:
        self.paused = False
        self.pauses = 0

    def pause(self) -> bool:
        self.pauses += not self.paused
        was, self.paused = self.paused, True
        return was

    def resume(self) -> None:
        self.paused = False


@pytest.fixture
def land(cli: Cli) -> Iterator[tuple[Ports, Callable[[], None]]]:
    """The ports of a home, and what does all that is left to do."""
    config = configuration.load(cli.home, {})
    with (
        cli.ports(access="write") as ports,
        closing(wiring.expander(ports, config)) as expander,
        closing(wiring.writer(ports, config, "a")) as first,
        closing(wiring.writer(ports, config, "b")) as second,
    ):
        groups = {(ACTIONS, EXPANDER): expander, (DELIVERIES, "writer-a"): first, (DELIVERIES, "writer-b"): second}

        def land_all() -> None:
            while waits := [stage for group, stage in groups.items() if lag_of(ports.queue, *group)]:
                for stage in waits:
                    stage.step()

        yield ports, land_all


def test_all_has_landed_is_said_although_a_tick_is_on_its_way_at_every_look(
    cli: Cli, land: tuple[Ports, Callable[[], None]]
) -> None:
    ports, land_all = land
    config = configuration.load(cli.home, {})
    ticker, tickers, now_s = wiring.ticker(ports, config), Tickers(), [0.0]
    end = until.Idle(
        ports, config, lambda: ["a", "b"], clock=lambda: now_s[0], pause=tickers.pause, resume=tickers.resume
    )
    looks = 0
    while not end.yes and looks < 200:
        if not tickers.paused:
            ticker.tick()
        end()
        land_all()
        looks, now_s[0] = looks + 1, now_s[0] + LOOK_S
    assert end.yes
    assert (tickers.pauses, tickers.paused) == (1, False)


@pytest.mark.parametrize("away", [False, True])
def test_ticks_come_most_of_the_time_however_long_there_is_work(away: bool) -> None:
    """Watermarks move meanwhile, and large fanouts wait for them. away: the store, at every look."""

    def look() -> bool:
        if away:
            raise FollowStoreUnavailableError("away")
        return False

    tickers, now_s = Tickers(), [0.0]
    moment = until._QuietMoment(tickers.pause, tickers.resume, lambda: now_s[0])
    paused_for: list[float] = []
    looks = 20_000
    for _ in range(looks):
        if tickers.paused:
            paused_for[-1] += LOOK_S
        try:
            assert not moment.is_now(look)
        except FollowStoreUnavailableError:
            assert away
        if tickers.pauses > len(paused_for):
            paused_for.append(0.0)
        now_s[0] += LOOK_S
    assert len(paused_for) > 5
    assert sum(paused_for) < looks * LOOK_S / 4
    assert max(paused_for) < 33
    assert paused_for[0] < 1.2


def test_the_tickers_of_a_worker_pause(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    cli.set("tick", '"10ms"')
    monkeypatch.setattr(until, "_PAUSE_S", 0.8)
    monkeypatch.setattr(until, "_TICKS_FOR", 1)
    ends: list[Mapping[int, int]] = []

    def no_tick_came(ports: Ports, _: object) -> bool:
        ends.append(ports.queue.ends(ACTIONS))
        return len(ends) >= LOOKS and all(each == ends[-1] for each in ends[-LOOKS:])

    monkeypatch.setattr(until, "idle", no_tick_came)
    cli("follow", 1, "--user", 2)
    cli("save-pin", 7, "--owner", 2, "--board", 3)
    cli.work()
    assert cli.feed(1) == [7]
