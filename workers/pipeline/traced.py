"""Handlers whose calls are lots of a trace."""

from collections.abc import Callable, Mapping, Sequence
from typing import Concatenate, ParamSpec, TypeVar

from feedstore.tracing import UNTRACED, Context, Key, Kind, Tracer, Value

Body = TypeVar("Body")
Result = TypeVar("Result")
More = ParamSpec("More")


def in_lots(
    tracer: Tracer,
    name: str,
    attributes: Mapping[str, Value],
    contexts: Callable[[Sequence[Body]], Mapping[Key, Context]],
    handle: Callable[Concatenate[Sequence[Body], More], Result],
    kind: Kind = "consumer",
) -> Callable[Concatenate[Sequence[Body], More], Result]:
    """A handler whose every call is a lot of a trace. contexts: returns the contexts that bodies carry. If traces are
    off, it is the handler itself.
    """
    if tracer is UNTRACED:
        return handle

    def handle_lot(bodies: Sequence[Body], /, *args: More.args, **kwargs: More.kwargs) -> Result:
        with tracer.lot(name, contexts(bodies), len(bodies), attributes, kind=kind):
            return handle(bodies, *args, **kwargs)

    return handle_lot
