"""catalog: records by key, in generations."""

import os
import random
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Final

import click

from feedstore.app.catalogs import form_of, open_reader, open_store, settings_of
from feedstore.app.wiring import clock_of
from feedstore.catalog import pins, posting, swaps
from feedstore.catalog.port import CatalogError, CatalogStore, CatalogUnavailableError, Generation, NoGenerationError
from feedstore.catalog.settings import PINS, kind_of
from feedstore.catalog.watch import Facts
from feedstore.domain import MAX_ID
from feedstore.errors import NotNowError
from workers.app import memory_tuning, wiring
from workers.catalog import build as building
from workers.catalog import load as loading
from workers.catalog.check import WHAT, PinComparison
from workers.catalog.files import batches_of, entries_of
from workers.catalog.posting import publish
from workers.catalog.side_by_side import in_each
from workers.catalog.sorting import by_key
from workers.cli.output import ProgressLine, ago, answer, emit_json, note, plural, say, when
from workers.cli.session import NOT_NOW, REFUSED, CommandRefusedError, Session, TryLaterError, json_option, pass_session

_WAIT_S: Final = 10.0
"""How long a build waits for a new delta to begin."""

cluster_option = click.option("--cluster", metavar="NAME", help="Only in this cluster.  [default: in all]")


@click.group(short_help="Load, show and swap catalogs: records by key.")
def catalog() -> None:
    """Load, show and swap catalogs: records by key, in generations.

    \b
    Examples:
      feedctl catalog list
      feedctl catalog build pins
      feedctl catalog load ads ads.jsonl --as-of 1732000000000
      feedctl catalog update ads changes.jsonl
      feedctl catalog rollback pins
      feedctl catalog get pins 12345
    """


def _clusters(session: Session, name: str, cluster: str | None) -> list[str]:
    settings_of(session.config, name)
    return session.clusters(cluster)


@catalog.command("list", short_help="Show the generations of each catalog in each cluster.")
@click.argument("name", required=False)
@json_option
@pass_session
def list_(session: Session, name: str | None, *, as_json: bool) -> None:
    """Show the generations of each catalog (or of NAME) in each cluster, and how fresh its updates are. A rollback goes
    to the latest generation that is marked as used. The exit status is 3 if a catalog does not answer in some cluster.

    \b
    Examples:
      feedctl catalog list
      feedctl catalog list pins --json
    """
    away = 0
    now_ms = clock_of(session.config)()
    for each in session.config.catalogs if name is None else [name]:
        for cluster in _clusters(session, each, None):
            try:
                with open_reader(session.config, each, cluster) as reader:
                    generations, delta = reader.generations(), reader.delta()
            except CatalogUnavailableError as error:
                away += 1
                value = {"catalog": each, "cluster": cluster, "error": str(error)}
                answer(value, f"{each} in {cluster}: {error}", as_json=as_json)
                continue
            if as_json:
                found = [generation._asdict() for generation in generations]
                emit_json({"catalog": each, "cluster": cluster, "generations": found, "delta": delta._asdict()})
                continue
            watermark_ms = Facts(generations, delta, now_ms).watermark_ms
            behind_ms = max(0, now_ms - (watermark_ms or 0))  # more may have become known since
            fresh = "no updates yet" if watermark_ms is None else f"every update up to {ago(behind_ms)} ago"
            say(f"{each} in {cluster}: {plural(len(generations), 'generation')}; {fresh}, {delta.entries:,} kept")
            for generation in generations:
                say("  " + _line(generation))
    if not session.config.catalogs:
        note("no catalogs: add [catalogs.pins] to feed.toml, and then: feedctl catalog build pins")
    if away:
        sys.exit(NOT_NOW)


def _line(generation: Generation) -> str:
    state = "current" if generation.current else "used" if generation.used else ""
    size = f"{generation.bytes / (1 << 20):,.1f} MiB" if generation.bytes else ""
    as_of = f"as of {when(generation.as_of_ms)}"
    return f"{state:7}  {generation.id}  {as_of}  {plural(generation.records, 'record')}  {size}".rstrip()


# Generations
# --------------------------------------------------------------------------------------------------------------------


