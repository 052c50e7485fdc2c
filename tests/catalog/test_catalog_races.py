"""Events between two steps of a call on files: each at the worst moment, and each guard taken out."""

import fcntl
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import pytest

from feedstore.catalog import checks, rule
from feedstore.catalog.port import (
    CatalogRefusedError,
    CatalogStore,
    CatalogUnavailableError,
    Collected,
    Update,
)
from feedstore.catalog.rocksdb import delta, directory
from feedstore.catalog.rocksdb.directory import Directory, Names
from feedstore.catalog.rocksdb.reader import RocksCatalogReader
from feedstore.catalog.rocksdb.store import RocksCatalogStore
from feedstore.widecolumn import UnavailableError
from tests.catalog.catalog_adapters import Clock, in_files

A = b"a"
Patch = tuple[Any, str, Any]


class Once:
    """Acts once, when it is called for the n-th time."""

    def __init__(self, act: Callable[[], object], nth: int = 1) -> None:
        self._act = act
        self._left = nth

    def __call__(self) -> None:
        self._left -= 1
        if self._left == 0:
            self._act()

    @property
    def acted(self) -> bool:
        return self._left <= 0


def before(owner: Any, name: str, act: Callable[[], None]) -> Patch:
    real = getattr(owner, name)

    def method(*args: Any, **kwargs: Any) -> Any:
        act()
        return real(*args, **kwargs)

    return owner, name, method


def after(owner: Any, name: str, act: Callable[[], None]) -> Patch:
    real = getattr(owner, name)

    def method(*args: Any, **kwargs: Any) -> Any:
        found = real(*args, **kwargs)
        act()
        return found

    return owner, name, method


@contextmanager
def patched(patches: Sequence[Patch]) -> Iterator[None]:
    with ExitStack() as stack:
        for patch in patches:
            stack.enter_context(mock.patch.object(*patch))
        yield


class Scene(NamedTuple):
    """A key was 0 at first, 20 since the time 20, and 40 since 40. The current generation is as of 10, and known is 30.
    Then there is one as of 50.
    """

    clock: Clock
    owner: RocksCatalogStore
    loader: RocksCatalogStore
    reader: RocksCatalogReader
    old: str
    new: str


STATES = {0: b"0", 20: b"20", 40: b"40"}


def wrong(scene: Scene, catalog: RocksCatalogStore | RocksCatalogReader) -> str | None:
    """The error of a fetch; None if it is right."""
    found = catalog.fetch([A])
    allowed = [record for time_ms, record in STATES.items() if time_ms > found.known_ms]
    allowed.append([record for time_ms, record in STATES.items() if time_ms <= found.known_ms][-1])
    return None if found.records.get(A) in allowed else f"{found}, expected one of {allowed}"


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    clock = Clock()

    def store() -> RocksCatalogStore:
        return RocksCatalogStore(tmp_path / "pins", clock, lambda: clock.wall_ms, clock.unique)

    owner, loader, reader = store(), store(), RocksCatalogReader(tmp_path / "pins", clock)
    owner.note_known(5)
    owner.update([Update(A, 20, b"20")])
    owner.note_known(30)
    old = loader.load(10, [(A, b"0")]).id
    new = loader.load(50, [(A, b"40")]).id
    loader.use(old)
    assert owner.fetch([A]).records == reader.fetch([A]).records == {A: b"20"}
    yield Scene(clock, owner, loader, reader, old, new)
    for each in (owner, loader, reader):
        each.close()


# Each race returns the error that it found
# --------------------------------------------------------------------------------------------------------------------


def an_update_comes_between_known_and_updates(scene: Scene) -> str | None:
    def act() -> None:
        scene.owner.update([Update(A, 40, b"40")])
        scene.owner.note_known(45)

    return _acted_between(act, scene)


