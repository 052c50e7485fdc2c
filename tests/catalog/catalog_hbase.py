"""Catalogs in a real HBase: one namespace for a run, a catalog of its own name for each test."""

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from hashlib import sha256
from pathlib import Path

from deploy.local import Stack
from feedstore.widecolumn.hbase import HBaseCluster

_REMOVED_AT_ONCE = 4
_urls: list[str] = []


@contextmanager
def used(stack: Stack) -> Iterator[None]:
    """A cluster of the stack has a namespace of ours until the end of the block."""
    stack.up("cluster-a")
    _urls[:] = [f"hbase://127.0.0.1:{stack.port('thrift2-a')}/feedtest_{uuid.uuid4().hex[:12]}"]
    with closing(opened()) as cluster:
        cluster.administration.create_namespace()
    yield
    stack.up("cluster-a")
    with closing(opened()) as cluster:
        with ThreadPoolExecutor(_REMOVED_AT_ONCE) as threads:
            list(threads.map(cluster.administration.drop, cluster.administration.names()))
        cluster.administration.drop_namespace()


def url() -> str:
    """The url of the cluster, with our namespace."""
    assert _urls, "the test does not ask for the fixture `hbase`"
    return _urls[0]


def opened() -> HBaseCluster:
    return HBaseCluster.open(url(), [], check=False)


def name(directory: Path) -> str:
    """The catalog of a test."""
    return "t" + sha256(str(directory).encode()).hexdigest()[:16]
