"""A wrong value is refused in plain words: its field, what is expected there, and what came."""

import io
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from feedstore import validation
from feedstore.app import config
from feedstore.boards.wire import BoardQuery, PlaceBody
from feedstore.catalog.port import CatalogRefusedError
from feedstore.catalog.wire import GetBody, UpdatesBody, UseBody
from feedstore.errors import ConfigError
from feedstore.following.wire import FeedQuery, PinBody
from feedstore.http import tokens
from feedstore.http.wire import Nothing
from workers.catalog.files import batches_of, entries_of

ID = "expected an id from 1 to 2^63-1 as decimal text, or one up to 2^53-1 as a number"
NAME = "expected a name of up to 31 characters: a to z first, then also digits and hyphens"


@pytest.mark.parametrize(
    ("into", "query", "said"),
    [
        (FeedQuery, {"limit": "many"}, "limit: expected a whole number from 1 to 1000, got 'many'"),
        (FeedQuery, {"limit": "0"}, "limit: expected a whole number from 1 to 1000, got '0'"),
        (FeedQuery, {"hydrate": "yes"}, "hydrate: expected true or false, got 'yes'"),
        (FeedQuery, {"cursor": ""}, "cursor: expected text of 1 to 200 characters, got ''"),
        (FeedQuery, {"limits": "1"}, "limits: unknown; there are: limit, cursor, hydrate"),
        (Nothing, {"limit": "1"}, "limit: unknown; there are none"),
        (
            BoardQuery,
            {"start": "middle"},
            "start: expected top, bottom, or a sequence of up to 38 digits, got 'middle'",
        ),
    ],
)
def test_queries(into: type[Any], query: dict[str, str], said: str) -> None:
    with pytest.raises(msgspec.ValidationError) as raised:
        msgspec.convert(query, into, strict=False)

    assert str(validation.refused(raised.value, query, into)) == said


@pytest.mark.parametrize(
    ("into", "body", "said"),
    [
        (PinBody, b"[]", "expected an object, got a list of 0"),
        (PinBody, b"null", "expected an object, got null"),
        (PinBody, b'{"pin": "1", "owner": "2"}', f"board: {ID}, got nothing"),
        (PinBody, b'{"pin": 9007199254740992, "owner": "2", "board": "3"}', f"pin: {ID}, got 9007199254740992"),
        (PinBody, b'{"pin": "01", "owner": "2", "board": "3"}', f"pin: {ID}, got '01'"),
        (PinBody, b'{"pin": true, "owner": "2", "board": "3"}', f"pin: {ID}, got true"),
        (
            PinBody,
            b'{"pin": 1, "owner": 2, "board": 3, "x": 1}',
            "x: unknown; there are: pin, owner, board, created_ms",
        ),
        (
            PinBody,
            b'{"pin": 1, "owner": 2, "board": 3, "created_ms": 1e400}',
            "created_ms: expected a time in ms since 1970, from 1 to 2^53-1",
        ),
        (PlaceBody, b'{"to": "middle"}', "to: expected 'bottom' or 'top', got 'middle'"),
        (GetBody, b'{"keys": []}', "keys: expected a list of 1 to 1000 values, got a list of 0"),
        (UseBody, b'{"to": {}}', "to: expected an object of 1 to 16 entries, got an object"),
        (UseBody, b'{"to": {"a": 1}}', "to.a: expected text of 1 to 200 characters, got 1"),
        (UseBody, b'{"to": {"a": 1, "b": 1}}', "to.*: expected text of 1 to 200 characters"),
        (
            UpdatesBody,
            b'{"updates": [{"key": "a", "time_ms": 1, "base64": "#"}]}',
            "updates[0].base64: expected base64, got '#'",
        ),
        (
            UpdatesBody,
            b'{"updates": [{"key": "a", "time_ms": 1}]}',
            'updates[0]: expected one of "record", "base64", and "deleted": true',
        ),
    ],
)
def test_bodies(into: type[Any], body: bytes, said: str) -> None:
    with pytest.raises(msgspec.ValidationError) as raised:
        msgspec.json.decode(body, type=into)

    assert str(validation.of_json(raised.value, body, into)) == said


