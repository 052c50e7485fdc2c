"""Ports are chosen once for a home, and no other user reads its password."""

import json
import random
import socket
import stat
from pathlib import Path

import pytest

from deploy.local import ports
from deploy.local.errors import StackError
from deploy.local.home import Home
from deploy.local.stack import NAMES, Stack, expand


def test_ports_are_different_free_and_out_of_the_way_of_clients() -> None:
    chosen = ports.choose(50, random.Random(1))
    assert len(set(chosen)) == 50
    assert all(ports.is_free(port) for port in chosen)
    lowest_ephemeral = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()[0])
    assert max(chosen) < max(lowest_ephemeral, 32_768)


def test_a_port_in_use_is_not_free() -> None:
    with socket.create_server((ports.LOOPBACK, 0)) as server:
        assert not ports.is_free(server.getsockname()[1])


def test_a_home_keeps_its_ports_and_another_home_has_others(tmp_path: Path) -> None:
    one, again, other = (Stack(tmp_path / name) for name in ("one", "one", "other"))
    listening = {name: status.ports for name, status in zip(NAMES, one.status(), strict=True)}
    assert listening == {name: status.ports for name, status in zip(NAMES, again.status(), strict=True)}
    mine = {port for purposes in listening.values() for port in purposes.values()}
    theirs = {port for status in other.status() for port in status.ports.values()}
    assert len(mine) == len(theirs) == 15
    assert mine != theirs


def test_a_server_that_is_new_gets_ports_and_the_others_keep_theirs(home: Home) -> None:
    before = home.ports({"kafka": ("client",)})
    after = home.ports({"kafka": ("client", "controller"), "mariadb": ("client",)})
    assert after["kafka"]["client"] == before["kafka"]["client"]
    assert set(after["kafka"]) == {"client", "controller"}
    assert json.loads(home.state.read_text(encoding="utf-8"))["ports"] == after


def test_a_new_port_is_none_that_a_stopped_server_of_the_home_has(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random, "SystemRandom", lambda: random.Random(1))
    home.ports({"kafka": ("client",)})
    after = home.ports({"kafka": ("client", "controller")})
    assert after["kafka"]["client"] != after["kafka"]["controller"]


@pytest.mark.parametrize("text", ["", "[]", '{"version": 99}', '{"version": 1, "ports": {"kafka": {"client": "x"}}}'])
def test_a_state_file_that_is_not_ours_is_refused(home: Home, text: str) -> None:
    home.state.write_text(text, encoding="utf-8")
    with pytest.raises(StackError, match=r"stack\.json"):
        home.ports({"kafka": ("client",)})
    assert home.state.read_text(encoding="utf-8") == text


def test_the_password_is_made_once_for_its_owner_only(home: Home) -> None:
    password = home.password()
    assert len(password) >= 24
    assert home.password() == password
    assert stat.S_IMODE(home.password_file.stat().st_mode) == 0o600
    assert stat.S_IMODE(home.root.stat().st_mode) == 0o700


def test_an_empty_password_is_none(home: Home) -> None:
    home.password_file.write_text("\n", encoding="utf-8")
    with pytest.raises(StackError, match=r"mariadb\.password is empty.*remove it"):
        home.password()


@pytest.mark.parametrize("name", ["a b", "a:b", "a,b", "a*", 'a"b'])
def test_a_home_that_a_configuration_file_cannot_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(StackError, match="letters, digits"):
        Stack(tmp_path / name)
    assert not (tmp_path / name).exists()


def test_names_are_expanded_in_the_order_of_their_needs() -> None:
    assert expand(["thrift2-b", "cluster-b", "kafka"]) == ["kafka", "hbase-b", "thrift2-b"]
    assert expand([]) == list(NAMES)