def a_collection_comes_within_a_fetch(scene: Scene) -> str | None:
    def act() -> None:
        scene.loader.use(scene.new)
        assert scene.owner.collect(1).generations == [scene.old]

    scene.owner.note_known(60)
    scene.owner.update([Update(A, 40, b"40")])
    return _acted_between(act, scene)


def _acted_between(act: Callable[[], None], scene: Scene) -> str | None:
    """Acts after the first read of the delta by the owner's fetch; returns the error of the fetch."""
    once = Once(act)
    with patched([after(delta.View, name, once) for name in ("_number", "updates")]):
        found = wrong(scene, scene.owner)
    assert once.acted
    return found


def a_reader_holds_what_was_collected(scene: Scene) -> str | None:
    scene.owner.update([Update(A, 40, b"40")])
    scene.owner.note_known(60)
    scene.loader.use(scene.new)
    scene.owner.collect(1)
    scene.clock.pass_s(0.2)
    return wrong(scene, scene.reader)


def a_reader_looks_within_a_collection(scene: Scene) -> str | None:
    scene.owner.update([Update(A, 40, b"40")])
    scene.owner.note_known(60)
    scene.loader.use(scene.new)
    found: list[str | None] = []

    def look() -> None:
        scene.clock.pass_s(0.15)
        found.append(wrong(scene, scene.reader))

    with patched([after(delta.OwnDelta, "_write", look)]):
        scene.owner.collect(1)
    assert len(found) >= 2
    return next((each for each in found if each), None)


def a_collection_comes_within_a_load(scene: Scene) -> str | None:
    scene.loader.use(scene.new)

    def records() -> Iterator[tuple[bytes, bytes]]:
        yield A, b"0"
        assert scene.owner.collect(1).generations == [scene.old]

    return _after_the_load(scene, lambda: scene.loader.load(15, records()).id)


def a_collection_comes_before_the_announcement(scene: Scene) -> str | None:
    scene.loader.use(scene.new)
    once = Once(lambda: scene.owner.collect(1))
    with patched([before(Directory, "announce", once)]):
        found = _after_the_load(scene, lambda: scene.loader.load(15, [(A, b"0")]).id)
    assert once.acted
    return found


def a_load_comes_between_the_look_and_the_floor(scene: Scene) -> str | None:
    scene.loader.use(scene.new)
    loaded: list[str] = []
    once = Once(lambda: loaded.append(scene.loader.load(15, [(A, b"0")]).id), 2)
    with patched([after(Directory, "names", once)]):
        scene.owner.collect(1)
    assert once.acted
    return _after_the_load(scene, lambda: loaded[0])


def a_load_is_under_way_between_the_look_and_the_floor(scene: Scene) -> str | None:
    scene.loader.use(scene.new)
    begun, collected, loaded = threading.Event(), threading.Event(), []

    def records() -> Iterator[tuple[bytes, bytes]]:
        yield A, b"0"
        begun.set()
        collected.wait()

    thread = threading.Thread(target=lambda: loaded.append(scene.loader.load(15, records()).id))

    def begin() -> None:
        thread.start()
        begun.wait()

    with patched([after(Directory, "names", Once(begin, 2))]):
        scene.owner.collect(1)
    collected.set()
    thread.join()
    return _after_the_load(scene, lambda: loaded[0])


def _after_the_load(scene: Scene, load: Callable[[], str]) -> str | None:
    """A generation as of 15 is refused, or it has all updates since."""
    try:
        name = load()
    except CatalogRefusedError:
        return None
    scene.loader.use(name)
    scene.clock.pass_s(2)
    found = scene.reader.fetch([A])
    return None if found.records == {A: b"20"} and found.known_ms >= 30 else f"{found}"