@pytest.mark.parametrize(
    ("written", "instead", "said"),
    [
        ("cap = 1000", "cap = 0", "feed.cap: expected a whole number from 1 to 100000, got 0"),
        ("cap = 1000", "cup = 1", "feed.cup: unknown; there are: cap, slack"),
        ('action_age = "2d"', "action_age = 2", "limits.action_age: expected a duration such as"),
        ("# tokens", 'tokens = "\\u0000" #', r"http.tokens: expected a path, got '\x00'"),
        ("rocksdb:data/a", "hbase://[::1/", "cluster a: expected hbase://HOST:PORT/"),
        ("sqlite:data/follows.db", "mysql://u@[::1/d", "follows.shards: expected mysql://USER@HOST/DATABASE"),
        ('name = "a"', 'name = "A"', f"clusters[0].name: {NAME}, got 'A'"),
        ('name = "a"', r'name = "a\n"', rf"clusters[0].name: {NAME}, got 'a\n'"),
        ('name = "a"', 'name = "a"\nzookeeper = "a:1\\n"', "clusters[0].zookeeper: expected HOST:PORT"),
        ("[metrics]", '[metrics]\nlisten = "9464\\n"', "metrics.listen: expected HOST:PORT"),
        ("[metrics]", '[metrics]\nlisten = "127.0.0.1:65536"', "metrics.listen: expected HOST:PORT"),
        ("[metrics]", '[metrics]\nlisten = "99999"', "metrics.listen: expected HOST:PORT"),
        ("[metrics]", '[metrics]\nprometheus = "http://a:1\\n"', "metrics.prometheus: expected http://HOST:PORT"),
        ("sample = 0.01", 'endpoint = "http://a:1/x\\n"', "traces.endpoint: expected http://HOST:PORT/PATH"),
        ("sample = 0.01", "sample = 3", "traces.sample: expected a number from 0 to 1, got 3"),
        ("[metrics]", "[catalogs.Ads]\n[metrics]", f"catalogs: {NAME}, got 'Ads'"),
        ("[metrics]", "[catalogs]\nads = 1\n[metrics]", "catalogs.ads: expected a table, got 1"),
        (
            "[metrics]",
            "[catalogs.pins]\n[catalogs.ads]\nkeep = 0\n[metrics]",
            "catalogs.ads.keep: expected a whole number from 1 to 100, got 0",
        ),
        ("[metrics]", "[catalogs.ads]\ncache = 5\n[metrics]", "catalogs.ads.cache: expected a size such as"),
    ],
)
def test_the_configuration(written: str, instead: str, said: str) -> None:
    assert written in config.DEFAULT

    with pytest.raises(ConfigError) as raised:
        config.parse(Path("home"), config.DEFAULT.replace(written, instead, 1), {})

    assert f"home/feed.toml: {said}" in str(raised.value)


@pytest.mark.parametrize(
    ("written", "instead"),
    [
        ('shards = ["sqlite:data/follows.db"]', 'shards = "mysql://feed:s3cret@db/f"'),
        ("sample = 0.01", 'endpoint = "http://feed:s3cret@traces/v1"'),
        ("[metrics]", '[metrics]\nprometheus = "http://feed:s3cret@prometheus/x"'),
        ("[metrics]", '[metrics]\nprometheus = "http://feed:s3cret@prometheus:9090"'),
    ],
)
def test_a_url_is_not_shown_because_there_may_be_a_password_in_it(written: str, instead: str) -> None:
    assert written in config.DEFAULT

    with pytest.raises(ConfigError, match=r"got a url$"):
        config.parse(Path("home"), config.DEFAULT.replace(written, instead, 1), {})


