"""A process that is killed at any point of a call, a disk that is full, and files that are damaged or gone."""

import errno
import json
import multiprocessing
import multiprocessing.connection
import os
import re
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from itertools import count, islice
from pathlib import Path
from typing import Any
from unittest import mock
from uuid import uuid4

import pytest
import structlog.testing
from rocksdict import (
    BlockBasedOptions,
    DataBlockIndexType,
    DBCompressionType,
    IngestExternalFileOptions,
    Options,
    Rdict,
    SstFileWriter,
)

from feedstore import durable
from feedstore.catalog import swaps
from feedstore.catalog.port import (
    BeingBuiltError,
    CatalogError,
    CatalogStore,
    CatalogUnavailableError,
    NoGenerationError,
    Update,
)
from feedstore.catalog.rocksdb import delta, generations
from feedstore.catalog.rocksdb import store as store_module
from feedstore.catalog.rocksdb.reader import RocksCatalogReader
from feedstore.catalog.rocksdb.store import LEFT_AFTER_MS, RocksCatalogStore
from feedstore.widecolumn.rocksdb import files as rocksdb_files
from tests.catalog.catalog_adapters import Clock
from tests.disks import fill
from workers.catalog.load import refuse_smaller

A = b"a"
STATES = {0: b"0", 20: b"20", 40: b"40"}
"""The records of the key, each by the time since which the key had it."""
STEPS: list[tuple[Any, str]] = [
    (Path, "mkdir"),
    (Path, "rename"),
    (Path, "replace"),
    (durable, "sync"),
    (generations, "_write_parts"),
    (rocksdb_files, "open_owner"),
    (rocksdb_files, "write"),
    (rocksdb_files, "compact"),
    (store_module, "discard"),
]
"""The functions that change files. A call may end before or after each."""


def opened(path: Path, clock: Clock) -> RocksCatalogStore:
    return RocksCatalogStore(path, clock, lambda: clock.wall_ms, lambda: uuid4().hex)


def a_load(store: RocksCatalogStore) -> None:
    store.load(50, [(A, b"40")])


def a_use(store: RocksCatalogStore) -> None:
    store.use(store.load(45, [(A, b"40")]).id)


def an_update(store: RocksCatalogStore) -> None:
    store.update([Update(A, 40, b"40")])
    store.note_known(45)


def a_collection(store: RocksCatalogStore) -> None:
    store.collect(1)


CALLS = [a_load, a_use, an_update, a_collection]


def made(path: Path, clock: Clock) -> RocksCatalogStore:
    """An old generation, a current one, an update that both need, and one that is in the current one."""
    store = opened(path, clock)
    store.note_known(5)
    store.update([Update(A, 20, b"20"), Update(b"b", 12, b"x")])
    store.note_known(30)
    store.load(10, [(A, b"0")])
    store.use(store.load(15, [(A, b"0"), (b"b", b"x")]).id)
    return store


@contextmanager
def stepping(step: Callable[[str], None]) -> Iterator[None]:
    """Calls `step` before and after each change of files."""

    def around(owner: Any, name: str) -> Callable[..., Any]:
        real = getattr(owner, name)

        def method(*args: Any, **kwargs: Any) -> Any:
            step(f"before {name}")
            found = real(*args, **kwargs)
            step(f"after {name}")
            return found

        return method

    with ExitStack() as stack:
        for owner, name in STEPS:
            stack.enter_context(mock.patch.object(owner, name, around(owner, name)))
        yield


def check(catalog: RocksCatalogStore | RocksCatalogReader) -> None:
    found = catalog.fetch([A, b"b"])
    allowed = {record for time_ms, record in STATES.items() if time_ms > found.known_ms}
    allowed.add([record for time_ms, record in STATES.items() if time_ms <= found.known_ms][-1])
    assert found.records[A] in allowed
    assert found.known_ms >= 30
    assert found.records.get(b"b") == (b"x" if found.generation.startswith(("10-", "15-")) else None)


