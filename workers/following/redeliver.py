"""Sends dead letters to their topics again."""

from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from typing import Final

from workers.queue.port import DeadLetter, DeadLetters, Malformed, MessageRefusedError, Queue, Topic

SET_ASIDE: Final = "retry of "
"""The beginning of a letter's group while the letter is being sent again."""

_PAGE = 100


def every_letter(dead: DeadLetters, after: int = 0) -> Iterator[DeadLetter]:
    """All letters, ids ascending. after: only those with larger ids."""
    while page := dead.letters(after, _PAGE):
        yield from page
        after = page[-1].id


def redeliver(
    queue: Queue,
    topics: Iterable[Topic[object]],
    dead: DeadLetters,
    letters: Iterable[DeadLetter],
    on_kept: Callable[[DeadLetter, str], None],
) -> int:
    """Publishes the letters' messages as they were, then drops the letters; returns how many. After a crash at any
    moment each message is in its topic, in a letter, or in both: do it again, delivering a message twice is fine.

    topics: the queue's topics. on_kept: is called with each letter whose message this program still cannot read, and
        the reason. Such a letter is kept: if its message were sent again, it would come back. A message that its topic
        refuses stays in a letter, too.

    If a worker buries such a message again, the first of two equal letters is kept. That must not be a letter that is
    about to be dropped here, so each letter first gets another group name.

    Raises QueueUnavailableError: do it again.
    """
    known = {topic.name: topic for topic in topics}
    chosen: set[tuple[str, str, bytes]] = set()
    for letter in letters:
        topic = known.get(letter.topic)
        if topic is None:
            on_kept(letter, f"unknown_topic: this program knows no topic {letter.topic} in this home")
            continue
        # A letter holds one body, unless an earlier program could not read the message at all.
        bad = next((body for body in topic.bodies(letter.value) if isinstance(body, Malformed)), None)
        if bad is not None:
            on_kept(letter, f"{bad.reason}: {bad.detail}")
            continue
        group = letter.group
        if not group.startswith(SET_ASIDE):
            group = SET_ASIDE + group
            dead.bury(topic, group, letter.reason, letter.detail, letter.died_ms, letter.value)
            dead.drop(letter.id)
        chosen.add((letter.topic, group, _digest(letter.value)))
    refused = 0
    for letter in every_letter(dead):
        if (letter.topic, letter.group, _digest(letter.value)) in chosen:
            try:
                queue.publish(known[letter.topic], [letter.value])
            except MessageRefusedError as error:
                on_kept(letter, f"refused: {error}")
                refused += 1
            else:
                dead.drop(letter.id)
    return len(chosen) - refused


def _digest(value: bytes) -> bytes:
    return blake2b(value, digest_size=16).digest()
