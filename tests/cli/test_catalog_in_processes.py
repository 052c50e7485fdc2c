"""What web processes hold of the catalog of pins, kept fresh by the queue: real processes on one home."""

import random
import re
import socket
from contextlib import ExitStack, closing
from typing import Any

import httpx
import pytest

from feedstore.app import config as configuration
from feedstore.app.services import open_services
from feedstore.domain import DeletePin, Follow, Pin, PinDeleted, PinSaved, SavePin, user
from feedstore.following.service import FeedService
from feedstore.follows.port import Request
from tests.cli.command import Cli, eventually
from tests.cli.test_catalog import current
from tests.http.http_servers import feedctl_serve
from workers.app import wiring
from workers.app.home import worker_lock
from workers.following.messages import Task, encode_action
from workers.following.topics import ACTIONS

pytestmark = pytest.mark.processes


def pins(address: str) -> dict[int, tuple[int, int]]:
    """The owner and the board of each pin in the feed of user 1."""
    page = httpx.get(f"{address}/v1/users/1/feed?hydrate=true", timeout=60)
    if page.status_code != 200:
        return {}
    return {int(each["pin"]): (int(each["owner"]), int(each["board"])) for each in page.json()["entries"]}


def metric(address: str, name: str) -> float | None:
    found = re.findall(rf'^{name}{{catalog="pins"}} (\S+)$', httpx.get(f"{address}/metrics").text, re.MULTILINE)
    return float(found[0]) if found else None


def recorded(cli: Cli, action: PinSaved | PinDeleted) -> None:
    """Tells the catalogs of an action, and no feed: in a feed, the markers of a deletion do the same a moment later."""
    config = configuration.load(cli.home, {})
    with closing(wiring.open_queue(config, wiring.feedstore_wiring.clock_of(config))) as queue:
        queue.publish(ACTIONS, [encode_action(Task(action, cluster="none"))])


def test_an_update_replaces_what_two_web_processes_hold(cli: Cli) -> None:
    cli.add('[catalogs.pins]\nttl = "1h"\n')
    cli("follow", 1, "--user", 2)
    for pin in (5, 6):
        cli("save-pin", pin, "--owner", 2, "--board", 9)
    held: dict[int, Any] = {5: (2, 9), 6: (2, 9)}
    with feedctl_serve(cli) as (_, working), feedctl_serve(cli) as (_, serving):
        both = (working, serving)
        eventually(lambda: len(current(cli)) == 1, "a generation is in use")
        eventually(lambda: [pins(each) for each in both] == [held, held], "both show the pins")
        later_ms = wiring.feedstore_wiring.clock_of(configuration.load(cli.home, {}))() + 1
        recorded(cli, PinSaved(Pin(5, 2, 10, 1_000), later_ms))
        recorded(cli, PinDeleted(Pin(6, 2, 9, 1_000), later_ms))
        eventually(lambda: [pins(each) for each in both] == [{5: (2, 10)}] * 2, "both have heard of it")
        for each in both:
            behind = eventually(lambda each=each: metric(each, "feed_catalog_heard_behind_seconds"), "ticks have come")
            assert 0 <= behind < 60
            assert metric(each, "feed_catalog_updates_total") == 2


def test_a_rollback_is_in_force_in_every_process_though_they_hold_records_for_an_hour(cli: Cli) -> None:
    cli.add('[catalogs.ads]\nttl = "1h"\n')
    batch = cli.home.parent / "ads.jsonl"

    def load(record: str, as_of_ms: int) -> None:
        batch.write_text(f'{{"key":"a","record":"{record}"}}\n')
        cli("catalog", "load", "ads", batch, "--as-of", as_of_ms)

    def ads(address: str) -> Any:
        answer = httpx.post(f"{address}/v1/catalogs/ads/get", json={"keys": ["a"]}, timeout=60)
        return answer.json()["records"]

    load("right", 1_341_100_000_000)
    load("wrong", 1_341_100_000_001)
    with feedctl_serve(cli) as (_, working), feedctl_serve(cli) as (_, serving):
        both = (working, serving)
        eventually(lambda: [looked(each) for each in both] == [2, 2], "both have looked")
        assert [ads(each) for each in both] == [{"a": "wrong"}] * 2
        cli("catalog", "rollback", "ads")
        eventually(lambda: [ads(each) for each in both] == [{"a": "right"}] * 2, "the rollback is seen")


