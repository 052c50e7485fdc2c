"""The parts of sections of the configuration. Each room declares the section that it reads; `app` hands them out."""

import re
from pathlib import Path
from typing import Any, ClassVar, Final

import msgspec

_UNITS_BYTES: Final = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def _key(field: str) -> str:
    """The key of a field: its value names the unit."""
    return re.sub("_(ms|bytes)$", "", field)


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename=_key):
    """A table of `feed.toml`. Its keys are its fields without their units; any other key is refused."""


class Ms(int):
    """Milliseconds that are written as a duration: a number and one of ms, s, m, h, d. most_ms: more is refused;
    the operating system cannot wait for longer than 292 years.
    """

    most_ms: ClassVar[int] = 100_000 * _UNITS_MS["d"]


# A wait that is far too long looks like a process that hangs. So each has a bound, far above what anybody needs, and
# `feedctl check` warns of values below it that are unwise. Ages have none: nothing waits until they are over.


class MsTo100ms(Ms):
    most_ms = 100


class MsTo5m(Ms):
    most_ms = 5 * _UNITS_MS["m"]


class MsTo1h(Ms):
    most_ms = _UNITS_MS["h"]


class MsTo90d(Ms):
    most_ms = 90 * _UNITS_MS["d"]


def duration_ms(text: str, kind: type[Ms] = Ms) -> Ms:
    """Reads a duration. Raises ValueError."""
    match = re.fullmatch(r"([1-9][0-9]{0,9})\s*(ms|s|m|h|d)", text)
    if match is None:
        if re.fullmatch(r"0+\s*(ms|s|m|h|d)", text):
            raise ValueError(f"expected a duration that is longer than 0, got {text!r}")
        raise ValueError(f"expected a duration such as '500ms', '90s' or '2d', got {text!r}")
    ms = kind(int(match[1]) * _UNITS_MS[match[2]])
    if ms > kind.most_ms:
        raise ValueError(f"expected a duration of {duration_text(kind.most_ms)} at most, got {text!r}")
    return ms


def duration_text(ms: int) -> str:
    """Writes milliseconds as `duration_ms` reads them, in the largest unit that is exact."""
    unit = next(each for each in reversed(_UNITS_MS) if ms % _UNITS_MS[each] == 0)
    return f"{ms // _UNITS_MS[unit]}{unit}"


class Bytes(int):
    """Bytes that are written as a size: a number and one of KiB, MiB, GiB."""


def size_bytes(text: str) -> Bytes:
    """Reads a size. Raises ValueError."""
    match = re.fullmatch(r"([1-9][0-9]{0,5})\s*(KiB|MiB|GiB)", text)
    if match is None:
        raise ValueError(f"expected a size such as '512KiB' or '64MiB', got {text!r}")
    return Bytes(int(match[1]) * _UNITS_BYTES[match[2]])


def decoded(kind: type[Any], value: object) -> Any:
    """The value of a type of this module, for `msgspec.convert`. Raises ValueError."""
    if issubclass(kind, Ms):
        return duration_ms(str(value), kind)
    if kind is Bytes:
        return size_bytes(str(value))
    if kind is not Path:
        raise NotImplementedError(kind)
    if not isinstance(value, str) or "\0" in value:
        raise ValueError(f"expected a path, got {value!r}")
    return Path(value)
