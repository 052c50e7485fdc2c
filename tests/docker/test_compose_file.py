"""compose.yml: who is on which network, what is published where, what a container may do; and that names.py agrees."""

import re
from typing import Any

import pytest
import yaml

from deploy.docker import image, names, roles
from deploy.docker.clusters import COMPOSE_FILE, HOME_LABEL, SITES
from deploy.drills.hosts import LABEL

COMPOSED = yaml.safe_load(COMPOSE_FILE.read_text(encoding="utf-8"))
SERVICES: dict[str, Any] = COMPOSED["services"]
ALL = sorted(SERVICES)
ZONES = {name: cluster for cluster in names.CLUSTERS for name in names.cluster_hosts(cluster)}


def published(service: str) -> list[tuple[str, str, int]]:
    """(address, port on it, port of the container)"""
    found = []
    for each in SERVICES[service].get("ports", ()):
        address, port, inside = re.fullmatch(r"(\$\{[^}]*\}|[\d.]+):(\$\{[^}]*\}|\d+):(\d+)", each).groups()  # type: ignore[union-attr]
        found.append((address, port, int(inside)))
    return found


def test_the_containers_are_those_of_names() -> None:
    assert set(SERVICES) == {*names.SERVERS, *names.CLIENTS, "setup"}
    for name in (*names.SERVERS, *names.CLIENTS):
        assert SERVICES[name]["container_name"] == names.container(name)
        assert SERVICES[name]["hostname"] == name


@pytest.mark.parametrize("name", ALL)
def test_every_container_has_the_image_that_is_built(name: str) -> None:
    assert SERVICES[name]["image"] == image.IMAGE


@pytest.mark.parametrize("name", sorted(ZONES))
def test_a_cluster_is_on_the_network_of_its_zone_and_only_its_gateways_on_another(name: str) -> None:
    zone = f"zone-{ZONES[name]}"
    expected = {zone, "core"} if "gateway" in name else {zone}
    assert set(SERVICES[name]["networks"]) == expected


@pytest.mark.parametrize("name", sorted({*ALL} - set(ZONES) - {names.PROMETHEUS}))
def test_everything_else_is_on_the_core_network(name: str) -> None:
    assert set(SERVICES[name]["networks"]) == {"core"}


def test_prometheus_is_on_every_network_and_knows_whom_it_asks_there() -> None:
    service = SERVICES[names.PROMETHEUS]
    assert set(service["networks"]) == set(COMPOSED["networks"])
    known = dict(each.split(":", 1) for each in service["extra_hosts"])
    assert set(known) == {names.KAFKA, *(name for name in ZONES if "gateway" not in name)}
    for name, address in known.items():
        assert address in [each["ipv4_address"] for each in SERVICES[name]["networks"].values()]


def test_prometheus_sees_its_own_token_and_nothing_else_of_the_home() -> None:
    assert SERVICES[names.PROMETHEUS]["volumes"] == ["prometheus:/data"]
    assert "secrets" not in SERVICES[names.PROMETHEUS]
    assert "prometheus:/data" in SERVICES["setup"]["volumes"]


def test_the_core_is_the_first_network_by_name() -> None:
    # The engine publishes a gateway's ports on the first of its networks: cut off there, the zone is cut off.
    assert min(each["name"] for each in COMPOSED["networks"].values()) == COMPOSED["networks"]["core"]["name"]


@pytest.mark.parametrize("name", ALL)
def test_only_the_web_may_be_published_beyond_the_loopback(name: str) -> None:
    for address, _, _ in published(name):
        assert address == ("${FEED_WEB_ADDRESS:-127.0.0.1}" if name == names.WEB else "127.0.0.1")


def test_what_is_published_is_what_names_says() -> None:
    expected = {
        names.KAFKA: [(str(names.KAFKA_LOOPBACK_PORT), names.KAFKA_LOOPBACK_PORT)],
        names.MARIADB: [(str(names.MARIADB_LOOPBACK_PORT), names.MARIADB_PORT)],
        names.WEB: [("${FEED_WEB_PORT:-18080}", names.WEB_PORT)],
        names.PROMETHEUS: [(str(names.PROMETHEUS_LOOPBACK_PORT), names.PROMETHEUS_PORT)],
    }
    for cluster in names.CLUSTERS:
        for number in names.GATEWAYS:
            published_at = str(names.loopback_port(cluster, number))
            expected[names.gateway(cluster, number)] = [(published_at, names.THRIFT2_PORT)]
    found = {name: [(port, inside) for _, port, inside in published(name)] for name in ALL if published(name)}
    assert found == expected
    ports = [port for each in found.values() for port, _ in each]
    assert len(set(ports)) == len(ports)


