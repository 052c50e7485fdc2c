"""What runs on the hosts, and with what configuration."""

import json
import socket
import tomllib
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import yaml

from deploy.docker import clusters, image, names, roles
from deploy.docker.container import PLACES
from deploy.docker.supervisor import SupervisedProcess
from deploy.hbase import settings as hadoop_settings
from deploy.local import jars
from deploy.local.errors import StackError
from feedstore.app import config
from workers.cli import stacks

PASSWORD = "p4ssw0rd"


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("DATA", "CONF"):
        folder = tmp_path / name.lower()
        folder.mkdir()
        monkeypatch.setattr(roles, name, folder)
    secret = tmp_path / "secret"
    secret.write_text(f"{PASSWORD}\n")
    monkeypatch.setattr(roles, "PASSWORD", secret)
    monkeypatch.setattr(roles, "_interface_towards", lambda host: f"towards-{host}")
    monkeypatch.setattr(socket, "gethostname", lambda: "a-host-2")
    return tmp_path


def configured(*hosts: tuple[str, str]) -> list[SupervisedProcess]:
    """The servers of hosts, each a role and a cluster, with their configuration written."""
    made = [process for role, cluster in hosts for process in roles.processes(role, cluster)]
    for process in made:
        process.configure()
    return made


def site(process: str, file: str) -> dict[str, str]:
    root = ET.parse(roles.CONF / process / f"{file}-site.xml").getroot()
    return {item.findtext("name", ""): item.findtext("value", "") for item in root}


def test_each_role_runs_what_the_paper_puts_together() -> None:
    ran = {role: [each.name for each in roles.processes(role, "a")] for role in roles.ROLES}
    assert ran == {
        "control": ["zookeeper", "namenode", "master"],
        "host": ["datanode", "regionserver"],
        "standby": ["datanode", "regionserver", "master"],
        "gateway": ["thrift2"],
        "kafka": ["kafka"],
        "mariadb": ["mariadb"],
        "prometheus": ["prometheus"],
    }


def test_to_ask_a_host_writes_nothing() -> None:
    for role in roles.ROLES:
        roles.processes(role, "a")
    assert list(roles.CONF.iterdir()) == list(roles.DATA.iterdir()) == []


@pytest.mark.parametrize(("role", "backup"), [("control", None), ("standby", "true")])
def test_the_second_master_waits_for_the_first(role: str, backup: str | None) -> None:
    configured((role, "a"))
    assert site("master", "hbase").get("hbase.master.backup") == backup


def test_a_master_starts_with_a_host_gone_and_with_as_many_as_a_file_needs() -> None:
    (master,) = [each for each in roles.processes("control", "a") if each.name == "master"]
    assert not any("host" in host for host, _ in master.needs)
    least = int(hadoop_settings.layers("hdfs-site.namenode.xml", own={})["dfs.namenode.replication.min"])
    count, places = master.needs_some
    assert least == count < len(places) == len(names.HOSTS)


def test_prometheus_asks_everything_that_shows_metrics_where_it_does() -> None:
    configured(("prometheus", ""))
    conf = json.loads((roles.CONF / "prometheus" / "prometheus.yml").read_text())
    asked = {each["targets"][0] for job in conf["scrape_configs"] for each in job["static_configs"]}
    listening = {f"{names.WEB}:{names.WEB_PORT}"}
    for host, command in {**WORDS, **{name: COMMANDS[name] for name in names.WORKERS}}.items():
        listening |= {f"{host}:{port}" for port in shown(command)}
    assert asked == listening
    programs = {each["labels"]["program"] for each in conf["scrape_configs"][0]["static_configs"]}
    assert programs == {"serve", "relay", "expand", "write"}
    assert {each["labels"]["home"] for each in conf["scrape_configs"][0]["static_configs"]} == {roles.HOME}
    assert f"FEED_HOME={roles.HOME}\n" in (image.PROJECT / "deploy/docker/Dockerfile").read_text()


COMMANDS = {
    name: each["command"] for name, each in yaml.safe_load(clusters.COMPOSE_FILE.read_text())["services"].items()
}
WORDS = {name: COMMANDS[name] for name in names.SERVERS}