def another_becomes_current_within_a_collection(scene: Scene) -> str | None:
    scene.loader.use(scene.new)

    def use() -> None:
        # A second lock of the same directory tells whether `use` would wait: it takes the same.
        held = os.open(scene.owner._directory.path, os.O_RDONLY)
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        finally:
            os.close(held)
        scene.loader.use(scene.old)

    with patched([after(Directory, "pointer", Once(use))]):
        scene.owner.collect(1)
    current = next((each for each in scene.owner.generations() if each.current), None)
    return "what is in use is gone" if current is None else None


RACES = [
    an_update_comes_between_known_and_updates,
    a_collection_comes_within_a_fetch,
    a_reader_holds_what_was_collected,
    a_reader_looks_within_a_collection,
    a_collection_comes_within_a_load,
    a_collection_comes_before_the_announcement,
    a_load_comes_between_the_look_and_the_floor,
    a_load_is_under_way_between_the_look_and_the_floor,
    another_becomes_current_within_a_collection,
]


@pytest.mark.parametrize("race", RACES, ids=lambda each: each.__name__)
def test_whatever_comes_between_two_steps_the_answer_is_right(scene: Scene, race: Callable[[Scene], str | None]):
    assert race(scene) is None


# The guards, each taken out
# --------------------------------------------------------------------------------------------------------------------


def updates_before_known(_scene: Scene) -> list[Patch]:
    files, known_ms = delta.View, delta.View.known_ms

    def early(view: delta.View) -> int:
        view.early = view.updates([A])
        return known_ms(view)

    updates = files.updates
    return [
        (files, "known_ms", early),
        (files, "updates", lambda view, keys: view.early if hasattr(view, "early") else updates(view, keys)),
    ]


def floor_before_updates(_scene: Scene) -> list[Patch]:
    files, floor_ms, known_ms = delta.View, delta.View.floor_ms, delta.View.known_ms

    def early(view: delta.View) -> int:
        view.early = floor_ms(view)
        return known_ms(view)

    return [
        (files, "known_ms", early),
        (files, "floor_ms", lambda view: view.early if hasattr(view, "early") else floor_ms(view)),
    ]


def floor_not_compared(_scene: Scene) -> list[Patch]:
    return [(rule, "is_complete", lambda _floor_ms, _as_of_ms: True)]


def removed_before_the_floor(_scene: Scene) -> list[Patch]:
    raise_floor = delta.OwnDelta.raise_floor

    def raised(own: delta.OwnDelta, as_ofs_ms: Callable[[], Sequence[int]]) -> int:
        own.remove(rule.collectable_ms(as_ofs_ms()))
        return raise_floor(own, as_ofs_ms)

    return [(delta.OwnDelta, "raise_floor", raised)]


def announced_loads_ignored(_scene: Scene) -> list[Patch]:
    return [(Names, "as_ofs_ms", property(lambda names: [*map(rule.as_of_ms, names.generations)]))]


def floor_before_the_announcement(scene: Scene) -> list[Patch]:
    check_time, check_floor, floors = checks.check_time, checks.check_floor, []

    def checked(as_of_ms: int) -> None:
        check_time(as_of_ms)
        with scene.loader._delta.view(latest=True) as view:
            floors.append(view.floor_ms())

    return [
        (checks, "check_time", checked),
        (checks, "check_floor", lambda _floor_ms, as_of_ms: check_floor(floors.pop(), as_of_ms)),
    ]


def looks_once(_scene: Scene) -> list[Patch]:
    return _second_look(lambda _own, seen: seen)


def looks_again_for_announced_loads_alone(_scene: Scene) -> list[Patch]:
    return _second_look(lambda own, seen: [*seen, *own._directory.names().loading])


def looks_again_for_loads_that_ended_alone(_scene: Scene) -> list[Patch]:
    return _second_look(lambda own, seen: [*seen, *map(rule.as_of_ms, own._directory.names().generations)])


