"""Brings a home of an earlier program up to date: first it plans what the home lacks, then it does that step by step.

Each step is done completely or not at all, whatever dies; the plan is then made again from the state of the home.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from feedstore.app.config import Config
from feedstore.clocks import wall_ms
from feedstore.follows import sqlite
from workers.app import wiring
from workers.app.checks import files_of, open_to_others
from workers.queue.embedded import EmbeddedQueue, NoQueueError, has_dead_letters, open_dead_letters, stored_partitions


class MigrationStep(NamedTuple):
    """A step of a migration. what: its name for people. do: does the step; repeating it changes nothing."""

    what: str
    do: Callable[[], None]


def plan(config: Config) -> list[MigrationStep]:
    """The steps that a home lacks, in their order; none if it is up to date. If its queue is lost, only those of the
    follow store. It only reads. Servers are not asked: their tables are brought up to date by `schema apply`.

    Raises ConfigError, FollowStoreUnavailableError, QueueUnavailableError: a store is missing, damaged, or newer than
    this program.
    """
    follow_store = [*_follow_store(config)]
    try:
        return [*follow_store, *_queue(config), *_rights(config)]
    except NoQueueError:
        if not follow_store:
            raise
        # `reindex` makes the queue, and needs tables that are up to date.
        return follow_store


def _follow_store(config: Config) -> Iterator[MigrationStep]:
    paths = config.shard_files
    for version in sorted({version for path in paths for version in sqlite.lacking(path)}):
        yield MigrationStep(f"follow store: tables of version {version}", lambda to=version: sqlite.create(paths, to))  # type: ignore[misc]


def _queue(config: Config) -> Iterator[MigrationStep]:
    path = config.queue_file
    if path is None:
        return
    there = stored_partitions(path)
    topics = wiring.topics_of(config)
    for topic in topics:
        if topic.name not in there:
            # Opening a queue adds the topics that it lacks.
            yield MigrationStep(f"queue: topic {topic}", lambda: EmbeddedQueue.open(path, topics, wall_ms).close())
            break
    if not has_dead_letters(path):
        yield MigrationStep("queue: dead letters", lambda: open_dead_letters(path).close())


def _rights(config: Config) -> Iterator[MigrationStep]:
    if paths := [entry.path for entry in open_to_others(config, files_of(config))]:
        yield MigrationStep(f"rights: {len(paths):,} files and directories for their user alone", lambda: _close(paths))


def _close(paths: list[Path]) -> None:
    for path in paths:
        if path.exists():  # a log file may have gone meanwhile
            path.chmod(path.stat().st_mode & 0o700)


def migrate(config: Config, on_step: Callable[[MigrationStep], None]) -> int:
    """Does all steps that a home lacks; returns how many there were. The caller holds the home. on_step: is called with
    each step before it is done.

    Raises the errors of `plan`, and OSError; do it again.
    """
    steps = plan(config)
    for step in steps:
        on_step(step)
        step.do()
    if steps:
        plan(config)  # raises if the queue is lost
    return len(steps)
