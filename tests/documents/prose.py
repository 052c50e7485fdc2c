"""What `make lint` holds of plain English: Markdown is wrapped at 120, and a few words are not used.

Each word of the list hides a plainer one, or a subject: "stands" is "is", "whoever" is "a reader" or "an operator",
"nobody" is "no ...", "anew" is "again", "beside" is "next to", "while" or "as well as", "goes on" is "continues", "is
taken for" is "counts as", "for who" is "for callers that" or "the caller", "which see" is the name of what to see.
Fenced code, code spans and the targets of links are not read; a table's row is one line.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
WIDTH = 120
WORDS = re.compile(
    r"\b(stands?|whoever|nobody|anew|beside|go(?:es)? on|(?:is|are) taken for|for who(?! in\b)|which see)\b",
    re.IGNORECASE,
)
PAGES = ("*.md", "docs/**/*.md")
# Code whose docstrings, comments and messages are held as well.
CODE = (
    *(f"{package}/**/*.py" for package in ("feedstore", "workers", "deploy", "bench", "tests")),
    *(f"feedstore/**/*.{kind}" for kind in ("js", "css", "html")),
    *(f"{folder}/**/*.java" for folder in ("coprocessor/src", "deploy/placement/src", "bench/java")),
)
# These name what is kept and compared for years, rows of results and steps of recoveries, or list the words themselves.
KEPT_NAMES = frozenset(
    {
        "bench/measurements/http.py",
        "bench/measurements/writer.py",
        "deploy/drills/recovery_log.py",
        "tests/documents/prose.py",
        "tests/documents/test_prose.py",
        "tests/drills/test_drill_recovery_log.py",
        "tests/drills/test_drill_run.py",
    }
)

FENCE = re.compile(r"^\s*```")
UNREAD = re.compile(r"`[^`]*`|\]\([^)]*\)")


def prose(text: str) -> Iterator[tuple[int, str]]:
    """The lines of a page outside of fenced code, numbered from 1."""
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if FENCE.match(line):
            fenced = not fenced
        elif not fenced:
            yield number, line


def too_long(text: str) -> list[int]:
    """The numbers of lines beyond the width, but for the rows of tables."""
    return [number for number, line in prose(text) if len(line) > WIDTH and not line.lstrip().startswith("|")]


def words(text: str) -> list[tuple[int, str]]:
    """The words of the list in a page, each with the number of its line."""
    return [(number, found) for number, line in prose(text) for found in WORDS.findall(UNREAD.sub("", line))]


def words_in_code(text: str) -> list[tuple[int, str]]:
    """The same in a file of code: docstrings, comments, messages and names alike."""
    lines = enumerate(text.splitlines(), 1)
    return [(number, found) for number, line in lines for found in WORDS.findall(line)]


def files(patterns: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """The path, from the top, and the text of each file that matches a pattern."""
    for pattern in patterns:
        for path in sorted(ROOT.glob(pattern)):
            yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")


def faults() -> Iterator[str]:
    """One line for each fault, as compilers write them."""
    for name, text in files(PAGES):
        yield from (f"{name}:{number}: longer than {WIDTH}" for number in too_long(text))
        yield from (f"{name}:{number}: plainer than {word!r}" for number, word in words(text))
    for name, text in files(CODE):
        if name not in KEPT_NAMES:
            yield from (f"{name}:{number}: plainer than {word!r}" for number, word in words_in_code(text))


if __name__ == "__main__":
    found = list(faults())
    print(*found, sep="\n", end="\n" if found else "")
    sys.exit(bool(found))
