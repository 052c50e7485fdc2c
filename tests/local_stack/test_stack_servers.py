"""What the real servers are started with: everything on the loopback, each process known by one argument."""

import json
import os
import pwd
import shutil
import stat
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from deploy.hbase.settings import site_xml
from deploy.local import StackError, hbase, jars, java, kafka, mariadb, prometheus
from deploy.local.home import Home
from deploy.local.servers import Server


@pytest.fixture
def servers(home: Home, monkeypatch: pytest.MonkeyPatch) -> dict[str, Server]:
    """Prepared as for a start, without Maven and without data."""
    monkeypatch.setattr(jars, "ensure", lambda profile, say: jars.folder(profile))
    monkeypatch.setattr(jars, "build", lambda name, say: jars.built_folder(name))
    monkeypatch.setitem(jars.BUILT, jars.TRIM, sources(home.root.with_name("coprocessor")))
    made: list[Server] = [
        kafka.server(home, {"client": 1, "controller": 2, "metrics": 10}),
        mariadb.server(home, {"client": 3}),
        hbase.cluster(home, "a", {"zookeeper": 4, "master": 5, "regionserver": 6, "metrics": 11}),
        hbase.gateway(home, "a", 4, {"client": 7}),
        prometheus.server(home, {"client": 9}, {"kafka": 10, "hbase-a": 11}),
    ]
    home.data("mariadb").mkdir()
    home.data("kafka").mkdir()
    (home.data("kafka") / "meta.properties").touch()
    for server in made:
        server.prepare(lambda _: None)
    return {server.name: server for server in made}


def sources(folder: Path) -> Path:
    """Something that a jar could be built from."""
    (folder / "src" / "main" / "java").mkdir(parents=True)
    (folder / "pom.xml").write_text("<project/>")
    (folder / "src" / "main" / "java" / "Trim.java").write_text("class Trim {}")
    return folder


def _site(home: Home, server: str) -> dict[str, str]:
    tree = ET.parse(home.conf(server) / "hbase-site.xml")
    return {item.findtext("name", ""): item.findtext("value", "") for item in tree.getroot()}


def test_every_mark_is_one_argument_of_one_server(servers: dict[str, Server], home: Home) -> None:
    marks = {server.mark for server in servers.values()}
    assert len(marks) == len(servers)
    for server in servers.values():
        assert server.mark in server.command().argv
        assert str(home.root) in server.mark


def test_kafka_listens_on_the_loopback_only(servers: dict[str, Server], home: Home) -> None:
    lines = (home.conf("kafka") / "server.properties").read_text(encoding="utf-8").splitlines()
    values = dict(line.split("=", 1) for line in lines)
    assert values["listeners"] == "PLAINTEXT://127.0.0.1:1,CONTROLLER://127.0.0.1:2"
    assert values["advertised.listeners"] == "PLAINTEXT://127.0.0.1:1"
    assert values["auto.create.topics.enable"] == "false"


