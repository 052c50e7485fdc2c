"""The servers on a host of each role, their configuration, and how each server is asked whether it is ready.

Everything here happens inside a container: `/opt/feed` is part of the image, `/data` is the host's own volume, and
`/tmp` is lost with the container.
"""

import fcntl
import json
import os
import socket
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast, get_args

from deploy import monitoring
from deploy.docker import names
from deploy.docker.class_archive import class_path
from deploy.docker.supervisor import SupervisedProcess
from deploy.hbase import settings
from deploy.local import hbase, java, kafka, mariadb, probes, prometheus
from deploy.local.errors import NotReadyError, StackError
from deploy.local.home import write_conf
from deploy.local.ports import LOOPBACK
from deploy.local.programs import run
from deploy.monitoring import servers

JARS = Path("/opt/feed/jars")
CLASS_ARCHIVE = JARS / "hbase.jsa"
DATA = Path("/data")
CONF = Path("/tmp/conf")  # noqa: S108 - of a container's own, with no other user in it
HOME = "/home/feed/home"
"""The home that workers and web share: their metrics carry it as a label."""
TOKEN = DATA / "token"
"""The token with which Prometheus asks the web for its metrics."""
PASSWORD = Path("/run/secrets/mariadb-password")
SITES = "FEED_SITES"
"""The environment variable with the set of settings (deploy/hbase/settings.py) of the clusters' servers."""

_QUIET = (
    "org.apache.zookeeper",
    "org.apache.hadoop.metrics2",
    "org.apache.hadoop.hbase.thirdparty",
    "org.apache.hadoop.hdfs.server.namenode.FSNamesystem.audit",
)
_PREPARE_S = 120.0
_ANSWER_S = 5.0
_STARTS_FAST = (java.STARTS_FAST, "-XX:+UseSerialGC")
"""Twenty JVMs share a few cores. Work that a JVM does for the first time, recovery above all, must not wait for an
optimising compiler: with both of Java's compilers a region server took 1.7 times the processor time until it served.
"""
_SMALL_STACKS = "-Xss512k"
_REGIONSERVER_FLAGS = (
    java.STARTS_FAST,
    "-Xms320m",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=50",
    "-XX:+ParallelRefProcEnabled",
)
"""Pages wait for garbage collections, which must be short, as the paper's section VI-A2 asks of CMS and a small new
generation. With the heap that Java begins with in a container of this size, a server that has just started collects
twice a second.
"""
_SHARED_CLASSES = (
    f"-XX:SharedArchiveFile={CLASS_ARCHIVE}",
    # At the address that it was made for: at another one its pages would be rewritten, and not be shared.
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:ArchiveRelocationMode=0",
)
_SIOCGIFADDR = 0x8915
_ROLL_PERIOD = "hbase.regionserver.logroll.period"


@dataclass(frozen=True)
class _Conf:
    """A directory of configuration, and its files."""

    folder: Path
    files: Mapping[str, str]

    def write(self) -> None:
        for name, text in self.files.items():
            write_conf(self.folder, name, text)


def processes(role: str, cluster: str) -> list[SupervisedProcess]:
    """The servers of a host, each after those that it needs. cluster: empty outside the zones.

    Raises StackError: there is no such role.
    """
    made = ROLES.get(role)
    if made is None:
        raise StackError(f"there is no role {role!r}; there are {', '.join(ROLES)}")
    return made(cluster)


def _host(cluster: str) -> list[SupervisedProcess]:
    return [_datanode(cluster), _regionserver(cluster)]


def _zookeeper(cluster: str) -> SupervisedProcess:
    conf = _hbase_conf("zookeeper", cluster)
    flags = (*_STARTS_FAST, "-Dzookeeper.admin.enableServer=false")
    argv = _hadoop(conf, heap_mib=96, flags=flags, main=("org.apache.hadoop.hbase.zookeeper.HQuorumPeer",))
    return SupervisedProcess("zookeeper", argv, _zookeeper_answers, configure=conf.write, is_alone=True)


