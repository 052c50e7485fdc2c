"""Looks at how far each cluster is, once a second and beside the pages (rule 10)."""

import threading
from collections.abc import Callable, Iterable

from feedstore.feeds import Replica, trusted_watermark
from feedstore.widecolumn import DamagedError, UnavailableError

EVERY_S = 1.0

Heard = Callable[[str, int | None], None]
"""Takes the name of a cluster and its watermark."""


class Watermarks:
    """A thread for each cluster: one that hangs keeps nobody from hearing of the others.

    Of a cluster that cannot be asked, the last thing that was heard goes on to hold: it only grows older. Of one that
    is damaged nothing is known any more.

    clock: monotonic, in s.
    """

    def __init__(
        self, replicas: Iterable[Replica], heard: Heard, clock: Callable[[], float], every_s: float = EVERY_S
    ) -> None:
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
        """Returns once every cluster has been looked at, or the time is up."""
        deadline_s = self._clock() + within_s
        for looked in self._looked:
            looked.wait(max(0.0, deadline_s - self._clock()))

    def close(self) -> None:
        """No new look begins."""
        self._closed.set()

    def _watch(self, replica: Replica, looked: threading.Event) -> None:
        while not self._closed.is_set():
            try:
                watermark_ms = trusted_watermark(replica)
            except DamagedError:
                self._heard(replica.name, None)  # whatever it said before, others are asked first
            except UnavailableError:
                pass
            else:
                self._heard(replica.name, watermark_ms)
            looked.set()
            self._closed.wait(self._every_s)
