"""Who may do what."""

import socket
import stat
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import httpx
import pytest
from http_servers import InProcess, check_problem, client_of, in_process

from feedstore.app.config import DEFAULT, parse
from feedstore.app.http import ENDPOINTS, WAITING_FOR_EACH_THREAD, listen
from feedstore.domain import Follow, RefillAsked, board
from feedstore.errors import ConfigError
from feedstore.following.refills import ASKED_PER_S_MAX, BURST_S
from feedstore.follows.port import Request, actions_in
from feedstore.http.connections import PIPELINED_MAX
from feedstore.http.problems import ProblemError
from feedstore.http.queues import Letter
from feedstore.http.tokens import LOOK_S, SCOPES, Scope, Tokens, is_loopback, issue, listed, revoke
from tests.cli.command import DEADLINE_S
from tests.effort import part

FOLLOW = {"follower": "1", "user": "2"}


@pytest.fixture
def tokens(tmp_path: Path) -> dict[Scope, str]:
    """A token for each scope."""
    (tmp_path / "home").mkdir()
    return {scope: issue(tmp_path / "home" / "tokens.toml", scope, [scope]) for scope in SCOPES}


@pytest.fixture
def guarded(tmp_path: Path, tokens: dict[Scope, str]) -> Iterator[InProcess]:
    with in_process(tmp_path / "home", 'tokens = "tokens.toml"\n') as guarded:
        yield guarded


def asked(inside: InProcess, method: str, path: str, token: str | None) -> httpx.Response:
    headers = {} if token is None else {"authorization": token}
    body = {"json": FOLLOW} if path == "/v1/follows" else {}
    with client_of(inside.server.address) as client:
        return client.http.request(method, path, headers=headers, **body)


def test_every_endpoint_wants_its_scope_and_no_other(guarded: InProcess, tokens: dict[Scope, str]):
    paths = [(each.method, each.path, each.scope) for each in ENDPOINTS] + [("GET", "/metrics", "read")]
    for method, template, wanted in paths:
        path = template.format(user=1, pin=2, board=3, followee=4)
        for scope, token in tokens.items():
            answer = asked(guarded, method, path, f"Bearer {token}")
            assert (answer.status_code == 403) == (scope != wanted), (path, scope, answer.text)
            assert answer.status_code != 401


@pytest.mark.parametrize("token", [None, "", "Bearer", "Bearer feed_wrong", "Basic eDp5", "Bearer " + "x" * 300])
def test_a_token_that_is_missing_or_wrong(guarded: InProcess, token: str | None):
    answer = asked(guarded, "GET", "/v1/users/1/feed", token)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Bearer")
    check_problem(answer)


def test_nearly_a_token_is_none(guarded: InProcess, tokens: dict[Scope, str]):
    token = tokens["read"]
    for wrong in (token[:-1], token + "x", token.upper(), token[5:]):
        assert asked(guarded, "GET", "/v1/users/1/feed", f"Bearer {wrong}").status_code == 401
    assert asked(guarded, "GET", "/v1/users/1/feed", f"bearer {token}").status_code == 200


def test_a_token_says_what_it_lets_its_bearer_do(guarded: InProcess, tokens: dict[Scope, str]):
    for scope, token in tokens.items():
        answer = asked(guarded, "GET", "/v1/token", f"Bearer {token}")
        assert (answer.status_code, answer.json()) == (200, {"scopes": [scope]})
    for wrong in (None, "Bearer feed_wrong"):
        answer = asked(guarded, "GET", "/v1/token", wrong)
        assert answer.status_code == 401
        check_problem(answer)


def test_dead_letters_that_hang_keep_no_action_waiting(
    tmp_path: Path, tokens: dict[Scope, str], monkeypatch: pytest.MonkeyPatch
):
    at_most = 1 + WAITING_FOR_EACH_THREAD
    gate = threading.Event()

    def hangs(*_: object) -> Sequence[Letter]:
        assert gate.wait(DEADLINE_S)
        return []

    environ = {"FEED_HTTP_THREADS": "1", "FEED_SERVING_DEADLINE": "60s"}
    with (
        in_process(tmp_path / "home", 'tokens = "tokens.toml"\n', environ) as inside,
        ThreadPoolExecutor(at_most + 1) as asking,
    ):
        monkeypatch.setattr(inside.queues, "letters", hangs)

        def statuses() -> Iterator[int]:
            ask = partial(asked, inside, "GET", "/v1/dead-letters", f"Bearer {tokens['operate']}")
            for done in as_completed([asking.submit(ask) for _ in range(at_most + 1)]):
                yield done.result().status_code

        found = statuses()
        assert next(found) == 503, "no more may wait"
        assert asked(inside, "POST", "/v1/follows", f"Bearer {tokens['write']}").status_code == 200
        gate.set()
        assert [*found] == [200] * at_most