def _namenode(cluster: str) -> SupervisedProcess:
    conf = _hdfs_conf("namenode", cluster)
    main = "org.apache.hadoop.hdfs.server.namenode.NameNode"

    def format_once() -> None:
        if not (DATA / "namenode" / "current" / "VERSION").exists():
            words = (main, "-format", "-nonInteractive", "-force")
            argv = _hadoop(conf, heap_mib=192, flags=_STARTS_FAST, main=words, ours="placement")
            run(*argv, failed="the NameNode's directory could not be formatted", timeout_s=_PREPARE_S)

    return SupervisedProcess(
        "namenode",
        _hadoop(conf, heap_mib=256, flags=_STARTS_FAST, main=(main,), ours="placement"),
        lambda: _hdfs_is_whole(names.control(cluster)),
        configure=conf.write,
        prepare=format_once,
        is_alone=True,
    )


def _datanode(cluster: str) -> SupervisedProcess:
    conf = _hdfs_conf("datanode", cluster)
    main = ("org.apache.hadoop.hdfs.server.datanode.DataNode",)
    return SupervisedProcess(
        "datanode",
        _hadoop(conf, heap_mib=192, flags=(*_STARTS_FAST, _SMALL_STACKS), main=main),
        lambda: probes.listens(names.DATANODE_PORT),
        needs=[(names.control(cluster), names.NAMENODE_PORT)],
        configure=conf.write,
    )


def _master(cluster: str, *, is_standby: bool = False) -> SupervisedProcess:
    # Without it the master that starts first is the active one, and that may be on the host that a drill breaks.
    own = {"hbase.master.backup": "true"} if is_standby else {}
    conf = _hbase_conf("master", cluster, "server", own=own)
    return SupervisedProcess(
        "master",
        _hadoop(
            conf,
            heap_mib=320,
            flags=(_watched(conf, names.MASTER_METRICS_PORT), *_STARTS_FAST),
            main=("org.apache.hadoop.hbase.master.HMaster", "start"),
        ),
        lambda: probes.listens(names.MASTER_PORT, socket.gethostname()),
        needs=[
            (names.control(cluster), names.ZOOKEEPER_PORT),
            (names.control(cluster), names.NAMENODE_PORT),
        ],
        # A master first writes a file, which as many DataNodes must take as hdfs-site.namenode.xml asks for. Any of
        # them will do: a cluster that lost a host must still get a master.
        needs_some=(2, [(names.host(cluster, number), names.DATANODE_PORT) for number in names.HOSTS]),
        configure=conf.write,
    )


def _regionserver(cluster: str) -> SupervisedProcess:
    conf = _hbase_conf("regionserver", cluster, "server", own=_roll_period(socket.gethostname()))
    main = ("org.apache.hadoop.hbase.regionserver.HRegionServer", "start")
    flags = (_watched(conf, names.REGIONSERVER_METRICS_PORT), *_REGIONSERVER_FLAGS)
    node = conf.folder / "znode"
    zookeeper = f"{names.control(cluster)}:{names.ZOOKEEPER_PORT}"
    return SupervisedProcess(
        "regionserver",
        ("env", f"HBASE_ZNODE_FILE={node}", *_hadoop(conf, heap_mib=640, flags=flags, main=main)),
        lambda: probes.listens(names.REGIONSERVER_PORT, socket.gethostname()),
        needs=[
            (names.control(cluster), names.ZOOKEEPER_PORT),
            (names.control(cluster), names.NAMENODE_PORT),
            (socket.gethostname(), names.DATANODE_PORT),
        ],
        configure=conf.write,
        after=("python3", "-m", "deploy.docker.znode_cleanup", str(node), zookeeper),
    )


def _roll_period(host: str) -> dict[str, str]:
    """The period in which a region server rolls its logs: for each host another one, shorter by up to a quarter.
    Otherwise region servers that start together would always roll their logs, and flush their regions for it, at the
    same moment. That takes all of the processors for seconds, whatever else happens then.
    """
    period = _settings("hbase-site.server.xml", own={}).get(_ROLL_PERIOD)
    if period is None:
        return {}
    return {_ROLL_PERIOD: str(round(int(period) * (1 - zlib.crc32(host.encode()) / 2**34)))}


