"""Cursors: a client that got one can read on in that list, and no client can make one."""

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from http_servers import Client, InProcess, client_of, in_process

from feedstore.domain.cursors import MalformedCursorError
from feedstore.errors import ConfigError
from feedstore.following import Cursor, columns, encode_cursor
from feedstore.http.signed_cursors import VARIABLE, SignedCursors, load_key
from tests.replicas.fakes import CAP, USER

KEY, OTHER = bytes(32), bytes([1] * 32)


@pytest.fixture
def cursor(inside: InProcess) -> str:
    """Where the first page of USER's feed ended."""
    inside.pair.fill(range(1, 21))
    with client_of(inside.server.address) as client:
        return str(client.get(f"/v1/users/{USER}/feed?limit=5")["cursor"])


def refused(client: Client, user: int, cursor: str, path: str = "feed") -> bool:
    document = client.get(f"/v1/users/{user}/{path}", 400, params={"cursor": cursor})
    return str(document["type"]).endswith(":malformed-cursor")


def test_a_cursor_is_good_for_its_list_alone(inside: InProcess, cursor: str):
    with client_of(inside.server.address) as client:
        page = client.get(f"/v1/users/{USER}/feed", params={"limit": 5, "cursor": cursor})
        assert [entry["pin"] for entry in page["entries"]] == ["15", "14", "13", "12", "11"]
        again = client.get(f"/v1/users/{USER}/feed", params={"limit": 5, "cursor": cursor})
        assert again["entries"] == page["entries"]
        assert refused(client, USER + 1, cursor)
        assert refused(client, USER, cursor, "following")
        assert refused(client, USER, cursor, "followers")


def test_a_cursor_that_was_changed_is_refused(inside: InProcess, cursor: str):
    with client_of(inside.server.address) as client:
        for place in range(len(cursor)):
            other = "A" if cursor[place] != "A" else "B"
            assert refused(client, USER, cursor[:place] + other + cursor[place + 1 :])
        for changed in (cursor[:-1], cursor + "A", cursor[22:], cursor[:22], "x", "é" * 30):
            assert refused(client, USER, changed)


def test_nobody_reads_past_the_cap_with_a_cursor_of_their_own(inside: InProcess):
    """The checksum of the library's cursors is no secret: this one would begin again behind every cap."""
    inside.pair.fill(range(1, CAP + 10))
    made = encode_cursor(USER, Cursor(0, columns([(11, 1_011)])[0]))
    assert inside.service.page(USER, 5, made).entries
    with client_of(inside.server.address) as client:
        assert refused(client, USER, made)
        assert refused(client, USER, SignedCursors(OTHER).signed(f"feed:{USER}", made) or "")


def test_servers_with_one_key_take_each_others_cursors(tmp_path: Path, inside: InProcess, cursor: str):
    """In the same home, and nowhere else."""
    with in_process(tmp_path / "home") as second, client_of(second.server.address) as client:
        client.get(f"/v1/users/{USER}/feed", params={"cursor": cursor})
    with in_process(tmp_path / "elsewhere") as third, client_of(third.server.address) as client:
        assert refused(client, USER, cursor)


def test_signatures():
    cursors = SignedCursors(KEY)
    signed = cursors.signed("feed:1", "abc")
    assert cursors.opened("feed:1", signed) == "abc"
    assert cursors.signed("feed:1", None) is None
    assert cursors.opened("feed:1", None) is None
    for owner, key in (("feed:11", KEY), ("feed:1", OTHER)):
        with pytest.raises(MalformedCursorError):
            SignedCursors(key).opened(owner, signed)
    with pytest.raises(ValueError, match="at least 32 bytes"):
        SignedCursors(b"short")


# The key
# --------------------------------------------------------------------------------------------------------------------


def test_the_key_is_made_once_and_for_its_owner_alone(tmp_path: Path):
    path = tmp_path / "cursor.key"
    with ThreadPoolExecutor(8) as threads:
        keys = set(threads.map(lambda _: load_key(path, {}), range(32)))
    assert len(keys) == 1
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert sorted(each.name for each in tmp_path.iterdir()) == ["cursor.key", "cursor.key.lock"]
    assert load_key(path, {}) in keys


def test_the_environment_may_hold_the_key(tmp_path: Path):
    assert load_key(tmp_path / "cursor.key", {VARIABLE: OTHER.hex()}) == OTHER
    assert not (tmp_path / "cursor.key").exists()


@pytest.mark.parametrize("text", ["", "zz", "ab", "é"])
def test_a_bad_key_stops_the_server_and_is_not_shown(tmp_path: Path, text: str):
    path = tmp_path / "cursor.key"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(ConfigError) as refusal:
        load_key(path, {})
    assert str(path) in str(refusal.value)
    with pytest.raises(ConfigError, match=VARIABLE):
        load_key(path, {VARIABLE: text})
    with pytest.raises(ConfigError, match="copy those of the other servers, or remove it"):
        load_key(path, {})


def test_a_key_that_everybody_may_read_stops_the_server(tmp_path: Path):
    path = tmp_path / "cursor.key"
    load_key(path, {})
    path.chmod(0o644)
    with pytest.raises(ConfigError, match="other users can read it"):
        load_key(path, {})
