"""The demonstration: it sends one social graph through the whole pipeline, and checks each promise of the design.

Everything here happens for real, with the adapters of the home: tasks are delivered in the wrong order, a cluster's
directory is moved away while work continues. A promise that does not hold raises CommandRefusedError.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from feedstore.app import wiring as feedstore_wiring
from feedstore.app.config import Config
from feedstore.boards import MAX_PAGE as BOARD_PAGE
from feedstore.boards import BoardPin, Boards, Move
from feedstore.domain import Entry, Follow, Followed, Followee, Pin, SavePin, Unfollow, Unfollowed
from feedstore.following import FEEDS, Page, feeds_ascending
from feedstore.following.pages import FeedPages
from feedstore.follows.port import ActionRefusedError, Request, actions_in
from feedstore.follows.store import FollowStore
from feedstore.lazy import closed_on_error
from feedstore.portions import chunks
from workers.app import until, wiring
from workers.boards.walks import checked
from workers.cli.output import ProgressLine, ago, heading, say, styled
from workers.cli.session import CommandRefusedError
from workers.following import landed
from workers.following.groups import EXPANDER, RELAY, writer_group
from workers.following.landed import landed_before
from workers.following.messages import Task, encode_action
from workers.following.ports import Ports
from workers.following.topics import ACTIONS
from workers.following.verify import Verifier

LINES: Final = 6
"""This many entries of a feed are shown."""
_NEW_PINS: Final = 2
_LOOKED_AT: Final = 3_000
"""A user with a good feed is looked for among this many users."""
_DEADLINE_S: Final = 300.0
_BOARDS_LOOKED_AT: Final = 50
_PINS_TO_ARRANGE: Final = 3
_DROPS: Final = 120
"""More drops than a gap takes before room must be made: 83 if the pins are a ms apart, 114 if a month."""
_DIGITS: Final = 38


_MORE: Final = "give --actions with more, or --users and --count"


class Console:
    """Shows the demonstration on stdout, and its progress on stderr."""

    def __init__(self) -> None:
        self.total = 1
        self._progress: ProgressLine | None = None

    def title(self, text: str) -> None:
        self._progress = None
        heading(text)

    def say(self, text: str) -> None:
        self._echo(f"  {text}")

    def claim(self, text: str) -> None:
        self._echo(text, styled("  \N{CHECK MARK} ", "green"))

    def waiting(self, ports: Ports) -> None:
        """Shows now and then what is left to do."""
        if self._progress is None:
            self._progress = ProgressLine("  work", redraw_s=0.5)
        if self._progress.due():
            lags = landed.lags(ports)
            left = lags[RELAY] + lags[EXPANDER]
            on_their_way = "  ".join(f"{name} {lag:,}" for name, lag in lags.items())
            self._progress.show(f"to do: {on_their_way}", max(0.0, 1 - left / self.total))

    def _echo(self, text: str, mark: str = "") -> None:
        self._progress = None
        say(text, mark)


class Demo:
    """Shows the promises on a home whose actions are recorded. The caller holds the home."""

    def __init__(self, config: Config, ports: Ports, console: Console) -> None:
        self._config = config
        self._console = console
        self._names = [cluster.name for cluster in config.clusters]
        self._opened = contextlib.ExitStack()
        with closed_on_error(self):  # a home that is removed while it is open would be written again
            self._read_from(ports)

    @property
    def follows(self) -> FollowStore:
        return self._ports.follows

    def pipeline(self) -> None:
        """Brings everything that was recorded into every replica."""
        started_s = time.monotonic()
        self._land()
        took_s = time.monotonic() - started_s
        counts = self._ports.follows.counts()
        self._console.say(
            f"{counts.pins:,} pins and {counts.edges_active:,} edges landed in {' and '.join(self._names)}"
            f" in {took_s:.1f} s"
        )

    def a_feed(self) -> int:
        """Shows the feed of some user who follows several, and returns the user."""
        user = self._somebody()
        page = self._page(user)
        self._console.title(f"The feed of user {user}, newest first")
        self._show(page)
        return user

    def unfollow_before_follow(self, user: int) -> None:
        """Delivers the task of an unfollow before that of its follow, and checks the feed."""
        page = self._page(user, self._config.limits.cap)
        followee = self._followee_of(user, page)
        theirs = self._theirs(user, page, followee)
        self._console.title(f"User {user} follows {followee} once more, and then unfollows: the tasks arrive reversed")
        followed, unfollowed = self._record(Follow(user, followee), Unfollow(user, followee))
        assert isinstance(followed, Followed)
        assert isinstance(unfollowed, Unfollowed)
        rows = self._ports.follows.unrelayed(10)
        if actions_in(rows) != [followed, unfollowed]:
            raise CommandRefusedError("the outbox holds something else than the two actions")
        # This replaces the relay: the same tasks, the later one first.
        self._deliver(unfollowed)
        first = self._page(user, self._config.limits.cap)
        self._check(not self._theirs(user, first, followee), f"the unfollow has landed: {len(theirs)} entries are gone")
        self._deliver(followed)
        self._ports.follows.mark_relayed(rows)
        self._land()
        page = self._page(user, self._config.limits.cap)
        self._check(
            not self._theirs(user, page, followee) and page.entries == first.entries,
            "the follow has landed after it, and brings nothing back",
        )
        self._show(self._page(user))

    def board_arranged(self, user: int) -> int:
        """Moves a pin across the largest board in a user's feed, and then many pins to one place. Returns the board."""
        boards = Boards(self._ports.follows)
        board = self._board_of(user)
        before = self._order(boards, board)
        if len(before) < _PINS_TO_ARRANGE:
            self._console.title("A board in its own order")
            self._console.say(f"left out: no board in the feed of user {user} has {_PINS_TO_ARRANGE} pins")
            return board
        order = [pin.pin for pin in before]
        self._console.title(f"Board {board}, of {len(order):,} pins: the lowest one is dragged below the topmost one")
        started_s = time.monotonic()
        self._drop_lowest(boards, board, order)
        took_ms = 1_000 * (time.monotonic() - started_s)
        now = self._order(boards, board)
        self._check(
            [pin.pin for pin in now] == order and len(set(now) - set(before)) == 1,
            f"pin {order[1]} went across {len(order) - 2:,} others in {took_ms:.1f} ms: one row was written",
        )
        for _ in range(_DROPS):
            self._drop_lowest(boards, board, order)
        self._land()
        narrow = sum(len(part.narrow) for part in checked(boards, board))
        self._check(
            [pin.pin for pin in self._order(boards, board)] == order and not narrow,
            f"{_DROPS} more were dropped at the same place: each is where it was put, and the worker has made room",
        )
        for pin in self._order(boards, board)[: LINES // 2]:
            self._console.say(f"pin {pin.pin:<14} at {pin.sequence:0{_DIGITS}}")
        return board

    def replica_away(self, user: int) -> None:
        """Takes away the replica that readers ask first, while work continues, and brings it back."""
        away, *others = self._names
        self._console.title(f"Replica {away} is taken away while work continues")
        self.close()  # a cluster that is open would not notice that its directory is gone
        # A demonstration makes a home of its own, which is embedded.
        path = self._config.path(self._config.cluster(away).url)
        aside = path.with_name(path.name + ".away")
        path.rename(aside)
        self._read_from(wiring.open_ports(self._config, "write"))
        pins = self._save_pins(user)
        with self._working() as landed_in:
            landed_in(others)
            page = self._page(user)
            lag = landed.lags(self._ports)[writer_group(away)]
            self._check(
                page.served_by != away and [entry.pin for entry in page.entries[: len(pins)]] == pins,
                f"replica {page.served_by} serves the page, with the pins just saved on top,"
                f" at most {page.behind_ms} ms behind",
            )
            self._check(lag > 0, f"{lag:,} messages wait in the queue for replica {away}")
            self._show(page)
            self._console.title(f"Replica {away} comes back, and catches up from the queue")
            aside.rename(path)
            landed_in(self._names)
        page_again = self._page_from(away, user)
        self._check(
            page_again.served_by == away and page_again.entries == page.entries,
            f"replica {page_again.served_by} serves the same page again, at most {page_again.behind_ms} ms behind",
        )

    def verified(self) -> None:
        """Compares every feed of every replica with the follow store."""
        self._console.title("Every feed of both replicas against the follow store")
        tables = {name: replica.tables[FEEDS] for name, replica in self._ports.replicas.items()}
        verifier = Verifier(self._ports.follows, tables, self._config.limits.cap, lambda: landed_before(self._ports))
        looks = list(verifier.look())
        differences = [finding for seen in looks for finding in seen.findings]
        users, entries = looks[-1][:2]
        self._check(not differences, f"{users:,} users, {entries:,} entries, {len(differences)} differences")

    # How it is done
    # --------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        self._opened.close()

    def _check(self, holds: bool, text: str) -> None:
        if not holds:
            raise CommandRefusedError(f"this does not hold: {text}")
        self._console.claim(text)

    def _read_from(self, ports: Ports) -> None:
        """Uses these ports as their owner; pages are read as servers read them."""
        self._ports = ports
        self._opened.callback(ports.close)
        reading = feedstore_wiring.reading_from(self._config, ports.replicas.values(), ports.follows.now)
        self._pages = FeedPages(self._opened.enter_context(reading), self._config.limits.cap)

    def _land(self) -> None:
        with self._working() as landed_in:
            landed_in(self._names)

    @contextlib.contextmanager
    def _working(self) -> Iterator[Callable[[Sequence[str]], None]]:
        """Runs a worker until the end of the block. Gives a function that waits until some clusters have all."""
        worker = wiring.worker(self._ports, self._config)
        failures: list[Exception] = []

        def run() -> None:
            try:
                worker.run()
            except Exception as error:  # noqa: BLE001 - the function that waits raises it
                failures.append(error)

        def landed_in(clusters: Sequence[str]) -> None:
            all_landed = until.Idle(self._ports, self._config, lambda: clusters)
            deadline = time.monotonic() + _DEADLINE_S
            while not all_landed():
                if failures or not thread.is_alive():
                    break
                if time.monotonic() > deadline:
                    raise CommandRefusedError(
                        f"not everything has landed in {', '.join(clusters)} within {_DEADLINE_S:g} s"
                    )
                self._console.waiting(self._ports)
                time.sleep(0.05)

        thread = threading.Thread(target=run, name="worker")
        thread.start()
        try:
            yield landed_in
        finally:
            worker.stop()
            thread.join()
        if failures:
            raise failures[0]

    def _deliver(self, action: Followed | Unfollowed) -> None:
        """Publishes the task of one action, and runs a worker without a relay until it has landed."""
        self._ports.queue.publish(ACTIONS, [encode_action(Task(action))])
        loops = [wiring.expander(self._ports, self._config)]
        loops += [wiring.writer(self._ports, self._config, name) for name in self._names]
        deadline = time.monotonic() + _DEADLINE_S
        try:
            while sum(lag for name, lag in landed.lags(self._ports).items() if name != RELAY):
                for loop in loops:
                    loop.step()
                if time.monotonic() > deadline:
                    raise CommandRefusedError(f"a task is not done within {_DEADLINE_S:g} s")
        finally:
            for loop in loops:
                loop.close()

    def _page(self, user: int, limit: int = LINES) -> Page:
        return self._pages.page(user, min(limit, 1_000))

    def _page_from(self, name: str, user: int) -> Page:
        """Waits until a replica serves a page, and returns it: readers ask one that was away again within seconds."""
        deadline = time.monotonic() + _DEADLINE_S
        while (page := self._page(user)).served_by != name and time.monotonic() < deadline:
            time.sleep(0.05)
        return page

    def _pins(self, entries: Sequence[Entry]) -> dict[int, Pin]:
        found: dict[int, Pin] = {}
        for some in chunks(entries, 500):
            states = self._ports.follows.pins([entry.pin for entry in some])
            found |= {pin: state.pin for pin, state in states.items()}
        return found

    def _show(self, page: Page) -> None:
        pins = self._pins(page.entries)
        now_ms = self._ports.follows.now()
        for entry in page.entries:
            pin = pins[entry.pin]
            self._console.say(
                f"pin {entry.pin:<14} {ago(now_ms - entry.created_ms):>8} ago   user {pin.owner}, board {pin.board}"
            )

    def _somebody(self) -> int:
        """Among the first users, the one who follows most and whose feed has room for more."""
        table = self._ports.replicas[self._names[0]].tables[FEEDS]
        best, best_score = 0, (-1, -1)
        for number, (user, columns) in enumerate(feeds_ascending(table, self._config.limits.cap)):
            owners = len(self._ports.follows.following(user))
            score = (min(owners, 12), min(len(columns), 200))
            if owners >= 2 and score > best_score:
                best, best_score = user, score
            if number >= _LOOKED_AT or best_score == (12, 200):
                break
        if not best:
            raise CommandRefusedError(f"no user follows two others and has a feed: {_MORE}")
        return best

    def _board_of(self, user: int) -> int:
        """Among the boards at the top of a feed, the one with the most pins."""
        page = self._page(user, _BOARDS_LOOKED_AT)
        found = {pin.board for pin in self._pins(page.entries).values()}
        boards = Boards(self._ports.follows)
        return max(sorted(found), key=lambda board: sum(part.pins for part in checked(boards, board)))

    def _order(self, boards: Boards, board: int) -> list[BoardPin]:
        found: list[BoardPin] = []
        after = None
        while True:
            page = boards.page(board, BOARD_PAGE, after)
            found += page.pins
            after = page.after
            if after is None:
                return found

    def _drop_lowest(self, boards: Boards, board: int, order: list[int]) -> None:
        """Moves the lowest pin below the topmost one, in `order` and on the board."""
        lowest = order.pop()
        boards.reorder(Move(board, lowest, before=order[0], after=order[1]))
        order.insert(1, lowest)

    def _followee_of(self, user: int, page: Page) -> Followee:
        """A followee with entries near the top of the page that no other edge covers."""
        edges = {edge.followee for edge in self._ports.follows.following(user)}
        for pin in self._pins(page.entries[:100]).values():
            covering = [followee for followee in pin.followees() if followee in edges]
            if len(covering) == 1:
                return covering[0]
        raise CommandRefusedError(f"each entry of user {user} comes from several followees: {_MORE}")

    def _theirs(self, user: int, page: Page, followee: Followee) -> list[int]:
        """The entries that this followee covers and no other edge of the user does."""
        others = {edge.followee for edge in self._ports.follows.following(user)} - {followee}
        return [
            number
            for number, pin in self._pins(page.entries).items()
            if followee in pin.followees() and not others.intersection(pin.followees())
        ]

    def _save_pins(self, user: int) -> list[int]:
        """Saves pins by a user whom this user follows; returns them, newest first."""
        followees = [edge.followee for edge in self._ports.follows.following(user)]
        newest = self._ports.follows.newest_pins(followees, 1)
        known = next(states[0].pin for states in newest.values() if states)
        now_ms = self._ports.follows.now()
        pins = [Pin(now_ms * 10 + number, known.owner, known.board, now_ms - number) for number in range(_NEW_PINS)]
        self._record(*map(SavePin, pins))
        return [pin.pin for pin in pins]

    def _record(self, *actions: Follow | Unfollow | SavePin) -> list[object]:
        answers = self._ports.follows.record([Request(action) for action in actions])
        for answer in answers:
            if isinstance(answer, ActionRefusedError):
                raise CommandRefusedError(f"an action was refused: {answer}")
        return list(answers)