def _thrift2(cluster: str) -> SupervisedProcess:
    port = names.THRIFT2_PORT
    own = {"hbase.regionserver.thrift.port": str(port)}
    network = _interface_towards(names.control(cluster))
    if network is not None:
        # A gateway is on two networks, and only that of the zone carries the master's messages about dead servers.
        own["hbase.status.multicast.ni.name"] = network
    conf = _hbase_conf("thrift2", cluster, "gateway", own=own)
    main = (hbase.GATEWAY_MAIN, "start", "-p", str(port))
    return SupervisedProcess(
        "thrift2",
        _hadoop(conf, heap_mib=192, flags=(*_STARTS_FAST, _SMALL_STACKS), main=main),
        lambda: probes.thrift2_tables(port),
        needs=[(names.control(cluster), names.ZOOKEEPER_PORT)],
        configure=conf.write,
    )


def _kafka(_: str) -> list[SupervisedProcess]:
    listeners = {
        "INSIDE": names.KAFKA_PORT,
        "LOOPBACK": names.KAFKA_LOOPBACK_PORT,
        "CONTROLLER": names.KAFKA_CONTROLLER_PORT,
    }
    bound = ",".join(f"{name}://0.0.0.0:{port}" for name, port in listeners.items())
    own = {
        "controller.quorum.voters": f"1@{names.KAFKA}:{names.KAFKA_CONTROLLER_PORT}",
        "listeners": bound,
        "advertised.listeners": f"INSIDE://{names.KAFKA}:{names.KAFKA_PORT},"
        f"LOOPBACK://{LOOPBACK}:{names.KAFKA_LOOPBACK_PORT}",
        "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in listeners),
        "inter.broker.listener.name": "INSIDE",
        "log.dirs": str(DATA / "kafka"),
    }
    files = {
        java.LOG_CONF: java.log_conf(),
        java.AGENT_CONF: servers.agent_yml(servers.KAFKA),
        "server.properties": kafka.properties(own),
    }
    conf = _Conf(CONF / "kafka", files)
    properties = str(conf.folder / "server.properties")
    path = f"{JARS / 'kafka'}/*:{conf.folder}"

    def format_once() -> None:
        if not (DATA / "kafka" / "meta.properties").exists():
            argv = _java(
                conf, path, heap_mib=192, flags=_STARTS_FAST, main=kafka.format_words(properties, kafka.new_cluster())
            )
            run(*argv, failed="the broker's directory could not be formatted", timeout_s=_PREPARE_S)

    flags = (_watched(conf, names.KAFKA_METRICS_PORT), *_STARTS_FAST)
    argv = _java(conf, path, heap_mib=384, flags=flags, main=("kafka.Kafka", properties))

    def asks() -> None:
        probes.kafka_metadata(names.KAFKA_PORT)

    return [SupervisedProcess("kafka", argv, asks, configure=conf.write, prepare=format_once, is_alone=True)]


def _mariadb(_: str) -> list[SupervisedProcess]:
    conf, data = CONF / "mariadb", DATA / "mariadb"

    def configure() -> None:
        password = PASSWORD.read_text(encoding="utf-8").strip()
        client = mariadb.client_conf(password, names.MARIADB_PORT)
        _Conf(conf, {"init.sql": mariadb.init_sql(password, "%"), "client.cnf": client}).write()

    def install_once() -> None:
        if not data.exists():
            mariadb.install(data)

    bind = "0.0.0.0"  # noqa: S104 - of the core network
    argv = ("/usr/sbin/mariadbd", *mariadb.arguments(data, conf / "init.sql", bind=bind, port=names.MARIADB_PORT))

    def check() -> None:
        probes.mariadb_select(conf / "client.cnf", mariadb.DATABASES[-1])

    return [SupervisedProcess("mariadb", argv, check, configure=configure, prepare=install_once, is_alone=True)]


