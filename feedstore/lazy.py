"""Opens something when it is first used, and closes what was just opened if a later step fails."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, Protocol, TypeVar, cast


class Closable(Protocol):
    def close(self) -> None: ...


@contextmanager
def closed_on_error(opened: Closable) -> Iterator[None]:
    """Closes what was just opened if the block raises: then no caller gets it."""
    try:
        yield
    except BaseException:
        opened.close()
        raise


T = TypeVar("T", bound=Closable)


class Lazy(Generic[T]):
    """Opens something when it is first used. Thread-safe. closed: makes the error of a use after `close`."""

    def __init__(self, opener: Callable[[], T], closed: Callable[[], Exception]) -> None:
        self._opener = opener
        self._closed = closed
        self._lock = threading.Lock()
        self._found: T | None = None
        self._failures = 0
        self._error: Exception | None = None
        self._is_closed = False

    def opened(self) -> T:
        """What was opened, now or before. Raises what opening raises: then the next call tries again. Calls that waited
        for a failed attempt do not try again: one after the other, each would wait as long as it took.
        """
        failures = self._failures
        with self._lock:
            if self._is_closed:
                raise self._closed()
            if self._found is None:
                if self._error is not None and self._failures > failures:
                    raise self._error
                try:
                    self._found = self._opener()
                except Exception as error:
                    self._failures, self._error = self._failures + 1, error
                    raise
            return self._found

    def close(self) -> None:
        """Closes what was opened, if anything was. Closing twice is fine."""
        with self._lock:
            self._is_closed = True
            found, self._found = self._found, None
        if found is not None:
            found.close()


class _Later:
    """Takes the place of a port. Each call opens the port, if it is not open, and is then the port's own."""

    def __init__(self, port: Lazy[Any]) -> None:
        self._port = port
        self.close = port.close

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            return getattr(self._port.opened(), name)(*arguments, **named)

        return call


def later(opener: Callable[[], T], closed: Callable[[], Exception]) -> T:
    """A port that may not be there yet: each call opens it, or raises what opening raised, as if an open one had gone
    away. closed: makes the error of a first use after `close`.
    """
    return cast("T", _Later(Lazy(opener, closed)))
