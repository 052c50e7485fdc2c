"""docs/configuration.md, made from the types of the sections and from the comments on their keys."""

import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Final, NamedTuple, Union, get_args, get_origin

import msgspec

from feedstore import validation
from feedstore.app import config
from feedstore.settings import Bytes, Ms, duration_text

_HEAD: Final = """\
# Configuration

Every key of `feed.toml`, and the variable of the environment that overrides it. `make schemas` writes this page from
the code: do not edit it. `feedctl check` checks the file and the variables of a home. A process reads both once, when
it starts.

| | |
|---|---|
| a duration | a number and one of `ms`, `s`, `m`, `h`, `d`, longer than 0: `"90s"` |
| a size | a number and one of `KiB`, `MiB`, `GiB`: `"64MiB"` |
| a path | from the home, unless it begins with `/` |
| a variable | comes before the file. It is a value of TOML; quotes may be left out: `FEED_LIMITS_ACTION_AGE=12h` |
| the column *init* | whether the file that `feedctl init` makes has the key: yes, as a comment, or no |
| what is not known | an unknown key, section or variable `FEED_...` is [refused](operating.md#the-environment) |
"""


def _forms(schemes: Mapping[Any, str]) -> str:
    return " or ".join(f"`{form}`" for form in schemes.values())


_TITLES: Final = {"clusters": "[[clusters]]", "catalogs": "[catalogs.NAME]"}
"""Of the sections that a file may have several of. No variable overrides their keys."""

_NOTES: Final = {
    "feed": "[Another cap](operating.md#feeds-grow-beyond-their-cap) takes more than the file.",
    "limits": "Why the ages are bounded: [rule 8](rules.md#8-nothing-too-old-is-applied).",
    "clusters": f"1 to 16, in the order in which readers prefer them. A url is {_forms(config.CLUSTERS)}:"
    " [its options](servers.md#on-servers-of-your-own).",
    "serving": "[Which cluster serves the pages](operating.md#which-cluster-serves-the-pages).",
    "http": "[Tokens](http.md#tokens), [cursors](http.md#cursors), [bounds](http.md#bounds).",
    "follows": f"A url is {_forms(config.FOLLOWS)}: [its options](servers.md#the-follow-store-in-mysql).",
    "queue": f"A url is {_forms(config.QUEUES)}: [its options](servers.md#topics-of-kafka).",
    "hbase": "[What no gateway does](servers.md#what-no-gateway-does).",
    "catalogs": "The catalog `pins` is made of the follow store, any other of files: [the catalog](catalog.md).",
    "worker": "[Canaries](operating.md#canaries).",
    "metrics": "[Metrics](operating.md#metrics). `--metrics` of a command comes before `listen`.",
    "traces": "[Traces](traces.md).",
}

_OF_OTHERS: Final = {
    "OTEL_EXPORTER_OTLP_HEADERS": "headers for the receiver of traces, as OpenTelemetry reads it: a secret goes here",
    "JAVA_HOME": "whose `java` runs `feedctl table`; else the path's",
    "NO_COLOR": "no colours in logs at a terminal",
}
"""Variables that are not ours."""


class Comments(NamedTuple):
    """What a text in the form of `feed.toml` says of keys, each as (section, key). meanings: their comments. values: as
    they are written. active: keys that are not commented out.
    """

    meanings: dict[tuple[str, str], str]
    values: dict[tuple[str, str], str]
    active: set[tuple[str, str]]


def page() -> str:
    """The text of docs/configuration.md. Raises ValueError: a key has no comment."""
    written, rest = comments(config.DEFAULT), comments(config.REST)
    return "\n".join([_HEAD, *(_section(name, keys, written, rest) for name, keys in sections()), _variables()])


def sections() -> list[tuple[str, tuple[msgspec.structs.FieldInfo, ...]]]:
    """The sections of a `feed.toml` with their keys."""
    return [(each.name, msgspec.structs.fields(_struct(each.type))) for each in msgspec.structs.fields(config.FeedToml)]


def comments(text: str) -> Comments:
    """Reads such a text. Of a key that comes several times, the first counts."""
    found = Comments({}, {}, set())
    section = ""
    for line in text.splitlines():
        if begins := re.match(r"(?:# )?\[+([a-z]+)", line):
            section = begins[1]
        elif says := re.match(r"(# )?([a-z_]+) = (.*?)(?:\s+# (.*))?$", line):
            key = section, says[2]
            found.values.setdefault(key, says[3])
            if says[4]:
                found.meanings.setdefault(key, says[4])
            if not says[1]:
                found.active.add(key)
    return found


def _section(name: str, keys: Iterable[msgspec.structs.FieldInfo], written: Comments, rest: Comments) -> str:
    note = textwrap.fill(_NOTES[name], 120, break_long_words=False, break_on_hyphens=False)
    rows = "\n".join(_row(name, key, written, rest) for key in keys)
    return (
        f"## {_TITLES.get(name, f'[{name}]')}\n{note}\n\n"
        f"| key | value | default | init | variable | meaning |\n|---|---|---|---|---|---|\n{rows}\n"
    )


def _row(section: str, key: msgspec.structs.FieldInfo, written: Comments, rest: Comments) -> str:
    name = key.encode_name
    at = section, name
    meaning = written.meanings.get(at) or rest.meanings.get(at)
    if meaning is None:
        raise ValueError(f"[{section}] {name}: expected a comment in DEFAULT or REST of feedstore/app/config.py")
    value = written.values.get(at) or rest.values[at]
    if key.required:
        default = f"must be given; init writes `{value}`" if at in written.active else "must be given"
    elif key.default is None:
        default = f"none; such as `{value}`"
    else:
        default = f"`{value}`"
    init = "yes" if at in written.active else "as a comment" if at in written.values else "no"
    variable = config.variable(section, name)
    by = f"`{variable}`" if variable else ""
    return f"| `{name}` | {_expected(key.type)} | {default} | {init} | {by} | {meaning} |"


def _struct(kind: Any) -> Any:
    """The type of a section, of which there may be a list or a table."""
    for each in (kind, *_parts(kind)):
        if isinstance(each, type) and issubclass(each, msgspec.Struct):
            return each
    raise NotImplementedError(kind)


def _parts(kind: Any) -> Iterator[Any]:
    for each in get_args(kind):
        yield each
        yield from _parts(each)


def _expected(kind: Any) -> str:
    if get_origin(kind) in (Union, UnionType):
        [kind] = [each for each in get_args(kind) if each is not NoneType]
    if not isinstance(kind, type):
        return validation.expected(kind)
    if issubclass(kind, Ms):
        return f"a duration up to {duration_text(kind.most_ms)}"
    if issubclass(kind, Bytes):
        return "a size"
    return "a path" if issubclass(kind, Path) else validation.expected(kind)


def _variables() -> str:
    rows = "\n".join(f"| `{name}` | {meaning} |" for name, meaning in {**config.OTHERS, **_OF_OTHERS}.items())
    return f"## Other variables\nThey override no key.\n\n| variable | meaning |\n|---|---|\n{rows}\n"
