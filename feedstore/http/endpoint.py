"""The endpoints of a server: the rows of a table, from which the routes and the OpenAPI document are made."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

import msgspec

from feedstore.http.incoming import BODY_BYTES_MAX
from feedstore.http.tokens import Scope

Method = Literal["GET", "POST", "DELETE"]
A = TypeVar("A")
Q = TypeVar("Q", bound=msgspec.Struct)
B = TypeVar("B")


class Asked(msgspec.Struct, Generic[Q, B], frozen=True):
    """A request whose form is right. ids: by their names in the path. key: for idempotency. deadline_s: of
    the server's clock. words: what else the path says, by name: any text.
    """

    ids: Mapping[str, int]
    query: Q
    body: B
    key: str | None
    deadline_s: float
    words: Mapping[str, str] = {}


@dataclass(frozen=True)
class Endpoint(Generic[A, Q, B]):
    """One row of the table of what can be asked.

    name: names it in metrics and logs, and as the operation of the OpenAPI document. body: None if there is none.
    call: is given what the endpoints of its server work on.
    examples: of the ids in the path, in their order. is_page: says by the query whether it reads a few lines of one
    cluster and nothing else. takes_key: whether an Idempotency-Key means something to it; of those that write. words:
    examples of what is no id in the path, as `examples`. body_bytes_max: how large its body may be. is_bounded: says by
    the query whether it asks clusters and catalogs, and whatever else for no longer than its time: so it ends by then.
    """

    name: str
    method: Method
    path: str
    scope: Scope
    summary: str
    query: type[Q]
    body: type[B] | None
    answer: type[msgspec.Struct]
    call: Callable[[A, Asked[Q, B]], msgspec.Struct]
    answer_example: msgspec.Struct
    body_example: Mapping[str, object] | None = None
    is_page: Callable[[Q], bool] = lambda _: False
    examples: Mapping[str, str] = field(default_factory=dict)
    takes_key: bool = True
    words: Mapping[str, str] = field(default_factory=dict)
    body_bytes_max: int = BODY_BYTES_MAX
    is_bounded: Callable[[Q], bool] = lambda _: False

    @property
    def again(self) -> str:
        """What a caller does that has no answer."""
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
