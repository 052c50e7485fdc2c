"""The loops that keep catalogs fresh: those of a cluster's worker, and the listener of each web process."""

import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import partial
from typing import Any, Final, assert_never

import structlog

from feedstore.app.catalogs import place
from feedstore.app.config import Config
from feedstore.app.wiring import monotonic_s
from feedstore.catalog import pins
from feedstore.catalog.port import CatalogStore, Update
from feedstore.catalog.posting import LATE_MS
from feedstore.catalog.reader import Catalog
from feedstore.catalog.settings import kind_of
from feedstore.domain import PinDeleted, PinSaved
from feedstore.errors import NotNowError
from workers.catalog.listener import Listener, running
from workers.catalog.messages import encode_update
from workers.catalog.topics import UPDATES
from workers.catalog.updater import OlderDeltaError, PostedUpdater, Updater, UpdateSlots, posted_to, updater_group
from workers.following.groups import UPDATES_TICKER
from workers.following.messages import RangeTask, Task, encode_action
from workers.following.ports import Ports
from workers.following.topics import ACTIONS
from workers.pipeline.relay import Ticker
from workers.pipeline.retry import Rest, RetryPolicy
from workers.pipeline.runtime import Every, Loop
from workers.pipeline.spec import StageSpec
from workers.pipeline.stage import Begun, Stage
from workers.queue.port import PositionLostError, Queue, Topic

_log = structlog.get_logger()

COLLECT_EVERY_S: Final = 60.0
LOOK_EVERY_S: Final = 1.0
"""How often the builder checks whether a build is due, or has ended."""

SPREAD: Final = 0.02
"""A build begins after it is due by a random part of its interval, up to this share: if several workers write a
cluster, one builds, and the others see what it has built.
"""

TICKS_MISSED: Final = 10
"""A web process opens its queue again only if this many ticks did not come, however short `ttl` is."""

_AGAIN_S: Final = 5.0
"""The least rest after a build that failed."""
_REFUSED: Final = 1
"""The exit status of a build that would fail again: its generation is suspicious, for example."""
_SAID_BYTES: Final = 2_000
"""How much of what a build said is named as the reason if it has failed: the end, where its error is."""
_READ_BYTES: Final = 65_536
"""How much of it is read at once: all that a pipe holds, so that lines are not cut."""

StageOf = Callable[[Ports, Config, StageSpec[Any]], Stage[Any]]


def loops(ports: Ports, config: Config, cluster: str, stage_of: StageOf) -> list[Loop]:
    """The loops that keep the catalogs of a cluster fresh. stage_of: makes a stage of the worker."""
    found: list[Loop] = []
    for name, settings in config.catalogs.items():
        # An updater of a catalog in files owns the delta: a second one would meet its lock.
        store = ports.once((name, cluster), place(config, name, cluster).store)
        found.append(_updater(ports, config, name, cluster, store, stage_of))
        if kind_of(name).source == "pins":
            rest = Rest(monotonic_s, RetryPolicy(10.0, 600.0))
            found.append(Builder(config, name, cluster, store, rest, random.random))
        found.append(collector(f"catalog-{name}-{cluster}-collector", store, settings.keep, monotonic_s))
    return found


def ticker(ports: Ports, config: Config) -> Ticker:
    """The loop that sends the ticks of posted updates."""

    def settled_ms() -> int:
        # An update has been published once its request is answered.
        return max(1, ports.clock() - LATE_MS)

    every_s = config.worker.tick_ms / 1_000
    return Ticker(settled_ms, ports.queue, UPDATES, monotonic_s, encode_update, every_s, UPDATES_TICKER, ports.meter)


def pin_updates(task: Task | RangeTask) -> Sequence[Update]:
    """What a task says to the catalog of pins. A RangeTask says nothing: it comes after the tasks of its actions."""
    if isinstance(task, RangeTask) or not isinstance(task.action, PinSaved | PinDeleted):
        return ()
    return (pins.update_of(task.action),)


