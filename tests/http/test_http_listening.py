"""Networks wait in queues of their own before they are accepted."""

import contextlib
import socket
from contextlib import ExitStack

import pytest

from feedstore.http import listening


def taken(listeners: list[socket.socket]) -> set[int]:
    """In which queues somebody waited; the queues are empty then."""
    found = set()
    for number, listener in enumerate(listeners):
        listener.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                listener.accept()[0].close()
                found.add(number)
    return found


def test_a_network_waits_in_one_queue_and_another_one_elsewhere():
    with ExitStack() as stack:
        first = stack.enter_context(listening.listen("127.0.0.1", 0))
        all_of_them = [first, *map(stack.enter_context, listening.siblings(first))]
        queues = []
        for source in ("127.0.0.1", "127.0.0.2"):
            for _ in range(20):
                stack.enter_context(socket.create_connection(first.getsockname(), 5.0, (source, 0)))
            queues.append(taken(all_of_them))
        assert [len(each) for each in queues] == [1, 1]
        assert queues[0] != queues[1]


def test_another_process_cannot_share_the_port():
    with ExitStack() as stack:
        first = stack.enter_context(listening.listen("127.0.0.1", 0))
        for each in listening.siblings(first):
            stack.enter_context(each)
        with pytest.raises(OSError, match="already in use"):
            listening.listen("127.0.0.1", first.getsockname()[1])
