"""The words that refuse a value: its field, what is expected there, and what came.

msgspec checks what a configuration, a request and a line of a file say. Its errors speak of the types of a program, and
do not show the value. Only their place and their kind are used here; the words come from the type at that place. A type
whose form says too little to a reader has the words with it: `Meta(pattern=..., extra=words("..."))`.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import inspect

UNREAD: Final = object()
"""Used instead of a value if it is not known what came."""

_SHOWN_MAX: Final = 80
_PLACE: Final = re.compile(r" - at (`key` in )?`\$([^`]*)`$")
_STEP: Final = re.compile(r"\.([^.\[]+)|\[([0-9]+|\.\.\.)\]")
_FIELD: Final = re.compile(r"Object (missing required|contains unknown) field `(.*)`", re.DOTALL)


class Refused(NamedTuple):
    """A value that is refused. field: where it is, such as `clusters[0].name`; empty: it is the whole."""

    field: str
    said: str

    def __str__(self) -> str:
        return f"{self.field}: {self.said}" if self.field else self.said


class _Found(NamedTuple):
    """What is expected at a place, and what came."""

    field: str
    kind: inspect.Type
    value: object


def words(expected: str) -> dict[str, str]:
    """For `Meta(extra=...)`: the words that tell a reader what is expected."""
    return {"expected": expected}


def of_json(error: msgspec.ValidationError, text: bytes, into: Any) -> Refused:
    """The words for an error of decoding JSON."""
    try:
        value = msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        value = UNREAD
    return refused(error, value, into)


def refused(error: msgspec.ValidationError, value: object, into: Any, *, table: str = "an object") -> Refused:
    """The words for an error of converting `value` into the type `into`. table: the word for a value with fields."""
    text = str(error)
    place = _PLACE.search(text)
    found = _at(_Found("", _type_of(into), value), place[2] if place else "")
    if place and place[1]:
        found = _key(found)
    if error.__cause__ is not None:
        return Refused(found.field, str(error.__cause__))  # of a check of ours
    named = _FIELD.match(text[: place.start()] if place else text)
    if named is None:
        return Refused(found.field, f"expected {_expected(found.kind, table)}{_got(found.value, table)}")
    fields = _fields(found)
    field = f"{found.field}.{named[2]}" if found.field else named[2]
    if named[1].startswith("missing"):
        return Refused(field, f"expected {_expected(fields.get(named[2], inspect.AnyType()), table)}, got nothing")
    return Refused(_short(field), f"unknown; there are: {', '.join(fields)}" if fields else "unknown; there are none")


def expected(into: Any) -> str:
    """The words for what a value of a type must be, in a file with tables."""
    return _expected(_type_of(into), "a table")


def is_text(into: Any) -> bool:
    """Whether a value of a type may be any text, or a path."""
    return any(
        isinstance(each, inspect.StrType) or (isinstance(each, inspect.CustomType) and each.cls is Path)
        for each in _plain(_type_of(into))
    )


_TRUNCATED: Final = "Input data was truncated"
_MALFORMED: Final = {
    _TRUNCATED: "it ends too early",
    "Invalid UTF-8 encoded string": "it is not UTF-8",  # since msgspec 0.23; an error of its own before
}


def malformed(error: Exception, text: bytes) -> str:
    """The words for an error of decoding a text that is not JSON at all."""
    match error:
        case UnicodeDecodeError():
            return "it is not UTF-8"
        case RecursionError():
            return "it is nested too deeply"
        case _ if str(error) == _TRUNCATED and _is_whole(text):
            return r"it has one half of a surrogate pair (\ud800 to \udbff) without the other"
        case _:
            return _MALFORMED.get(str(error), str(error))


def _is_whole(text: bytes) -> bool:
    """Whether a text is JSON but for halves of surrogate pairs. msgspec says of one near the end that the end is
    missing.
    """
    try:
        json.loads(text.decode())
    except (ValueError, RecursionError):
        return False
    return True


def shown(value: object) -> str:
    """A value as a message shows it."""
    text = repr(value)
    return text if len(text) <= _SHOWN_MAX else text[: _SHOWN_MAX - 3] + "..."


def without_login(url: str) -> str:
    """A url as a message shows it: without what precedes its last `@`. A password may be there, in whatever form."""
    return re.sub(r"(:/*).*@", r"\1...@", url, count=1, flags=re.DOTALL)


# Where it is
# --------------------------------------------------------------------------------------------------------------------


@cache
def _type_of(into: Any) -> inspect.Type:
    return inspect.type_info(into)


def _at(found: _Found, path: str) -> _Found:
    """What is at the end of a path of msgspec's, such as `.catalogs[...].keep`."""
    for step in _STEP.finditer(path):
        if step[1] is not None:
            found = _field(found, step[1])
        elif step[2] == "...":
            found = _entry(found, path[step.end() :])
        else:
            found = _item(found, int(step[2]))
    return found


def _field(found: _Found, name: str) -> _Found:
    value = found.value.get(name, UNREAD) if isinstance(found.value, Mapping) else UNREAD
    field = f"{found.field}.{name}" if found.field else name
    return _Found(field, _fields(found).get(name, inspect.AnyType()), value)


def _item(found: _Found, index: int) -> _Found:
    value = found.value
    item = value[index] if isinstance(value, list) and index < len(value) else UNREAD
    kinds = [kind for each in _plain(found.kind) for kind in _items(each)[: index + 1][-1:]]
    return _Found(f"{found.field}[{index}]", kinds[0] if kinds else inspect.AnyType(), item)


