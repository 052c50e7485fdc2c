"""The names of hosts and the ports of their servers, as `compose.yml` has them."""

CLUSTERS = ("a", "b")
HOSTS = (1, 2, 3)
GATEWAYS = (1, 2)

KAFKA, MARIADB, WEB, PROMETHEUS = "kafka", "mariadb", "web", "prometheus"
WORKERS = ("relay", "expander", *(f"writer-{cluster}" for cluster in CLUSTERS))

ZOOKEEPER_PORT = 2181
NAMENODE_PORT, NAMENODE_HTTP_PORT = 8020, 9870
DATANODE_PORT = 9866
MASTER_PORT, REGIONSERVER_PORT = 16000, 16020
THRIFT2_PORT = 9091
KAFKA_PORT, KAFKA_CONTROLLER_PORT, KAFKA_LOOPBACK_PORT = 9092, 9093, 19092
"""Kafka tells its clients where it is: those of the core network one address, those of this machine another."""
MARIADB_PORT, MARIADB_LOOPBACK_PORT = 3306, 13306
WEB_PORT = 8080
PROMETHEUS_PORT, PROMETHEUS_LOOPBACK_PORT = 9090, 19900
WORKER_METRICS_PORT = 9464
MASTER_METRICS_PORT, REGIONSERVER_METRICS_PORT, KAFKA_METRICS_PORT = 16010, 16030, 9404
"""Where JVMs show their metrics. HBase's servers use the ports where others have their web pages."""

PROJECT_NAME = "feedstore"
CORE_NETWORK = "feedstore-core"
"""The network between the zones."""

MODULE = "deploy.docker.container"
"""What the first process of a container runs."""
CHECK = ("python3", "-m", MODULE, "check")
"""Asks the servers of a container, inside it, whether they are ready: a line for each that is not."""

_GATEWAY_LOOPBACK_BASE = 19_091


def container(name: str) -> str:
    """The container of a host, as the engine names it."""
    return f"{PROJECT_NAME}-{name}"


def control(cluster: str) -> str:
    return f"{cluster}-control"


def host(cluster: str, number: int) -> str:
    return f"{cluster}-host-{number}"


def gateway(cluster: str, number: int) -> str:
    return f"{cluster}-gateway-{number}"


def loopback_port(cluster: str, number: int) -> int:
    """Where a gateway is on this machine's loopback."""
    return _GATEWAY_LOOPBACK_BASE + 100 * (len(GATEWAYS) * CLUSTERS.index(cluster) + number - 1)


def cluster_hosts(cluster: str) -> tuple[str, ...]:
    """The containers of one zone, each after those that it needs."""
    return (
        control(cluster),
        *(host(cluster, number) for number in HOSTS),
        *(gateway(cluster, number) for number in GATEWAYS),
    )


SERVERS = (*(name for cluster in CLUSTERS for name in cluster_hosts(cluster)), KAFKA, MARIADB)
"""The hosts that must answer before there can be tables, topics and databases."""
CLIENTS = (*WORKERS, WEB, PROMETHEUS)
"""The hosts that are started once there are tables, topics and databases."""
