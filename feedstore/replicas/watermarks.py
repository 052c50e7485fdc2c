"""Looks at how far each cluster is, once a second, in threads of its own (rule 10)."""

import threading
from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar

import structlog

from feedstore.errors import NotNowError
from feedstore.widecolumn import DamagedError

_log = structlog.get_logger()

EVERY_S = 1.0


class Named(Protocol):
    """Something whose watermark is looked at. name: of its cluster."""

    @property
    def name(self) -> str: ...


N = TypeVar("N", bound=Named)

Heard = Callable[[str, int | None], None]
"""Takes the name of a cluster and its watermark."""


class Watermarks(Generic[N]):
    """A thread for each cluster: one that hangs does not delay the others.

    If a cluster cannot be asked, its last answer still holds: it only grows older. If it is damaged, its watermark is
    unknown.

    look: reads the watermark of a cluster, None if it is unknown. Raises DamagedError; NotNowError if it cannot be
        asked.
    clock: monotonic, in s.
    """

    def __init__(
        self,
        replicas: Iterable[N],
        look: Callable[[N], int | None],
        heard: Heard,
        clock: Callable[[], float],
        every_s: float = EVERY_S,
    ) -> None:
        self._look = look
        self._heard = heard
        self._clock = clock
        self._every_s = every_s
        self._closed = threading.Event()
        self._looked: list[threading.Event] = []
        for replica in replicas:
            looked = threading.Event()
            self._looked.append(looked)
            # A daemon: a look that hangs must not keep a program from ending.
            thread = threading.Thread(
                target=self._watch, args=(replica, looked), name=f"watermark-{replica.name}", daemon=True
            )
            thread.start()

    def wait(self, within_s: float) -> None:
        """Returns once every cluster was asked, or the time is up."""
        deadline_s = self._clock() + within_s
        for looked in self._looked:
            looked.wait(max(0.0, deadline_s - self._clock()))

    def close(self) -> None:
        """Begins no new look."""
        self._closed.set()

    def _watch(self, replica: N, looked: threading.Event) -> None:
        while not self._closed.is_set():
            try:
                watermark_ms = self._look(replica)
            except DamagedError:
                self._heard(replica.name, None)  # whatever it said before, others are asked first
            except NotNowError:
                pass
            except Exception:  # noqa: BLE001  # a fault of ours: without the thread, the last answer would hold for ever
                _log.exception("watermark.failed", cluster=replica.name)
                self._heard(replica.name, None)
            else:
                self._heard(replica.name, watermark_ms)
            looked.set()
            self._closed.wait(self._every_s)
