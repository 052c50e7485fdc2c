"""A `feedctl serve` in a process of its own, on a home with files."""

import http.client
import json
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from feedstore.clocks import wall_ms
from tests.cli.command import Cli, eventually

HOUR_MS = 3_600_000


class Served:
    """What answers at `address`. It can be ended and started again there."""

    def __init__(self, cli: Cli) -> None:
        self.cli = cli
        self.address = ""
        self._port = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._dating, self._dated_ms = threading.Lock(), 0

    def start(self) -> None:
        process = self.cli.spawn("--log-level", "error", "serve", "--port", self._port, stderr=None)
        self._process = process
        assert process.stdout is not None
        self.address = process.stdout.readline().decode().strip()
        assert self.address, f"feedctl serve ended with {process.wait()}"
        self._port = urlsplit(self.address).port or 0

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def ask(self, method: str, path: str, body: Any = None, token: str | None = None) -> Any:
        host = urlsplit(self.address)
        connection = http.client.HTTPConnection(host.hostname or "", host.port, timeout=60)
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        if body is not None:
            headers["content-type"] = "application/json"
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            answer = json.loads(response.read())
        finally:
            connection.close()
        assert response.status == 200, answer
        return answer

    def save(self, pin: int, owner: int, board: int, created_ms: int | None = None) -> None:
        """created_ms: where None, now, and later than any before: pins of one ms are in the order of their ids."""
        if created_ms is None:
            with self._dating:
                created_ms = self._dated_ms = max(wall_ms(), self._dated_ms + 1)
        saved = {"pin": str(pin), "owner": str(owner), "board": str(board), "created_ms": created_ms}
        self.ask("POST", "/v1/pins", saved)

    def feed(self, user: int) -> list[str]:
        """The pins of a feed, as far as one page goes."""
        return [line["pin"] for line in self.ask("GET", f"/v1/users/{user}/feed?limit=1000")["entries"]]

    def wait_for(self, user: int, pins: Sequence[int]) -> None:
        """Until a feed is exactly this, in both clusters."""
        wanted = [str(pin) for pin in pins]
        eventually(lambda: self.feed(user) == wanted, f"the feed of {user} is {wanted}")


@contextmanager
def arriving(served: Served, pins: Sequence[int], owner: int, board: int, gate: threading.Semaphore) -> Iterator[None]:
    """Saves pins while the caller works, one for each time that the gate is released, and all by the end."""
    failed: list[BaseException] = []

    def save() -> None:
        try:
            for pin in pins:
                gate.acquire()
                served.save(pin, owner, board)
        except BaseException as error:  # noqa: BLE001 - it is raised where the test waits
            failed.append(error)

    thread = threading.Thread(target=save, daemon=True)
    thread.start()
    try:
        yield
    finally:
        for _ in pins:
            gate.release()
        thread.join(120)
    assert not failed, failed
    assert not thread.is_alive()
