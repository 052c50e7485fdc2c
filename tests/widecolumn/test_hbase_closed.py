"""A cluster in HBase that was closed says so by itself: no server is asked."""

from collections.abc import Callable

import pytest
from test_widecolumn_contract import CALLS
from widecolumn_adapters import TABLE

from feedstore.metering import UNCOUNTED
from feedstore.widecolumn import Put, UnavailableError, WideColumnStore
from feedstore.widecolumn.hbase import HBaseCluster
from feedstore.widecolumn.hbase import cluster as hbase_cluster


@pytest.mark.parametrize("reads", ["direct", "gateways"])
@pytest.mark.parametrize(
    "call",
    [
        *CALLS,
        lambda store: store.apply([Put([(b"r1", 1)], [b"%03d" % number for number in range(999)])] * 100),
    ],
)
def test_a_closed_cluster_says_so(
    call: Callable[[WideColumnStore], object], reads: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[Callable[[], None]] = []
    monkeypatch.setattr(hbase_cluster, "on_a_thread", lambda _: looks.append)
    url = f"hbase://127.0.0.1:9/?reads={reads}"
    cluster = HBaseCluster.open(url, [TABLE], check=False, direct=UNCOUNTED)
    cluster.close()
    cluster.close()
    with pytest.raises(UnavailableError, match="the cluster is closed"):
        call(cluster.table(TABLE.name))
    assert not looks, "nothing is begun"
