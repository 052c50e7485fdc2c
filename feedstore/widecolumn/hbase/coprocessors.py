"""Coprocessors as HBase attaches them to a table: attributes `coprocessor$1`, `coprocessor$2`, ..., each with the text
`jar|class|priority|name=value,...`. Pure.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

_KEY = re.compile(r"coprocessor\$([0-9]+)", re.IGNORECASE)


@dataclass(frozen=True)
class CoprocessorSpec:
    """An attached coprocessor. jar: where it is; empty: on the servers' class path. arguments: what it is given."""

    jar: str
    class_name: str
    priority: str
    arguments: Mapping[str, str]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Takes whatever HBase may hold: what does not fit reads as an empty class or an empty value."""
        jar, class_name, priority, arguments = (*(each.strip() for each in text.split("|", 3)), "", "", "")[:4]
        pairs = (each.partition("=") for each in arguments.split(",") if each)
        return cls(jar, class_name, priority, {name.strip(): value.strip() for name, _, value in pairs})

    def __str__(self) -> str:
        arguments = ",".join(f"{name}={value}" for name, value in self.arguments.items())
        return f"{self.jar}|{self.class_name}|{self.priority}|{arguments}"

    def number(self, argument: str) -> int | None:
        """The value of an argument that is a whole number; None if it is missing, or not a whole number."""
        text = self.arguments.get(argument, "")
        return int(text) if text.isascii() and text.isdecimal() else None

    def parts(self) -> dict[str, str]:
        """Its parts by name, without the class."""
        return {"jar": self.jar, "priority": self.priority, **self.arguments}


def attached(settings: Mapping[str, str]) -> dict[str, CoprocessorSpec]:
    """The coprocessors among the settings of a table, by their keys, in the order of their numbers."""
    numbers = {key: int(match[1]) for key in settings if (match := _KEY.fullmatch(key))}
    return {key: CoprocessorSpec.parse(settings[key]) for key in sorted(numbers, key=numbers.__getitem__)}


def free_key(settings: Mapping[str, str]) -> str:
    """A key that is free for one more coprocessor."""
    taken = [int(match[1]) for key in settings if (match := _KEY.fullmatch(key))]
    return f"coprocessor${max(taken, default=0) + 1}"
