"""The place that a cluster's url leads to: a directory, or HBase behind its gateways."""

from typing import TYPE_CHECKING, assert_never

from feedstore.app import config as configuration
from feedstore.app.config import Config
from feedstore.app.places import ClusterPlace
from feedstore.errors import ConfigError, needing_extra
from feedstore.metering import Meter

if TYPE_CHECKING:
    from feedstore.app.hbase import HBasePlace


def place(config: Config, name: str, direct: Meter | None = None) -> ClusterPlace:
    """The place of a cluster. direct: as in `open_cluster`.

    Raises ConfigError if there is no cluster of that name, or its url cannot be read.
    """
    cluster = config.cluster(name)
    # Each kind of cluster loads only its own libraries, above all to save memory.
    match cluster.scheme:
        case "rocksdb":
            from feedstore.app.rocksdb import DirectoryPlace  # noqa: PLC0415

            return DirectoryPlace(config.path(cluster.url), cluster.name)
        case "hbase":
            return gateways(cluster, direct)
        case _:
            assert_never(cluster.scheme)


def gateways(cluster: configuration.ClusterConfig, direct: Meter | None = None) -> "HBasePlace":
    """The place of a cluster in HBase. direct: as in `open_cluster`. Raises ConfigError."""
    with needing_extra(f"cluster {cluster.name} is HBase", "hbase"):
        from feedstore.app.hbase import HBasePlace  # noqa: PLC0415 - its libraries are an extra
    try:
        return HBasePlace(cluster.url, cluster.name, direct)
    except ValueError as error:
        raise ConfigError(f"cluster {cluster.name}: {error}") from error