def test_dead_letters_come_in_pages(guarded: InProcess, tokens: dict[Scope, str]):
    def letters(query: str) -> tuple[list[int], int | None]:
        found = asked(guarded, "GET", f"/v1/dead-letters?{query}", f"Bearer {tokens['operate']}").json()
        return [letter["id"] for letter in found["letters"]], found["after"]

    assert letters("limit=2") == ([1, 2], 2)
    assert letters("limit=2&after=2") == ([3, 4], 4)
    assert letters("limit=2&after=4") == ([5], None)
    guarded.queues.away = True
    away = asked(guarded, "GET", "/v1/dead-letters", f"Bearer {tokens['operate']}")
    check_problem(away)
    assert (away.status_code, away.json()["type"]) == (503, "urn:feedstore:problem:queues-unavailable")
    assert "secret-broker" not in away.text


def test_who_watches_it_needs_no_token(guarded: InProcess):
    for path in ("/healthz", "/readyz", "/openapi.json"):
        assert asked(guarded, "GET", path, None).status_code == 200


def test_a_token_is_refused_before_the_request_is_read(guarded: InProcess):
    assert asked(guarded, "GET", "/v1/users/x/feed?limit=x", None).status_code == 401


def test_a_reader_cannot_fill_the_outbox(guarded: InProcess, tokens: dict[Scope, str]):
    """A read of a short feed asks for its refill, which is a write: only for those who follow something, and not
    often.
    """
    known = range(1, 201)
    guarded.follows.record([Request(Follow(each, board(5))) for each in known])
    followed = guarded.follows.backlog().actions
    with closing(guarded.connect()) as connection:
        unknown = range(1_000, 1_000 + part(10_000))
        for first in unknown[::100]:
            _read_feeds(connection, range(first, first + 100), tokens["read"])
            guarded.pair.now_s += BURST_S  # so that no rate is what refuses them
        _read_feeds(connection, [*known, *known], tokens["read"])
    guarded.service.close()
    rows = actions_in(guarded.follows.unrelayed(100_000))[followed:]
    assert {type(each) for each in rows} == {RefillAsked}
    assert {each.user for each in rows if isinstance(each, RefillAsked)} <= set(known)
    assert len(rows) == ASKED_PER_S_MAX * BURST_S


def _read_feeds(connection: socket.socket, users: Sequence[int], token: str) -> None:
    """Asks for as many at once as may wait, and reads the answers."""
    at_once = 1 + PIPELINED_MAX
    for first in range(0, len(users), at_once):
        _read_some_feeds(connection, users[first : first + at_once], token)


def _read_some_feeds(connection: socket.socket, users: Sequence[int], token: str) -> None:
    head = f"HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n\r\n"
    connection.sendall("".join(f"GET /v1/users/{each}/feed {head}" for each in users).encode())
    answers = b""
    while answers.count(b"HTTP/1.1 200 OK") < len(users) or not answers.endswith(b"}"):
        part = connection.recv(65_536)
        assert part, answers[-500:]
        answers += part


# Without tokens
# --------------------------------------------------------------------------------------------------------------------


def test_this_machine_may_read_and_write_but_not_operate(inside: InProcess):
    assert asked(inside, "GET", "/v1/users/1/feed", None).status_code == 200
    assert asked(inside, "POST", "/v1/follows", None).status_code == 200
    assert asked(inside, "GET", "/v1/dead-letters", None).status_code == 403
    assert asked(inside, "GET", "/v1/token", None).json() == {"scopes": ["read", "write"]}


