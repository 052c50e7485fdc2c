"""What SIGINT and SIGTERM do to a command."""

import contextlib
import signal
from collections.abc import Callable, Iterator
from threading import Event
from types import FrameType

import click

from workers.cli.session import StoppedError, TryLaterError


@contextlib.contextmanager
def handled(by: Callable[[int, FrameType | None], object], *numbers: signal.Signals) -> Iterator[None]:
    """Lets a function handle signals until the end of the block."""
    before = {number: signal.signal(number, by) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Stop(Event):
    """An event that is set by a signal, or never. interrupted: whether that was Ctrl-C."""

    def __init__(self) -> None:
        super().__init__()
        self.interrupted = False

    def error(self, message: str) -> click.ClickException:
        """The end of a command that was stopped before its own end."""
        return StoppedError(message) if self.interrupted else TryLaterError(message)


@contextlib.contextmanager
def stopping() -> Iterator[Stop]:
    """Lets SIGTERM and SIGINT set the event; a second signal ends the process at once, as if it had been killed."""
    stop = Stop()

    def handle(number: int, _: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        stop.interrupted = number == signal.SIGINT
        stop.set()

    with handled(handle, signal.SIGTERM, signal.SIGINT):
        yield stop