@pytest.mark.parametrize("name", ALL)
def test_no_container_may_do_more_than_it_must(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["user"].split(":")[0] not in {"0", "root"}
    assert service["cap_drop"] == ["ALL"]
    assert "cap_add" not in service
    assert "privileged" not in service
    assert "no-new-privileges:true" in service["security_opt"]
    assert service["mem_limit"].endswith("m")
    assert service["pids_limit"] > 0
    # Nothing of this machine is seen inside but the one secret.
    for volume in service.get("volumes", ()):
        assert volume.split(":")[0] in COMPOSED["volumes"]


@pytest.mark.parametrize("name", sorted({*ALL} - {"setup"}))
def test_a_container_that_dies_comes_back_and_drills_may_break_it(name: str) -> None:
    assert SERVICES[name]["restart"] == "unless-stopped"
    labels = dict(SERVICES[name]["labels"])
    assert labels.pop(LABEL) == "true"
    assert labels.pop(HOME_LABEL) == "${FEED_CLUSTER_HOME:-}"
    if name in ZONES:
        assert labels == {"feedstore.cluster": ZONES[name], "feedstore.role": SERVICES[name]["command"][0]}
    else:
        assert labels == {}


def test_a_set_up_that_was_interrupted_leaves_no_host_that_a_drill_would_wait_for() -> None:
    assert SERVICES["setup"]["labels"] == {LABEL: "false", HOME_LABEL: "${FEED_CLUSTER_HOME:-}"}


@pytest.mark.parametrize("name", ALL)
def test_no_secret_is_in_the_environment_or_in_an_argument(name: str) -> None:
    service = SERVICES[name]
    assert set(service.get("environment", ())) == {"FEED_RESTART_S"} | ({roles.SITES} if name in ZONES else set())
    assert not any("password" in str(word) or "token" in str(word) for word in service["command"])
    if name in ZONES or name == names.KAFKA:
        assert "secrets" not in service


@pytest.mark.parametrize("name", sorted(ZONES))
def test_the_hosts_of_a_zone_know_each_other_by_fixed_addresses(name: str) -> None:
    known = dict(each.split(":", 1) for each in SERVICES[name]["extra_hosts"])
    cluster = ZONES[name]
    assert set(known) == set(names.cluster_hosts(cluster))
    assert SERVICES[name]["networks"][f"zone-{cluster}"]["ipv4_address"] == known[name]


def test_the_core_knows_the_doors_of_the_zones_and_nothing_behind_them() -> None:
    doors = {names.gateway(cluster, number) for cluster in names.CLUSTERS for number in names.GATEWAYS}
    for name in sorted({*ALL} - set(ZONES) - {names.PROMETHEUS}):
        known = dict(each.split(":", 1) for each in SERVICES[name]["extra_hosts"])
        assert set(known) == {*doors, names.KAFKA, names.MARIADB}
        for each, address in known.items():
            assert SERVICES[each]["networks"]["core"]["ipv4_address"] == address


def test_no_address_is_given_twice_or_left_to_chance_among_the_fixed_ones() -> None:
    fixed = [
        network["ipv4_address"]
        for service in SERVICES.values()
        for network in service["networks"].values()
        if "ipv4_address" in network
    ]
    assert len(set(fixed)) == len(fixed)
    assert all(int(address.rsplit(".", 1)[1]) < 128 for address in fixed)
    for network in COMPOSED["networks"].values():
        (pool,) = network["ipam"]["config"]
        assert pool["ip_range"].endswith(".128/25")


def test_each_host_has_the_role_that_its_name_says_and_each_cluster_a_second_master() -> None:
    for name, cluster in ZONES.items():
        role, of = SERVICES[name]["command"]
        assert of == cluster
        assert role in roles.ROLES
        if "host" not in name:
            assert role == name.removeprefix(f"{cluster}-").rstrip("-12")
    for cluster in names.CLUSTERS:
        given = sorted(SERVICES[names.host(cluster, number)]["command"][0] for number in names.HOSTS)
        assert given == ["host", "host", "standby"]


def test_the_data_of_each_server_is_in_a_volume_of_its_own() -> None:
    keeping = [name for name in names.SERVERS if "gateway" not in name]
    assert [SERVICES[name]["volumes"] for name in keeping] == [[f"{name}:/data"] for name in keeping]
    assert set(COMPOSED["volumes"]) == {*keeping, "home", names.PROMETHEUS}
    for volume in COMPOSED["volumes"].values():
        assert volume == {"labels": {HOME_LABEL: "${FEED_CLUSTER_HOME:-}"}}


@pytest.mark.parametrize("name", sorted(ZONES))
def test_the_servers_of_a_cluster_are_told_which_settings_they_have(name: str) -> None:
    assert SERVICES[name]["environment"][roles.SITES] == f"${{{SITES}:-tuned}}"


def test_its_names_begin_with_the_project() -> None:
    assert all(each["name"].startswith(f"{names.PROJECT_NAME}-") for each in COMPOSED["networks"].values())


# Both Composes were seen to read these alike. `name:` and `depends_on: ... restart` are refused by 1.29, for example,
# and `version:` is warned about by v2: if you add a key, try it with both (docs/docker.md), and then add it here.
KEYS = {
    *("cap_drop", "command", "container_name", "cpu_shares", "environment", "extra_hosts", "hostname", "image"),
    *("labels", "logging", "mem_limit", "networks", "pids_limit", "ports", "profiles", "read_only", "restart"),
    *("secrets", "security_opt", "stop_grace_period", "tmpfs", "user", "volumes"),
}


def test_nothing_stands_in_it_that_was_not_tried_with_both_composes() -> None:
    own = {key for key in COMPOSED if not key.startswith("x-")}
    assert own == {"services", "networks", "volumes", "secrets"}
    assert {key for service in SERVICES.values() for key in service} <= KEYS
    # v2 takes a service without its profile for none; so does `up`, which names its services.
    assert [name for name in ALL if "profiles" in SERVICES[name]] == ["setup"]
    for service in SERVICES.values():
        assert all(isinstance(port, str) for port in service.get("ports", ()))
        assert all(isinstance(secret, str) for secret in service.get("secrets", ()))
