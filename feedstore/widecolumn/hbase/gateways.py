"""One call on whichever gateway answers, and every error turned into the port's own.

Every call of this adapter may be repeated: writes carry their timestamps, and the administration looks before it acts.
So a gateway that cannot be reached, or breaks off, costs a second try on another one. What HBase itself answers is
final, because every gateway would ask the same HBase: unless a gateway has answered with nothing but errors lately. It
may have lost its cluster, and then the others have not.
"""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Generic, TypeVar

import structlog

from feedstore.widecolumn.hbase.addresses import Address
from feedstore.widecolumn.hbase.pool import BusyError, GatewayConnection, GatewayError, Lease, Pool
from feedstore.widecolumn.port import RefusedError, UnavailableError, WillNotError


class AnsweredError(Exception):
    """HBase answered, and the answer is an error; the connection is as good as before.

    may_retry: whether HBase says that the call may be tried again.
    """

    def __init__(self, message: str, *, may_retry: bool) -> None:
        super().__init__(message)
        self.may_retry = may_retry


_MESSAGE_MAX: Final = 300


def shown(message: object) -> str:
    """HBase's message, without the stack trace that often follows it."""
    text = message.decode(errors="replace") if isinstance(message, bytes) else str(message)
    first = text.partition("\n")[0]
    return first if len(first) <= _MESSAGE_MAX else first[: _MESSAGE_MAX - 3] + "..."


C = TypeVar("C", bound=GatewayConnection)
T = TypeVar("T")


class Gateways(Generic[C]):
    """The gateways of a cluster. Thread-safe.

    connect: opens a connection; raises OSError. A call on it raises AnsweredError if HBase answered with an error.
    whose: the beginning of each error, which names the cluster; it may be empty.
    """

    def __init__(
        self,
        addresses: Sequence[Address],
        connect: Callable[[Address, float], C],
        connections: int,
        clock: Callable[[], float],
        whose: str = "",
    ) -> None:
        self._pool = Pool(addresses, connect, connections, clock, whose)
        self._whose = whose
        self._clock = clock
        self._log = structlog.get_logger()

    def call(
        self, ask: Callable[[C], T], within_ms: int, *, deadline_s: float | None = None, may_refuse: bool = False
    ) -> T:
        """The answer of `ask`. A gateway that hangs gets only its share of the time; the rest is for the others. It
        gets less of the next calls.

        within_ms: how long it may take in all.
        deadline_s: a time of the clock after which no caller waits for the answer; whichever comes first counts.
        may_refuse: whether to trust HBase if it says that no later try can succeed. Not for calls on data: these were
            checked before, and an operator can put right what HBase still objects to (a table that is missing or
            disabled, a gateway that is read-only).

        Raises:
            UnavailableError: no gateway answered in time, or HBase could not do it now; WillNotError if it says that
                it is no use to repeat this; BusyError if the time was spent on waiting for a connection.
            RefusedError: HBase will never do it.
        """
        began = self._clock()
        deadline = min(began + within_ms / 1_000, math.inf if deadline_s is None else deadline_s)
        failures: dict[Address, str] = {}
        failed: type[UnavailableError] = BusyError
        while len(failures) < self._pool.gateways:
            now = self._clock()
            if now >= deadline:
                given_ms = round(1_000 * (deadline - began))
                late = f"no answer in {given_ms} ms" if given_ms > 0 else "not asked: its time was over"
                raise failed(self._message([*failures.values(), late]))
            share = now + (deadline - now) / (self._pool.gateways - len(failures))
            try:
                lease = self._pool.take(share, failures)
            except GatewayError as error:
                failures[error.address] = str(error)
                failed = failed if error.is_late else UnavailableError
                continue
            try:
                lease.connection.set_deadline(lease.deadline)
                answer = ask(lease.connection)
            except AnsweredError as error:
                failures[lease.address] = f"{lease.address}: {error}"
                if self._pool.give_back(lease, is_error=True) and len(failures) < self._pool.gateways:
                    continue
                raise _kind(error, may_refuse=may_refuse)(self._message(failures.values())) from error
            except Exception as error:  # noqa: BLE001  # the connection broke off, in whatever way
                is_late = lease.is_late and isinstance(error, TimeoutError)
                failed = failed if is_late else UnavailableError
                self._discard(lease, error, failures, is_late=is_late)
            except BaseException:  # interrupted in the middle of an answer
                self._pool.discard(lease)
                raise
            else:
                self._pool.give_back(lease)
                if failures:  # the caller does not hear of them
                    self._log.warning("hbase.gateway_failed", error=self._message(failures.values()))
                return answer
        raise failed(self._message(failures.values()))

    def close(self) -> None:
        self._pool.close()

    def _message(self, failures: Iterable[str]) -> str:
        """The text of an error: which cluster, and how each gateway failed."""
        return self._whose + "; ".join(failures)

    def _discard(self, lease: Lease[C], error: Exception, failures: dict[Address, str], *, is_late: bool) -> None:
        """Discards the connection of a call that broke off, and notes where not to try it again."""
        self._pool.discard(lease)
        if lease.is_reused and isinstance(error, ConnectionError):
            self._pool.forget(lease.address)  # the gateway was restarted: a new connection may do
            return
        if not is_late:
            self._pool.failed(lease.address)
        failures[lease.address] = f"{lease.address}: {str(error) or type(error).__name__}"


_CLUSTER_AWAY: Final = re.compile(r"Zookeeper \w+ could not be completed in")
"""What a gateway says if its cluster is away. HBase's client (`ReadOnlyZKClient`) calls that an error not to be tried
again, but a later try may succeed.
"""


def _kind(error: AnsweredError, *, may_refuse: bool) -> type[RefusedError | UnavailableError]:
    if error.may_retry or _CLUSTER_AWAY.search(str(error)):
        return UnavailableError
    return RefusedError if may_refuse else WillNotError