def _prometheus(_: str) -> list[SupervisedProcess]:
    conf = CONF / "prometheus"
    text = monitoring.prometheus_yml(processes=_processes_of_ours(), servers=_servers(), token_file=str(TOKEN))
    argv = prometheus.arguments(conf / prometheus.CONF, DATA / "prometheus", f"0.0.0.0:{names.PROMETHEUS_PORT}")

    def check() -> None:
        probes.answers_ok(names.PROMETHEUS_PORT, "/-/ready")

    configure = _Conf(conf, {prometheus.CONF: text}).write
    return [SupervisedProcess("prometheus", argv, check, configure=configure, is_alone=True)]


def _processes_of_ours() -> list[monitoring.Target]:
    listen = {names.WEB: ("serve", names.WEB_PORT)}
    listen |= {name: (name.partition("-")[0], names.WORKER_METRICS_PORT) for name in names.WORKERS}
    programs = {"expander": "expand", "writer": "write"}
    return [
        monitoring.Target(f"{host}:{port}", {"home": HOME, "program": programs.get(word, word)})
        for host, (word, port) in listen.items()
    ]


def _servers() -> list[monitoring.Target]:
    """HBase's servers, the standby masters too, and the broker."""
    listen = [(names.KAFKA, names.KAFKA_METRICS_PORT)]
    for cluster in names.CLUSTERS:
        hosts = [names.host(cluster, number) for number in names.HOSTS]
        listen += [(host, names.REGIONSERVER_METRICS_PORT) for host in hosts]
        listen += [(host, names.MASTER_METRICS_PORT) for host in (names.control(cluster), hosts[0])]
    return [monitoring.Target(f"{host}:{port}", {"server": host}) for host, port in listen]


def _watched(conf: _Conf, port: int) -> str:
    return java.watched(JARS / "agent", conf.folder, f"0.0.0.0:{port}")  # of the zone's network, or the core's


def settings_named(name: str) -> settings.Set:
    """The set of settings of this name.

    Raises StackError: there is none.
    """
    if name not in get_args(settings.Set):
        raise StackError(f"there are no settings {name!r}; there are {', '.join(get_args(settings.Set))}")
    return cast("settings.Set", name)


def _settings(*files: str, own: Mapping[str, str]) -> dict[str, str]:
    return settings.layers(*files, own=own, of=settings_named(os.environ.get(SITES, "tuned")))


def _core_site(cluster: str) -> dict[str, str]:
    own = {
        "fs.defaultFS": f"hdfs://{names.control(cluster)}:{names.NAMENODE_PORT}",
        "hadoop.tmp.dir": "/tmp/hadoop",  # noqa: S108 - of the container's own
    }
    return _settings("core-site.xml", own=own)


def _hdfs_conf(kind: str, cluster: str) -> _Conf:
    own = {
        "dfs.namenode.name.dir": f"file://{DATA}/namenode",
        "dfs.datanode.data.dir": f"file://{DATA}/datanode",
        "dfs.namenode.http-address": f"{names.control(cluster)}:{names.NAMENODE_HTTP_PORT}",
    }
    hdfs = _settings("hdfs-site.xml", f"hdfs-site.{kind}.xml", own=own)
    # HDFS's servers serve their web pages from these files, and do not start without them. The files are empty: nothing
    # here reads the pages.
    pages = {f"webapps/{each}/index.html": "" for each in ("hdfs", "datanode", "static")}
    return _conf(kind, {"core-site.xml": _core_site(cluster), "hdfs-site.xml": hdfs}, pages)


def _hbase_conf(name: str, cluster: str, *kinds: str, own: dict[str, str] | None = None) -> _Conf:
    placed = {
        "hbase.cluster.distributed": "true",
        "hbase.rootdir": f"hdfs://{names.control(cluster)}:{names.NAMENODE_PORT}/hbase",
        "hbase.tmp.dir": "/tmp/hbase",  # noqa: S108 - of the container's own
        "hbase.zookeeper.quorum": names.control(cluster),
        "hbase.zookeeper.property.clientPort": str(names.ZOOKEEPER_PORT),
        "hbase.zookeeper.property.dataDir": f"{DATA}/zookeeper",
        **(own or {}),
    }
    layers = ("hbase-site.xml", *(f"hbase-site.{kind}.xml" for kind in kinds))
    files = {
        "core-site.xml": _core_site(cluster),
        "hdfs-site.xml": _settings("hdfs-site.xml", own={}),
        "hbase-site.xml": _settings(*layers, own=placed),
    }
    return _conf(name, files, {java.AGENT_CONF: servers.agent_yml(servers.HBASE)})


