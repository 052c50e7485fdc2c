"""Directories of temporary files: each is there as long as its process, however that ends."""

import errno
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import pytest

from feedstore.widecolumn import Put, Table, UnavailableError
from feedstore.widecolumn.rocksdb import scratch
from feedstore.widecolumn.rocksdb.cluster import RocksCluster
from feedstore.widecolumn.rocksdb.scratch import LEFT_MAX, PREFIX, Scratch

TABLE = Table("feed", 2, 3, trim=None, purge_window_ms=0)
READER = """
import sys
from feedstore.widecolumn import Table
from feedstore.widecolumn.rocksdb.cluster import RocksCluster

reader = RocksCluster.open(sys.argv[1], [Table("feed", 2, 3, trim=None, purge_window_ms=0)], "read")
print(reader.table("feed").read(b"aa", None, 9), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary files are, of this process and those that it starts."""
    found = tmp_path / "tmp"
    found.mkdir()
    monkeypatch.setenv("TMPDIR", str(found))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return found


def left(place: Path) -> set[str]:
    return {each.name for each in place.glob(f"{PREFIX}*")}


@pytest.mark.processes
def test_what_a_reader_that_was_killed_has_left_goes_with_the_next_one(place: Path, tmp_path: Path):
    cluster = tmp_path / "cluster"
    with closing(RocksCluster.open(cluster, [TABLE])) as owner:
        owner.table("feed").apply([Put([(b"aa", 5)], [b"aaa"])])
        command = [sys.executable, "-c", READER, str(cluster)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
            assert other.stdout is not None
            assert other.stdout.readline() == b"[b'aaa']\n"
            theirs = left(place)
            assert len(theirs) == 1
            with closing(RocksCluster.open(cluster, [TABLE], "read")):
                assert theirs < left(place), "it is alive"
            assert left(place) == theirs
            other.kill()
        assert left(place) == theirs
        with closing(RocksCluster.open(cluster, [TABLE], "read")) as reader:
            assert theirs.isdisjoint(left(place))
            assert reader.table("feed").read(b"aa", None, 9) == [b"aaa"]
    assert left(place) == set()


def test_two_of_one_process_leave_each_other_alone(place: Path):
    one, other = Scratch(), Scratch()
    assert left(place) == {one.there().name, other.there().name}
    one.remove()
    other.remove()
    assert left(place) == set()


def test_what_is_not_ours_stays(place: Path, tmp_path: Path):
    (place / f"{PREFIX}file").write_text("")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (place / f"{PREFIX}link").symlink_to(elsewhere)
    (place / "feedstore-other").mkdir()
    theirs = place / f"{PREFIX}theirs"
    theirs.mkdir()
    os.chown(theirs, 1_001, -1)
    before = set(place.iterdir())
    Scratch().remove()
    assert set(place.iterdir()) == before
    assert elsewhere.exists()


def test_so_many_are_removed_at_once_at_most(place: Path):
    for number in range(LEFT_MAX + 3):
        (place / f"{PREFIX}{number}").mkdir()
        (place / f"{PREFIX}{number}" / "LOG").write_text("a line\n")
    Scratch().remove()
    assert len(left(place)) == 3
    Scratch().remove()
    assert left(place) == set()


def test_one_that_was_cleaned_away_is_made_again_and_held(place: Path):
    mine = Scratch()
    shutil.rmtree(mine.there())
    again = mine.there()
    assert mine.there() == again
    Scratch().remove()
    assert left(place) == {again.name}
    # Another one at the same place is not the one that this process holds.
    shutil.rmtree(again)
    again.mkdir()
    assert mine.there().exists()
    Scratch().remove()
    assert left(place) == {mine.there().name}
    mine.remove()
    assert left(place) == set()


def test_one_that_another_process_takes_for_left_before_it_is_held_is_given_up(
    place: Path, monkeypatch: pytest.MonkeyPatch
):
    make = tempfile.mkdtemp
    removing: list[tuple[str, int]] = []

    def made(prefix: str) -> str:
        path = make(prefix=prefix)
        if not removing:
            descriptor = os.open(path, os.O_RDONLY)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            removing.append((path, descriptor))
        return path

    monkeypatch.setattr(tempfile, "mkdtemp", made)
    mine = Scratch()
    [(path, descriptor)] = removing
    assert str(mine.there()) != path
    shutil.rmtree(path)
    os.close(descriptor)
    assert left(place) == {mine.there().name}
    mine.remove()


def test_where_nothing_can_be_locked_nothing_is_removed(place: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(_: int, __: int) -> None:
        raise OSError("no locks available")

    monkeypatch.setattr(scratch.fcntl, "flock", refuse)
    (place / f"{PREFIX}left").mkdir()
    mine = Scratch()
    assert mine.there().exists()
    shutil.rmtree(mine.there())
    assert mine.there().exists()
    mine.remove()
    assert f"{PREFIX}left" in left(place)


def test_a_reader_without_room_for_temporary_files_is_unavailable_until_there_is_some(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def full(**_: str) -> str:
        raise OSError(errno.ENOSPC, "No space left on device")

    cluster = tmp_path / "cluster"
    with closing(RocksCluster.open(cluster, [TABLE])) as owner:
        store = owner.table("feed")
        store.apply([Put([(b"aa", 5)], [b"aaa"])])
        with monkeypatch.context() as patch:
            patch.setattr(tempfile, "mkdtemp", full)
            with pytest.raises(UnavailableError, match=f"{cluster}: .*temporary.*No space left"):
                RocksCluster.open(cluster, [TABLE], "read")
        with closing(RocksCluster.open(cluster, [TABLE], "read")) as reader:
            (directory,) = place.glob(f"{PREFIX}*")
            shutil.rmtree(directory)
            store.apply([Put([(b"aa", 5)], [b"aab"])])
            store.sweep(0)  # the manifest grows
            with monkeypatch.context() as patch:
                patch.setattr(tempfile, "mkdtemp", full)
                for _ in range(2):
                    with pytest.raises(UnavailableError, match="No space left"):
                        reader.table("feed").read(b"aa", None, 9)
            assert reader.table("feed").read(b"aa", None, 9) == [b"aaa", b"aab"]
