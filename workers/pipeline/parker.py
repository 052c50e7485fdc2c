"""Parking: messages whose outage lasts are put out of the way, so that the stream continues (rule 12)."""

import itertools
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Generic, TypeVar

import structlog

from feedstore.portions import chunks
from workers.pipeline.calls import Calls
from workers.pipeline.lots import Item, Lots
from workers.pipeline.outages import Outages
from workers.pipeline.retry import Away, RetryPolicy
from workers.pipeline.spec import StageSpec
from workers.pipeline.tally import Tally

Body = TypeVar("Body")

PARK_AFTER_S: Final = 30.0
"""A message is parked when its outage has lasted this long. A failing attempt takes 30 s at most, and two attempts find
out what is away: so a message is parked within a minute of the first failure."""
PARK_EVERY_S: Final = 1.0
"""How often messages are parked, unless a batch of them waits: parking costs a few round trips."""


class Parker(Generic[Body]):
    """Parks messages that wait in the outages of one stage.

    spec, policy, rng, clock: those of the stage. park: that of the spec. away: the rests if messages could not be
    parked.
    """

    def __init__(
        self,
        spec: StageSpec[Body],
        park: Callable[[Sequence[Body], float], Sequence[bool]],
        outages: Outages[Body],
        lots: Lots,
        calls: Calls,
        away: Away,
        tally: Tally,
        policy: RetryPolicy,
        rng: random.Random,
        clock: Callable[[], float],
    ) -> None:
        self._park, self._batch = park, spec.batch
        self._outages, self._lots, self._calls, self._away, self._tally = outages, lots, calls, away, tally
        self._policy, self._rng, self._clock = policy, rng, clock
        self._parked_s = clock()
        self._log = structlog.get_logger().bind(stage=spec.group)

    def park_some(self, rests_until_s: float) -> None:
        """Parks messages whose outage has lasted. If waiting messages take more than half of the room, it also parks
        messages of other outages, oldest first, until half of the room is free. A message that cannot be parked waits
        as before.

        rests_until_s: the stage probes no outage before this time.
        """
        if self._away.is_resting():
            return
        now_s = self._clock()
        pressed = not self._lots.has_room(2)
        lasting = [
            outage
            for outage in self._outages
            if outage.slots
            and (pressed or now_s - outage.since_s >= PARK_AFTER_S)
            # Messages that the next step may use for a probe stay: without any, no probe would find that the outage is
            # over.
            and not outage.due_s <= now_s >= rests_until_s
        ]
        count = sum(len(outage.items) for outage in lasting)
        if not count or (not pressed and count < self._batch and now_s - self._parked_s < PARK_EVERY_S):
            return
        self._parked_s = now_s
        waiting = sorted((item for outage in lasting for item in outage.items), key=lambda item: item.number)
        wait_s = self._policy.wait_s(max(outage.failures for outage in lasting), self._rng)
        parked: list[Item[Body]] = []
        reason = ""
        try:
            for some in chunks(waiting, self._batch):
                took = self._calls.aside(partial(self._park, [item.body for item in some], wait_s))
                taken = list(itertools.compress(some, took))
                self._outages.drop(taken)
                for item in taken:
                    self._lots.done(item)
                parked += taken
                if pressed and self._lots.has_room(2):
                    break
        except Exception as error:  # noqa: BLE001 - on any error they wait as before
            reason = f"{type(error).__name__}: {error}"
        if parked:
            self._tally.parked(len(parked))
            self._log.info("messages.parked", messages=len(parked))
            self._away.ended()
        if not parked or reason:
            self._away.noted(reason, (now_s, self._calls.worked))
