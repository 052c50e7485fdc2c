"""The messages that can never be done: each is buried in the dead letters, with its reason (rule 12).

Until then they wait here, and no other message waits for them. Too many in a row stop the worker: whatever the fault,
it is not that of the messages, and the queue must not be drained into the dead letters.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import structlog

from workers.pipeline.calls import Calls
from workers.pipeline.lots import Item, Lots
from workers.pipeline.retry import Away
from workers.pipeline.spec import StageSpec
from workers.pipeline.tally import Tally
from workers.queue.port import DeadLetters, Malformed

Body = TypeVar("Body")


class TooManyDeadLettersError(Exception):
    """Too many messages in a row cannot be done: this worker, or the writer of the messages, is faulty.

    Nothing is lost: messages that were not buried stay in the queue.
    """


@dataclass(eq=False)
class Corpse(Generic[Body]):
    """A message that can never be done, on its way to the dead letters. after_good: whether decodable messages lie
    between it and the undecodable one before it.
    """

    item: Item[Body] | Item[Malformed]
    reason: str
    detail: str
    after_good: bool = False


@dataclass(eq=False)
class Corpses(Generic[Body]):
    """The messages of one poll that could not be decoded. They are buried after the rest of the poll was tried."""

    corpses: list[Corpse[Body]]


class Burials(Generic[Body]):
    """Buries the messages of one stage, one after the other. If the dead letters are away, they wait.

    spec, dead, wall_ms: those of the stage. most: this many in a row are too many. lots: where a buried message counts
    as done. away: the rests if the dead letters do not answer.

    waiting: the messages to bury, in order. in_a_row: how many were buried since something was done; the stage sets it
        back to 0.
    """

    def __init__(
        self,
        spec: StageSpec[Body],
        dead: DeadLetters,
        wall_ms: Callable[[], int],
        most: int,
        lots: Lots,
        calls: Calls,
        away: Away,
        tally: Tally,
    ) -> None:
        self._spec, self._dead, self._wall_ms, self._most = spec, dead, wall_ms, most
        self._lots, self._calls, self._away, self._tally = lots, calls, away, tally
        self.waiting: deque[Corpse[Body]] = deque()
        self.in_a_row = 0
        self._log = structlog.get_logger().bind(stage=spec.group)

    @property
    def too_many(self) -> bool:
        """Whether too many were buried in a row: nothing more is done or buried then."""
        return self.in_a_row >= self._most

    def bury_some(self, in_time: Callable[[], bool]) -> bool:
        """Buries messages as long as there is time, one in any case; False if none was tried."""
        tried = False
        while self.waiting and not self._away.is_resting() and not self.too_many:
            if tried and not in_time():
                break
            tried = True
            if not self._bury(self.waiting[0]):
                break
        return tried

    def _bury(self, corpse: Corpse[Body]) -> bool:
        """Buries the first message; False if the dead letters are away."""
        item = corpse.item
        taken, body = item.taken, item.body
        spec = self._spec
        # Other bodies of the message may be done, or wait: only this one is buried, and can be sent again later.
        if isinstance(body, Malformed):
            value = body.value
        elif taken.value is not None:
            value = taken.value
        else:
            value = spec.encode(body)

        def bury() -> None:
            self._dead.bury(spec.topic, spec.group, corpse.reason, corpse.detail, self._wall_ms(), value)
            if spec.given_up is not None and not isinstance(body, Malformed):
                spec.given_up(body)

        if not self._calls.answers(self._away, bury):
            return False
        # It leaves its place only now that it is in the dead letters: until then an error would lose it.
        self.waiting.popleft()
        self._lots.done(item)
        self._tally.dead(corpse.reason)
        self._log.error(
            "message.dead",
            reason=corpse.reason,
            partition=taken.partition,
            offset=taken.offset,
            detail=corpse.detail,
        )
        # Decodable messages lie between this dead letter and the one before: if any is done, the count starts again.
        self.in_a_row = 1 if corpse.after_good and item.lot.progressed else self.in_a_row + 1
        return True
