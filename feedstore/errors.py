"""The errors of ports, by what the caller should do.

The errors of each port derive from these, so that code which needs only the answer knows no port: a stage of the
pipeline, and the tables that turn errors into exit codes and HTTP statuses.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

OF_ANOTHER_PROCESS: Final = "opened before this process was forked: open it in each process, after the fork only"
"""The message about a service that a forked process has from its parent. Threads do not survive a fork, and both
processes would use its SQLite files, sockets and locks.
"""


class PortError(Exception):
    """A port failed. An error of no subclass is a mistake of the program, or needs an operator."""


class NotNowError(PortError):
    """Not now: the call is good, and what it needs is away. Repeat it later as it is."""


class NeverError(PortError):
    """Never: the same call will be refused again. Do not repeat it."""


class MisconfiguredError(PortError):
    """Not until an operator has changed something, which the message names: a setting, or a store that is lost, damaged
    or of another version. A process that meets this when it starts should end. A process that runs already tries again
    if the error is a NotNowError as well.
    """


class ConfigError(MisconfiguredError):
    """The configuration cannot be used; the message names the file, the key and what was expected."""


class MissingExtraError(ConfigError):
    """What is asked for needs libraries that are not installed. wants: what needs them, and for what. extra: the extra
    of `pyproject.toml` that has them. The message names a checkout because the package is in no index: its name there
    would be somebody else's.
    """

    def __init__(self, wants: str, extra: str, error: ImportError) -> None:
        super().__init__(f"{wants}: in the checkout of feedstore, pip install --editable '.[{extra}]' ({error})")


@contextmanager
def needing_extra(wants: str, extra: str) -> Iterator[None]:
    """Imports libraries of an extra in its block. Raises MissingExtraError if one is not installed."""
    try:
        yield
    except ImportError as error:
        raise MissingExtraError(wants, extra, error) from error
