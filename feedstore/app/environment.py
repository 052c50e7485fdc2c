"""The variables `FEED_...` of the environment: which exist, what they override, and where a wrong value comes from."""

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_PREFIX: Final = "FEED_"
_OTHERS: Final = (
    "FEED_HOME",
    "FEED_CURSOR_KEY",
    "FEED_KAFKA_PASSWORD",
    "FEED_KAFKA_KEY_PASSWORD",
    "FEED_MYSQL_PASSWORD",
    "FEED_RESTART_S",
    "FEED_SITES",
)
"""Variables that override no key: secrets, the home, and what the images of the Docker clusters read."""
_OTHER_PREFIXES: Final = ("FEED_CLUSTER_", "FEED_TEST_", "FEED_WEB_")
"""Variables of the tools around this program begin with one of these."""


class UnknownVariableError(Exception):
    """A variable that nothing reads. The message names it, and the most similar known name."""


@dataclass(frozen=True)
class Sources:
    """Tells where the value of a key comes from. path: of `feed.toml`. variables: by the keys that they override."""

    path: Path
    variables: Mapping[str, str]

    def blamed(self, *keys: str) -> str:
        """Begins an error about some keys, such as `feed.cap`: the variables that override them, or else the file."""
        names = [self.variables[key] for key in keys if key in self.variables]
        return f"the environment's {' or '.join(names)}" if names else str(self.path)


def overridden(
    raw: dict[str, object], path: Path, keys: Mapping[str, Iterable[str]], environ: Mapping[str, str]
) -> Sources:
    """Puts the values of the environment into the tables of a `feed.toml`. keys: of each section.

    Raises UnknownVariableError.
    """
    names = {f"{_PREFIX}{section}_{key}".upper(): (section, key) for section, some in keys.items() for key in some}
    variables: dict[str, str] = {}
    for name, text in environ.items():
        if not name.startswith(_PREFIX):
            continue
        if name.upper() not in names:
            _refuse_unknown(name, names)
            continue
        section, key = names[name.upper()]
        values = raw.setdefault(section, {})
        if isinstance(values, dict):
            values[key] = _value(text)
            variables[f"{section}.{key}"] = name
    return Sources(path, variables)


def _refuse_unknown(name: str, names: Iterable[str]) -> None:
    if name in _OTHERS or name.startswith(_OTHER_PREFIXES):
        return
    near = difflib.get_close_matches(name, [*names, *_OTHERS], n=1, cutoff=0.7)
    rather = f"; the nearest that there is: {near[0]}" if near else ""
    raise UnknownVariableError(f"the environment's {name}: nothing reads this variable{rather}; rename it or unset it")


def _value(text: str) -> object:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text  # a bare word is text: FEED_LIMITS_ACTION_AGE=12h