def test_a_token_is_refused_where_nothing_can_check_it(inside: InProcess):
    answer = asked(inside, "GET", "/v1/users/1/feed", "Bearer whatever")
    assert answer.status_code == 401
    check_problem(answer)
    assert "was started without a tokens file" in answer.json()["detail"]
    assert asked(inside, "GET", "/v1/users/1/feed", "Basic eDp5").status_code == 200, "a proxy's, for itself"
    assert "start the server again" in asked(inside, "GET", "/v1/dead-letters", None).json()["detail"]


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:80",
        "127.0.0.1.evil.example",
        "[::2]:80",
        "10.0.0.1",
        "",
        "[::1].evil.example",
        "localhost:80@evil.example",
        "localhost:evil.example",
    ],
)
def test_a_website_whose_name_leads_here_is_not_this_machine(inside: InProcess, host: str):
    """Else a page of that website could read and write, in a browser of this machine."""
    with client_of(inside.server.address) as client:
        for path in ("/v1/users/1/feed", "/v1/token"):
            answer = client.http.get(path, headers={"host": host})
            assert answer.status_code == 421
            check_problem(answer)
        for good in ("localhost:8080", "127.0.0.1", "[::1]:8080", "LOCALHOST"):
            assert client.http.get("/v1/users/1/feed", headers={"host": good}).status_code == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.0.2.1", "example.org"])
def test_nobody_listens_to_others_without_tokens(tmp_path: Path, host: str):
    assert not is_loopback(host)
    with pytest.raises(ConfigError, match="not this machine's loopback"):
        listen(parse(tmp_path, DEFAULT, {}), host, 0)


def test_with_tokens_others_may_come(tmp_path: Path):
    listen(parse(tmp_path, DEFAULT, {"FEED_HTTP_TOKENS": "tokens.toml"}), "0.0.0.0", 0).close()


# The file
# --------------------------------------------------------------------------------------------------------------------


def test_the_file_holds_no_token_and_is_its_owners(tmp_path: Path):
    path = tmp_path / "tokens.toml"
    first, second = issue(path, "web", ["read", "write"]), issue(path, "sre", ["operate"])
    assert first != second
    text = path.read_text()
    assert first not in text
    assert second not in text
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(ConfigError, match="'web' already"):
        issue(path, "web", ["read"])
    with pytest.raises(ConfigError):
        issue(path, 'x"\n', ["read"])
    Tokens(path, clock=lambda: 0.0, wall_ms=lambda: 0)


@pytest.mark.parametrize(
    "text",
    [
        "[[tokens]]",
        "x",
        '[[tokens]]\nname = "a"\nscopes = []\nsha256 = "' + "0" * 64 + '"',
        '[[tokens]]\nname = "a"\nscopes = ["all"]\nsha256 = "' + "0" * 64 + '"',
        '[[tokens]]\nname = "a"\nscopes = ["read"]\nsha256 = "0"',
        "tokens = 1",
    ],
)
def test_a_file_that_is_wrong_lets_nobody_in(tmp_path: Path, text: str):
    path = tmp_path / "tokens.toml"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(ConfigError, match=r"tokens\.toml"):
        Tokens(path, clock=lambda: 0.0, wall_ms=lambda: 0)


def test_a_file_that_is_missing_or_open_to_all_lets_nobody_in(tmp_path: Path):
    path = tmp_path / "tokens.toml"
    with pytest.raises(ConfigError, match="not found"):
        Tokens(path, clock=lambda: 0.0, wall_ms=lambda: 0)
    issue(path, "web", ["read"])
    path.chmod(0o644)
    with pytest.raises(ConfigError, match="other users can read it"):
        Tokens(path, clock=lambda: 0.0, wall_ms=lambda: 0)
    with pytest.raises(ConfigError, match="other users can read it"):
        issue(path, "other", ["read"])


def test_a_file_of_before_tokens_had_an_end_still_works(tmp_path: Path):
    path = tmp_path / "tokens.toml"
    path.write_text(f'[[tokens]]\nname = "old"\nscopes = ["read"]\nsha256 = "{"0" * 64}"\n\n')
    path.chmod(0o600)

    assert [(each.name, each.expires) for each in listed(path)] == [("old", None)]
    issue(path, "new", ["read"], datetime(2030, 1, 1, tzinfo=UTC))
    assert [(each.name, each.expires) for each in listed(path)] == [
        ("old", None),
        ("new", datetime(2030, 1, 1, tzinfo=UTC)),
    ]