def _second_look(look: Callable[[delta.OwnDelta, Sequence[int]], Sequence[int]]) -> list[Patch]:
    raise_floor = delta.OwnDelta.raise_floor

    def raised(own: delta.OwnDelta, as_ofs_ms: Callable[[], Sequence[int]]) -> int:
        seen: list[Sequence[int]] = []

        def looked() -> Sequence[int]:
            if seen:
                return look(own, seen[0])
            seen.append(as_ofs_ms())
            return seen[0]

        return raise_floor(own, looked)

    return [(delta.OwnDelta, "raise_floor", raised)]


def nothing_is_locked(_scene: Scene) -> list[Patch]:
    return [(Directory, "locked", lambda _directory: nullcontext())]


GUARDS = [
    (updates_before_known, an_update_comes_between_known_and_updates),
    (floor_before_updates, a_collection_comes_within_a_fetch),
    (floor_not_compared, a_reader_holds_what_was_collected),
    (removed_before_the_floor, a_reader_looks_within_a_collection),
    (announced_loads_ignored, a_collection_comes_within_a_load),
    (floor_before_the_announcement, a_collection_comes_before_the_announcement),
    (looks_once, a_load_comes_between_the_look_and_the_floor),
    (looks_again_for_announced_loads_alone, a_load_comes_between_the_look_and_the_floor),
    (looks_again_for_loads_that_ended_alone, a_load_is_under_way_between_the_look_and_the_floor),
    (nothing_is_locked, another_becomes_current_within_a_collection),
]


@pytest.mark.parametrize(("guard", "race"), GUARDS, ids=lambda each: each.__name__)
def test_a_guard_that_was_removed_is_found(
    scene: Scene, guard: Callable[[Scene], list[Patch]], race: Callable[[Scene], str | None]
):
    with patched(guard(scene)):
        assert race(scene) is not None


def test_a_process_that_is_suspended_within_a_swap_stops_no_other_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directory, "LOCK_WAIT_S", 0.0)
    place = in_files(tmp_path, Clock())
    with closing(place.store()) as store:
        name = store.load(10, [(A, b"1")]).id
        with Directory(tmp_path / "a.catalog" / "pins").locked():
            for change in (lambda: store.use(name), lambda: store.collect(1)):
                with pytest.raises(CatalogUnavailableError, match="another process has been changing it for"):
                    change()
        store.use(name)
        assert store.fetch([A]).records == {A: b"1"}


def compacting(store: CatalogStore, act: Callable[[], object], when: Callable[..., Patch] = before) -> Collected:
    """Collects an update of a store, and acts between its removal and the compaction, or after that."""
    store.update([Update(A, 5, b"old")])
    store.use(store.load(10, [(A, b"1")]).id)
    with mock.patch.object(*when(delta.rocksdb_files, "compact", Once(act))):
        return store.collect(1)


def test_updates_do_not_wait_for_a_compaction_of_the_delta(tmp_path: Path):
    with closing(in_files(tmp_path, Clock()).store()) as store, ThreadPoolExecutor(1) as others:
        collected = compacting(store, lambda: others.submit(store.update, [Update(A, 15, b"2")]).result(10))
        assert collected.entries == 1
        assert store.fetch([A]).records == {A: b"2"}


def test_a_delta_whose_files_were_closed_during_a_compaction_is_walked_again(tmp_path: Path):
    """A crash may have brought updates back before they were opened again."""

    def full(*_: Any) -> None:
        raise UnavailableError("no space")

    with closing(in_files(tmp_path, Clock()).store()) as store:

        def fails() -> None:
            with mock.patch.object(delta.rocksdb_files, "write", full), pytest.raises(CatalogUnavailableError):
                store.update([Update(A, 15, b"2")])

        compacting(store, fails, after)
        store.update([Update(A, 5, b"old")])
        assert store.collect(1).entries == 1


def test_a_compaction_of_a_delta_that_is_closed_meanwhile_fails(tmp_path: Path):
    store = in_files(tmp_path, Clock()).store()
    with pytest.raises(CatalogUnavailableError, match="delta"):
        compacting(store, store.close)