def check_whole(path: Path, call: Callable[[RocksCatalogStore], None]) -> None:
    """The catalog is right, the call can be repeated, and in two days nothing is left of the one that died."""
    clock = Clock()
    with closing(RocksCatalogReader(path, clock)) as reader:
        check(reader)
        with closing(opened(path, clock)) as store:
            check(store)
            call(store)
            check(store)
            store.update([Update(A, 60, b"60")])
            clock.pass_s(2 * 86_400)
            assert store.fetch([A]).records == reader.fetch([A]).records == {A: b"60"}
            store.collect(1)
            assert store.fetch([A]).records == {A: b"60"}
            for generation in store.generations():
                store.use(generation.id)
                clock.pass_s(2)
                assert reader.fetch([A]).records == {A: b"60"}
    assert [each.name for each in path.iterdir() if each.suffix in {".new", ".gone"}] == []


@pytest.mark.parametrize("call", CALLS, ids=lambda each: each.__name__)
def test_a_process_may_die_at_any_point(tmp_path: Path, call: Callable[[RocksCatalogStore], None]):
    """A copy of the directory shows the disk at each point."""
    path = tmp_path / "pins"
    copies: list[Path] = []
    seen: set[frozenset[tuple[str, int]]] = set()
    busy = False

    def copied(_step: str) -> None:
        nonlocal busy
        looks = frozenset((str(each.relative_to(path)), each.stat().st_size) for each in path.rglob("*"))
        if busy or looks in seen:
            return
        seen.add(looks)
        busy = True
        copies.append(tmp_path / f"copy-{len(copies)}")
        shutil.copytree(path, copies[-1])
        busy = False

    with closing(made(path, Clock())) as store:
        with stepping(copied):
            call(store)
        for copy in copies:
            check_whole(copy, call)
    assert len(copies) >= 3


@pytest.mark.parametrize("call", CALLS, ids=lambda each: each.__name__)
def test_any_step_may_fail(tmp_path: Path, call: Callable[[RocksCatalogStore], None]):
    failures: list[str] = []
    clock = Clock()
    with (
        closing(made(tmp_path / "pins", clock)) as store,
        closing(RocksCatalogReader(tmp_path / "pins", clock)) as reader,
    ):
        for nth in count(1):
            left = nth

            def failing(step: str) -> None:
                nonlocal left
                left -= step.startswith("before") and step not in {"before discard", "before _write_parts"}
                if left == 0:
                    left = -1
                    raise OSError(errno.ENOSPC, "No space left on device")

            try:
                with stepping(failing):
                    call(store)
            except CatalogUnavailableError as error:
                failures.append(str(error))
            check(store)
            clock.pass_s(2)
            check(reader)
            if left > 0:
                break
        assert not list((tmp_path / "pins").glob("gen-*.new"))
    assert failures
    assert all("No space left on device" in each and str(tmp_path) in each for each in failures)
    check_whole(tmp_path / "pins", call)


# ---- real kills


def load_until_killed(path: Path, connection: multiprocessing.connection.Connection) -> None:
    def records() -> Iterator[tuple[bytes, bytes]]:
        for number in count():
            if number == 20_000:
                connection.send(number)
            yield number.to_bytes(8, "big"), bytes(40)

    opened(path, Clock()).load(50, records())


def update_until_killed(path: Path, connection: multiprocessing.connection.Connection) -> None:
    store = opened(path, Clock())
    for number in count(100):
        store.update([Update(A, number, str(number).encode())])
        store.note_known(number)
        connection.send(number)


@contextmanager
def killed(run: Callable[..., None], path: Path, when: int) -> Iterator[int]:
    """Starts a process and kills it once it has said `when` or more; yields the last number that it said."""
    context = multiprocessing.get_context("spawn")
    receiving, sending = context.Pipe(duplex=False)
    child = context.Process(target=run, args=(path, sending))
    child.start()
    sending.close()
    said = receiving.recv()
    while said < when:
        said = receiving.recv()
    os.kill(child.pid or 0, signal.SIGKILL)
    try:
        while True:
            said = receiving.recv()
    except EOFError:
        pass
    child.join()
    yield said


@pytest.mark.processes
def test_a_load_that_is_killed_leaves_no_generation(tmp_path: Path):
    path, clock = tmp_path / "pins", Clock()
    made(path, clock).close()
    with killed(load_until_killed, path, 0):
        assert len(list(path.glob("gen-50-*.new"))) == 1
        check_whole(path, a_load)