def test_a_revoked_token_leaves_everything_else_as_it_is(tmp_path: Path):
    path = tmp_path / "tokens.toml"
    path.write_text("# ours\n")
    path.chmod(0o640)
    for name in ("a", "b", "c"):
        issue(path, name, ["read"])
    path.write_text(path.read_text().replace('name = "a"', 'name = "a"  # of the web tier'))

    revoke(path, "b")

    assert [each.name for each in listed(path)] == ["a", "c"]
    assert path.read_text().startswith('# ours\n[[tokens]]\nname = "a"  # of the web tier\n')
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    with pytest.raises(ConfigError, match="no token 'b'; there are: a, c"):
        revoke(path, "b")
    two = ", ".join(f'{{name = "{name}", scopes = ["read"], sha256 = "{name * 64}"}}' for name in "ab")
    path.write_text(f"tokens = [{two}]\n")
    with pytest.raises(ConfigError, match="edited by hand"):
        revoke(path, "b")


def test_changes_of_several_processes_lose_no_token(tmp_path: Path):
    path = tmp_path / "tokens.toml"
    with ThreadPoolExecutor(4) as several:
        list(several.map(lambda number: issue(path, f"t{number}", ["read"]), range(20)))
        list(several.map(lambda number: revoke(path, f"t{number}"), range(0, 20, 2)))

    assert sorted(each.name for each in listed(path)) == sorted(f"t{number}" for number in range(1, 20, 2))


class _Clock:
    def __init__(self) -> None:
        self.s = 0.0

    def __call__(self) -> float:
        return self.s


def _lets_in(tokens: Tokens, token: str) -> str:
    """Whether a token lets somebody in, or what is said of it."""
    try:
        tokens.scopes({b"authorization": f"Bearer {token}".encode()})
    except ProblemError as error:
        return str(error)
    return "yes"


def test_a_server_sees_what_was_issued_and_revoked_without_a_restart(tmp_path: Path):
    path, clock = tmp_path / "tokens.toml", _Clock()
    first = issue(path, "first", ["read"])
    tokens = Tokens(path, clock, wall_ms=lambda: 0)
    second = issue(path, "second", ["read"])
    revoke(path, "first")
    assert (_lets_in(tokens, first), "unknown token" in _lets_in(tokens, second)) == ("yes", True)

    clock.s += LOOK_S

    assert ("unknown token" in _lets_in(tokens, first), _lets_in(tokens, second)) == (True, "yes")


def test_a_token_is_revoked_though_the_file_could_not_be_read_at_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A process may have no file descriptor left just then."""
    path, clock = tmp_path / "tokens.toml", _Clock()
    token = issue(path, "web", ["read"])
    tokens = Tokens(path, clock, wall_ms=lambda: 0)
    revoke(path, "web")

    def unreadable(path: Path) -> Any:
        raise ConfigError(f"{path}: Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr("feedstore.http.tokens._by_hash", unreadable)
        for _ in range(3):
            clock.s += LOOK_S
            assert _lets_in(tokens, token) == "yes"
    clock.s += LOOK_S
    assert "unknown token" in _lets_in(tokens, token)


def test_a_file_that_cannot_be_read_any_more_leaves_the_tokens_that_were_read_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    log = Mock()
    monkeypatch.setattr("feedstore.http.tokens._log", log)
    path, clock = tmp_path / "tokens.toml", _Clock()
    token = issue(path, "web", ["read"])
    tokens = Tokens(path, clock, wall_ms=lambda: 0)
    good = path.read_text()
    for broken in (None, "[[tokens]]", None):
        path.unlink(missing_ok=True)
        if broken is not None:
            path.write_text(broken)
        log.reset_mock()
        for _ in range(2):
            clock.s += LOOK_S
            assert _lets_in(tokens, token) == "yes"
        assert [call.args for call in log.error.call_args_list] == [("tokens.unreadable",)], broken
    path.touch(mode=0o600)
    clock.s += LOOK_S
    assert "unknown token" in _lets_in(tokens, token)
    path.write_text(good)
    clock.s += LOOK_S
    assert _lets_in(tokens, token) == "yes"


def test_a_token_lets_nobody_in_once_it_has_expired(tmp_path: Path):
    path = tmp_path / "tokens.toml"
    now = datetime(2030, 1, 1, tzinfo=UTC)
    token = issue(path, "web", ["read"], now)
    times = iter([now - timedelta(seconds=1), now, now + timedelta(days=1)])
    tokens = Tokens(path, clock=lambda: 0.0, wall_ms=lambda: int(next(times).timestamp() * 1_000))

    assert _lets_in(tokens, token) == "yes"
    assert "expired" in _lets_in(tokens, token)
    assert "expired" in _lets_in(tokens, token)
