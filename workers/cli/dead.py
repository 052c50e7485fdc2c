"""dead list, show, retry, drop: messages that could not be processed."""

import base64
import itertools
import sys
from collections.abc import Iterator

import click

from feedstore.domain import MAX_ID
from workers.app import wiring
from workers.cli.output import emit_json, note, plural, say, when
from workers.cli.session import ID, REFUSED, CommandRefusedError, Session, json_option, pass_session
from workers.following.redeliver import every_letter, redeliver
from workers.queue.port import DeadLetter, DeadLetters


@click.group(short_help="List, show, retry or drop dead letters.")
def dead() -> None:
    """List, show, retry or drop dead letters: messages that could not be processed.

    \b
    Examples:
      feedctl dead list
      feedctl dead show 3
      feedctl dead retry --all
    """


@dead.command(name="list")
@click.option(
    "--limit", type=click.IntRange(1, MAX_ID), default=100, help="How many letters to list at most.  [default: 100]"
)
@click.option("--after", type=click.IntRange(0, MAX_ID), default=0, help="List only letters with larger ids.")
@json_option
@pass_session
def list_letters(session: Session, limit: int, after: int, *, as_json: bool) -> None:
    """List dead letters, oldest first.

    \b
    Examples:
      feedctl dead list
      feedctl dead list --json | jq .reason
    """
    with session.ports("read") as ports:
        letters = list(itertools.islice(every_letter(ports.dead, after), limit))
        count = ports.dead.count()
    for letter in letters:
        if as_json:
            emit_json(_described(letter))
        else:
            first = letter.detail.strip().rsplit("\n", 1)[-1]
            say(f"{letter.id:>6}  {when(letter.died_ms)}  {letter.group:<12} {letter.reason:<16} {first[:90]}")
    if not as_json:
        note(plural(count, "dead letter") + (f", {len(letters)} shown" if len(letters) < count else ""))


@dead.command()
@click.argument("letter_id", metavar="ID", type=ID)
@json_option
@pass_session
def show(session: Session, letter_id: int, *, as_json: bool) -> None:
    """Show the dead letter ID: the reason, and the message itself.

    \b
    Examples:
      feedctl dead show 3
    """
    with session.ports("read") as ports:
        letter = _letter(ports.dead, letter_id)
    if as_json:
        emit_json(_described(letter) | {"value_base64": base64.b64encode(letter.value).decode()})
        return
    say(f"id      {letter.id}")
    say(f"died    {when(letter.died_ms)} UTC, in {letter.group} from {letter.topic}")
    say(f"reason  {letter.reason}")
    say(f"detail  {letter.detail}")
    say(f"value   {len(letter.value):,} bytes: {letter.value[:2_000]!r}")


@dead.command()
@click.argument("ids", metavar="[ID]...", nargs=-1, type=ID)
@click.option("--all", "everything", is_flag=True, help="All dead letters.")
@pass_session
def retry(session: Session, ids: tuple[int, ...], *, everything: bool) -> None:
    """Send dead letters to their topics again, unchanged, and drop them.

    Fix the cause first. If this program still cannot read a message, the message stays a dead letter, and the exit
    status is 1.

    \b
    Examples:
      feedctl dead retry 3
      feedctl dead retry --all
    """
    stayed = 0

    def on_kept(letter: DeadLetter, reason: str) -> None:
        nonlocal stayed
        stayed += 1
        note(f"{letter.id}: kept: {reason}")

    with session.ports("read") as ports:
        topics = wiring.topics_of(session.config)
        sent = redeliver(ports.queue, topics, ports.dead, _chosen(ports.dead, ids, everything=everything), on_kept)
    note(f"{sent:,} sent again" + (f", {stayed:,} kept" if stayed else ""))
    if stayed:
        note("feedctl dead show ID says what a letter is, feedctl dead drop ID drops it")
        sys.exit(REFUSED)


@dead.command()
@click.argument("ids", metavar="[ID]...", nargs=-1, type=ID)
@click.option("--all", "everything", is_flag=True, help="All dead letters.")
@pass_session
def drop(session: Session, ids: tuple[int, ...], *, everything: bool) -> None:
    """Drop dead letters. The entries that they would have written are missing from feeds until a rebuild.

    \b
    Examples:
      feedctl dead drop 3
      feedctl dead drop --all
    """
    with session.ports("read") as ports:
        dropped = sum(ports.dead.drop(letter.id) for letter in _chosen(ports.dead, ids, everything=everything))
    note(f"{dropped:,} dropped")


def _chosen(dead_letters: DeadLetters, ids: tuple[int, ...], *, everything: bool) -> Iterator[DeadLetter]:
    if everything == bool(ids):
        raise click.UsageError("give either ids or --all")
    if ids:
        # All letters are looked up before anything is done to the first.
        yield from [_letter(dead_letters, letter_id) for letter_id in ids]
        return
    last = max((letter.id for letter in every_letter(dead_letters)), default=0)
    # Messages that die meanwhile are not included.
    yield from itertools.takewhile(lambda letter: letter.id <= last, every_letter(dead_letters))


def _letter(dead_letters: DeadLetters, letter_id: int) -> DeadLetter:
    letter = dead_letters.letter(letter_id)
    if letter is None:
        raise CommandRefusedError(f"there is no dead letter {letter_id}")
    return letter


def _described(letter: DeadLetter) -> dict[str, object]:
    return {
        "id": letter.id,
        "topic": letter.topic,
        "group": letter.group,
        "reason": letter.reason,
        "detail": letter.detail,
        "died_ms": letter.died_ms,
        "bytes": len(letter.value),
    }
