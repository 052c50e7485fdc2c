"""Every error of a port says what its caller should do, in one of three words that need no knowledge of the port."""

import pytest

from feedstore.catalog.port import NoGenerationError
from feedstore.errors import ConfigError, MisconfiguredError, NeverError, NotNowError, PortError
from feedstore.follows.port import (
    ActionRefusedError,
    FollowStoreUnavailableError,
    OutdatedStoreError,
    UnsafeStoreError,
    WrongStoreError,
)
from feedstore.widecolumn import DamagedError, RefusedError, UnavailableError, UnsafeTableError
from workers.cli import root
from workers.queue.embedded import NoQueueError
from workers.queue.port import DamagedQueueError, PositionLostError, QueueUnavailableError, UnsafeTopicsError
from workers.queue.sqlite_file import WrongQueueError

ANSWERS = (NotNowError, NeverError, MisconfiguredError)


def below(kind: type[Exception]) -> set[type[Exception]]:
    return {each for direct in kind.__subclasses__() for each in {direct, *below(direct)}}


def test_every_error_of_a_port_has_an_answer() -> None:
    bases = {kind for kind in PortError.__subclasses__() if kind not in ANSWERS}
    without = {kind for base in bases for kind in below(base) if not issubclass(kind, ANSWERS)}
    assert bases
    assert without == {PositionLostError}, "that one stops a stage: its cluster is rebuilt"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UnavailableError(""), 3),
        (FollowStoreUnavailableError(""), 3),
        (QueueUnavailableError(""), 3),
        (PositionLostError(""), 1),
        (NoGenerationError(""), 3),
        (ConfigError(""), 2),
        (DamagedError(""), 2),
        (DamagedQueueError(""), 2),
        (NoQueueError(""), 2),
        (OutdatedStoreError(""), 2),
        (UnsafeStoreError(""), 2),
        (UnsafeTableError(""), 2),
        (UnsafeTopicsError(""), 2),
        (WrongQueueError(""), 2),
        (WrongStoreError(""), 2),
        (RefusedError(""), 1),
        (ActionRefusedError("pin_differs", ""), 1),
    ],
)
def test_the_answer_is_the_exit_code(error: Exception, code: int) -> None:
    failed = next(failed for kind, failed in root._FAILED.items() if isinstance(error, kind))
    assert failed.exit_code == code