def shown(command: list[str]) -> list[str]:
    """The ports on which what a container runs shows metrics."""
    if "--metrics" in command:
        return [command[command.index("--metrics") + 1].removeprefix("0.0.0.0:")]
    options = [word for each in roles.processes(command[0], "".join(command[1:])) for word in each.argv]
    return [word.split("=0.0.0.0:")[1].split(":")[0] for word in options if word.startswith("-javaagent:")]


def test_an_unknown_role_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(StackError, match="standby"):
        roles.processes("hots", "a")


def test_the_two_heartbeats_reach_the_two_servers() -> None:
    configured(("control", "a"), ("host", "a"))
    assert site("namenode", "hdfs")["dfs.heartbeat.interval"] == "1"
    assert site("datanode", "hdfs")["dfs.heartbeat.interval"] == "250ms"
    assert site("namenode", "hdfs")["dfs.block.replicator.classname"] == "feedstore.placement.FreshNodesPlacement"
    assert "dfs.block.replicator.classname" not in site("regionserver", "hdfs")


def test_no_two_region_servers_roll_their_logs_at_the_same_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    longest = int(hadoop_settings.layers("hbase-site.server.xml", own={})["hbase.regionserver.logroll.period"])
    hosts = [(cluster, names.host(cluster, number)) for cluster in names.CLUSTERS for number in names.HOSTS]
    periods = []
    for cluster, host in hosts:
        monkeypatch.setattr(socket, "gethostname", lambda host=host: host)
        configured(("host", cluster))
        periods.append(int(site("regionserver", "hbase")["hbase.regionserver.logroll.period"]))
    assert len({period // 100 for period in periods}) == len(hosts)
    assert longest * 3 / 4 <= min(periods) < max(periods) <= longest


def test_servers_may_have_the_settings_of_hadoop_and_hbase(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(roles.SITES, "defaults")
    configured(("control", "a"), ("standby", "a"), ("gateway", "a"))
    assert set(site("zookeeper", "hbase")) == set(site("regionserver", "hbase")) - {
        "hbase.coprocessor.master.classes",
        "hbase.master.info.port",
        "hbase.master.wait.on.regionservers.mintostart",
        "hbase.regionserver.info.port",
        "hbase.unsafe.regionserver.hostname.disable.master.reversedns",
    }
    assert site("namenode", "core").keys() == {"fs.defaultFS", "hadoop.tmp.dir"}
    assert "dfs.block.replicator.classname" not in site("namenode", "hdfs")
    assert "dfs.heartbeat.interval" not in site("datanode", "hdfs")
    assert site("master", "hbase")["hbase.rootdir"] == "hdfs://a-control:8020/hbase"
    assert "hbase.client.operation.timeout" not in site("thrift2", "hbase")
    assert site("thrift2", "hbase")["hbase.thrift.maxWorkerThreads"] == "256"


def test_only_the_namenode_has_the_placement_on_its_class_path() -> None:
    with_it = {
        each.name
        for role in roles.ROLES
        for each in roles.processes(role, "a")
        if any("/placement/" in word for word in each.argv)
    }
    assert with_it == {"namenode"}


def test_a_cluster_knows_nothing_of_the_other() -> None:
    configured(("control", "b"), ("standby", "b"), ("gateway", "b"))
    for process in ("zookeeper", "master", "regionserver", "thrift2"):
        assert site(process, "hbase")["hbase.zookeeper.quorum"] == "b-control"
        assert site(process, "hbase")["hbase.rootdir"] == "hdfs://b-control:8020/hbase"
        assert site(process, "core")["fs.defaultFS"] == "hdfs://b-control:8020"


def test_gateways_have_settings_of_their_own_and_listen_for_dead_servers_in_their_zone() -> None:
    configured(("gateway", "a"), ("host", "a"))
    assert site("thrift2", "hbase")["hbase.status.multicast.ni.name"] == "towards-a-control"
    assert site("thrift2", "hbase")["hbase.client.operation.timeout"] == "3000"
    assert "hbase.client.operation.timeout" not in site("regionserver", "hbase")
    assert "hbase.regionserver.logroll.period" not in site("thrift2", "hbase")


def test_a_broker_names_itself_differently_to_this_machine() -> None:
    configured(("kafka", ""))
    lines = (roles.CONF / "kafka" / "server.properties").read_text().splitlines()
    values = dict(line.split("=", 1) for line in lines)
    assert values["advertised.listeners"] == "INSIDE://kafka:9092,LOOPBACK://127.0.0.1:19092"
    assert values["auto.create.topics.enable"] == "false"


def test_the_password_is_in_no_argument_and_in_no_file_that_others_read(folders: Path) -> None:
    argv = [word for each in configured(*((role, "a") for role in roles.ROLES)) for word in each.argv]
    assert not any(PASSWORD in word for word in argv)
    holding = [path for path in roles.CONF.rglob("*") if path.is_file() and PASSWORD in path.read_text()]
    assert {path.name for path in holding} == {"init.sql", "client.cnf"}
    assert all(path.stat().st_mode & 0o077 == 0 for path in holding)


def parsed(directory: Path) -> config.Config:
    text = config.DEFAULT
    for there, instead in stacks.replacements("docker", directory).items():
        assert text.count(there) == 1
        text = text.replace(there, instead)
    tomllib.loads(text)
    return config.parse(directory, text, {})


def test_the_home_in_the_containers_names_the_containers_and_asks_for_tokens() -> None:
    made = parsed(PLACES.parent)
    gateways = "hbase://b-gateway-1:9091,b-gateway-2:9091/"
    assert made.clusters[1].url == f"{gateways}?reads=gateways", "region servers are on networks of their own"
    assert made.queue == "kafka://kafka:9092"
    assert made.shards[0] == (
        f"mysql://feed@mariadb:3306/follows_0?password_file={roles.Path('/run/secrets/mariadb-password')}&tls=off"
    )
    assert made.http.tokens is not None


def test_a_home_on_this_machine_reaches_everything_through_the_loopback(tmp_path: Path) -> None:
    one = clusters.Clusters(tmp_path / "cluster", lambda _: None)
    one._write_secrets()
    made = parsed(one.home)
    gateways = "hbase://127.0.0.1:19091,127.0.0.1:19191/"
    assert made.clusters[0].url == f"{gateways}?reads=gateways"
    assert made.http.tokens is None
    secret = one.home / "secrets" / "mariadb.password"
    assert secret.parent.stat().st_mode & 0o077 == 0
    assert secret.read_text() not in json.dumps(json.loads((one.home / "places.json").read_text()))
    one._write_secrets()
    assert f"password_file={secret}" in made.shards[0]


def test_the_places_inside_are_those_of_names() -> None:
    places = json.loads(PLACES.read_text())
    for cluster in names.CLUSTERS:
        expected = [f"{names.gateway(cluster, number)}:{names.THRIFT2_PORT}" for number in names.GATEWAYS]
        assert places["clusters"][cluster] == {"thrift2": expected}


def test_the_placement_is_built_against_the_hadoop_that_runs() -> None:
    versions = []
    for pom in (jars.POM, jars.BUILT[jars.PLACEMENT] / "pom.xml"):
        found = ET.parse(pom).getroot().find(".//{*}properties/{*}hadoop.version")
        assert found is not None
        versions.append(found.text)
    assert versions[0] == versions[1]


def test_the_class_path_begins_with_what_the_class_archive_was_made_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Java silently ignores an archive that was made with another one."""
    jars_of = tmp_path / "jars" / "hbase"
    jars_of.mkdir(parents=True)
    for name in ("second.jar", "first.jar"):
        (jars_of / name).touch()
    monkeypatch.setattr(roles, "JARS", tmp_path / "jars")
    for process in (*roles.processes("standby", "a"), *roles.processes("control", "a")):
        path = process.argv[process.argv.index("-cp") + 1].split(":")
        assert path[:2] == [str(jars_of / "first.jar"), str(jars_of / "second.jar")]
        # With jars before it, nothing of the configuration may be in one; it is found behind them.
        assert path[-1] == str(roles.CONF / process.name)
