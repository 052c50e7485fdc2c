"""A standalone HBase cluster (master, region server and ZooKeeper in one process) and its gateway."""

from collections.abc import Mapping

from deploy.hbase.settings import layers, site_xml
from deploy.local import jars, java, logs, probes
from deploy.local.errors import NotReadyError
from deploy.local.home import Home, write_conf
from deploy.local.ports import LOOPBACK
from deploy.local.processes import Command
from deploy.local.servers import Say, Server
from deploy.monitoring import servers

CLUSTER_PORTS = ("zookeeper", "master", "regionserver", "metrics")
GATEWAY_PORTS = ("client",)
HBASE_JARS, TRIM_JARS = "jars/hbase", "jars/trim"
"""In the home: links to the directories with the jars that its clusters were started with last."""

_PROFILE = "hbase"
_CLUSTER_HEAP_MIB = 768
_GATEWAY_HEAP_MIB = 192
_HOST = "localhost"
_INITIALIZED = "Master has completed initialization"
_QUIET = ("org.apache.zookeeper", "org.apache.hadoop.metrics2", "org.apache.hadoop.hbase.thirdparty")

GATEWAY_MAIN = "org.apache.hadoop.hbase.thrift2.ThriftServer"


def cluster_name(cluster: str) -> str:
    return f"hbase-{cluster}"


def gateway_name(cluster: str) -> str:
    return f"thrift2-{cluster}"


def cluster(home: Home, letter: str, ports: Mapping[str, int]) -> Server:
    """Survives a kill of its process: the raw local file system hands every write to the kernel before it is
    acknowledged, where Hadoop's own keeps the last part of a checksum chunk to itself.
    """
    name = cluster_name(letter)
    conf, data = home.conf(name), home.data(name)

    def prepare(say: Say) -> None:
        home.link(HBASE_JARS, jars.ensure(_PROFILE, say))
        home.link(TRIM_JARS, jars.build(jars.TRIM, say))
        jars.ensure(jars.AGENT, say)
        data.mkdir(exist_ok=True, mode=0o700)
        write_conf(conf, java.LOG_CONF, java.log_conf(_QUIET))
        write_conf(conf, java.AGENT_CONF, servers.agent_yml(servers.HBASE))
        site = {
            **_zookeeper(ports["zookeeper"]),
            "hbase.cluster.distributed": "false",
            "hbase.rootdir": f"file://{data}/root",
            "hbase.tmp.dir": f"{data}/scratch",
            "hadoop.tmp.dir": f"{data}/scratch/hadoop",
            "hbase.zookeeper.property.dataDir": f"{data}/zookeeper",
            "fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
            "hbase.unsafe.stream.capability.enforce": "false",
            "hbase.wal.provider": "filesystem",
            # Fixed ports also make a restart after a kill fast: a server that comes back with the same address is known
            # to be the successor at once, without a wait for the end of the old one's session.
            "hbase.master.port": str(ports["master"]),
            "hbase.regionserver.port": str(ports["regionserver"]),
            "hbase.master.hostname": _HOST,
            "hbase.unsafe.regionserver.hostname": _HOST,
            "hbase.master.ipc.address": LOOPBACK,
            "hbase.regionserver.ipc.address": LOOPBACK,
            "hbase.master.info.port": "-1",
            "hbase.regionserver.info.port": "-1",
            # The two halves of the process end in any order. If ZooKeeper goes first, the region server has closed
            # its files by then, and asks without success to be forgotten. One retry is enough; the default takes 20 s.
            "zookeeper.recovery.retry": "1",
            "zookeeper.recovery.retry.intervalmill": "2000",
            # No other server takes over: the end of a session only ends the whole cluster. By default that is after a
            # pause of 10 s, which a busy machine makes.
            "zookeeper.session.timeout.localHBaseCluster": "120000",
            # How often it counts the regions in transition for its metrics, in ms; by default once a minute.
            "hbase.assignment.rit.chore.interval.msec": "5000",
            # It refuses tables whose trim could not be loaded, before they are made.
            "hbase.coprocessor.master.classes": "feedstore.trim.TrimTableGuard",
            # A region that was written to has a chunk of its own, 2 MiB by default: the hundreds of small tables that
            # tests make filled the heap. A cell of more than half a chunk lies outside of it.
            "hbase.hregion.memstore.mslab.chunksize": "65536",
            "hbase.hregion.memstore.mslab.max.allocation": "32768",
            # There is one region server: more will not come.
            "hbase.master.wait.on.regionservers.maxtostart": "1",
        }
        write_conf(conf, "hbase-site.xml", site_xml(site))

    def command() -> Command:
        agent = java.watched(jars.folder(jars.AGENT), conf, f"{LOOPBACK}:{ports['metrics']}")
        return java.command(
            home,
            name,
            jars=[jars.folder(_PROFILE), jars.built_folder(jars.TRIM)],
            heap_mib=_CLUSTER_HEAP_MIB,
            flags=(agent, java.STARTS_FAST, *java.HBASE_FLAGS),
            main=("org.apache.hadoop.hbase.master.HMaster", "start"),
        )

    def check() -> None:
        # Only Java clients can ask a cluster without a gateway, so its log must do. The gateway's check asks the
        # cluster through it.
        if not logs.says(home.log(name), _INITIALIZED):
            raise NotReadyError("its master has not completed its initialization")
        probes.listens(ports["regionserver"])

    return Server(name, ports, java.mark(home, name), prepare, command, check, patience_s=30.0)


