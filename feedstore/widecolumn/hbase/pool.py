"""Connections to the gateways of one cluster. Their number is bounded, all threads share them, and none is handed out
that is known to be closed.
"""

import threading
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from feedstore.widecolumn.hbase.addresses import Address
from feedstore.widecolumn.port import UnavailableError

DOWN_S, DOWN_S_MAX = 1.0, 30.0
"""How long a gateway that failed, or answered with an error, is asked last. Doubled by each failure in a row, up to the
second: asking a gateway that hangs costs a call its share of the time.
"""

TRIED_S: Final = 1.0
"""The time of a call that a gateway that has failed gets until it answers, if another one is left that has not."""
WHOLE_S: Final = 300.0
"""How often it gets its share all the same: perhaps it does not hang, but is slow."""
LATE: Final = 0.5
"""A gateway is not blamed if it had less than this share of a call's time, because the call waited for a connection."""


class GatewayConnection(Protocol):
    """A connection that a call is made on."""

    def set_deadline(self, deadline: float) -> None: ...

    def is_silent(self) -> bool:
        """False if its peer has closed it, as far as that is known here; no round trip."""
        ...

    def close(self) -> None: ...


C = TypeVar("C", bound=GatewayConnection)


@dataclass(frozen=True)
class Lease(Generic[C]):
    """A connection for one call.

    deadline: until when the call may take.
    is_reused: it served calls before, so its peer may have gone since the last one.
    is_late: most of the call's time was spent on waiting for it. A time-out says nothing about the gateway then.
    """

    address: Address
    connection: C
    deadline: float
    is_reused: bool
    is_late: bool


class GatewayError(Exception):
    """No connection to this gateway. is_late: for lack of time, which says nothing about it."""

    def __init__(self, address: Address, cause: BaseException, *, is_late: bool) -> None:
        super().__init__(f"{address}: {str(cause) or type(cause).__name__}")
        self.address = address
        self.is_late = is_late


class BusyError(UnavailableError):
    """All connections were in use, for all of a call's time or for most of it. This says nothing about a gateway."""