@catalog.command(short_help="Build a generation of NAME from the follow store, and use it.")
@click.argument("name")
@cluster_option
@click.option(
    "--force", is_flag=True, help="Use it even if its size is suspicious, or another generation came into use."
)
@pass_session
def build(session: Session, name: str, cluster: str | None, *, force: bool) -> None:
    """Read the follow store once, build a generation of NAME in each cluster, check it, and use it.

    Before the new generation is used, the command compares its size with that of the current generation, and a thousand
    of its records with the follow store. Pages and workers continue during the build. If another process builds a
    generation in the same cluster, the command names that process, and says since when it has been building. The new
    generation is not used if another one came into use during the build, or if there was a rollback. If the build fails
    in one cluster, the others are built all the same.

    \b
    Examples:
      feedctl catalog build pins
      feedctl catalog build pins --cluster b
    """
    clusters = _clusters(session, name, cluster)
    if kind_of(name).source != "pins":
        raise click.UsageError(f"only {PINS} is built from the follow store: {kind_of(name).fill}")
    memory_tuning.relax()
    stores: dict[str, CatalogStore] = {}
    progress, began_s = ProgressLine("build"), time.monotonic()
    with session.follows() as follows, ExitStack() as stack:

        def begin(each: str) -> None:
            store = stack.enter_context(open_store(session.config, name, each))
            stack.enter_context(store.building(f"process {os.getpid()} on {socket.gethostname()}"))
            _wait_for_floor(store.delta().floor_ms, follows.settled_ms)
            stores[each] = store

        busy = in_each(clusters, begin).failed
        built, failed = building.build(
            stores,
            follows,
            session.config.limits.purge_window_ms,
            random.Random(),  # noqa: S311 - a sample needs no secrecy
            lambda done: progress.count(done, "record"),
            force=force,
        )
    took_s = time.monotonic() - began_s
    for each, made in built.items():
        counted = f"{plural(made.records, 'record')}, {made.records / took_s:,.0f}/s"
        if made.current:
            note(f"{each}: generation {made.id} is in use: {counted}")
        else:
            note(
                f"{each}: generation {made.id} is loaded, and is not used, because another one came into use"
                f" meanwhile: {counted}. To use it: feedctl catalog use {name} {made.id} --cluster {each}"
            )
    _fail(busy | failed, "not built")


def _fail(failed: Mapping[str, CatalogError], what: str) -> None:
    """Ends the command with an error if something failed. failed: by cluster. what: what was not done there."""
    if failed:
        said = "; ".join(f"{cluster}: {what}: {_how(cluster, error)}" for cluster, error in failed.items())
        later = all(map(_may_pass, failed.values()))
        raise TryLaterError(said) if later else CommandRefusedError(said)


def _how(cluster: str, error: CatalogError) -> str:
    return f"{error}; repeat it with --cluster {cluster}" if _may_pass(error) else str(error)


def _may_pass(error: CatalogError) -> bool:
    """Whether the same command may succeed later. A catalog without a generation waits for an operator."""
    return isinstance(error, NotNowError) and not isinstance(error, NoGenerationError)


def _wait_for_floor(floor_ms: int, settled_ms: Callable[[], int]) -> None:
    """Waits until the settled time is past the floor: a delta begins with its updater, a generation must be later.
    Raises CatalogUnavailableError if that takes too long.
    """
    until_s = time.monotonic() + _WAIT_S
    while settled_ms() <= floor_ms and time.monotonic() < until_s:
        time.sleep(0.1)
    if settled_ms() <= floor_ms:
        raise CatalogUnavailableError("the follow store has not settled what came after a gap in the updates")


@catalog.command(short_help="Load a generation of NAME from FILE, and use it.")
@click.argument("name")
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option(
    "--as-of",
    "as_of_ms",
    type=click.IntRange(1, MAX_ID),
    required=True,
    help="The time at which the batch that made FILE began to read its source, in ms since 1970.",
)
@cluster_option
@click.option("--force", is_flag=True, help="Use it even if it is much smaller, or older, than the current generation.")
@pass_session
def load(session: Session, name: str, file: Path, as_of_ms: int, cluster: str | None, *, force: bool) -> None:
    """Load a generation of NAME from FILE (JSON lines or Parquet, in any order), and use it. The catalog pins cannot be
    loaded: it is built from the follow store.

    A line is {"key": "...", "record": ...}; Parquet has the columns key and record.

    \b
    Examples:
      feedctl catalog load ads ads.jsonl --as-of 1732000000000
      feedctl catalog load ads ads.parquet --as-of 1732000000000
    """
    if kind_of(name).source != "files":
        raise click.UsageError(f"{name} is built from the follow store: {kind_of(name).fill}")
    clusters = _clusters(session, name, cluster)
    loading.refuse_wrong(as_of_ms, clock_of(session.config)())
    memory_tuning.relax()
    with ExitStack() as stack:
        stores = {each: stack.enter_context(open_store(session.config, name, each)) for each in clusters}
        entries = _counted(by_key(entries_of(file)), ProgressLine("load"))
        loaded, failed = loading.load(stores, as_of_ms, entries, force=force)
    for each, made in loaded.items():
        note(f"{each}: generation {made.id} is in use: {plural(made.records, 'record')}")
    _fail(failed, "not loaded")