def gateway(home: Home, letter: str, zookeeper: int, ports: Mapping[str, int]) -> Server:
    """A Thrift2 server before a cluster: unframed, binary protocol, one thread for each connection."""
    name, port = gateway_name(letter), ports["client"]
    conf = home.conf(name)

    def prepare(say: Say) -> None:
        jars.ensure(_PROFILE, say)
        write_conf(conf, java.LOG_CONF, java.log_conf(_QUIET))
        own = {
            **_zookeeper(zookeeper),
            "hbase.cluster.distributed": "true",  # or the client would take its ZooKeeper to be in its own process
            "hbase.regionserver.thrift.port": str(port),
            "hbase.regionserver.thrift.ipaddress": LOOPBACK,
            # A gateway must report a dead cluster in seconds, not in twenty minutes: the callers retry by themselves.
            "hbase.client.operation.timeout": "15000",
            "hbase.client.meta.operation.timeout": "10000",
            "hbase.rpc.timeout": "8000",
            "hbase.rpc.read.timeout": "8000",
            "hbase.rpc.write.timeout": "8000",
            "hbase.client.retries.number": "10",
            "hbase.client.pause": "50",
            # Right after a restart the gateway must try again, not remember that no server was there.
            "hbase.ipc.client.failed.servers.expiry": "300",
        }
        # Its connections are those of every gateway. Its timeouts are its own: they fit a cluster of one server.
        site = layers("hbase-site.gateway.xml", own=own, of="defaults")
        write_conf(conf, "hbase-site.xml", site_xml(site))

    def command() -> Command:
        return java.command(
            home,
            name,
            jars=[jars.folder(_PROFILE)],
            heap_mib=_GATEWAY_HEAP_MIB,
            # Both compilers: every page and every cell goes through here, as through the client in a program of Java's.
            flags=("-Xss512k", *java.HBASE_FLAGS),
            main=(GATEWAY_MAIN, "start", "-p", str(port), "--bind", LOOPBACK),
        )

    def check() -> None:
        probes.thrift2_tables(port)

    return Server(name, ports, java.mark(home, name), prepare, command, check, needs=(cluster_name(letter),))


def _zookeeper(port: int) -> dict[str, str]:
    return {"hbase.zookeeper.quorum": LOOPBACK, "hbase.zookeeper.property.clientPort": str(port)}
