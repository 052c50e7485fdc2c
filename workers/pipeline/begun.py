"""A loop that must find out where it begins before it can work, and again if that changes."""

from collections.abc import Callable
from typing import Generic

import structlog

from feedstore.errors import NotNowError
from feedstore.metering import UNCOUNTED, Meter
from workers.pipeline import metrics
from workers.pipeline.retry import REST_S, Rest
from workers.pipeline.stage import Body, Stage

_log = structlog.get_logger()


class Begun(Generic[Body]):
    """A stage that is made once its beginning is known.

    begin: makes sure of where the group begins; to be called before the group's consumer is made. It may raise
        NotNowError: later. Any other error ends the loop.
    make: makes the stage. clock: monotonic seconds. again_on: if a step raises one of these, the loop leaves the group
        and begins again.
    """

    rest_s = REST_S

    def __init__(
        self,
        name: str,
        begin: Callable[[], None],
        make: Callable[[], Stage[Body]],
        clock: Callable[[], float],
        again_on: type[Exception],
        meter: Meter = UNCOUNTED,
    ) -> None:
        self._meter = meter
        self.name = name
        self._begin = begin
        self._make = make
        self._rest = Rest(clock)
        self._again_on = again_on
        self._stage: Stage[Body] | None = None

    def step(self) -> bool:
        """A step of the stage. Raises its errors, and those of `begin`."""
        if self._stage is None:
            if self._rest.goes_on():
                return False
            try:
                self._begin()
                self._stage = self._make()
            except NotNowError as error:
                wait_s = self._rest.failed()
                self._meter.add(metrics.AWAY, 1, self.name, "begin")
                _log.warning("stage.not_begun", loop=self.name, wait_s=round(wait_s, 3), error=str(error))
                return False
            self._rest.ended()
        try:
            return self._stage.step()
        except self._again_on as error:
            _log.warning("stage.begins_again", loop=self.name, detail=str(error))
            self.close()
            return True

    def idle(self) -> bool:
        """Whether nothing that was polled is still to be done or to be committed."""
        return self._stage is None or self._stage.idle()

    def close(self) -> None:
        """Leaves the group."""
        stage, self._stage = self._stage, None
        if stage is not None:
            stage.close()