@catalog.command(short_help="Post updates of NAME from FILE.")
@click.argument("name")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@pass_session
def update(session: Session, name: str, file: str) -> None:
    """Post updates of NAME from FILE (- for stdin): JSON lines, in any order. The catalog pins takes no updates from
    files: actions update it.

    A line is {"key": "...", "time_ms": ..., "record": ...}. It says that from this time on, by the clock of your
    source, the key has this record, which is any JSON. Instead of "record", give "base64": "..." for a record of any
    bytes, or "deleted": true if the key has no record any more. Of all updates of a key, the one with the latest time
    counts. So you may post files again, and in any order.

    When the command ends, every update is in the queue. The workers then write them into each cluster.

    \b
    Examples:
      feedctl catalog update ads changes.jsonl
      echo '{"key": "campaign-7", "time_ms": 1732000060000, "record": {"bid": 5}}' | feedctl catalog update ads -
      echo '{"key": "campaign-7", "time_ms": 1732000060500, "deleted": true}' | feedctl catalog update ads -
    """
    settings_of(session.config, name)
    posting.refuse_updated(name)
    clock_ms = clock_of(session.config)
    progress, posted = ProgressLine("update"), 0
    with closing(wiring.open_queue(session.config, clock_ms)) as queue, click.open_file(file, "rb") as lines:
        try:
            for batch in batches_of(lines, "stdin" if file == "-" else file, clock_ms):
                publish(queue, name, batch)
                posted += len(batch)
                progress.count(posted, "update")
        finally:
            note(f"{plural(posted, 'update')} posted")


def _counted(entries: Iterator[tuple[bytes, bytes]], progress: ProgressLine) -> Iterator[tuple[bytes, bytes]]:
    for number, entry in enumerate(entries, 1):
        yield entry
        if not number % 10_000:
            progress.count(number, "record")


@catalog.command()
@click.argument("name")
@click.argument("generation")
@cluster_option
@pass_session
def use(session: Session, name: str, generation: str, cluster: str | None) -> None:
    """Use GENERATION of NAME: a newer or an older one. Every process reads it within two seconds.

    \b
    Examples:
      feedctl catalog list pins
      feedctl catalog use pins 1732000000000-0123456789abcdef
    """

    def use_in(each: str) -> None:
        with open_store(session.config, name, each) as store:
            store.use(generation)
        note(f"{each}: generation {generation} is in use")

    _fail(in_each(_clusters(session, name, cluster), use_in).failed, "not changed")


@catalog.command(short_help="Use the generation that was in use before the current one.")
@click.argument("name")
@cluster_option
@pass_session
def rollback(session: Session, name: str, cluster: str | None) -> None:
    """Use the generation of NAME that was in use before the current one. All updates since then stay in force.
    Generations that were never in use, or that were rolled back, are skipped. No source is read again, and nothing is
    lost. To undo the rollback, run feedctl catalog use.

    \b
    Examples:
      feedctl catalog rollback pins
      feedctl catalog rollback pins --cluster b
    """

    def roll_back_in(each: str) -> None:
        with open_store(session.config, name, each) as store:
            swap = swaps.roll_back(store)
        note(f"{each}: generation {swap.generation} is in use, after {swap.before}")

    _fail(in_each(_clusters(session, name, cluster), roll_back_in).failed, "not rolled back")


@catalog.command(short_help="Remove old generations of NAME.")
@click.argument("name")
@click.option("--keep", type=click.IntRange(1, 100), help="How many generations to keep.  [default: as feed.toml says]")
@cluster_option
@pass_session
def collect(session: Session, name: str, keep: int | None, cluster: str | None) -> None:
    """Remove old generations of NAME. The latest generations stay, and so do the latest ones that were in use. Updates
    that all remaining generations already contain are removed, too. A worker does this by itself: stop it before you
    run this command.

    \b
    Examples:
      feedctl catalog collect pins --keep 1
    """
    kept = keep or settings_of(session.config, name).keep

    def collect_in(each: str) -> None:
        with open_store(session.config, name, each) as store:
            gone = store.collect(kept)
        note(f"{each}: {plural(len(gone.generations), 'generation')} and {plural(gone.entries, 'update')} removed")

    with session.lock():
        _fail(in_each(_clusters(session, name, cluster), collect_in).failed, "not collected")


