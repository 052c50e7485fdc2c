"""What the signals that end programs do while something must be ended in order."""

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_AGAIN_S = 0.01
"""How soon a signal is sent once more."""


class _Ending(SystemExit):
    """Ends the program. on_gone: called once nothing holds this exception any more, because Python dropped it or
    because it has ended what it was raised for.
    """

    def __init__(self, code: int, on_gone: Callable[[], None]) -> None:
        super().__init__(code)
        self._on_gone = on_gone

    def __del__(self) -> None:
        self._on_gone()


@contextmanager
def unwinding() -> Iterator[None]:
    """SIGTERM and SIGHUP unwind as Ctrl-C does. A second one does not cut short what the first has begun. One that is
    ignored, as nohup(1) does it, stays ignored.

    If a signal comes while Python runs the callback of a weak reference or the finalizer of an object, Python drops
    what the handler raises. The import of a module runs both. Such a signal is sent once more.
    """
    heard = [each for each in _ENDING[1:] if signal.getsignal(each) is not signal.SIG_IGN]
    over = threading.Event()

    def end(number: int, _frame: object) -> None:
        for each in heard:
            signal.signal(each, signal.SIG_IGN)
        raise _Ending(128 + number, lambda: again(number))

    def again(number: int) -> None:
        if over.is_set():
            return
        for each in heard:
            signal.signal(each, end)

        def send() -> None:
            if not over.is_set():
                os.kill(os.getpid(), number)

        # Later, and from elsewhere: here, what a handler raises is dropped as well.
        threading.Timer(_AGAIN_S, send).start()

    with _handled(heard, end):
        try:
            yield
        finally:
            over.set()


@contextmanager
def undisturbed() -> Iterator[None]:
    """Signals that end programs are ignored until the end of the block, by programs that are started in it too. Only
    in a main thread, where they arrive.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    with _handled(_ENDING, signal.SIG_IGN):
        yield


@contextmanager
def _handled(
    numbers: Sequence[signal.Signals], handler: Callable[[int, object], None] | signal.Handlers
) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, handled in before.items():
            signal.signal(number, handled)