def looked(address: str) -> int:
    """Of how many clusters of its first catalog a server knows the generations."""
    [catalog] = httpx.get(f"{address}/v1/catalogs").json()["catalogs"]
    return sum(bool(each["generations"]) for each in catalog["clusters"])


def test_a_web_process_starts_without_the_follow_store_and_shows_pages(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a restart while it is away. Another process holds the home, so that this one only serves."""
    cli.add("[catalogs.pins]\n")
    cli("follow", 1, "--user", 2)
    for pin in (5, 6):
        cli("save-pin", pin, "--owner", 2, "--board", 9)
    cli.work()
    cli("catalog", "build", "pins")
    with socket.socket() as unused, worker_lock(cli.home):
        unused.bind(("127.0.0.1", 0))  # it does not listen
        away = f"mysql://feed@127.0.0.1:{unused.getsockname()[1]}/follows"
        monkeypatch.setenv("FEED_FOLLOWS_SHARDS", f'["{away}"]')
        with feedctl_serve(cli) as (_, address):
            assert pins(address) == {5: (2, 9), 6: (2, 9)}
            page = httpx.get(f"{address}/v1/users/1/feed", timeout=60).json()
            assert [each["pin"] for each in page["entries"]] == ["6", "5"]
            for answer in (
                httpx.get(f"{address}/v1/users/1/following", timeout=60),
                httpx.post(f"{address}/v1/pins", json={"pin": "7", "owner": "2", "board": "9"}, timeout=60),
            ):
                assert answer.status_code == 503
                assert answer.json()["type"].endswith("follow-store-unavailable"), answer.text
        monkeypatch.setenv("FEED_FOLLOWS_SHARDS", '["mysql://no-host"]')
        assert "expected mysql://USER@HOST" in cli("serve", "--port", 0, code=2).stderr


def test_every_page_of_pins_is_that_of_the_follow_store(cli: Cli) -> None:
    """Of every user, deletions and what came after the build included; the follow store is asked for none of them."""
    rng = random.Random(1)
    owners, readers = range(1, 9), range(101, 113)
    followed = {reader: rng.sample(owners, 4) for reader in readers}
    saved = {pin: Pin(pin, owner := rng.choice(owners), 10 * owner, 1_000 + pin // 3) for pin in range(1, 301)}
    first, late = [pin for pin in saved if pin <= 250], [pin for pin in saved if pin > 250]
    deleted = rng.sample(first, 80)
    config = configuration.load(cli.home, {})
    cli.add("[catalogs.pins]\n")
    with_catalog = configuration.load(cli.home, {})
    with ExitStack() as stack:
        plain = stack.enter_context(open_services(config))
        plain.feeds.record([Request(Follow(reader, user(owner))) for reader in readers for owner in followed[reader]])
        plain.feeds.record([Request(SavePin(saved[pin])) for pin in first])
        plain.feeds.record([Request(DeletePin(pin)) for pin in deleted[:40]])
        stack.enter_context(cli.worker())
        eventually(lambda: all(len(current(cli, each)) == 1 for each in "ab"), "generations are in use")
        plain.feeds.record([Request(SavePin(saved[pin])) for pin in late])
        plain.feeds.record([Request(DeletePin(pin)) for pin in deleted[40:]])
        live = sorted(
            (pin for pin in saved.values() if pin.pin not in deleted), key=lambda pin: (-pin.created_ms, pin.pin)
        )
        wanted = {reader: [pin for pin in live if pin.owner in followed[reader]] for reader in readers}
        eventually(lambda: {each: walked(plain.feeds, each) for each in readers} == wanted, "all has landed")
        eventually(lambda: "not compared" not in cli("catalog", "verify", "pins").stderr, "the catalogs have it, too")
        other = stack.enter_context(open_services(with_catalog))
        assert other.catalogs is not None
        assert {each: walked(other.feeds, each) for each in readers} == wanted
        counts = other.catalogs.catalog("pins").counts()
        assert (counts.source, counts.missing) == (0, 0)
        assert counts.hit + counts.fetched == sum(map(len, wanted.values()))


def walked(feeds: FeedService, reader: int) -> list[Pin]:
    """All pages of a feed, one after the other."""
    page = feeds.pins_page(reader, 7)
    found = page.pins
    while page.cursor is not None:
        page = feeds.pins_page(reader, 7, page.cursor)
        found += page.pins
    return found
