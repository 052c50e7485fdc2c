"""Which requests begin first if many come at once."""

from collections.abc import Callable

from feedstore.http.turns import AT_ONCE, RequestTurns


class Loop:
    def __init__(self) -> None:
        self.soon: list[Callable[[], None]] = []

    def later(self, call: Callable[[], None]) -> None:
        self.soon.append(call)

    def round(self) -> None:
        calls, self.soon = self.soon, []
        for call in calls:
            call()


def take(turns: RequestTurns, network: str, begin: Callable[[], bool]) -> None:
    if turns.now():
        begin()
    else:
        turns.later(network, begin)


class Begun:
    def __init__(self) -> None:
        self.names: list[str] = []

    def of(self, name: str, *, begins: bool = True) -> Callable[[], bool]:
        def begin() -> bool:
            self.names.append(name)
            return begins

        return begin


def test_a_few_begin_at_once_and_the_rest_in_later_rounds():
    loop, begun = Loop(), Begun()
    turns = RequestTurns(loop.later)
    for number in range(2 * AT_ONCE + 1):
        take(turns, "one", begun.of(str(number)))
    sizes = [len(begun.names)]
    while loop.soon:
        loop.round()
        sizes.append(len(begun.names))
    assert sizes[:3] == [AT_ONCE, 2 * AT_ONCE, 2 * AT_ONCE + 1]
    assert begun.names == [str(number) for number in range(2 * AT_ONCE + 1)]


def test_a_network_with_one_request_does_not_wait_behind_one_with_many():
    loop, begun = Loop(), Begun()
    turns = RequestTurns(loop.later)
    for _ in range(100):
        take(turns, "many", begun.of("many"))
    take(turns, "one", begun.of("one"))
    loop.round()
    assert "one" in begun.names
    assert len(begun.names) == 2 * AT_ONCE


def test_a_request_whose_client_has_gone_takes_no_turn():
    loop, begun = Loop(), Begun()
    turns = RequestTurns(loop.later)
    for _ in range(AT_ONCE):
        take(turns, "one", begun.of("first"))
    for _ in range(50):
        take(turns, "one", begun.of("gone", begins=False))
    take(turns, "one", begun.of("last"))
    loop.round()
    assert begun.names[-1] == "last"


def test_nothing_is_called_back_when_nothing_comes():
    loop, begun = Loop(), Begun()
    turns = RequestTurns(loop.later)
    take(turns, "one", begun.of("one"))
    loop.round()
    assert not loop.soon
