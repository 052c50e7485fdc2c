"""token new, list, revoke, while a server runs."""

import json
from pathlib import Path

import httpx
import pytest

from feedstore import durable
from tests.cli.command import Cli, eventually


@pytest.fixture
def guarded(cli: Cli) -> Cli:
    cli.change("# tokens =", "tokens =")
    return cli


def test_tokens_are_made_listed_and_revoked(guarded: Cli) -> None:
    token = guarded("token", "new", "--name", "web", "--scope", "read", "--scope", "write").stdout.strip()
    assert "never expires" in guarded("token", "new", "--name", "old", "--scope", "read", "--expires", "never").stderr
    guarded("token", "new", "--name", "gone", "--scope", "read", "--expires", "1ms")

    said = guarded("token", "list").stdout
    lines = [json.loads(line) for line in guarded("token", "list", "--json").stdout.splitlines()]

    assert [line.split()[0] for line in said.splitlines()] == ["web", "old", "gone"]
    assert "read,write" in said
    assert "HAS EXPIRED" in said.splitlines()[2]
    assert token not in said + str(lines)
    assert [(line["name"], line["expired"], line["expires_ms"] is None) for line in lines] == [
        ("web", False, False),
        ("old", False, True),
        ("gone", True, False),
    ]
    guarded("token", "revoke", "web")
    assert "web" not in guarded("token", "list").stdout
    assert "no token 'web'" in guarded("token", "revoke", "web", code=2).stderr
    assert (
        "expected a duration"
        in guarded("token", "new", "--name", "x", "--scope", "read", "--expires", "soon", code=2).stderr
    )


def test_a_token_of_the_same_name_is_made_once_the_old_one_is_revoked_as_the_message_says(guarded: Cli) -> None:
    """As docs/runbooks/alerts/server-silent.md has it, for a scrape whose token has expired."""
    made = ("token", "new", "--name", "prometheus", "--scope", "read")
    guarded(*made, "--expires", "1ms")
    said = guarded(*made, code=2).stderr
    assert f"a token 'prometheus' already exists: first {guarded.hint('token revoke prometheus')}" in said
    guarded("token", "revoke", "prometheus")
    guarded(*made)
    assert "HAS EXPIRED" not in guarded("token", "list").stdout


def test_a_file_that_a_suspended_process_is_changing_is_named(guarded: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    locked = durable.locked

    def others_have_it(file: int, within_s: float) -> bool:
        return within_s != durable.CHANGE_WAIT_S and locked(file, within_s)

    monkeypatch.setattr(durable, "locked", others_have_it)
    for words, file, code in (
        (["token", "new", "--name", "x", "--scope", "read"], "tokens.toml", 2),
        (["clock", "set"], "clock.json", 3),
    ):
        said = guarded(*words, code=code).stderr
        assert f"{file}: another process has been changing it for 5 s: it may be suspended" in said


@pytest.mark.processes
def test_a_server_that_runs_knows_tokens_that_are_issued_and_refuses_those_that_are_revoked(
    guarded: Cli, tmp_path: Path
) -> None:
    guarded("token", "new", "--name", "first", "--scope", "read")
    with (tmp_path / "log").open("wb") as log:
        process = guarded.spawn("serve", "--port", 0, stderr=log)
    try:
        assert process.stdout is not None
        address = process.stdout.readline().decode().strip()
        token = guarded("token", "new", "--name", "web", "--scope", "read").stdout.strip()

        def answers(status: int) -> bool:
            headers = {"authorization": f"Bearer {token}"}
            return httpx.get(f"{address}/v1/token", headers=headers, timeout=30).status_code == status

        eventually(lambda: answers(200), "the new token is known")
        guarded("token", "revoke", "web")
        eventually(lambda: answers(401), "the revoked token is refused")
    finally:
        process.terminate()
        process.communicate(timeout=60)
    assert process.returncode == 0