@pytest.mark.parametrize("listen", ["9464", '"9464"'])
def test_a_variable_for_text_may_look_like_a_number(listen: str) -> None:
    environ = {"FEED_METRICS_LISTEN": listen, "FEED_METRICS_TARGETS": "true", "FEED_HTTP_TOKENS": "2027-01-31"}

    found = config.parse(Path("home"), config.DEFAULT, environ)

    assert (found.metrics.listen, found.metrics.targets) == ("9464", "true")
    assert found.http.tokens == Path("home/2027-01-31")


def test_tokens(tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"
    with pytest.raises(ConfigError, match=r"token: name: expected a name of up to 64 letters.*, got 'a b'"):
        tokens.issue(file, "a b", ["read"], None)
    with pytest.raises(ConfigError, match=r"token: name: expected a name of up to 64 letters.*, got 'a\\n'"):
        tokens.issue(file, "a\n", ["read"], None)
    file.touch(0o600)
    file.write_text('[[tokens]]\nname = "web"\nscopes = ["all"]\n')

    with pytest.raises(ConfigError, match=r"tokens\[0\].scopes\[0\]: expected .*'read'.*, got 'all'"):
        tokens.issue(file, "other", ["read"], None)


def test_lines_of_catalogs(tmp_path: Path) -> None:
    file = tmp_path / "ads.jsonl"
    file.write_text('{"key": 1, "record": 1}\n')

    with pytest.raises(CatalogRefusedError, match=r"ads.jsonl:1: key: expected text of at least 1 characters, got 1"):
        list(entries_of(file))
    with pytest.raises(CatalogRefusedError, match="stdin:1: key: expected text of 1 to 256 characters, got ''"):
        list(batches_of(io.BytesIO(b'{"key": "", "time_ms": 1, "deleted": true}'), "stdin", lambda: 1))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b'{"key": "a", "record": ', "it ends too early"),
        (b'{"key": "a", "record": "\\ud800', "it ends too early"),
        (
            b'{"record": 1, "key": "\\ud800"}',
            r"it has one half of a surrogate pair (\ud800 to \udbff) without the other",
        ),
        (b'{"key": "\xe4", "record": 1}', "it is not UTF-8"),
        (b'{"key": "a", "record": ' + b"[" * 9_999 + b"]" * 9_999 + b"}", "it is nested too deeply"),
        (b'{"key": "a", "record": "' + b"x" * 5_000_000 + b'"}', "a line of more than 526336 bytes"),
    ],
)
def test_lines_of_catalogs_that_are_no_json(tmp_path: Path, line: bytes, said: str) -> None:
    file = tmp_path / "ads.jsonl"
    file.write_bytes(line)

    for entries in (lambda: entries_of(file), lambda: batches_of(io.BytesIO(line), "ads.jsonl", lambda: 1)):
        with pytest.raises(CatalogRefusedError, match=f"ads.jsonl:1: {re.escape(said)}$"):
            list(entries())


def test_names_that_look_like_places_confuse_nothing() -> None:
    for name in ("x` - at `$.keys", "x` - at `key` in `$.keys[...]", "x" * 10_000, "[9]", "a.b", "`$"):
        body = msgspec.json.encode({"keys": ["1"], name: 1})
        with pytest.raises(msgspec.ValidationError) as raised:
            msgspec.json.decode(body, type=GetBody)

        said = str(validation.of_json(raised.value, body, GetBody))

        assert "unknown" in said
        assert len(said) < 300


def test_of_two_fields_of_one_name_the_checked_one_may_be_another_than_the_shown_one() -> None:
    body = b'{"keys": 1, "keys": ["1"]}'
    with pytest.raises(msgspec.ValidationError) as raised:
        msgspec.json.decode(body, type=GetBody)

    assert str(validation.of_json(raised.value, body, GetBody)).startswith("keys: expected a list")
