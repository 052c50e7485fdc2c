"""drill: loaded from where the drills are (`deploy/drills`): machines that serve or work do not need them."""

from importlib.metadata import entry_points

import click

from workers.cli.session import MisusedError

NAME = "drill"
ENTRY_POINTS = "feedctl.commands"
"""The group of entry points in `pyproject.toml`."""

_WANTED = "drills need a checkout of the project, and there: pip install --editable '.[drills]'"


def command() -> click.Command:
    """The command; if the drills are not installed, one that says what to install."""
    wanted = _WANTED
    for found in entry_points(group=ENTRY_POINTS, name=NAME):
        try:
            loaded: click.Command = found.load()
        except ImportError as error:
            wanted = f"{_WANTED} ({error})"
        else:
            return loaded
    return _missing(wanted)


def _missing(wanted: str) -> click.Command:
    @click.command(NAME, context_settings={"ignore_unknown_options": True})
    @click.argument("words", nargs=-1)
    def missing(words: tuple[str, ...]) -> None:  # noqa: ARG001 - whatever is asked for
        """Faults on purpose; not installed here.

        \b
        Examples:
          feedctl drill list
        """
        raise MisusedError(wanted)

    return missing


drill = command()
