"""Every metric that the rules and the dashboard ask for comes from a live process into Prometheus, and changes there.

Two homes in files: one where users do all that they can, and one whose limits are seconds, so that what usually takes
days happens. What this cannot provoke is listed in `excused.py`: the live faults do. Of HBase and Kafka:
`test_server_metrics.py` and `test_servers_in_trouble.py`.
"""

import itertools
import json
import os
import re
import signal
import sqlite3
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pytest

from deploy import monitoring
from deploy.local import Stack
from deploy.monitoring import dashboard
from feedstore.app import config as configuration
from tests.cli.command import Cli, writer_pid
from tests.clocks.rounds import shifted
from tests.monitoring import prometheus
from tests.monitoring.excused import BY_FAULTS, CONSTANT
from workers.app import wiring
from workers.app.metrics import ALL
from workers.following.topics import ACTIONS

pytestmark = [pytest.mark.stack, pytest.mark.timeout(1_500)]

DEADLINE_S: Final = 150.0
USERS: Final = 20
OWNER, BOARD, NARROW = 1_000, 2_000, 3_000
FOLLOWED_BY_MANY, MANY = 4_000, 1_200

_NAME: Final = re.compile(r"\bfeed_[a-z_0-9]+")
_KINDS: Final = {each.name: each.kind for each in ALL}


def asked_for() -> set[str]:
    """The metrics that rules and dashboard name; a histogram by its own name."""
    texts = [monitoring.RULES.read_text(encoding="utf-8"), dashboard.FILE.read_text(encoding="utf-8")]
    expressions = [*re.findall(r"expr: (?:\|\n(?:\s{10,}.*\n)+|.*)", texts[0])]
    panels = json.loads(texts[1])["panels"]
    expressions += [target["expr"] for panel in panels for target in panel.get("targets", ())]
    named = {name for each in expressions for name in _NAME.findall(each)}
    return {name if name in _KINDS else re.sub(r"_(bucket|sum|count)$", "", name) for name in named}