@pytest.mark.processes
def test_what_a_killed_load_leaves_is_removed_before_builds_that_die_fill_the_disk(tmp_path: Path):
    """A builder whose processes are killed, for lack of memory, tries again every ten minutes."""
    path, clock = tmp_path / "pins", Clock()
    made(path, clock).close()
    with killed(load_until_killed, path, 0), closing(opened(path, clock)) as store:
        clock.pass_s(LEFT_AFTER_MS / 1_000 + 60)
        store.collect(1)
        assert not list(path.glob("*.new"))


def test_a_load_that_is_alive_is_no_leftover_however_long_it_writes_nothing(path: Path, clock: Clock):
    """It may sort its file first."""
    with closing(opened(path, clock)) as store:

        def slow() -> Iterator[tuple[bytes, bytes]]:
            clock.pass_s(20 * LEFT_AFTER_MS / 1_000)
            store.collect(1)
            yield A, b"40"

        assert store.load(50, slow()).records == 1


def build_until_killed(path: Path, connection: multiprocessing.connection.Connection) -> None:
    with opened(path, Clock()).building("the child"):
        connection.send(0)
        threading.Event().wait()


@pytest.mark.processes
def test_a_builder_that_is_killed_builds_no_longer(tmp_path: Path):
    path = tmp_path / "pins"
    store = opened(path, Clock())
    context = multiprocessing.get_context("spawn")
    receiving, sending = context.Pipe(duplex=False)
    child = context.Process(target=build_until_killed, args=(path, sending))
    child.start()
    receiving.recv()
    with pytest.raises(BeingBuiltError, match="the child is building it"), store.building("this one"):
        pytest.fail("both build")
    os.kill(child.pid or 0, signal.SIGKILL)
    child.join()
    with store.building("this one"):
        pass
    store.close()


@pytest.mark.processes
def test_updates_that_were_acknowledged_survive_a_kill(tmp_path: Path):
    path, clock = tmp_path / "pins", Clock()
    made(path, clock).close()
    with killed(update_until_killed, path, 150) as last, closing(opened(path, clock)) as store:
        found = store.fetch([A])
        assert last <= int(found.records[A]) <= last + 1
        assert last <= found.known_ms <= int(found.records[A])


# ---- a disk that is full


def test_a_full_disk_takes_no_load_and_leaves_nothing(small_disk: Path):
    path, clock = small_disk / "pins", Clock()
    with closing(made(path, clock)) as store:
        records = ((number.to_bytes(8, "big"), os.urandom(1_000)) for number in range(30_000))
        with pytest.raises(CatalogUnavailableError, match="No space left on device"):
            store.load(50, records)
        assert not list(path.glob("gen-50-*"))
        check(store)
        a_use(store)
        check(store)


def fill_up(store: RocksCatalogStore) -> None:
    for number in range(10_000):
        store.update([Update(b"c", 21 + number, bytes(1_000))])


def test_a_full_disk_takes_no_update_serves_fetches_and_heals(small_disk: Path):
    path, clock = small_disk / "pins", Clock()
    with closing(made(path, clock)) as store, closing(RocksCatalogReader(path, clock)) as reader:
        fill(small_disk / "ballast")
        with pytest.raises(CatalogUnavailableError, match="No space left on device"):
            fill_up(store)
        with pytest.raises(CatalogUnavailableError, match="No space left on device"):
            store.use(store.generations()[0].id)
        check(store)
        check(reader)
        (small_disk / "ballast").unlink()
        an_update(store)
        a_collection(store)
        clock.pass_s(2)
        for catalog in (store, reader):
            check(catalog)
            assert catalog.fetch([A]).known_ms == 45


# ---- files that are damaged or gone


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def path(tmp_path: Path, clock: Clock) -> Path:
    made(tmp_path / "pins", clock).close()
    return tmp_path / "pins"


@pytest.fixture
def reader(path: Path, clock: Clock) -> Iterator[RocksCatalogReader]:
    with closing(RocksCatalogReader(path, clock)) as opened_reader:
        yield opened_reader


def current(path: Path) -> Path:
    return path / f"gen-{json.loads((path / 'CURRENT').read_text())['generation']}"


