"""Refusals: problem details (RFC 9457), one document for each kind. The types are stable: docs/http.md lists them."""

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from feedstore.domain import InvalidValueError
from feedstore.feeds import MalformedCursorError
from feedstore.follows.port import ActionRefusedError, FollowStoreUnavailableError
from feedstore.serving.queues import QueuesUnavailableError
from feedstore.serving.replicas import DeadlineExceededError
from feedstore.widecolumn import UnavailableError

MEDIA_TYPE: Final = "application/problem+json"
_PREFIX: Final = "urn:feedstore:problem:"


class Kind(NamedTuple):
    """retry_after_s: for those that may be repeated as they are."""

    name: str
    status: int
    title: str
    retry_after_s: int | None = None

    @property
    def type(self) -> str:
        return _PREFIX + self.name


MALFORMED_REQUEST: Final = Kind("malformed-request", 400, "This is no HTTP request")
MALFORMED_JSON: Final = Kind("malformed-json", 400, "The body is not JSON")
INVALID_VALUE: Final = Kind("invalid-value", 400, "A value cannot be")
MALFORMED_CURSOR: Final = Kind("malformed-cursor", 400, "The cursor is not one of this list")
UNAUTHENTICATED: Final = Kind("unauthenticated", 401, "A valid token is needed")
FORBIDDEN: Final = Kind("forbidden", 403, "The token's scopes do not reach so far")
NOT_FOUND: Final = Kind("not-found", 404, "There is nothing here")
METHOD_NOT_ALLOWED: Final = Kind("method-not-allowed", 405, "Not with this method")
TOO_SLOW: Final = Kind("request-timeout", 408, "The request did not arrive in time")
REFUSED: Final = Kind("action-refused", 409, "The action contradicts what is recorded")
TOO_LARGE: Final = Kind("body-too-large", 413, "The body is too large")
NOT_JSON: Final = Kind("unsupported-media-type", 415, "The body must be application/json")
MISDIRECTED: Final = Kind("misdirected", 421, "This host is not served here")
HEAD_TOO_LARGE: Final = Kind("head-too-large", 431, "The request line and headers are too large")
NOT_IMPLEMENTED: Final = Kind("not-implemented", 501, "Not implemented")
INTERNAL: Final = Kind("internal", 500, "A fault in the server")
OVERLOADED: Final = Kind("overloaded", 503, "Too many requests are under way", retry_after_s=1)
DRAINING: Final = Kind("draining", 503, "The server is about to end", retry_after_s=1)
CLUSTERS_UNAVAILABLE: Final = Kind("clusters-unavailable", 503, "No cluster answered", retry_after_s=1)
FOLLOWS_UNAVAILABLE: Final = Kind("follow-store-unavailable", 503, "The follow store did not answer", retry_after_s=1)
QUEUES_UNAVAILABLE: Final = Kind("queues-unavailable", 503, "The queue did not answer", retry_after_s=5)
DEADLINE_EXCEEDED: Final = Kind("deadline-exceeded", 504, "No answer in time", retry_after_s=1)

KINDS: Final = (
    MALFORMED_REQUEST,
    MALFORMED_JSON,
    INVALID_VALUE,
    MALFORMED_CURSOR,
    UNAUTHENTICATED,
    FORBIDDEN,
    NOT_FOUND,
    METHOD_NOT_ALLOWED,
    TOO_SLOW,
    REFUSED,
    TOO_LARGE,
    NOT_JSON,
    MISDIRECTED,
    HEAD_TOO_LARGE,
    INTERNAL,
    NOT_IMPLEMENTED,
    OVERLOADED,
    DRAINING,
    CLUSTERS_UNAVAILABLE,
    FOLLOWS_UNAVAILABLE,
    QUEUES_UNAVAILABLE,
    DEADLINE_EXCEEDED,
)


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """A refusal. type: says which kind, and never changes. request_id: names the request in the server's log. reason:
    a stable word, where an action was refused.
    """

    type: str
    title: str
    status: int
    detail: str = ""
    request_id: str = ""
    reason: str = ""


class ProblemError(Exception):
    """Ends a request with a problem. detail: for the caller. cause: for the log alone, as it may name servers."""

    def __init__(
        self,
        kind: Kind,
        detail: str,
        *,
        reason: str = "",
        cause: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail
        self.reason = reason
        self.cause = cause
        self.headers = dict(headers or {})
        if kind.retry_after_s is not None:
            self.headers["retry-after"] = str(kind.retry_after_s)

    def for_log(self) -> str:
        return f"{self.kind.name}: {self.cause}" if self.cause else self.kind.name

    def document(self, request_id: str) -> bytes:
        kind = self.kind
        return msgspec.json.encode(Problem(kind.type, kind.title, kind.status, self.detail, request_id, self.reason))


_SAID: Final[dict[type[Exception], Kind]] = {
    InvalidValueError: INVALID_VALUE,
    MalformedCursorError: MALFORMED_CURSOR,
}
_AGAIN: Final[dict[type[Exception], Kind]] = {
    DeadlineExceededError: DEADLINE_EXCEEDED,
    UnavailableError: CLUSTERS_UNAVAILABLE,
    FollowStoreUnavailableError: FOLLOWS_UNAVAILABLE,
    QueuesUnavailableError: QUEUES_UNAVAILABLE,
}
EXPECTED: Final[tuple[type[Exception], ...]] = (ActionRefusedError, *_SAID, *_AGAIN)
"""What a service raises, by its contract."""


def of(error: Exception) -> ProblemError:
    """The problem that stands for one of the EXPECTED."""
    if isinstance(error, ActionRefusedError):
        kind = NOT_FOUND if error.reason == "pin_unknown" else REFUSED
        return ProblemError(kind, str(error), reason=error.reason)
    for of_whom, kind in _SAID.items():
        if isinstance(error, of_whom):
            return ProblemError(kind, str(error))
    kind = next(kind for of_whom, kind in _AGAIN.items() if isinstance(error, of_whom))
    detail = "ask again"
    if kind is FOLLOWS_UNAVAILABLE:
        detail = "an action may have been recorded or not: ask again with the same Idempotency-Key"
    # Which server it was is nothing for callers.
    return ProblemError(kind, detail, cause=str(error))
