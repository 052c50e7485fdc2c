"""Reads a request into the types that an endpoint asks for. Raises ProblemError if anything is wrong with it."""

import json
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
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
"""The most bytes of a body, unless its endpoint says otherwise."""
REFUSED: Final = "feedstore.refused"
"""The key, in the state of a request's scope, of the ProblemError because of which the rest of its body is not read."""
REQUEST_ID: Final = "feedstore.request_id"
"""The key, in a request's scope, of its id, if that was chosen before the application got the request."""
_PARAMETERS_MAX: Final = 16


class Incoming(msgspec.Struct, frozen=True):
    """A request as it came. headers: by name, the last of each. path: the variable parts of its path, by name."""

    scope: Scope
    receive: Receive
    headers: Mapping[bytes, bytes]
    path: Mapping[str, str]


def ids(path: Mapping[str, str]) -> dict[str, int]:
    try:
        return {name: id_of(name, text) for name, text in path.items()}
    except InvalidValueError as error:
        raise problems.of(error, problems.KNOWN) from error


@lru_cache(maxsize=256)
def query(text: bytes, into: type[Any]) -> Any:
    """The decoded query. A parameter may occur at most once; unknown ones are refused. The result is cached, as most
    first pages have the same query; that is safe because it is frozen.
    """
    found: dict[str, str] = {}
    for pair in text.split(b"&", _PARAMETERS_MAX) if text else ():
        name, given, value = pair.partition(b"=")
        if not given:
            raise ProblemError(problems.INVALID_VALUE, "the query: expected the form name=value&name=value")
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
        raise ProblemError(problems.NOT_JSON, "send the body uncompressed, without a Content-Encoding")
    raw = await _bytes(request, bytes_max)
    try:
        found = decoder.decode(raw)
    except msgspec.ValidationError as error:
        raise ProblemError(
            problems.INVALID_VALUE, f"the body: {validation.of_json(error, raw, decoder.type)}"
        ) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ProblemError(problems.MALFORMED_JSON, f"the body: {validation.malformed(error, raw)}") from error
    # msgspec takes the last of several. To look costs some microseconds, but for the largest bodies, lists of keys and
    # updates of a catalog, it would hold up all other requests for a tenth of a second: these are not looked at.
    if raw.count(b":") > 1 and len(raw) <= BODY_BYTES_MAX:
        with suppress(ValueError, RecursionError):  # a record of a catalog is checked where it is posted
            _names_once.decode(raw.decode())
    return found


def _refuse_twice(members: list[tuple[str, Any]]) -> None:
    names = [name for name, _ in members]
    if len({*names}) < len(names):
        # Not by a search for each: a record may have thousands of names, and all other requests would wait.
        [(twice, _)] = Counter(names).most_common(1)
        raise ProblemError(problems.INVALID_VALUE, f"the body: {twice[:80]} is given twice")


_names_once: Final = json.JSONDecoder(object_pairs_hook=_refuse_twice, parse_int=str, parse_float=str)


async def _bytes(request: Incoming, bytes_max: int) -> bytes:
    announced = request.headers.get(b"content-length", b"0")
    if announced.isdigit() and int(announced[:20]) > bytes_max:
        raise _too_large(bytes_max)
    raw = b""
    more = True
    while more:
        message = await request.receive()
        if REFUSED in request.scope["state"]:
            # Not assigned to a local name: the traceback of the error refers to this frame, which would then refer to
            # the error.
            raise request.scope["state"].pop(REFUSED)
        if message["type"] == "http.disconnect":
            raise ProblemError(problems.MALFORMED_REQUEST, "the client disconnected")
        raw += message["body"]
        more = message["more_body"]
        if len(raw) > bytes_max:
            raise _too_large(bytes_max)
    return raw


def _too_large(bytes_max: int) -> ProblemError:
    return ProblemError(problems.TOO_LARGE, f"the body has at most {bytes_max} bytes here")