def _conf(name: str, site_files: Mapping[str, Mapping[str, str]], others: Mapping[str, str] | None = None) -> _Conf:
    files = {file: settings.site_xml(values) for file, values in site_files.items()}
    return _Conf(CONF / name, {java.LOG_CONF: java.log_conf(_QUIET), **files, **(others or {})})


def _hadoop(
    conf: _Conf, *, heap_mib: int, main: Sequence[str], flags: Sequence[str], ours: str = "trim"
) -> tuple[str, ...]:
    """A server of Hadoop or HBase. ours: the folder of the jars of ours that it needs.

    Its configuration is last on the class path: the jars that the class archive was made with must be first.
    """
    path = f"{class_path(JARS / 'hbase')}:{JARS / ours}/*:{conf.folder}"
    return _java(conf, path, heap_mib=heap_mib, main=main, flags=(*flags, *_SHARED_CLASSES, *java.HBASE_FLAGS))


def _java(conf: _Conf, path: str, *, heap_mib: int, main: Sequence[str], flags: Sequence[str]) -> tuple[str, ...]:
    flags = (f"-Dfeed.process={conf.folder.name}", *flags)
    return ("java", *java.arguments(conf.folder, path, heap_mib=heap_mib, main=main, flags=flags))


def _zookeeper_answers() -> None:
    try:
        with socket.create_connection((LOOPBACK, names.ZOOKEEPER_PORT), timeout=_ANSWER_S) as stream:
            stream.sendall(b"srvr")
            answer = stream.makefile("rb").read(1 << 16)
    except OSError as error:
        raise NotReadyError(f"no answer: {error.strerror or error}") from error
    if b"Mode:" not in answer:
        raise NotReadyError("it does not serve")


def _hdfs_is_whole(control: str) -> None:
    """Returns if HDFS is out of safe mode, with every DataNode there and none stale; raises NotReadyError otherwise."""
    url = f"http://{control}:{names.NAMENODE_HTTP_PORT}/jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState"
    try:
        (state,) = json.loads(probes.http_answer(url, _ANSWER_S))["beans"]
    except (OSError, ValueError) as error:
        raise NotReadyError(f"no answer to what state it is in: {error}") from error
    live, stale = int(state["NumLiveDataNodes"]), int(state["NumStaleDataNodes"])
    if state["FSState"] != "Operational":
        raise NotReadyError("HDFS is in safe mode")
    if live < len(names.HOSTS) or stale:
        raise NotReadyError(f"{live} of {len(names.HOSTS)} DataNodes are live, {stale} of them stale")


def _interface_towards(host: str) -> str | None:
    """The name of the network interface that leads to a host; None if none does."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((host, 9))  # sends nothing
        except OSError:
            return None
        address = probe.getsockname()[0]
        for _, name in socket.if_nameindex():
            try:
                found = fcntl.ioctl(probe, _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except OSError:
                continue  # an interface without an address
            if socket.inet_ntoa(found[20:24]) == address:
                return name
    return None


ROLES: dict[str, Callable[[str], list[SupervisedProcess]]] = {
    "control": lambda cluster: [_zookeeper(cluster), _namenode(cluster), _master(cluster)],
    "host": _host,
    # Its master waits until there has been a first one.
    "standby": lambda cluster: [*_host(cluster), _master(cluster, is_standby=True)],
    "gateway": lambda cluster: [_thrift2(cluster)],
    "kafka": _kafka,
    "mariadb": _mariadb,
    "prometheus": _prometheus,
}