@contextmanager
def listening(
    config: Config, catalogs: Mapping[str, Catalog[Any]], open_queue: Callable[[], Queue], clock: Callable[[], int]
) -> Iterator[None]:
    """Keeps this process's caches of catalogs fresh to the end of the block. catalogs: by name. clock: the home's."""
    from_files: dict[str, Catalog[Any]] = {}

    def listener(
        name: str,
        topic: Topic[Any],
        fresh: Mapping[str, Catalog[Any]],
        updates_of: Callable[[Any], tuple[str, Iterable[Update]]],
    ) -> AbstractContextManager[None]:
        ttl_ms = min(config.catalogs[each].ttl_ms for each in fresh)
        silent_s = max(ttl_ms, TICKS_MISSED * config.worker.tick_ms) / 1_000
        return running(Listener(name, fresh, updates_of, open_queue, topic, monotonic_s, clock, silent_s))

    with ExitStack() as stack:
        for name, catalog in catalogs.items():
            match kind_of(name).source:
                case "pins":
                    said = partial(_said_to, name)
                    stack.enter_context(listener(f"catalog-{name}-listener", ACTIONS, {name: catalog}, said))
                case "files":
                    from_files[name] = catalog
                case unknown:
                    assert_never(unknown)
        if from_files:
            stack.enter_context(
                listener("catalogs-listener", UPDATES, from_files, lambda posted: (posted.catalog, posted.said()))
            )
        yield


def _said_to(catalog: str, task: Task | RangeTask) -> tuple[str, Sequence[Update]]:
    return catalog, pin_updates(task)


def _updater(ports: Ports, config: Config, name: str, cluster: str, store: CatalogStore, stage_of: StageOf) -> Loop:
    """The stage that enters the updates of a catalog."""
    group = updater_group(name, cluster)
    kept_ms = config.limits.action_age_ms
    topic: Topic[Any]
    encode: Callable[[Any], bytes]
    updates_of: Callable[[Any], Iterable[Update]]
    updater: Updater[Any]
    match kind_of(name).source:
        case "pins":
            topic, encode, updates_of, then = ACTIONS, encode_action, pin_updates, "it is built again"
            updater = Updater(store, updates_of, ports.queue, topic, group, ports.follows.now, kept_ms)
        case "files":
            topic, encode, updates_of = UPDATES, encode_update, posted_to(name)
            then = "load a batch that is read from now on"
            updater = PostedUpdater(store, updates_of, ports.queue, topic, group, ports.clock, kept_ms)
        case unknown:
            assert_never(unknown)

    def stage() -> Stage[Any]:
        spec: StageSpec[Any] = StageSpec(
            group=group,
            topic=topic,
            encode=encode,
            handle=updater.enter,
            ticks=updater.tick,
            slots=UpdateSlots(updates_of),
            lost=f"updates of the catalog {name} in cluster {cluster} were lost: {then}",
        )
        return stage_of(ports, config, spec)

    return Begun(group, updater.begin, stage, monotonic_s, (PositionLostError, OlderDeltaError), ports.meter)


def collector(name: str, store: CatalogStore, keep: int, clock: Callable[[], float]) -> Loop:
    """The loop that regularly removes generations and updates that no fetch needs. clock: monotonic seconds."""

    def collect() -> None:
        gone = store.collect(keep)
        if gone.generations or gone.entries:
            _log.info("catalog.collected", loop=name, generations=gone.generations, updates=gone.entries)

    return Every(name, collect, COLLECT_EVERY_S, clock, "catalog.unavailable")


