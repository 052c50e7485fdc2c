"""Reads a request into what an endpoint asks for. Whatever is wrong with it is a ProblemError."""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final
from urllib.parse import unquote_to_bytes

import msgspec
from starlette.types import Receive, Scope

from feedstore import validation
from feedstore.domain import InvalidValueError, id_of
from feedstore.http import problems
from feedstore.http.problems import ProblemError

BODY_BYTES_MAX: Final = 16_384
"""Of a body, unless its endpoint says otherwise."""
REFUSED: Final = "feedstore.refused"
"""In the state of a request's scope: the ProblemError for which the rest of its body is not read."""
REQUEST_ID: Final = "feedstore.request_id"
"""In a request's scope: by what it is known, if that was decided before the application got it."""
_PARAMETERS_MAX: Final = 16
_sane_request_id = re.compile(rb"[A-Za-z0-9._:-]{1,64}").fullmatch


class Incoming(msgspec.Struct, frozen=True):
    """A request as it came. headers: by name, the last of each. path: what its path says, by name. began_s: when, of
    the server's clock.
    """

    scope: Scope
    receive: Receive
    headers: Mapping[bytes, bytes]
    path: Mapping[str, str]
    began_s: float


def request_id(given: bytes) -> str | None:
    """An id that a caller gave, where it is fit for a log."""
    return given.decode() if _sane_request_id(given) is not None else None


def ids(path: Mapping[str, str]) -> dict[str, int]:
    try:
        return {name: id_of(name, text) for name, text in path.items()}
    except InvalidValueError as error:
        raise problems.of(error, problems.KNOWN) from error


@lru_cache(maxsize=256)
def query(text: bytes, into: type[Any]) -> Any:
    """The query, each parameter at most once, and none that is not known. Its values are frozen: most first pages ask
    for the same.
    """
    found: dict[str, str] = {}
    for pair in text.split(b"&", _PARAMETERS_MAX) if text else ():
        name, given, value = pair.partition(b"=")
        if not given:
            raise ProblemError(problems.INVALID_VALUE, "the query: expected name=value&name=value")
        known = _unquoted(name)
        if known in found:
            raise ProblemError(problems.INVALID_VALUE, f"the query: {known[:80]} is given twice")
        found[known] = _unquoted(value)
    try:
        return msgspec.convert(found, into, strict=False)
    except msgspec.ValidationError as error:
        raise ProblemError(problems.INVALID_VALUE, f"the query: {validation.refused(error, found, into)}") from error


def _unquoted(text: bytes) -> str:
    try:
        if b"%" in text or b"+" in text:
            return unquote_to_bytes(text.replace(b"+", b" ")).decode()
        return text.decode("ascii")
    except UnicodeDecodeError as error:
        raise ProblemError(problems.INVALID_VALUE, "the query: expected UTF-8, percent-encoded") from error


async def body(request: Incoming, decoder: "msgspec.json.Decoder[Any]", bytes_max: int) -> Any:
    if request.headers.get(b"content-type", b"").partition(b";")[0].strip().lower() != b"application/json":
        raise ProblemError(problems.NOT_JSON, "send Content-Type: application/json")
    if request.headers.get(b"content-encoding", b"identity").strip().lower() != b"identity":
        raise ProblemError(problems.NOT_JSON, "send the body as it is, without a Content-Encoding")
    raw = await _bytes(request, bytes_max)
    try:
        return decoder.decode(raw)
    except msgspec.ValidationError as error:
        raise ProblemError(
            problems.INVALID_VALUE, f"the body: {validation.of_json(error, raw, decoder.type)}"
        ) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ProblemError(problems.MALFORMED_JSON, f"the body: {validation.malformed(error)}") from error


async def _bytes(request: Incoming, bytes_max: int) -> bytes:
    announced = request.headers.get(b"content-length", b"0")
    if announced.isdigit() and int(announced[:20]) > bytes_max:
        raise _too_large(bytes_max)
    raw = b""
    more = True
    while more:
        message = await request.receive()
        if REFUSED in request.scope["state"]:
            # Not by a name of its own here: its traceback would hold this frame, which held it.
            raise request.scope["state"].pop(REFUSED)
        if message["type"] == "http.disconnect":
            raise ProblemError(problems.MALFORMED_REQUEST, "the client disconnected")
        raw += message["body"]
        more = message["more_body"]
        if len(raw) > bytes_max:
            raise _too_large(bytes_max)
    return raw


def _too_large(bytes_max: int) -> ProblemError:
    return ProblemError(problems.TOO_LARGE, f"at most {bytes_max} bytes")
