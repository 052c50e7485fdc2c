"""The state of the queue and its groups for servers: `feedstore.http.queues`."""

from collections.abc import Callable, Sequence

from feedstore.errors import PortError
from feedstore.http.queues import GroupState, Letter, QueuesState, QueuesUnavailableError
from feedstore.lazy import Lazy
from workers.following import landed
from workers.following.ports import Ports
from workers.queue.port import QueueError


class OpenQueues:
    """The state of queues by ports that are open; the caller closes these."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports
        self._stopped: str | None = None

    def note_stopped(self, why: str | None) -> None:
        """Notes that the worker of this process has stopped, and why; None: it works again."""
        self._stopped = why

    def stopped(self) -> str | None:
        return self._stopped

    def state(self) -> QueuesState:
        try:
            topics = {group: topic.name for topic, group in landed.groups(self._ports)}
            lags = landed.lags(self._ports)
            return QueuesState(
                [GroupState(group, topics.get(group), lag) for group, lag in lags.items()], self._ports.dead.count()
            )
        except PortError as error:
            raise QueuesUnavailableError(str(error)) from error

    def letters(self, after: int, limit: int) -> Sequence[Letter]:
        try:
            found = self._ports.dead.letters(after, limit)
        except QueueError as error:
            raise QueuesUnavailableError(str(error)) from error
        return [
            Letter(each.id, each.topic, each.group, each.reason, each.detail, each.died_ms, len(each.value))
            for each in found
        ]


class LazyQueues:
    """The state of queues by ports that are opened when first needed, again until that succeeds; pages do not wait for
    it. opener: opens the ports, which this closes. stopped: returns why no worker does the work, if that is known here.
    """

    def __init__(self, opener: Callable[[], Ports], stopped: Callable[[], str | None]) -> None:
        self.stopped = stopped
        self._ports = Lazy(opener, lambda: QueuesUnavailableError("closed"))
        self.close = self._ports.close

    def state(self) -> QueuesState:
        return self._opened().state()

    def letters(self, after: int, limit: int) -> Sequence[Letter]:
        return self._opened().letters(after, limit)

    def _opened(self) -> OpenQueues:
        try:
            return OpenQueues(self._ports.opened())
        except PortError as error:
            raise QueuesUnavailableError(str(error)) from error