@pytest.mark.parametrize(
    "text", ["", "{", '{"generation": ', '{"generation": 1}', '{"generation": "../x"}', "\x00" * 40, "[]"]
)
def test_a_torn_current_is_named_and_mended_by_the_next_use(
    path: Path, clock: Clock, reader: RocksCatalogReader, text: str
):
    good = current(path).name.removeprefix("gen-")
    check(reader)
    (path / "CURRENT").write_text(text)
    clock.pass_s(2)
    for _ in range(2):
        with pytest.raises(CatalogUnavailableError, match=re.escape(str(path / "CURRENT"))):
            reader.fetch([A])
    with closing(opened(path, clock)) as store:
        with pytest.raises(CatalogUnavailableError, match="CURRENT"):
            store.collect(1)
        assert swaps.use(store, good) == swaps.Swap(good, None)
        check(reader)


def test_a_rollback_is_noticed_though_the_number_of_rollbacks_was_lost(
    path: Path, clock: Clock, reader: RocksCatalogReader
):
    with closing(opened(path, clock)) as store:
        before = reader.rollbacks()
        (path / "CURRENT").write_text("{")
        swaps.use(store, store.load(14, []).id)
        clock.pass_s(2)
        noticed = reader.rollbacks()
        assert noticed not in {0, before}
        swaps.use(store, store.load(13, []).id)
        clock.pass_s(2)
        assert reader.rollbacks() == noticed + 1


def test_a_current_that_is_gone_is_named(path: Path, clock: Clock, reader: RocksCatalogReader):
    check(reader)
    (path / "CURRENT").unlink()
    clock.pass_s(2)
    with pytest.raises(NoGenerationError, match=re.escape(str(path / "CURRENT"))):
        reader.fetch([A])


def test_a_current_that_names_what_is_not_there_is_named(path: Path, clock: Clock, reader: RocksCatalogReader):
    (path / "CURRENT").write_text('{"generation": "99-0123456789abcdef"}')
    with pytest.raises(CatalogUnavailableError, match=r"CURRENT names 99-0123456789abcdef: .*gen-99-0123456789abcdef"):
        reader.fetch([A])


def test_a_generation_that_is_removed_under_its_readers_serves_those_that_hold_it(
    path: Path, clock: Clock, reader: RocksCatalogReader
):
    check(reader)
    removed = current(path)
    shutil.rmtree(removed)
    clock.pass_s(2)
    check(reader)
    with closing(RocksCatalogReader(path, clock)) as late, pytest.raises(CatalogUnavailableError, match=removed.name):
        late.fetch([A])


