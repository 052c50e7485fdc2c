"""Commands in all pages are ones that feedctl takes: in blocks of code and in pages of alerts as they are printed, in
other sentences as far as they are named.
"""

import itertools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from workers.cli import main

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
ALERTS = ROOT / "docs" / "runbooks" / "alerts"
FENCED = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
FILLED = dict.fromkeys(("BOARD", "ID", "MS", "PID", "PIN", "USER"), "7") | {"NAME": "a"}
PUNCTUATION = frozenset(";&|()")


def inline(text: str) -> Iterator[list[str]]:
    """The commands in sentences and tables. `dead list|drop` is two."""
    for each in re.findall(r"`(feedctl [^`]*)`", re.sub(r"\s+", " ", FENCED.sub("", text))):
        yield from map(list, itertools.product(*(word.split("|") for word in shlex.split(each)[1:])))


def printed(text: str) -> Iterator[list[str]]:
    """The commands in blocks for a shell."""
    for language, block in FENCED.findall(text):
        if language != "sh":
            continue
        for line in block.replace("\\\n", " ").splitlines():
            if "feedctl" not in line:
                continue
            words = shlex.shlex(line, posix=True, punctuation_chars=True)
            words.whitespace_split = True
            for is_between, some in itertools.groupby(words, PUNCTUATION.issuperset):
                command = list(some)
                if not is_between and command[0].rpartition("/")[2] == "feedctl":
                    yield command[1:]


def taken(words: list[str]) -> None:
    """Raises UsageError: feedctl would refuse them."""
    words = [FILLED.get(word, word) for word in words]
    while words[0] == "--home":
        del words[:2]
    if words[0] == "--version" or "--help" in words:
        return
    command: click.Command = main
    context = click.Context(main, info_name="feedctl")
    while isinstance(command, click.Group):
        if not words:
            raise click.MissingParameter("a command of the group", ctx=context, param_type="argument")
        name, found, words = command.resolve_command(context, words)
        assert found is not None
        command = found
        context = click.Context(command, info_name=name, parent=context)
    command.parse_args(context, words)


def named(words: list[str]) -> None:
    """The same, but what they need may be missing: `feedctl replay`, `feedctl work --wait`."""
    try:
        taken(words)
    except click.MissingParameter:
        pass
    except click.BadOptionUsage as error:
        if not error.message.endswith("requires an argument."):
            raise


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_each_command_is_taken(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = page.read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    for words in printed(text):
        for given in (Path(word) for word in words if word.endswith((".jsonl", "/", "/drills"))):
            assert not given.is_absolute()
            given.touch() if given.suffix else given.mkdir(parents=True, exist_ok=True)
        taken(words)
    for words in inline(text):
        (taken if page.parent == ALERTS else named)(words)


def test_commands_are_found_wherever_they_are() -> None:
    page = (
        "Run `feedctl\nstatus --json`, or `feedctl dead list|drop`.\n\n"
        "```sh\nfeedctl init; .venv/bin/feedctl work &  # feedctl top\necho x | feedctl replay -\n```\n"
    )
    assert list(inline(page)) == [["status", "--json"], ["dead", "list"], ["dead", "drop"]]
    assert list(printed(page)) == [["init"], ["work"], ["replay", "-"]]


@pytest.mark.parametrize("wrong", ["tabel", "work --until", "catalog lod pins", "write --cluster a b", "feed x"])
def test_a_command_that_is_not_there_is_found(wrong: str) -> None:
    for check in (taken, named):
        with pytest.raises(click.UsageError):
            check(wrong.split())


def test_a_command_that_lacks_something_is_only_a_name() -> None:
    for lacking in ("table regions", "table", "work --wait"):
        named(lacking.split())
        with pytest.raises(click.UsageError):
            taken(lacking.split())
