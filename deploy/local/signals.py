"""What the signals that end programs do while something must be ended in order."""

import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def unwinding() -> Iterator[None]:
    """SIGTERM and SIGHUP unwind as Ctrl-C does. A second one does not cut short what the first has begun. One that is
    ignored, as nohup(1) does it, stays ignored.
    """
    heard = [each for each in _ENDING[1:] if signal.getsignal(each) is not signal.SIG_IGN]

    def end(number: int, _frame: object) -> None:
        for each in heard:
            signal.signal(each, signal.SIG_IGN)
        sys.exit(128 + number)

    with _handled(heard, end):
        yield


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