class Watcher:
    """Asks the Prometheus of a stack. homes: the directories whose processes count."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self.homes: list[str] = []

    def value(self, expression: str) -> float | None:
        found = prometheus.values(self._stack, expression)
        return max((float(each["value"][1]) for each in found), default=None)

    def fault(self, name: str) -> str:
        """What is wrong with a metric; empty if it was scraped and has changed, or need not."""
        homes = "|".join(re.escape(each).replace("\\", "\\\\") for each in self.homes)
        kind = _KINDS[name]
        series = f'{name}{"_count" if kind in {"histogram", "summary"} else ""}{{home=~"{homes}"}}'
        changed = self.value(prometheus.change(kind, f"{series}[1h]"))
        if name in BY_FAULTS:
            return ""
        if changed is None:
            return "was not scraped"
        return "" if changed > 0 or name in CONSTANT else "never changed"

    def faults(self) -> dict[str, str]:
        return {name: fault for name in sorted(asked_for()) if (fault := self.fault(name))}

    def wait_for(self, *names: str) -> None:
        """Until these have changed. What does not is told at the end, with all others."""
        deadline_s = time.monotonic() + DEADLINE_S
        while any(self.fault(name) for name in names) and time.monotonic() < deadline_s:
            time.sleep(1)

    def wait_until(self, expression: str) -> None:
        """Until there is such a sample."""
        deadline_s = time.monotonic() + DEADLINE_S
        while self.value(expression) is None and time.monotonic() < deadline_s:
            time.sleep(1)


class Client:
    """Asks one server for all that a user can ask, again and again, on two threads."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._ended = threading.Event()
        self._numbers = itertools.count(1)
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(2)]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """The answer. What is refused, or not answered, is not this test's concern: None."""
        headers = {} if body is None else {"content-type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._address + path, data, headers, method=method)
        with suppress(OSError), urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)
        return None

    def _run(self) -> None:
        while not self._ended.wait(0.05):
            number = next(self._numbers)
            user, pin = number % USERS + 1, str(time.time_ns() // 1_000)
            self.ask("POST", "/v1/follows", {"follower": str(user), "user": str(OWNER)})
            self.ask("POST", "/v1/pins", {"pin": pin, "owner": str(OWNER), "board": str(BOARD)})
            for _ in range(3):
                self.ask("GET", f"/v1/users/{user}/feed?hydrate=true")
            if number % 5 == 0:
                self.ask("DELETE", "/v1/follows", {"follower": str(user), "user": str(OWNER)})
            if number % 7 == 0:
                self.ask("DELETE", f"/v1/pins/{pin}")

    def narrow(self) -> None:
        """Moves pins of a board into its lowest gap until workers must make room there. Each move looks first: one that
        was not answered may have been made, or not.
        """
        for _ in range(150):
            page = self.ask("GET", f"/v1/boards/{NARROW}/pins?start=bottom&limit=10")
            if page is not None and len(page["pins"]) > 2:
                pin, *_, above, below = (line["pin"] for line in page["pins"])
                self.ask("POST", f"/v1/boards/{NARROW}/pins/{pin}/place", {"before": above, "after": below})


@contextmanager
def running(cli: Cli, *words: str, log: Path, env: dict[str, str]) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A command of feedctl, and its address if it serves."""
    serves = words[0] == "serve"
    with log.open("ab") as stderr:
        stdout = subprocess.PIPE if serves else subprocess.DEVNULL
        process = cli.interpreter(*words, stdout=stdout, stderr=stderr, env={**os.environ, **env})
    try:
        yield process, process.stdout.readline().decode().strip() if serves and process.stdout is not None else ""
    finally:
        process.send_signal(signal.SIGCONT)
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(30)
        process.kill()
        process.communicate()


@contextmanager
def suspended(*pids: int) -> Iterator[None]:
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """A file of SQLite in which no other can write."""
    with closing(sqlite3.connect(file, timeout=30, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        finally:
            connection.execute("ROLLBACK")


def poison(cli: Cli, count: int) -> None:
    config = configuration.load(cli.home, {})
    clock = wiring.feedstore_wiring.clock_of(config)
    with closing(wiring.open_queue(config, clock)) as queue:
        queue.publish(ACTIONS, [b"not one of ours %d" % number for number in range(count)])


def in_files(stack: Stack, directory: Path, **replaced: str) -> Cli:
    """A home in files whose processes are known to the stack's Prometheus. replaced: keys of its `feed.toml`."""
    cli = Cli(directory)
    cli("init")
    for key, value in replaced.items():
        cli.set(key, value)
    file = directory / configuration.FILE_NAME
    metrics = f'[metrics]\nlisten = "127.0.0.1:0"\ntargets = "{stack.home / "targets"}"\n'
    text = file.read_text()
    assert text.count("[metrics]\n") == 1
    file.write_text(text.replace("[metrics]\n", metrics))
    return cli


FAST: Final = {"FEED_WORKER_CANARY": "1s", "FEED_WORKER_HOUSEKEEPING": "5s"}


def everything_that_a_user_can_do(watcher: Watcher, stack: Stack, directory: Path) -> None:
    cli = in_files(stack, directory, cap="5", slack="1")
    with (cli.home / configuration.FILE_NAME).open("a") as file:
        file.write('[catalogs.pins]\nttl = "1s"\nbuild = "10s"\n')
    watcher.homes.append(str(cli.home))
    many = directory / "many.jsonl"
    follows = ({"type": "follow", "ts": 1_000, "follower": 10_000 + n, "user": FOLLOWED_BY_MANY} for n in range(MANY))
    many.write_text("".join(f"{json.dumps(each)}\n" for each in follows))
    cli("replay", many)
    with (
        running(cli, "serve", "--port", "0", log=directory / "log", env=FAST) as (_, address),
        closing(Client(address)) as client,
    ):
        # Until the follows are in the index, a pin has few followers to go to.
        again = 60
        while watcher.fault("feed_fanout_visible_seconds") and (again := again - 1):
            pin = str(1_000_000 + again)
            client.ask("POST", "/v1/pins", {"pin": pin, "owner": str(FOLLOWED_BY_MANY), "board": str(BOARD + 1)})
            time.sleep(1)
        pins = [str(number) for number in range(10, 20)]
        for pin in pins:
            client.ask("POST", "/v1/pins", {"pin": pin, "owner": str(OWNER), "board": str(NARROW)})
        for pin in pins[:2]:
            client.ask("POST", f"/v1/boards/{NARROW}/pins/{pin}/place", {"to": "bottom"})
        client.narrow()
        watcher.wait_for(
            "feed_purge_seconds",
            "feed_swept_cells_total",
            "feed_sweep_seconds",
            "feed_canary_seconds",
            "feed_board_respaced_rows_total",
            "feed_catalog_swaps_total",
            "feed_catalog_updates_total",
            "feed_catalog_records",
            "feed_store_free_bytes",
            "feed_http_requests_under_way",
            "feed_catalog_heard_behind_seconds",
            "feed_catalog_failed_fetches_total",
        )
        # The expander waits for the lock with what it has polled: a scrape meets that.
        again = 20
        while watcher.fault("feed_stage_waiting_messages") and (again := again - 1):
            cli("replay", many)
            with locked(cli.home / "data" / "follows.db"):
                since_s = time.monotonic()
                while (
                    watcher.fault("feed_stage_waiting_messages") and time.monotonic() < since_s + 2 * monitoring.EVERY_S
                ):
                    time.sleep(0.5)


def what_usually_takes_days(watcher: Watcher, stack: Stack, directory: Path) -> None:
    ages = {"action_age": '"4s"', "delivery_age": '"2s"', "purge_window": '"9s"'}
    cli = in_files(stack, directory, dead_letters_in_a_row="5", **ages)
    watcher.homes.append(str(cli.home))
    cli("follow", 1, "--user", OWNER)
    cli("save-pin", 1, "--owner", OWNER, "--board", BOARD)
    recorded_s = time.monotonic()
    pin = itertools.count(2)
    while time.monotonic() < recorded_s + 5:
        cli("save-pin", next(pin), "--owner", OWNER, "--board", BOARD)
    with running(cli, "work", log=directory / "log", env=FAST) as (process, _):
        watcher.wait_until(f'feed_process_resident_bytes{{home="{cli.home}",process="writer-a"}}')
        watcher.wait_for("feed_actions_redated_total", "feed_housekeeping_expired_total")
        # What is sent back keeps the watermark until it has been expanded again, and that waits for the lock.
        with ExitStack() as kept:
            with suspended(writer_pid(process.pid, "a")):
                since_s = time.monotonic()
                while time.monotonic() < since_s + 6:
                    cli("save-pin", next(pin), "--owner", OWNER, "--board", BOARD)
                kept.enter_context(locked(cli.home / "data" / "follows.db"))
            watcher.wait_for("feed_deliveries_late_total", "feed_cluster_kept_back_by", "feed_cluster_holds")
        watcher.wait_for("feed_actions_sent_back_total")
    with running(cli, "serve", "--port", "0", log=directory / "log", env=FAST):
        # A process whose clock is off is named by this server, which has the worker and was seen before that.
        watcher.wait_until(f'feed_clocks_off{{home="{cli.home}",program="serve"}} == 0')
        watcher.wait_until(f'feed_worker_stopped{{home="{cli.home}",program="serve"}} == 0')
        with running(cli, "serve", "--port", "0", log=directory / "log", env=FAST | shifted(60_000)):
            watcher.wait_for("feed_clocks_off")
        poison(cli, 10)
        watcher.wait_for("feed_worker_stopped", "feed_loop_running", "feed_stage_dead_letters_total")


def test_all_of_them_are_scraped_and_change(stack: Stack, tmp_path: Path) -> None:
    stack.up("prometheus")
    watcher = Watcher(stack)
    for number, step in enumerate((everything_that_a_user_can_do, what_usually_takes_days)):
        directory = tmp_path / str(number)
        directory.mkdir()
        step(watcher, stack, directory)
    assert watcher.faults() == {}


def test_nothing_is_excused_that_is_not_asked_for() -> None:
    excused = [*CONSTANT, *BY_FAULTS]
    assert set(excused) <= asked_for() | {"feed_build_info"}
    assert len(excused) == len(set(excused))
