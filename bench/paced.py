"""A client that asks for pages at a steady pace, whatever becomes of those before:

    python -m bench.paced http://127.0.0.1:8080 PER_S FIRST_USER LAST_USER
    python -m bench.paced HOME PER_S FIRST_USER LAST_USER

through the API of a server, or through the library on a home, of those users in turn. It continues until it is ended,
and prints a line for each page: when it was due (`time.monotonic`, in seconds), how many ms later it had come, and the
cluster that served it, or `failed` and why. A page that had to wait for a thread or a connection counts from when it
was due.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from itertools import count, cycle
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from feedstore.app import config
from feedstore.app.services import open_service

LIMIT = 25
AT_ONCE = 64
"""Pages that are under way. One takes a second at most, then it has failed."""
WITHIN_S = 10.0
PAGE, FAILED = "page", "failed"

Ask = Callable[[int], str]
"""Asks for a page of a user, and returns who served it."""


class Line(NamedTuple):
    due_s: float
    took_ms: float
    said: str

    @property
    def is_failure(self) -> bool:
        return self.said.startswith(FAILED)


def lines(path: Path) -> list[Line]:
    """The pages that a client has printed so far, into a file in which there may be more; its last line may be half
    written.
    """
    found = []
    for line in path.read_text().rpartition("\n")[0].splitlines():
        if line.startswith(PAGE):
            _, due_s, took_ms, said = line.split(" ", 3)
            found.append(Line(float(due_s), float(took_ms), said))
    return found


def through_http(address: str) -> Ask:
    """A connection for each thread."""
    mine = threading.local()

    def ask(user: int) -> str:
        connection = getattr(mine, "connection", None)
        if connection is None:
            connection = mine.connection = HTTPConnection(urlsplit(address).netloc, timeout=WITHIN_S)
        try:
            connection.request("GET", f"/v1/users/{user}/feed?limit={LIMIT}")
            response = connection.getresponse()
            answer = json.loads(response.read())
        except Exception:  # also an answer that is none: no other would come through this connection
            connection.close()
            raise
        if response.status != 200:
            raise RuntimeError(f"{response.status} {answer['title']}")
        return str(answer["served_by"])

    return ask


def run(ask: Ask, users: Sequence[int], per_s: float) -> None:
    def page(due_s: float, user: int) -> None:
        try:
            said = ask(user)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a page that failed
            said = f"{FAILED} {type(error).__name__}: {error}".replace("\n", " ")
        # At once: threads' lines must not run into each other.
        os.write(sys.stdout.fileno(), f"{PAGE} {due_s:.6f} {1_000 * (time.monotonic() - due_s):.3f} {said}\n".encode())

    with ThreadPoolExecutor(AT_ONCE) as pool:
        began_s = time.monotonic()
        for number, user in zip(count(), cycle(users)):
            due_s = began_s + number / per_s
            time.sleep(max(0.0, due_s - time.monotonic()))
            pool.submit(page, due_s, user)


def main(where: str, per_s: float, users: Sequence[int]) -> None:
    if where.startswith("http:"):
        run(through_http(where), users, per_s)
    else:
        with open_service(config.load(Path(where), os.environ)) as service:
            run(lambda user: service.page(user, LIMIT).served_by, users, per_s)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), range(int(sys.argv[3]), int(sys.argv[4]) + 1))
