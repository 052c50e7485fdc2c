"""Commands in the pages of alerts are ones that feedctl takes, as they are printed."""

import re
import shlex
from pathlib import Path

import click
import pytest

from workers.cli import main

ALERTS = Path(__file__).resolve().parents[2] / "docs" / "runbooks" / "alerts"
FILLED = {"ID": "7", "NAME": "a", "PID": "7"}


def commands(page: Path) -> list[str]:
    text = re.sub(r"\s+", " ", page.read_text(encoding="utf-8"))
    return re.findall(r"`(feedctl [^`]*)`", text) + re.findall(
        r"^ *(feedctl .*)$", page.read_text(encoding="utf-8"), re.MULTILINE
    )


def taken(words: list[str]) -> None:
    """Raises UsageError: feedctl would refuse them."""
    command: click.Command = main
    context = click.Context(main, info_name="feedctl")
    while isinstance(command, click.Group):
        name, found, words = command.resolve_command(context, words)
        assert found is not None
        command = found
        context = click.Context(command, info_name=name, parent=context)
    command.parse_args(context, words)


@pytest.mark.parametrize("page", sorted(ALERTS.glob("*.md")), ids=lambda page: page.stem)
def test_each_command_is_taken_as_it_is_printed(page: Path) -> None:
    for each in commands(page):
        words = [FILLED.get(word, word) for word in shlex.split(each)[1:]]
        if "--help" not in words:
            taken(words)


def test_a_command_that_lacks_something_is_found() -> None:
    with pytest.raises(click.UsageError):
        taken(["table", "regions"])
    with pytest.raises(click.UsageError):
        taken(["tabel"])
