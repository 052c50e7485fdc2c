"""What the clients of a site know of the records of its catalogs, and what they are told of them.

An answer says how far behind it may be. Every change that was acknowledged longer ago must be in it, whatever is away,
built, loaded or rolled back meanwhile.
"""

import base64
import json
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, NamedTuple

from feedstore.app import catalogs
from feedstore.app.config import Config
from feedstore.catalog.settings import PINS
from tests.soak.client import Client, refusal
from tests.stack import homes

ADS: Final = "ads"
SECTIONS: Final = f"""
[catalogs.{PINS}]
build = "40s"
keep = 2
ttl = "20s"

[catalogs.{ADS}]
keep = 3
"""
"""Of feed.toml. Builds come often, so that some of them meet each fault."""
_KEYS: Final = [f"campaign-{number}" for number in range(300)]
_POSTS_EVERY_S: Final = 0.2
_READS_EVERY_S: Final = 0.05
_AT_ONCE: Final = 20
_APART_MS: Final = 2_000
"""More than the clocks of this process and of the servers differ, and what a server takes to answer."""
_LATE_MS: Final = 8_000
"""An update that is posted later after its time may be missing from answers that deny it: docs/catalog.md."""
_BOUNDS_MS: Final = (None, None, 1_000, 5_000, 20_000)


class Change(NamedTuple):
    """An attempt to post a change. number: of the record; no other has it. acknowledged_ms: None if that is unknown."""

    time_ms: int
    number: int
    deleted: bool
    acknowledged_ms: int | None = None

    @property
    def rank(self) -> tuple[int, bool]:
        """Of two changes of a key the higher one counts."""
        return self.time_ms, self.deleted


@dataclass
class Ads:
    """Everything that was posted to the catalog of ads. Thread-safe."""

    _of: dict[str, dict[int, Change]] = field(default_factory=dict)
    _number: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def drawn(self, rng: Random, now_ms: int) -> dict[str, Change]:
        """New changes of some keys, which are about to be posted."""
        with self._lock:
            found = {}
            for key in rng.sample(_KEYS, rng.randint(1, _AT_ONCE)):
                self._number += 1
                found[key] = Change(now_ms, self._number, deleted=rng.random() < 1 / 10)
                self._of.setdefault(key, {})[self._number] = found[key]
            return found

    def acknowledged(self, changes: Mapping[str, Change], now_ms: int) -> None:
        with self._lock:
            for key, change in changes.items():
                self._of[key][change.number] = change._replace(acknowledged_ms=now_ms)

    def batch(self, as_of_ms: int) -> dict[str, int]:
        """What a batch that is read now has: the number of each key's last change up to a time."""
        found = {}
        with self._lock:
            for key, changes in self._of.items():
                before = (each for each in changes.values() if each.time_ms <= as_of_ms)
                last = max(before, key=lambda each: each.rank, default=None)
                if last is not None and not last.deleted:
                    found[key] = last.number
        return found

    def wrong(self, key: str, number: int | None, complete_ms: int) -> str | None:
        """What is wrong with an answer that has everything up to a time. number: None if there was no record."""
        with self._lock:
            changes = dict(self._of.get(key, {}))
        certain = [
            each
            for each in changes.values()
            if each.acknowledged_ms is not None
            and each.acknowledged_ms < complete_ms
            and each.acknowledged_ms - each.time_ms < _LATE_MS
        ]
        least = max(certain, key=lambda each: each.rank, default=None)
        if number is None:
            may = least is None or any(each.deleted and each.rank >= least.rank for each in changes.values())
        elif number not in changes:
            return f"{key} has the record {number}, which it never had"
        else:
            may = least is None or changes[number].rank >= least.rank
        if may:
            return None
        assert least is not None
        shown = "no record" if number is None else f"the record {number} of {changes[number].time_ms}"
        return f"{key} has {shown}, after {least} was acknowledged"


@dataclass
class Pins:
    """When which pin was saved or deleted, as far as that was acknowledged. Thread-safe."""

    _saved_ms: dict[int, int] = field(default_factory=dict)
    _deleted_ms: dict[int, int] = field(default_factory=dict)
    _deleting: set[int] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def saved(self, pin: int, now_ms: int) -> None:
        with self._lock:
            self._saved_ms[pin] = now_ms

    def deleting(self, pin: int) -> None:
        with self._lock:
            self._deleting.add(pin)

    def deleted(self, pin: int, now_ms: int) -> None:
        with self._lock:
            self._deleted_ms[pin] = now_ms

    def some(self, rng: Random) -> list[int]:
        """Pins of any time, and recent ones."""
        with self._lock:
            saved = list(self._saved_ms)
        return sorted({*rng.sample(saved, min(len(saved), _AT_ONCE)), *saved[-_AT_ONCE:]})

    def wrong(self, there: Iterable[int], missing: Iterable[int], complete_ms: int) -> list[str]:
        """What is wrong with an answer that has everything up to a time."""
        with self._lock:
            return [
                f"pin {pin} is there, and its deletion was acknowledged at {self._deleted_ms[pin]}"
                for pin in there
                if self._deleted_ms.get(pin, complete_ms) < complete_ms
            ] + [
                f"pin {pin} is missing, and it was acknowledged at {self._saved_ms[pin]}"
                for pin in missing
                if self._saved_ms.get(pin, complete_ms) < complete_ms and pin not in self._deleting
            ]


