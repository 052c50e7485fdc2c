"""Looks at how far each cluster is, once a second, in threads of its own (rule 10)."""

import threading
from collections.abc import Callable, Mapping

import structlog

from feedstore.errors import NotNowError
from feedstore.widecolumn import DamagedError

_log = structlog.get_logger()

EVERY_S = 1.0


class Watermarks:
    """A thread for each cluster: one that hangs does not delay the others.

    If a cluster cannot be asked, its last answer still holds: it only grows older. If it is damaged, its watermark is
    unknown.

    looks: read the watermarks of the clusters, by their names; None if it is unknown. Each raises DamagedError;
        NotNowError if the cluster cannot be asked.
    heard: takes the name of a cluster and its watermark.
    clock: monotonic, in s.
    """

    def __init__(
        self,
        looks: Mapping[str, Callable[[], int | None]],
        heard: Callable[[str, int | None], None],
        clock: Callable[[], float],
        every_s: float = EVERY_S,
    ) -> None:
        self._heard = heard
        self._clock = clock
        self._every_s = every_s
        self._closed = threading.Event()
        self._looked: list[threading.Event] = []
        for name, look in looks.items():
            looked = threading.Event()
            self._looked.append(looked)
            # A daemon: a look that hangs must not keep a program from ending.
            thread = threading.Thread(
                target=self._watch, args=(name, look, looked), name=f"watermark-{name}", daemon=True
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

    def _watch(self, name: str, look: Callable[[], int | None], looked: threading.Event) -> None:
        while not self._closed.is_set():
            try:
                watermark_ms = look()
            except DamagedError:
                self._heard(name, None)  # whatever it said before, others are asked first
            except NotNowError:
                pass
            except Exception:  # noqa: BLE001  # a fault of ours: without the thread, the last answer would hold for ever
                _log.exception("watermark.failed", cluster=name)
                self._heard(name, None)
            else:
                self._heard(name, watermark_ms)
            looked.set()
            self._closed.wait(self._every_s)
