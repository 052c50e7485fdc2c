"""Refusals: problem details (RFC 9457), one document for each kind. The types are stable: docs/http.md lists them."""

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from feedstore.domain import InvalidValueError
from feedstore.domain.cursors import MalformedCursorError
from feedstore.http.queues import QueuesUnavailableError

MEDIA_TYPE: Final = "application/problem+json"
_PREFIX: Final = "urn:feedstore:problem:"


class Kind(NamedTuple):
    """One kind of refusal. retry_after_s: set if the same request may be sent again. again: what the caller is told in
    that case, without the name of a server; None if the request may have been carried out, so that the endpoint must
    say what to do.
    """

    name: str
    status: int
    title: str
    retry_after_s: int | None = None
    again: str | None = "try again"

    @property
    def type(self) -> str:
        return _PREFIX + self.name


MALFORMED_REQUEST: Final = Kind("malformed-request", 400, "Malformed HTTP request")
MALFORMED_JSON: Final = Kind("malformed-json", 400, "The body is not JSON")
INVALID_VALUE: Final = Kind("invalid-value", 400, "Invalid value")
MALFORMED_CURSOR: Final = Kind("malformed-cursor", 400, "Invalid cursor")
UNAUTHENTICATED: Final = Kind("unauthenticated", 401, "Authentication required")
FORBIDDEN: Final = Kind("forbidden", 403, "Insufficient scope")
NOT_FOUND: Final = Kind("not-found", 404, "Not found")
METHOD_NOT_ALLOWED: Final = Kind("method-not-allowed", 405, "Method not allowed")
TOO_SLOW: Final = Kind("request-timeout", 408, "Request timeout")
REFUSED: Final = Kind("action-refused", 409, "Action conflicts with recorded data")
TOO_LARGE: Final = Kind("body-too-large", 413, "Request body too large")
NOT_JSON: Final = Kind("unsupported-media-type", 415, "Unsupported media type")
MISDIRECTED: Final = Kind("misdirected", 421, "Unknown host")
HEAD_TOO_LARGE: Final = Kind("head-too-large", 431, "Request headers too large")
INTERNAL: Final = Kind("internal", 500, "Internal server error")
NOT_IMPLEMENTED: Final = Kind("not-implemented", 501, "Not implemented")
OVERLOADED: Final = Kind("overloaded", 503, "Server is overloaded", retry_after_s=1)
DRAINING: Final = Kind("draining", 503, "Server is shutting down", retry_after_s=1)
CLUSTERS_UNAVAILABLE: Final = Kind("clusters-unavailable", 503, "No cluster is available", retry_after_s=1)
FOLLOWS_UNAVAILABLE: Final = Kind(
    "follow-store-unavailable",
    503,
    "Follow store is unavailable",
    retry_after_s=1,
    again=None,
)
QUEUES_UNAVAILABLE: Final = Kind("queues-unavailable", 503, "Queue is unavailable", retry_after_s=5)
PLOTS_UNAVAILABLE: Final = Kind(
    "plots-unavailable",
    503,
    "Prometheus is unavailable",
    retry_after_s=5,
    again="Prometheus did not answer in time. Only the plots need it. Try again",
)
DEADLINE_EXCEEDED: Final = Kind("deadline-exceeded", 504, "Deadline exceeded", retry_after_s=1)


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a request was refused or failed. type: the kind of problem; programs can rely on it, it never changes.
    detail: what was wrong, for people. request_id: the id of the request in the server's log. reason: a stable word
    that says why an action, a move or a swap was refused. between: with the reason `neighbours_apart`, the ids of up to
    ten pins that are between the two.
    """

    type: str
    title: str
    status: int
    detail: str = ""
    request_id: str = ""
    reason: str = ""
    between: tuple[str, ...] = ()


class ProblemError(Exception):
    """Ends a request with a problem. detail: for the caller. cause: for the log only, as it may name servers."""

    def __init__(
        self,
        kind: Kind,
        detail: str,
        *,
        reason: str = "",
        between: tuple[str, ...] = (),
        cause: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail
        self.reason = reason
        self.between = between
        self.cause = cause
        self.headers = dict(headers or {})
        if kind.retry_after_s is not None:
            self.headers["retry-after"] = str(kind.retry_after_s)

    def for_log(self) -> str:
        return f"{self.kind.name}: {self.cause}" if self.cause else self.kind.name

    def answer(self, request_id: str) -> tuple[dict[str, str], bytes]:
        """The headers and the content of the answer."""
        kind = self.kind
        content = msgspec.json.encode(
            Problem(kind.type, kind.title, kind.status, self.detail, request_id, self.reason, self.between)
        )
        about = {"content-type": MEDIA_TYPE, "content-length": str(len(content)), "cache-control": "no-store"}
        return about | self.headers, content


Known = Mapping[type[Exception], Kind]
"""The problem of each error that a call may raise by its contract. The first class that fits counts."""

KNOWN: Final[Known] = {
    InvalidValueError: INVALID_VALUE,
    MalformedCursorError: MALFORMED_CURSOR,
    QueuesUnavailableError: QUEUES_UNAVAILABLE,
}
"""The problems of the errors that every service may raise."""


def of(error: Exception, known: Known, again: str = "try again") -> ProblemError:
    """The problem of an error; INTERNAL if the error is not known. again: what the caller is told if the request may
    have been carried out.
    """
    kind = next((kind for each, kind in known.items() if isinstance(error, each)), INTERNAL)
    if kind is INTERNAL:
        return ProblemError(kind, "the server's log names the cause: look for this request_id")
    if kind.retry_after_s is not None:
        return ProblemError(kind, kind.again or again, cause=str(error))
    return ProblemError(kind, str(error), reason=getattr(error, "reason", ""))