def test_a_flipped_bit_is_named_and_never_an_empty_answer(path: Path, clock: Clock):
    table = next(current(path).glob("*.sst"))
    whole = table.read_bytes()
    noticed: list[str] = []
    for place in range(0, len(whole), max(1, len(whole) // 40)):
        table.write_bytes(whole[:place] + bytes([whole[place] ^ 16]) + whole[place + 1 :])
        with closing(RocksCatalogReader(path, clock)) as reader:
            try:
                found = reader.fetch([b"b", A])
            except CatalogUnavailableError as error:
                noticed.append(str(error))
            else:  # a bit that no fetch reads, as in the properties of the file
                assert found.records == {A: b"20", b"b": b"x"}
    assert noticed
    assert all(str(path) in each for each in noticed)


def _flipped(records: Iterable[tuple[bytes, bytes]], at: bytes) -> Iterator[tuple[bytes, bytes]]:
    for key, record in records:
        yield key, bytes([record[0] ^ 1]) + record[1:] if key == at else record


@pytest.mark.parametrize(
    "fault",
    [
        lambda records: _flipped(records, b"b"),
        lambda records: islice(records, 2),
        lambda records: (each for each in records if each[0] != b"a"),
    ],
    ids=["another record", "the last one is missing", "the first one is missing"],
)
def test_what_is_not_read_back_as_it_was_given_gets_no_name(
    path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch, fault: Callable[[Any], Any]
):
    write_parts = generations._write_parts

    def written(to: Path, records: Any, part_bytes: int) -> list[Path]:
        given = list(records)
        return write_parts(to, fault(given), part_bytes)

    with closing(opened(path, clock)) as store:
        before = store.generations()
        with monkeypatch.context() as patched:
            patched.setattr(generations, "_write_parts", written)
            with pytest.raises(CatalogUnavailableError, match="does not read back as it was written"):
                store.load(50, [(b"a", b"1"), (b"b", b"2"), (b"c", b"3")])
        assert store.generations() == before
        assert not [*path.glob("*.new")]


def test_a_generation_of_an_earlier_program_is_read(path: Path, reader: RocksCatalogReader):
    about = current(path) / "generation.json"
    document = json.loads(about.read_text())
    assert document.pop("took_ms") == 0
    about.write_text(json.dumps(document))
    check(reader)


@pytest.mark.parametrize("name", ["*.sst", "CURRENT", "MANIFEST-*", "generation.json"])
def test_a_file_of_a_generation_that_is_gone_is_named(path: Path, clock: Clock, name: str):
    next(current(path).glob(name)).unlink()
    with closing(RocksCatalogReader(path, clock)) as reader, pytest.raises(CatalogUnavailableError) as caught:
        reader.fetch([A])
    assert str(current(path)) in str(caught.value)
    with closing(opened(path, clock)) as store:
        with pytest.raises(CatalogUnavailableError):
            store.use(current(path).name.removeprefix("gen-"))
        store.use(store._directory.names().generations[0])
        check(store)
        store.collect(1)  # it needs the names alone


@pytest.mark.parametrize("text", [None, "{", ""], ids=["gone", "torn", "empty"])
def test_a_damaged_generation_that_is_not_in_use_is_left_out_and_named(path: Path, clock: Clock, text: str | None):
    with closing(opened(path, clock)) as store:
        newest = store.load(20, [(A, b"20")]).id
        oldest, before, _ = store._directory.names().generations
        for each in (oldest, before, newest):
            store.use(each)
        about = path / f"gen-{before}" / "generation.json"
        about.unlink()
        if text is not None:
            about.write_text(text)
        with structlog.testing.capture_logs() as logs:
            for _ in range(3):
                assert [each.id for each in store.generations()] == [oldest, newest]
        assert [(each["event"], each["generation"]) for each in logs] == [("catalog.damaged", before)]
        assert str(about) in logs[0]["error"]
        refuse_smaller(store, store.load(25, [(A, b"20")]))
        store.collect(4)
        assert swaps.roll_back(store).generation == oldest
        with pytest.raises(CatalogUnavailableError, match=re.escape(str(about))):
            store.use(before)
        (path / f"gen-{oldest}" / "generation.json").unlink()
        with pytest.raises(CatalogUnavailableError, match=oldest):
            store.generations()  # what nothing can be fetched from is not passed over


@pytest.mark.parametrize("way_back", [swaps.roll_back, lambda store: swaps.use(store, store.trail()[0])])
def test_there_is_a_way_back_from_a_damaged_generation_that_is_in_use(
    path: Path, clock: Clock, way_back: Callable[[CatalogStore], swaps.Swap]
):
    with closing(opened(path, clock)) as store:
        before = store.trail()[-1]
        damaged = store.load(20, [(A, b"20")]).id
        store.use(damaged)
        (path / f"gen-{damaged}" / "generation.json").write_text("{")
        with pytest.raises(CatalogUnavailableError, match=f"{damaged}.*roll back"):
            store.generations()
        way_back(store)
        assert store.trail()[-1] == before
        check(store)


def a_file_is_cut(generation: Path) -> None:
    next(generation.glob("*.sst")).write_bytes(b"")


def a_block_is_damaged(generation: Path) -> None:
    file = next(generation.glob("*.sst"))
    file.write_bytes(bytes([file.read_bytes()[0] ^ 0xFF]) + file.read_bytes()[1:])


def a_file_is_gone(generation: Path) -> None:
    next(generation.glob("*.sst")).unlink()


def the_description_is_damaged(generation: Path) -> None:
    (generation / "generation.json").write_text("{")


@pytest.mark.parametrize("damage", [a_file_is_cut, a_block_is_damaged, a_file_is_gone, the_description_is_damaged])
def test_loading_the_same_records_again_mends_a_damaged_generation(
    path: Path, clock: Clock, damage: Callable[[Path], None]
):
    with closing(opened(path, clock)) as store:
        name = store.load(20, [(A, b"20")]).id
        store.use(name)
        damage(path / f"gen-{name}")
    with closing(RocksCatalogReader(path, clock)) as reader:
        with suppress(CatalogUnavailableError):
            reader.fetch([b"b"])  # it may hold the damaged files from now on
        with closing(opened(path, clock)) as store:
            assert store.load(20, [(A, b"20")]).id == name
            store.use(name)
            assert store.look(name, [A]) == {A: b"20"}
        clock.pass_s(10)  # readers look every other second whether another one is current
        assert reader.fetch([A]).records == {A: b"20"}


def test_a_load_that_mends_does_not_mind_what_a_killed_one_has_left(path: Path, clock: Clock):
    with closing(opened(path, clock)) as store:
        name = store.load(20, [(A, b"20")]).id
        a_file_is_gone(path / f"gen-{name}")
        left = path / f"gen-{name}.gone"
        left.mkdir()
        (left / "000001.sst").write_bytes(b"what was not removed yet")
        assert store.load(20, [(A, b"20")]).id == name
        assert store.look(name, [A]) == {A: b"20"}


def test_two_loads_of_the_same_records_may_end_at_the_same_moment(path: Path, clock: Clock):
    with closing(opened(path, clock)) as store, closing(opened(path, clock)) as other:
        others = []

        def step(what: str) -> None:
            if what == "before rename" and not others:
                others.append("begun")
                others.append(other.load(20, [(A, b"20")]).id)

        with stepping(step):
            made_now = store.load(20, [(A, b"20")])
        assert others == ["begun", made_now.id]
        assert store.look(made_now.id, [A]) == {A: b"20"}
        assert not [*path.glob("*.new")]


def test_loading_the_same_records_again_leaves_a_sound_generation_as_it_is(path: Path, clock: Clock):
    with closing(opened(path, clock)) as store:
        name = store.load(20, [(A, b"20")]).id
        before = (path / f"gen-{name}").stat().st_ino
        store.load(20, [(A, b"20")])
        assert (path / f"gen-{name}").stat().st_ino == before


def test_a_use_that_died_leaves_nothing_that_a_collection_cannot_remove(path: Path, clock: Clock):
    with closing(opened(path, clock)) as store:
        (path / "CURRENT.new").write_text("{")
        clock.pass_s(2 * 86_400)
        for _ in range(2):
            store.collect(1)
            assert not [*path.glob("*.gone")]
        store.use(store.trail()[-1])
        assert not [*path.glob("*.new")]


@pytest.mark.parametrize("name", ["CURRENT", "MANIFEST-*", "*.sst"])
def test_a_file_of_the_delta_that_is_gone_is_named(path: Path, clock: Clock, name: str):
    with closing(opened(path, clock)) as store:
        store.collect(1)  # writes the updates of the log into a file
    check_reader = RocksCatalogReader(path, clock)
    check(check_reader)
    check_reader.close()
    next((path / "delta").glob(name)).unlink()
    with closing(RocksCatalogReader(path, clock)) as reader, pytest.raises(CatalogUnavailableError) as caught:
        reader.fetch([A])
    assert str(path / "delta") in str(caught.value)


def test_a_delta_of_another_format_is_refused(path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(delta, "_FORMAT", b"2")
    with closing(RocksCatalogReader(path, clock)) as reader, closing(opened(path, clock)) as owner:
        for call in (lambda: reader.fetch([A]), lambda: an_update(owner)):
            with pytest.raises(CatalogUnavailableError, match="another version made it"):
                call()


@pytest.mark.parametrize("put_back", [True, False], ids=["put-back", "lost"])
def test_an_owner_writes_into_no_directory_but_the_one_that_it_opened(path: Path, clock: Clock, put_back: bool):
    """Its updates would count as entered, and nothing would have them."""
    copy = path.with_name("copy")
    shutil.copytree(path, copy)
    with closing(opened(path, clock)) as owner:
        owner.note_known(31)
        path.rename(path.with_name("gone"))
        if put_back:
            copy.rename(path)
        for call in (an_update, a_collection, lambda store: store.note_known(40)):
            with pytest.raises(CatalogUnavailableError, match="end this process, put the right one in its place"):
                call(owner)
    if put_back:
        with closing(RocksCatalogReader(path, clock)) as reader:
            assert reader.delta().known_ms == 30
            check(reader)


def test_another_owner_is_told_so(path: Path, clock: Clock):
    with closing(opened(path, clock)) as owner, closing(opened(path, clock)) as other:
        owner.note_known(31)
        for call in (an_update, a_collection):
            with pytest.raises(CatalogUnavailableError, match="owns"):
                call(other)
        a_load(other)
        a_use(other)
        check(other)
    with closing(opened(path, clock)) as next_owner:
        an_update(next_owner)


def test_generations_are_shared_and_closed_with_their_last_user(path: Path, clock: Clock):
    def descriptors() -> int:
        maps = subprocess.run(["ls", "-l", f"/proc/{os.getpid()}/fd"], capture_output=True, text=True, check=False)
        return maps.stdout.count(str(current(path)))

    readers = [RocksCatalogReader(path, clock) for _ in range(3)]
    for reader in readers:
        check(reader)
    assert descriptors() == 1
    for reader in readers:
        reader.close()
    assert descriptors() == 0


def test_a_load_is_written_in_parts(tmp_path: Path):
    records = [(number.to_bytes(8, "big"), os.urandom(60)) for number in range(30_000)]
    target = tmp_path / "gen"
    target.mkdir()
    generations.write(target, 10, records, Clock(), part_bytes=200_000)
    assert len(list(target.glob("*.sst"))) > 3
    whole = generations.opened(target)
    assert whole.get([key for key, _ in records]) == [record for _, record in records]


def test_a_generation_of_an_earlier_version_is_read(path: Path, clock: Clock):
    """Its blocks are larger, and have an index of hashes."""
    records = {number.to_bytes(4, "big"): b"%d" % number for number in range(0, 5_000, 2)}
    with closing(opened(path, clock)) as store:
        made = store.load(20, sorted(records.items()))
        target = path / f"gen-{made.id}"
        about = (target / "generation.json").read_text()
        shutil.rmtree(target)
        target.mkdir()
        _write_as_before(target, records)
        (target / "generation.json").write_text(about)
        store.use(made.id)
        for first in range(0, 5_000, 1_000):
            keys = [number.to_bytes(4, "big") for number in range(first, first + 1_000)]
            found = store.fetch(keys)
            assert found.records == {key: records[key] for key in keys if key in records}
            assert len(found.records) == 500


def _write_as_before(target: Path, records: Mapping[bytes, bytes]) -> None:
    blocks = BlockBasedOptions()
    blocks.set_block_size(4_096)
    blocks.set_format_version(5)
    blocks.set_data_block_index_type(DataBlockIndexType.binary_and_hash())
    options = Options(raw_mode=True)
    options.create_if_missing(create_if_missing=True)
    options.set_block_based_table_factory(blocks)
    options.set_compression_type(DBCompressionType.lz4())
    writer = SstFileWriter(options)
    writer.open(str(target / "part-00000.sst"))
    for key, record in sorted(records.items()):
        writer[key] = record
    writer.finish()
    moving = IngestExternalFileOptions()
    moving.set_move_files(v=True)
    with closing(Rdict(str(target), options)) as db:
        db.ingest_external_file([str(target / "part-00000.sst")], moving)


def test_errors_of_the_port_are_all_that_is_raised(path: Path, clock: Clock):
    (path / "delta" / "LOCK").unlink()
    shutil.rmtree(path)
    path.write_text("a file")
    with closing(opened(path, clock)) as store:
        for call in (*CALLS, lambda each: each.fetch([A]), lambda each: each.generations()):
            with pytest.raises(CatalogError):
                call(store)


# ---- collections that have nothing to do


def test_a_collection_walks_over_the_updates_only_if_the_floor_rises(path: Path, clock: Clock):
    """Each collection, once a minute, would read all updates since the last batch."""
    walked = mock.Mock(wraps=rocksdb_files.take)
    with mock.patch.object(rocksdb_files, "take", walked), closing(opened(path, clock)) as store:
        assert store.collect(1).entries == 1
        assert walked.called
        walked.reset_mock()
        store.update([Update(b"c", 14, b"late"), Update(b"d", 16, b"in time")])
        assert store.collect(1) == ([], 0)
        assert not walked.called
        store.use(store.load(15, [(A, b"1")]).id)
        store.collect(1)
        assert not walked.called, "of the same time"
        store.use(store.load(16, [(A, b"1")]).id)
        assert store.collect(1).entries == 2, "what came late goes with the next walk"
    walked.reset_mock()
    with mock.patch.object(rocksdb_files, "take", walked), closing(opened(path, clock)) as store:
        store.collect(1)
        assert walked.called, "a crash may have brought back what was removed"
