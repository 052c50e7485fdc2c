"""How many files and connections a process may have open, and how many a server of a home needs."""

import resource
from typing import Final

from feedstore.app.config import Config
from feedstore.errors import ConfigError
from feedstore.http.places import SPARE_PLACES

_OWN: Final = 64
_OF_A_CLUSTER: Final = 288
_OF_A_CATALOG: Final = 20
_OF_A_SHARD: Final = 16
_OF_A_THREAD: Final = 6
"""How many files and connections to servers a process has open, not counting the connections of its clients: `_OWN`,
and more for each cluster, each catalog in each cluster, each shard of the follow store, and each of `[http] threads`,
of which there are three kinds. For a cluster in files, RocksDB keeps 256 tables open; a thread has a database in files
and its log open.
"""
_LIFTED_TO: Final = 65_536
"""The limit of open files is lifted to this, or to what is needed: some programs loop over all that they may have."""


def lift(needed: int = 0) -> None:
    """Lifts this process's limit of open files as far as allowed. needed: the least that is enough."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = max(needed, _LIFTED_TO)
    most = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def lift_for_server(config: Config) -> None:
    """Lifts the limit to what a server of a home needs. Raises ConfigError if that is not allowed."""
    refuse_few(config)
    lift(_needed(config))


def refuse_few(config: Config) -> None:
    """Raises ConfigError if a server of a home needs more files than this process may have open."""
    needed = _needed(config)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise ConfigError(
            f"{config.sources.blamed('http.connections')}: http.connections: {config.http.connections:,} need,"
            f" with the stores of this home, {needed:,} file descriptors, and this process may have {hard:,}:"
            " raise the limit (ulimit -Hn) or take fewer"
        )


def _needed(config: Config) -> int:
    return (
        config.http.connections
        + SPARE_PLACES
        + _OWN
        + _OF_A_CLUSTER * len(config.clusters)
        + _OF_A_CATALOG * len(config.clusters) * len(config.catalogs)
        + _OF_A_SHARD * len(config.shards)
        + _OF_A_THREAD * config.http.threads
    )
