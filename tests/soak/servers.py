"""The servers of a site: those of a local stack, with several brokers in place of its one."""

from typing import Final

from deploy.local import NAMES, Stack, kafka
from tests.stack.own_brokers import COUNT, Brokers

_BROKER: Final = "broker-"
BROKERS: Final = tuple(f"{_BROKER}{number}" for number in range(1, COUNT + 1))
OF_STACK: Final = tuple(name for name in NAMES if name != kafka.NAME)


class Servers:
    """They have the names of the stack, and BROKERS."""

    def __init__(self, stack: Stack, brokers: Brokers) -> None:
        self._stack = stack
        self._brokers = brokers

    def up(self) -> None:
        """Returns when all of the stack's servers answer."""
        self._stack.up(*OF_STACK)

    def begin(self, name: str, how: str) -> None:
        match name in BROKERS, how:
            case True, "kill":
                self._brokers.kill(_number(name))
            case True, _:
                self._brokers.suspend(_number(name))
            case False, "kill":
                self._stack.kill(name)
            case _:
                self._stack.suspend(name)

    def end(self, name: str, how: str) -> None:
        """A broker answers when this returns; for the others, see `up`."""
        match name in BROKERS, how:
            case True, "kill":
                self._brokers.start(_number(name))
            case True, _:
                self._brokers.resume(_number(name))
            case False, "kill":
                self._stack.start(name, wait=False)
            case _:
                self._stack.resume(name)


def _number(broker: str) -> int:
    return int(broker.removeprefix(_BROKER))