@dataclass
class Catalogs:
    """The clients of the catalogs: one posts, two read.

    clock: the home's time, in ms. wrong: what was answered that cannot be, and what was refused.
    """

    address: tuple[str, int]
    pins: Pins
    clock: Callable[[], int]
    ads: Ads = field(default_factory=Ads)
    answers: int = 0
    posts: int = 0
    wrong: list[str] = field(default_factory=list)

    def post(self, rng: Random, ended: threading.Event) -> None:
        client = Client(self.address)
        while not ended.wait(_POSTS_EVERY_S):
            self._post(client, rng)
        client.close()

    def _post(self, client: Client, rng: Random) -> None:
        """Each attempt is of changes of its own, as one that was late would not count."""
        changes: dict[str, Change] = {}

        def body() -> object:
            changes.clear()
            changes.update(self.ads.drawn(rng, self.clock()))
            return {"updates": [_update(key, change) for key, change in changes.items()]}

        path = f"/v1/catalogs/{ADS}/updates"
        status, said = client.ask_until_answered("POST", path, body)
        self.posts += 1
        if status == 200:
            self.ads.acknowledged(changes, self.clock())
        else:
            self.wrong.append(refusal("POST", path, status, said))

    def read(self, rng: Random, ended: threading.Event) -> None:
        client = Client(self.address)
        while not ended.wait(_READS_EVERY_S):
            if rng.random() < 1 / 2:
                self._read(client, PINS, [str(pin) for pin in self.pins.some(rng)], rng.choice(_BOUNDS_MS))
            else:
                self._read(client, ADS, rng.sample(_KEYS, _AT_ONCE), rng.choice(_BOUNDS_MS))
        client.close()

    def _read(self, client: Client, catalog: str, keys: Sequence[str], bound_ms: int | None) -> None:
        if not keys:
            return
        path = f"/v1/catalogs/{catalog}/get"
        body = {"keys": keys} | ({} if bound_ms is None else {"max_behind_ms": bound_ms})
        asked_ms = self.clock()
        status, said = client.ask("POST", path, body)
        if status != 200:
            if status not in {0, 503, 504}:
                self.wrong.append(refusal("POST", path, status, said))
            return
        self.answers += 1
        answer = json.loads(said)
        behind_ms = answer["behind_ms"]
        if behind_ms is None:
            return
        if bound_ms is not None and behind_ms > bound_ms + self.clock() - asked_ms + _APART_MS:
            self.wrong.append(f"{path}: {behind_ms} ms behind, and at most {bound_ms} was asked for")
        complete_ms = asked_ms - behind_ms - _APART_MS
        asked = f"{path} at {asked_ms}, {behind_ms} ms behind"
        if catalog == PINS:
            there, missing = map(int, answer["records"]), map(int, answer["missing"])
            found = self.pins.wrong(there, missing, complete_ms)
        else:
            numbers = {key: record["number"] for key, record in answer["records"].items()}
            numbers |= dict.fromkeys(answer["missing"])
            found = [each for key in numbers if (each := self.ads.wrong(key, numbers[key], complete_ms))]
        stale = f", stale: {answer['stale']}" if answer["stale"] else ""
        self.wrong += [f"{asked}{stale}: {each}" for each in found]

    def page(self, path: str, asked_ms: int, said: bytes) -> None:
        """Looks at a page of pins."""
        answer = json.loads(said)
        if answer["behind_ms"] is None:
            return
        there = [int(entry["pin"]) for entry in answer["entries"]]
        found = self.pins.wrong(there, [], asked_ms - answer["behind_ms"] - _APART_MS)
        self.wrong += [f"{path} at {asked_ms}, {answer['behind_ms']} ms behind: {each}" for each in found]


def wrong_ads(config: Config, ads: Ads, now_ms: int) -> list[str]:
    """What each cluster has that no change explains, or lacks though it was acknowledged, as sentences."""
    wrong = []
    for cluster in homes.CLUSTERS:
        with catalogs.open_reader(config, ADS, cluster) as reader:
            asked = [key.encode() for key in _KEYS]
            found = homes.eventually(lambda reader=reader, asked=asked: reader.fetch(asked), f"{cluster} answers")
        numbers: dict[str, Any] = {key.decode(): json.loads(record)["number"] for key, record in found.records.items()}
        wrong += [f"cluster {cluster}: {each}" for key in _KEYS if (each := ads.wrong(key, numbers.get(key), now_ms))]
    return wrong


def lines_of(batch: Mapping[str, int]) -> str:
    """A file of records, as `feedctl catalog load` takes it."""
    return "".join(json.dumps({"key": key, "record": {"number": number}}) + "\n" for key, number in batch.items())


def _update(key: str, change: Change) -> object:
    """Some records are posted as JSON, some as bytes, which are JSON too."""
    said: dict[str, object] = {"key": key, "time_ms": change.time_ms}
    record = {"number": change.number}
    if change.deleted:
        return said | {"deleted": True}
    if change.number % 2:
        return said | {"record": record}
    return said | {"base64": base64.b64encode(json.dumps(record).encode()).decode()}
