"""The endpoints of a server: the rows of a table, from which the routes and the OpenAPI document are made."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import NoneType
from typing import Any, Generic, Literal, TypeVar, get_args, get_type_hints

import msgspec

from feedstore.http.incoming import BODY_BYTES_MAX
from feedstore.http.tokens import Scope

Method = Literal["GET", "POST", "DELETE"]
A = TypeVar("A")
Q = TypeVar("Q", bound=msgspec.Struct)
B = TypeVar("B")


class Asked(msgspec.Struct, Generic[Q, B], frozen=True):
    """A request that was checked for its form.

    ids: the ids in the path, by name. words: the other variable parts of the path, by name; they may be any text. key:
    the Idempotency-Key. deadline_s: when the answer must be ready, in seconds of the server's clock.
    """

    ids: Mapping[str, int]
    query: Q
    body: B
    key: str | None
    deadline_s: float
    words: Mapping[str, str] = {}


@dataclass(frozen=True)
class Endpoint(Generic[A, Q, B]):
    """One row of the table of endpoints.

    name: in metrics, in logs, and as the operation in the OpenAPI document.
    call: answers a request. Its first argument is the object that the endpoints of the service work on, and its
        annotations say what the query, the body and the answer are.
    body_bytes_max: how large the body may be.
    examples: an example of each id in the path, by name, in the order of the path. words: the same for its other
        variable parts.
    takes_key: if the scope is `write`, whether an Idempotency-Key has an effect.
    is_page: whether a request with this query reads a few lines of one cluster, and nothing else.
    is_bounded: whether everything that its requests wait for ends by the deadline. They have threads of their own.
    is_look: whether it reports the state of the system. Such requests have threads of their own, too: they matter most
        while everything else hangs.
    """

    name: str
    method: Method
    path: str
    scope: Scope
    summary: str
    call: Callable[[A, Asked[Q, B]], msgspec.Struct]
    answer_example: msgspec.Struct
    body_example: Mapping[str, object] | None = None
    is_page: Callable[[Q], bool] = lambda _: False
    examples: Mapping[str, str] = field(default_factory=dict)
    takes_key: bool = True
    words: Mapping[str, str] = field(default_factory=dict)
    body_bytes_max: int = BODY_BYTES_MAX
    is_bounded: bool = False
    is_look: bool = False

    @cached_property
    def query(self) -> type[Q]:
        query: type[Q]
        query, _ = get_args(self._annotations["asked"])
        return query

    @cached_property
    def body(self) -> type[B] | None:
        """The type of the body; None if there is none."""
        _, body = get_args(self._annotations["asked"])
        return None if body is NoneType else body

    @cached_property
    def answer(self) -> type[msgspec.Struct]:
        answer: type[msgspec.Struct] = self._annotations["return"]
        return answer

    @property
    def _annotations(self) -> Mapping[str, Any]:
        return get_type_hints(self.call)

    @property
    def again(self) -> str:
        """What a caller that got no answer may do."""
        if self.method == "GET":
            return "try again"
        if self.scope == "write" and self.takes_key:
            return "the action may have been recorded or not: try again with the same Idempotency-Key"
        return "it may have been done or not: send the same request again, which is harmless"


@dataclass(frozen=True)
class Part(Generic[A]):
    """The endpoints of one service. api: the object that they work on."""

    api: A
    endpoints: Sequence[Endpoint[A, Any, Any]]
