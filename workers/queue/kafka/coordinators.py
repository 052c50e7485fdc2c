"""How a member of a group deals with the group's coordinator: the broker that it sends its heartbeats to."""

import time
from collections.abc import Callable
from typing import Any, Final

LOOK_S: Final = 0.25
"""The shortest wait for messages before a member looks whether a heartbeat is due."""
FIND_S: Final = 0.1
"""The shortest time between two look-ups of the coordinator."""


def calm(coordinator: Any, clock: Callable[[], float] = time.monotonic) -> None:
    """Makes the coordinator of a client of kafka-python wait in outages (what it corrects was seen in 3.0.12).

    A member waits for messages until its next heartbeat is due, although another thread sends heartbeats. While the
    coordinator hangs, the next heartbeat is always overdue: a member took a whole processor to look again and again.

    If the coordinator has died, the other brokers name it until they have chosen another one. A member cannot connect
    to it, asks who it is, and gets the same answer: each member asked up to a thousand times a second.
    """
    due_s = coordinator.time_to_next_poll
    coordinator.time_to_next_poll = lambda: max(LOOK_S, due_s())

    ask = coordinator._send_group_coordinator_request  # noqa: SLF001 - it has no setting
    asked_s = float("-inf")

    async def asked() -> object:
        nonlocal asked_s
        wait_s = asked_s + FIND_S - clock()
        if wait_s > 0:
            await coordinator._net.sleep(wait_s)  # noqa: SLF001 - the loop that it runs in
        asked_s = clock()
        return await ask()

    coordinator._send_group_coordinator_request = asked  # noqa: SLF001 - as above