def test_mariadb_runs_as_the_user_of_the_command_whatever_the_environment_says(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.setenv(name, "somebody-else")
    argv = mariadb.server(home, {"client": 3}).command().argv
    assert f"--user={pwd.getpwuid(os.geteuid()).pw_name}" in argv


@pytest.mark.processes
def test_what_an_attempt_to_make_the_data_of_mariadb_left_running_writes_into_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It is killed in the middle, and what it had begun continues.
    program = tmp_path / "mariadb-install-db"
    program.write_text(
        f'#!/bin/sh\nmkdir "${{2#--datadir=}}" && echo "${{2#--datadir=}}" >>{tmp_path}/made && exit 1\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    data = tmp_path / "data" / "mariadb"
    (data.parent / "mariadb.new").mkdir(parents=True)  # as an earlier version named it
    for _ in range(2):
        with pytest.raises(StackError, match="could not be made"):
            mariadb.install(data)
    first, second = (tmp_path / "made").read_text().splitlines()
    assert first != second
    assert [str(each) for each in data.parent.iterdir()] == [second]
    program.write_text(program.read_text().replace("exit 1", "exit 0"))
    mariadb.install(data)
    assert list(data.parent.iterdir()) == [data]


def test_mariadb_listens_on_the_loopback_only_and_reads_no_file_of_the_system(servers: dict[str, Server]) -> None:
    argv = servers["mariadb"].command().argv
    assert argv[1] == "--no-defaults"
    assert "--bind-address=127.0.0.1" in argv
    assert "--port=3" in argv


def test_prometheus_listens_on_the_loopback_only_keeps_little_and_reads_the_rules(
    servers: dict[str, Server], home: Home
) -> None:
    argv = servers["prometheus"].command().argv
    assert "--web.listen-address=127.0.0.1:9" in argv
    assert any(each.startswith("--storage.tsdb.retention.size=") for each in argv)
    conf = json.loads((home.conf("prometheus") / "prometheus.yml").read_text(encoding="utf-8"))
    assert [Path(each).is_file() for each in conf["rule_files"]] == [True]
    processes, of_servers = conf["scrape_configs"]
    assert processes["file_sd_configs"][0]["files"] == [f"{home.root}/targets/*.json"]
    assert of_servers["static_configs"] == [
        {"targets": ["127.0.0.1:10"], "labels": {"server": "kafka"}},
        {"targets": ["127.0.0.1:11"], "labels": {"server": "hbase-a"}},
    ]


@pytest.mark.parametrize(("server", "port"), [("kafka", 10), ("hbase-a", 11)])
def test_a_server_shows_its_metrics_on_the_loopback_only(
    servers: dict[str, Server], home: Home, server: str, port: int
) -> None:
    (option,) = [word for word in servers[server].command().argv if word.startswith("-javaagent:")]
    assert (
        option
        == f"-javaagent:{jars.folder(jars.AGENT)}/{java.AGENT_JAR}=127.0.0.1:{port}:{home.conf(server)}/agent.yml"
    )
    shown = json.loads((home.conf(server) / "agent.yml").read_text(encoding="utf-8"))
    assert shown["includeObjectNames"]
    assert shown["rules"]


def test_the_brokers_own_tools_show_no_metrics(
    servers: dict[str, Server], home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Two processes cannot have one port.
    ran: list[str] = []
    monkeypatch.setattr(kafka, "run", lambda *words, **_: ran.extend(words))
    (home.data("kafka") / "meta.properties").unlink()
    servers["kafka"].prepare(lambda _: None)
    assert "kafka.tools.StorageTool" in ran
    assert not any("-javaagent" in word for word in ran)
    assert servers["kafka"].mark not in ran


def test_the_password_is_on_no_command_line_and_in_no_file_that_others_read(
    servers: dict[str, Server], home: Home
) -> None:
    password = home.password()
    for server in servers.values():
        assert not any(password in argument for argument in server.command().argv)
    holding = [path for path in home.root.rglob("*") if path.is_file() and password.encode() in path.read_bytes()]
    assert {path.name for path in holding} == {"mariadb.password", "init.sql", "client.cnf"}
    assert {stat.S_IMODE(path.stat().st_mode) for path in holding} == {0o600}


def test_a_cluster_keeps_what_it_acknowledged_and_listens_on_the_loopback_only(
    servers: dict[str, Server], home: Home
) -> None:
    site = _site(home, "hbase-a")
    assert site["fs.file.impl"] == "org.apache.hadoop.fs.RawLocalFileSystem"
    assert site["hbase.rootdir"] == f"file://{home.data('hbase-a')}/root"
    assert site["hbase.master.ipc.address"] == site["hbase.regionserver.ipc.address"] == "127.0.0.1"
    assert [site[f"hbase.{role}.port"] for role in ("master", "regionserver")] == ["5", "6"]


def test_a_cluster_has_the_trim_on_its_class_path_and_its_guard_in_the_master(
    servers: dict[str, Server], home: Home
) -> None:
    argv = servers["hbase-a"].command().argv
    assert str(jars.built_folder(jars.TRIM)) + "/*" in argv[argv.index("-cp") + 1].split(":")
    assert _site(home, "hbase-a")["hbase.coprocessor.master.classes"] == "feedstore.trim.TrimTableGuard"
    # What `feedctl table` runs with.
    assert (home.root / "jars" / "trim").readlink() == jars.built_folder(jars.TRIM)
    assert (home.root / "jars" / "hbase").readlink() == jars.folder("hbase")


def test_a_gateway_keeps_idle_connections_and_finds_its_cluster(servers: dict[str, Server], home: Home) -> None:
    site = _site(home, "thrift2-a")
    assert site["hbase.thrift.server.socket.read.timeout"] == "0"
    assert site["hbase.zookeeper.property.clientPort"] == "4"
    assert site["hbase.regionserver.thrift.ipaddress"] == "127.0.0.1"
    assert servers["thrift2-a"].command().argv[-5:] == ("start", "-p", "7", "--bind", "127.0.0.1")


def test_site_files_escape_what_xml_needs() -> None:
    assert "<name>a</name><value>&lt;&amp;&gt;</value>" in site_xml({"a": "<&>"})


def test_another_pom_gets_another_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = jars.folder("kafka")
    changed = tmp_path / "pom.xml"
    changed.write_text("<project/>", encoding="utf-8")
    monkeypatch.setattr(jars, "POM", changed)
    assert jars.folder("kafka") != before
    assert jars.folder("kafka") != jars.folder("hbase")


@pytest.mark.parametrize("changed", ["pom.xml", "src/main/java/Trim.java", "src/main/java/Another.java"])
def test_other_sources_of_the_trim_get_another_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    monkeypatch.setitem(jars.BUILT, jars.TRIM, sources(tmp_path / "coprocessor"))
    before = jars.built_folder(jars.TRIM)
    assert jars.built_folder(jars.TRIM) == before
    (tmp_path / "coprocessor" / changed).write_text("changed")
    assert jars.built_folder(jars.TRIM) != before


def test_without_maven_the_trim_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(jars.BUILT, jars.TRIM, sources(tmp_path / "coprocessor"))
    monkeypatch.setattr(jars, "JARS", tmp_path / "jars")
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    with pytest.raises(StackError, match="there is no program mvn: `make stack-ready` installs what is needed"):
        jars.build(jars.TRIM, lambda _: None)


def test_sources_that_do_not_compile_are_told_of_and_built_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "mvn"
    program.write_text("#!/bin/sh\necho Trim.java:1: error\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setitem(jars.BUILT, jars.TRIM, sources(tmp_path / "coprocessor"))
    monkeypatch.setattr(jars, "JARS", tmp_path / "jars")
    monkeypatch.setattr(shutil, "which", lambda *_, **__: str(program))
    with pytest.raises(StackError, match=r"could not build the trim: \S+/mvn .* status 1:\nTrim.java:1: error"):
        jars.build(jars.TRIM, lambda _: None)
    program.write_text("#!/bin/sh\nmkdir $(dirname $4)/target && touch $(dirname $4)/target/feedstore-trim.jar\n")
    made = jars.build(jars.TRIM, lambda _: None)
    assert [each.name for each in made.iterdir()] == ["feedstore-trim.jar"]


def test_jars_of_other_sources_are_removed_once_no_program_names_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "mvn"
    program.write_text("#!/bin/sh\nmkdir $(dirname $4)/target && touch $(dirname $4)/target/feedstore-trim.jar\n")
    program.chmod(0o755)
    module = sources(tmp_path / "coprocessor")
    monkeypatch.setitem(jars.BUILT, jars.TRIM, module)
    monkeypatch.setattr(jars, "JARS", tmp_path / "jars")
    monkeypatch.setattr(shutil, "which", lambda *_, **__: str(program))
    unlike = tmp_path / "jars" / "kafka-0123456789ab"
    unlike.mkdir(parents=True)

    def made(text: str) -> Path:
        (module / "pom.xml").write_text(text)
        return jars.build(jars.TRIM, lambda _: None)

    first = made("first")
    argv = [sys.executable, "-c", "input()", f"-cp={first}/*"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE) as server:
        second = made("second")
        assert first.is_dir()
        assert server.stdin
        server.stdin.close()
        server.wait()
    third = made("third")
    assert [first.exists(), second.exists(), third.exists(), unlike.exists()] == [False, False, True, True]