def _items(kind: inspect.Type) -> Sequence[inspect.Type]:
    """The types of the items of a list, in their order. The last one is the type of all further items."""
    match kind:
        case inspect.ListType():
            return (kind.item_type,)
        case inspect.TupleType():
            return kind.item_types
        case inspect.StructType(array_like=True):
            return [field.type for field in kind.fields]
        case _:
            return ()


def _entry(found: _Found, rest: str) -> _Found:
    """An entry of a mapping. msgspec does not say its key: it is the only entry with the rest of the path, if any."""
    kinds = [each.value_type for each in _plain(found.kind) if isinstance(each, inspect.DictType)]
    kind = kinds[0] if kinds else inspect.AnyType()
    entries = found.value.items() if isinstance(found.value, Mapping) else ()
    having = [
        each
        for each in (_Found(f"{found.field}.{key}", kind, value) for key, value in entries)
        if _at(each, rest).value is not UNREAD
    ]
    return having[0] if len(having) == 1 else _Found(f"{found.field}.*", kind, UNREAD)


def _key(found: _Found) -> _Found:
    """The key of a mapping that does not have the form that keys must have."""
    kinds = [each.key_type for each in _plain(found.kind) if isinstance(each, inspect.DictType)]
    kind = kinds[0] if kinds else inspect.AnyType()
    keys = found.value if isinstance(found.value, Mapping) else ()
    [form] = [each.pattern for each in _plain(kind) if isinstance(each, inspect.StrType)] or [None]
    return _Found(found.field, kind, next((key for key in keys if form and not re.search(form, key)), UNREAD))


def _plain(kind: inspect.Type) -> Iterator[inspect.Type]:
    """The types that a value may have at a place."""
    if isinstance(kind, inspect.Metadata):
        yield from _plain(kind.type)
    elif isinstance(kind, inspect.UnionType):
        for each in kind.types:
            yield from _plain(each)
    else:
        yield kind


def _fields(found: _Found) -> dict[str, inspect.Type]:
    """The types of the fields at a place, by name."""
    structs = [each for each in _plain(found.kind) if isinstance(each, inspect.StructType)]
    fields: dict[str, inspect.Type] = {}
    tags: dict[str, list[Any]] = {}
    for each in structs:
        if each.tag_field is not None:
            tags.setdefault(each.tag_field, []).append(each.tag)
            if isinstance(found.value, Mapping) and found.value.get(each.tag_field) != each.tag:
                continue
        fields |= {field.encode_name: field.type for field in each.fields}
    return {name: inspect.LiteralType(tuple(values)) for name, values in tags.items()} | fields


# What is said
# --------------------------------------------------------------------------------------------------------------------


def _expected(kind: inspect.Type, table: str) -> str:  # noqa: C901, PLR0911, PLR0912 - one line for each type
    match kind:
        case inspect.Metadata(extra={"expected": expected}):
            return str(expected)
        case inspect.Metadata():
            return _expected(kind.type, table)
        case inspect.UnionType():
            some = (_expected(each, table) for each in kind.types if not isinstance(each, inspect.NoneType))
            return _or(dict.fromkeys(some))
        case inspect.LiteralType():
            return _or(map(repr, kind.values))
        case inspect.BoolType():
            return "true or false"
        case inspect.IntType() | inspect.FloatType():
            least = kind.ge if kind.gt is None else kind.gt + 1
            most = kind.le if kind.lt is None else kind.lt - 1
            return ("a whole number" if isinstance(kind, inspect.IntType) else "a number") + _bounds("", least, most)
        case inspect.StrType():
            if kind.pattern is not None:
                return f"text that matches {kind.pattern}"
            return "text" + _bounds("characters", kind.min_length, kind.max_length)
        case inspect.ListType():
            return "a list" + _bounds("values", kind.min_length, kind.max_length)
        case inspect.DictType():
            return table + _bounds("entries", kind.min_length, kind.max_length)
        case inspect.StructType():
            return table
        case inspect.BytesType():
            return "base64"
        case inspect.DateTimeType():
            return "a date and time with an offset, such as 2027-01-31T12:00:00Z"
        case _:
            return "a value"


def _or(some: Iterable[str]) -> str:
    *others, last = some
    return f"{', '.join(others)} or {last}" if others else last


def _bounds(of: str, least: float | None, most: float | None) -> str:
    """of: what is counted; empty: the number itself is bounded."""
    tail = f" {of}" if of else ""
    if least is not None and most is not None:
        return f" {'of' if of else 'from'} {_number(least)} to {_number(most)}{tail}"
    if least is not None:
        return f" of at least {_number(least)}{tail}"
    return "" if most is None else f" of at most {_number(most)}{tail}"


def _number(bound: float) -> str:
    return str(int(bound)) if bound == int(bound) else str(bound)


def _got(value: object, table: str) -> str:
    if value is UNREAD:
        return ""
    return f", got {_what(value, table)}"


def _what(value: object, table: str) -> str:  # noqa: PLR0911 - one line for each type
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case Mapping():
            return table
        case list():
            return f"a list of {len(value)}"
        case str() if "://" in value:
            return "a url"  # it is not shown: there may be a password in it
        case str() if len(value) > _SHOWN_MAX:
            return f"{shown(value)} of {len(value)} characters"
        case _:
            return shown(value)


def _short(field: str) -> str:
    return field if len(field) <= 2 * _SHOWN_MAX else field[: 2 * _SHOWN_MAX - 3] + "..."
