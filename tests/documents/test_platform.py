"""The platform knows no product, so that another service can use it."""

import re
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
PLATFORM = (
    "feedstore/clocks.py",
    "feedstore/durable.py",
    "feedstore/errors.py",
    "feedstore/http",
    "feedstore/lazy.py",
    "feedstore/metering",
    "feedstore/replicas",
    "feedstore/settings.py",
    "feedstore/sqlite_file.py",
    "feedstore/widecolumn",
    "workers/pipeline",
    "workers/queue",
)
PUBLISHED = re.compile(
    r"feed\.(toml|dead)\b"  # the configuration, and the topic of the dead letters
    r"|\bfeed_[a-z_]+"  # metrics
    r"|FAMILY = b\"feed\""  # the column family of every table
    r"|person=b\"feed-cursor\""  # what every signature was made with
)
"""Names that are on disk, in topics, or with users: they stay."""


@pytest.mark.parametrize("room", PLATFORM)
def test_the_platform_does_not_speak_of_feeds(room: str):
    place = PROJECT / room
    files = [place] if place.is_file() else sorted(place.rglob("*.py"))
    assert files
    found = [
        f"{file.relative_to(PROJECT)}:{number}: {line.strip()}"
        for file in files
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        if re.search(r"\bfeeds?\b", PUBLISHED.sub("", line), re.IGNORECASE)
    ]
    assert found == []
