"""How long after an action of a pin has committed a catalog shows it: the store of a cluster, and a web process that
holds the pin and hears of updates.
"""

import itertools
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from typing import NamedTuple

from bench import ours
from bench.children import child
from bench.context import Context
from bench.results import Row, at_most, percentile
from deploy.drills.repeating import repeating
from feedstore.app import catalogs, wiring
from feedstore.app import config as configuration
from feedstore.catalog.pins import HeldPin, key_of, live_pin
from feedstore.catalog.port import CatalogReader, CatalogUnavailableError
from feedstore.catalog.reader import Catalog
from feedstore.domain import DeletePin, Pin, SavePin
from feedstore.follows.port import Request
from feedstore.follows.store import FollowStore
from workers.app import catalogs as catalogs_of_workers
from workers.app.wiring import open_queue

OWNERS = 100
LOOK_S = 0.001
LONG_S = 60.0
BUSY_EACH = 20
BUSY_EVERY_S = 0.1
GOAL_S = 2.0


class Seen(NamedTuple):
    """Seconds after the commit."""

    store: float
    process: float


def measure(context: Context) -> list[Row]:
    """A deletion of a pin until the store of a cluster shows it, and a web process that holds the pin"""
    count = context.pick(200, 10)
    home = context.folder("catalog-updates") / "home"
    ours.make_home(home)
    with (home / configuration.FILE_NAME).open("a") as file:
        file.write("[catalogs.pins]\n")
    config = configuration.load(home, {})
    clock = wiring.clock_of(config)
    quiet: list[list[Seen]] = []
    busy: list[list[Seen]] = []
    with closing(wiring.open_follows(config, clock)) as follows:
        pins = [
            Pin(pin, 1 + pin % OWNERS, 1 + pin % OWNERS, 1_000 + pin)
            for pin in range(1, 2 * count * context.repeats + 1)
        ]
        ours.record(follows, [Request(SavePin(pin)) for pin in pins])
        with (
            child(ours.feedctl(home, "work"), context.scratch / "catalog-updates-work.log", watched=False),
            catalogs.open_reader(config, "pins", config.clusters[0].name) as store,
            catalogs.open_catalog(config, "pins") as catalog,
            catalogs_of_workers.listening(config, {"pins": catalog}, partial(open_queue, config, clock), clock),
        ):
            _wait_until_all_are_in(store, catalog, pins)
            context.say(f"{len(pins):,} pins are in a generation")
            left = iter(pins)
            for _ in range(context.repeats):
                quiet.append(_deleted(follows, store, catalog, list(itertools.islice(left, count))))
                with _saving(follows, first=10**6 * (1 + len(busy))):
                    busy.append(_deleted(follows, store, catalog, list(itertools.islice(left, count))))
    rate = f"while {BUSY_EACH / BUSY_EVERY_S:.0f} pins a second are saved"
    return [*_rows("a deleted pin", quiet), *_rows(f"a deleted pin {rate}", busy)]


def _rows(what: str, taken: Sequence[Sequence[Seen]]) -> list[Row]:
    return [
        Row(
            f"{what}, from its commit until {where} shows it, {share}",
            "s",
            [percentile([getattr(seen, side) for seen in repeat], value) for repeat in taken],
            at_most(GOAL_S) if share == "p99" else None,
        )
        for side, where in (("store", "the store of a cluster"), ("process", "a web process that holds it"))
        for share, value in (("p50", 0.50), ("p99", 0.99))
    ]


def _wait_until_all_are_in(store: CatalogReader, catalog: Catalog[HeldPin], pins: Sequence[Pin]) -> None:
    """In the store, and so in what a process fetches."""
    deadline = time.monotonic() + LONG_S
    left = [key_of(pin.pin) for pin in pins]
    while left:
        assert time.monotonic() < deadline, f"{len(left)} pins are not in the catalog"
        try:
            some = left[:1_000]
            found = store.fetch(some).records
            left = [*(key for key in some if key not in found), *left[1_000:]]
        except CatalogUnavailableError:
            pass  # it is being built
        time.sleep(10 * LOOK_S)
    # The replicas of the process hear once a second which of them answers.
    while catalog.begin([key_of(pins[0].pin)]).result().missing:
        assert time.monotonic() < deadline, "the catalog does not answer"
        time.sleep(10 * LOOK_S)


def _deleted(follows: FollowStore, store: CatalogReader, catalog: Catalog[HeldPin], pins: Sequence[Pin]) -> list[Seen]:
    """Deletes one after the other; each is held by the process when it is deleted."""
    taken = []
    for pin in pins:
        key = key_of(pin.pin)
        fetches = _until_held(catalog, key)
        ours.record(follows, [Request(DeletePin(pin.pin))])
        began = time.perf_counter()
        seen: dict[str, float] = {}
        while len(seen) < 2:
            assert time.perf_counter() < began + LONG_S, f"pin {pin.pin}: seen by {list(seen)} only"
            if "process" not in seen and not catalog.begin([key]).result().records[key]:
                seen["process"] = time.perf_counter() - began
            if "store" not in seen and live_pin(key, store.fetch([key]).records[key]) is None:
                seen["store"] = time.perf_counter() - began
            time.sleep(LOOK_S)
        assert catalog.counts().fetches == fetches, "it was fetched again, and not heard of"
        taken.append(Seen(**seen))
    return taken


def _until_held(catalog: Catalog[HeldPin], key: bytes) -> int:
    """How often the store had been asked by then."""
    assert catalog.begin([key]).result().records[key]
    fetches = catalog.counts().fetches
    assert catalog.begin([key]).result().records[key]
    assert catalog.counts().fetches == fetches
    return fetches


@contextmanager
def _saving(follows: FollowStore, first: int) -> Iterator[None]:
    """Others save pins meanwhile."""
    pins = (Pin(pin, 1, 1, 1_000) for pin in itertools.count(first))

    def save() -> None:
        ours.record(follows, [Request(SavePin(pin)) for pin in itertools.islice(pins, BUSY_EACH)])

    with repeating(BUSY_EVERY_S, save):
        yield
