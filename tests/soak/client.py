"""One who asks the web server of a site, and asks again until there is an answer."""

import http.client
import json
import time
from collections.abc import Callable
from typing import Any, Final

_TIMEOUT_S: Final = 15.0
_AGAIN_S: Final = 0.25
_ANSWERED_S: Final = 300.0
_NOT_NOW: Final = frozenset({0, 429, 503, 504})


class Client:
    """One connection, which is opened again if it fails. No two threads may use it at once."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self._connection: http.client.HTTPConnection | None = None

    def ask(self, method: str, path: str, body: object = None, key: str | None = None) -> tuple[int, bytes]:
        """The status and the body of the answer; 0 and the reason if there is none."""
        if self._connection is None:
            self._connection = http.client.HTTPConnection(*self._address, timeout=_TIMEOUT_S)
        headers = {} if body is None else {"content-type": "application/json"}
        if key is not None:
            headers["idempotency-key"] = key
        try:
            self._connection.request(method, path, None if body is None else json.dumps(body).encode(), headers)
            answer = self._connection.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            return 0, repr(error).encode()

    def ask_until_answered(
        self,
        method: str,
        path: str,
        body: Callable[[], object] = lambda: None,
        key: str | None = None,
        unanswered: Callable[[], None] = lambda: None,
    ) -> tuple[int, bytes]:
        """The answer to the first attempt that is not told to try later; after _ANSWERED_S, the last one. body: makes
        that of each attempt. unanswered: is told of each attempt that failed.
        """
        until_s = time.monotonic() + _ANSWERED_S
        while True:
            status, said = self.ask(method, path, body(), key)
            if status not in _NOT_NOW or time.monotonic() > until_s:
                return status, said
            unanswered()
            time.sleep(_AGAIN_S)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def refusal(method: str, path: str, status: int, said: bytes) -> str:
    """What an answer says, in a line."""
    return f"{method} {path}: {status} {said.decode(errors='replace')[:300]}"


def reason(said: bytes) -> Any:
    """The `reason` of a problem; None if there is none."""
    try:
        return json.loads(said).get("reason")
    except (ValueError, AttributeError):
        return None