class _Build:
    """A build in a process of its own. What it says on stderr goes to that of this process, as its own log lines do.
    Raises OSError if it cannot be started.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - this program
            command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, bufsize=0
        )
        assert self._process.stderr is not None
        self._stderr = self._process.stderr
        os.set_blocking(self._stderr.fileno(), False)
        self._said = b""

    def poll(self) -> int | None:
        """Its exit status, once it has ended. Call it often: what it says meanwhile has little room."""
        code = self._process.poll()
        while part := self._stderr.read(_READ_BYTES):
            with suppress(OSError):  # its reader has gone
                os.write(2, part)
            self._said = (self._said + part)[-_SAID_BYTES:]
        if code is not None:
            self._stderr.close()
        return code

    def said(self) -> str:
        """The end of what it said on stderr, in one line."""
        return " ".join(self._said.decode(errors="replace").split())

    def kill(self) -> None:
        self._process.kill()  # it may have inherited that signals to end are ignored
        self._process.wait()
        self._stderr.close()


class Builder:
    """Builds a generation when the latest one is old, or the current one lacks updates. It uses a process of its own: a
    build reads the whole follow store, and would make the writes of a worker in the same process slower.

    If a build failed, it is repeated soon. If it was refused, the next one waits as long as one after a build does: the
    same would be refused again, at the same price. Both rests end once another generation comes into use: somebody has
    built.

    rest: the rests after failed builds. random: returns a number from 0 to 1.
    """

    rest_s = LOOK_EVERY_S

    def __init__(
        self,
        config: Config,
        catalog: str,
        cluster: str,
        store: CatalogStore,
        rest: Rest,
        random: Callable[[], float],
    ) -> None:
        self.name = f"catalog-{catalog}-{cluster}-builder"
        self._build_ms = config.catalogs[catalog].build_ms
        self._store = store
        words = ["--home", str(config.home), "catalog", "build", catalog, "--cluster", cluster]
        self._command = [sys.executable, "-P", "-m", "workers.cli", *words]
        self._build: _Build | None = None
        self._failed = False
        """Whether the latest build failed or was refused, and no other generation came into use since."""
        self._used = ""
        """The id of the generation that was in use at the last look."""
        self._is_away = False
        self._rest = rest
        self._random = random
        self._late_ms = self._lateness_ms()

    def step(self) -> bool:
        if self._build is not None:
            code = self._build.poll()
            if code is None:
                return False
            said, self._build = self._build.said(), None
            self._late_ms = self._lateness_ms()
            self._failed = bool(code)
            if code:
                self._not_built(self._build_ms / 1_000 if code == _REFUSED else _AGAIN_S, code=code, error=said)
            else:
                self._rest.ended()
        elif self._is_due() and not self._rest.is_resting():
            try:
                self._build = _Build(self._command)
            except OSError as error:  # the machine has no process or memory left
                self._not_built(_AGAIN_S, error=str(error))
        return False

    def close(self) -> None:
        """Ends a build that runs: what it leaves is never read."""
        build, self._build = self._build, None
        if build is not None:
            build.kill()

    def _not_built(self, least_s: float, **why: object) -> None:
        wait_s = self._rest.failed(least_s=least_s)
        _log.warning("catalog.not_built", loop=self.name, **why, wait_s=round(wait_s, 3))

    def _is_due(self) -> bool:
        try:
            delta = self._store.delta()
            generations = self._store.generations()
        except NotNowError as error:
            if not self._is_away:  # the log would get a line a second
                _log.warning("catalog.unavailable", loop=self.name, error=str(error))
            self._is_away = True
            return False
        self._is_away = False
        if not delta.known_ms:
            return False  # the delta has not begun: a generation of now would lack its first updates
        current = next((each for each in generations if each.current), None)
        if current is None:
            return True
        latest = generations[-1]
        if latest.current and latest.id != self._used:
            self._rest.ended()  # it is no rollback, which would not change what is refused
        self._used = current.id
        # If a generation is later than the current one and was used, it was rolled back. What was wrong with it may
        # still be wrong, so the next build waits until it is due, even if the current one lacks updates. One that the
        # latest build has loaded and not used is not that one.
        self._failed = self._failed and not latest.current
        if self._failed:
            latest = current
        return latest.as_of_ms < max(delta.floor_ms, delta.known_ms - self._build_ms - self._late_ms)

    def _lateness_ms(self) -> int:
        return int(SPREAD * self._build_ms * self._random())