class Pool(Generic[C]):
    """At most `size` connections over all gateways. Thread-safe.

    Gateways take turns. One that failed, or answered with an error, is asked only if no other is left, for `DOWN_S` or
    longer.

    connect: opens a connection; raises OSError. whose: begins each UnavailableError.
    """

    def __init__(
        self,
        addresses: Sequence[Address],
        connect: Callable[[Address, float], C],
        size: int,
        clock: Callable[[], float],
        whose: str = "",
    ) -> None:
        self._whose = whose
        self._connect = connect
        self._clock = clock
        self._size = size
        self._changed = threading.Condition()
        self._idle: dict[Address, deque[C]] = {address: deque() for address in addresses}
        self._turns = deque(self._idle)
        self._down_until = dict.fromkeys(self._idle, float("-inf"))
        self._failures = dict.fromkeys(self._idle, 0)
        self._whole_again = dict.fromkeys(self._idle, float("-inf"))
        self._leased = 0
        self._closed = False

    @property
    def gateways(self) -> int:
        return len(self._idle)

    def take(self, deadline: float, tried: Collection[Address] = ()) -> Lease[C]:
        """A connection to a gateway that is not among `tried`, for a call until the deadline, or less (`TRIED_S`).

        Raises:
            GatewayError: the gateway whose turn it was cannot be reached; try another.
            BusyError: no connection became free before the deadline.
            UnavailableError: closed.
        """
        asked_s = self._clock()
        with self._changed:
            while not self._closed and self._leased >= self._size:
                left_s = deadline - self._clock()
                if left_s <= 0:
                    raise BusyError(
                        f"{self._whose}all {self._size} connections are busy: more with connections= in the url"
                    )
                # If it times out, a connection may have come back all the same, and no other thread was woken for it.
                self._changed.wait(left_s)
            self._refuse_closed()
            address = self._next(tried)
            self._leased += 1
            idle = self._take_idle(address)
            if idle is None:
                self._make_room()
            now = self._clock()
            is_late = deadline - now < LATE * (deadline - asked_s)
            deadline = self._share(address, tried, now, deadline)
        if idle is not None:
            return Lease(address, idle, deadline, is_reused=True, is_late=is_late)
        left_s = deadline - now
        if left_s <= 0:  # spent on waiting for a connection, or for the processor
            self._note_returned()
            raise GatewayError(address, TimeoutError("no time was left to connect"), is_late=True)
        try:
            return Lease(address, self._connect(address, left_s), deadline, is_reused=False, is_late=is_late)
        except OSError as error:
            is_late = is_late and isinstance(error, TimeoutError)
            if not is_late:
                self.failed(address)
            self._note_returned()
            raise GatewayError(address, error, is_late=is_late) from error
        except BaseException:
            self._note_returned()
            raise

    def give_back(self, lease: Lease[C], *, is_error: bool = False) -> bool:
        """Takes a connection back whose call is done, and whose answer was read to the end. is_error: whether that was
        an error. Returns whether the gateway's last call had failed as well.
        """
        with self._changed:
            if self._closed:
                lease.connection.close()
            else:
                self._idle[lease.address].append(lease.connection)
            had_failed = self._failures[lease.address] > 0
            if is_error:
                self._ask_last(lease.address)
            else:
                self._failures[lease.address] = 0
            self._leased -= 1
            self._changed.notify()
            return had_failed

    def discard(self, lease: Lease[C]) -> None:
        """Closes a connection whose call broke off: what it would say next is not known."""
        lease.connection.close()
        self._note_returned()

    def failed(self, address: Address) -> None:
        """Notes that a gateway failed: it is asked last for a while, and on new connections. Its idle connections are
        closed, because they would fail as well.
        """
        with self._changed:
            self._ask_last(address)
        self.forget(address)

    def forget(self, address: Address) -> None:
        """Closes the idle connections to a gateway."""
        with self._changed:
            idle, self._idle[address] = self._idle[address], deque()
        for connection in idle:
            connection.close()

    def close(self) -> None:
        """Closes idle connections at once, and leased ones when they come back."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for address in self._idle:
            self.forget(address)

    def _ask_last(self, address: Address) -> None:
        self._down_until[address] = self._clock() + min(DOWN_S_MAX, DOWN_S * 2 ** min(10, self._failures[address]))
        self._failures[address] += 1

    def _refuse_closed(self) -> None:
        if self._closed:
            raise UnavailableError(f"{self._whose}the cluster is closed")

    def _next(self, tried: Collection[Address]) -> Address:
        now = self._clock()
        open_to = [address for address in self._turns if address not in tried] or [*self._turns]
        # `min` keeps the order of the turns among equals.
        address = min(open_to, key=lambda each: self._down_until[each] if self._down_until[each] > now else 0.0)
        self._turns.remove(address)
        self._turns.append(address)
        return address

    def _share(self, address: Address, tried: Collection[Address], now: float, deadline: float) -> float:
        """Until when a call may wait for this gateway."""
        are_well = any(not self._failures[each] for each in self._idle if each != address and each not in tried)
        if self._failures[address] and are_well and now < self._whole_again[address]:
            return min(deadline, now + TRIED_S)
        self._whole_again[address] = now + WHOLE_S
        return deadline

    def _take_idle(self, address: Address) -> C | None:
        """The idle connection that was used last: so the others age, and the gateway may close them."""
        idle = self._idle[address]
        while idle:
            connection = idle.pop()
            if connection.is_silent():
                return connection
            connection.close()
        return None

    def _make_room(self) -> None:
        """Closes an idle connection to another gateway if a new one would exceed the size."""
        if self._leased + sum(map(len, self._idle.values())) > self._size:
            for idle in self._idle.values():
                if idle:
                    idle.popleft().close()
                    return

    def _note_returned(self) -> None:
        with self._changed:
            self._leased -= 1
            self._changed.notify()