# Looking
# --------------------------------------------------------------------------------------------------------------------


@catalog.command(short_help="Show the record of KEY in each cluster.")
@click.argument("name")
@click.argument("key")
@json_option
@pass_session
def get(session: Session, name: str, key: str, *, as_json: bool) -> None:
    """Show the record of KEY in each cluster. In the catalog pins, KEY is the id of a pin; in any other, it is the text
    of a key. The exit status is 1 if no cluster has a record, and 3 if a cluster that might have one does not answer.

    \b
    Examples:
      feedctl catalog get pins 12345
      feedctl catalog get ads campaign-7 --json
    """
    asked, _ = form_of(name).key("KEY", key)
    there = is_away = False
    for each in _clusters(session, name, None):
        try:
            with open_reader(session.config, name, each) as reader:
                found = reader.fetch([asked])
            record = found.records.get(asked)
            shown = "no record" if record is None else _shown(form_of(name).made(asked, record))
        except CatalogUnavailableError as error:
            is_away |= _may_pass(error)
            answer({"cluster": each, "error": str(error)}, f"{each}: {error}", as_json=as_json)
            continue
        there |= record is not None
        held = {"record": None if record is None else shown, "generation": found.generation}
        text = f"{each}: {shown}  (generation {found.generation}, every change up to {when(found.known_ms)})"
        answer({"cluster": each, **held, "known_ms": found.known_ms}, text, as_json=as_json)
    if not there:
        sys.exit(NOT_NOW if is_away else REFUSED)


def _shown(held: bytes | pins.HeldPin) -> str:
    if isinstance(held, bytes):
        return held.decode(errors="backslashreplace")
    return f"owner {held.owner}, board {held.board}, created {when(held.created_ms)}" if held else "deleted"


@catalog.command(short_help="Compare the catalog NAME with the follow store.")
@click.argument("name")
@cluster_option
@json_option
@pass_session
def verify(session: Session, name: str, cluster: str | None, *, as_json: bool) -> None:
    """Compare the catalog NAME with the follow store, pin by pin, and say how many pins were compared. The command
    changes nothing; a new build repairs the differences. A pin is not compared if it was saved or deleted after the
    last update that has reached the catalog. The exit status is 1 if there is a difference, and 3 if a cluster does not
    answer or had nothing to compare.

    \b
    Examples:
      feedctl catalog verify pins
    """
    if kind_of(name).source != "pins":
        raise click.UsageError(f"only {PINS} is built from the follow store, so only it can be compared")
    count = 0
    nothing: list[str] = []
    with session.follows() as follows:
        for each in _clusters(session, name, cluster):
            progress = ProgressLine(f"verify {each}")
            here = 0
            try:
                with open_reader(session.config, name, each) as reader:
                    comparison = PinComparison(reader, follows, partial(progress.count, one="pin"))
                    for found in comparison:
                        here += 1
                        value = {"cluster": each, "pin": found.pin, "kind": found.kind}
                        answer(value, f"{each}: pin {found.pin} {WHAT[found.kind]}", as_json=as_json)
            except CatalogUnavailableError as error:
                nothing.append(f"{each}: {error}")
            else:
                note(f"{each}: {_compared(comparison, here)}")
                if not comparison.compared:
                    nothing.append(f"{each}: nothing was compared: {_why_nothing(comparison)}")
            count += here
    if count:
        raise CommandRefusedError(f"{plural(count, 'difference')}: feedctl catalog build {name}")
    if nothing:
        raise TryLaterError("; ".join(nothing))


def _compared(comparison: PinComparison, differences: int) -> str:
    later = ""
    if comparison.later:
        later = f"; {comparison.later:,} not compared, because they changed after {when(comparison.known_ms or 0)}"
    found = plural(differences, "difference") if differences else "no difference"
    return f"{plural(comparison.compared, 'pin')} compared, {found}{later}"


def _why_nothing(comparison: PinComparison) -> str:
    if not comparison.later:
        return "the follow store has no pins"
    return "all pins changed after the last update of the catalog: run feedctl work, or feedctl catalog build pins"
