"""The metrics of servers that change only where something is wrong: with the servers, or with what they are asked for.

Each is broken on servers of the test's own, which the Prometheus of the stack scrapes meanwhile.
"""

import itertools
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import kafka
import pytest
from kafka.admin import NewTopic
from kafka.errors import KafkaError

from deploy.drills.repeating import repeating
from deploy.hbase.settings import site_xml
from deploy.local import Stack, hbase
from deploy.monitoring import servers
from feedstore.widecolumn import Put, Table, Trim, UnavailableError
from feedstore.widecolumn.hbase import HBaseCluster, Record, TableDefinition
from feedstore.widecolumn.hbase.coprocessors import attached
from feedstore.widecolumn.hbase.schema import definition
from tests.cli.command import eventually
from tests.monitoring import own_servers, prometheus
from tests.monitoring.excused import SERVERS_IN_TROUBLE
from tests.widecolumn.hbase_regions import Region, Regions
from tests.widecolumn.hbase_wire import conversation, number, text
from workers.queue.kafka.address import KafkaAddress

pytestmark = [pytest.mark.stack, pytest.mark.xdist_group("trouble"), pytest.mark.timeout(900)]

SINCE: Final = "1h"
SHOWN_S: Final = 300.0
TABLES: Final = 24
OLD: Final = Table("old", 9, 16, Trim(cap=4, slack=2), 3_600_000)
VALUE: Final = bytes(4_000)
_MASTER, _SERVER, _BROKER = "trouble-master", "trouble-region-server", "trouble-broker"
MASTERS: Final = (
    "hbase_dead_region_servers",
    "hbase_region_servers",
    "hbase_regions_in_transition",
    "hbase_regions_in_transition_oldest_seconds",
)
UNTRIMMED: Final = "hbase_trim_compactions_untrimmed_total"
REGION_SERVERS: Final = (
    "hbase_call_failures_total",
    "hbase_compactions_waiting",
    "hbase_flushes_waiting",
    "hbase_writes_blocked_seconds_total",
)
BROKERS: Final = (
    "kafka_failed_fetch_requests_total",
    "kafka_failed_produce_requests_total",
    "kafka_offline_partitions",
    "kafka_under_replicated_partitions",
)


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Stack]:
    """A stack whose servers may be broken."""
    made = Stack(tmp_path / "stack", print)
    yield made
    made.kill()


def unchanged(stack: Stack, server: str, *names: str) -> list[str]:
    """Those metrics of a server that have not changed while it was watched."""
    series = [f'{name}{{server="{server}"}}[{SINCE}]' for name in names]
    changes = [f"max_over_time({each}) - min_over_time({each}) > 0" for each in series]
    return [name for name, change in zip(names, changes, strict=True) if not prometheus.values(stack, change)]


def all_change(stack: Stack, server: str, *names: str) -> None:
    for name in names:
        eventually(lambda name=name: not unchanged(stack, server, name), f"{name} of {server} changes", SHOWN_S)


def is_watched(stack: Stack, *servers: str) -> None:
    for server in servers:
        eventually(partial(prometheus.values, stack, f'up{{server="{server}"}} == 1'), f"{server} is watched", SHOWN_S)


def test_a_region_server_with_too_much_to_do_and_then_lost(
    stack: Stack, own: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack.up("prometheus")
    # It refuses tables that ask for another version of the trim than its own.
    monkeypatch.setattr(hbase, "site_xml", lambda site: site_xml({**site, "hbase.coprocessor.master.classes": ""}))
    own.up("cluster-a")
    master = ("127.0.0.1", own.port("hbase-a", "master"))
    url = f"hbase://127.0.0.1:{own.port('thrift2-a')}/?sync=memory"
    with (
        own_servers.region_server(own, "region-server", own_servers.NARROW) as server,
        own_servers.watched(stack, {_MASTER: own.port("hbase-a", "metrics"), _SERVER: server.metrics}),
        closing(HBaseCluster.open(url, [OLD], check=False)) as cluster,
    ):
        is_watched(stack, _MASTER, _SERVER)
        asks_for_another_version(cluster)
        [region] = Regions(url, OLD.name).all()
        holds = _SERVER if region.server[1] == server.port else _MASTER
        eventually(
            partial(prometheus.values, stack, f'{UNTRIMMED}{{server="{holds}"}} == 0'), "the trim counts", SHOWN_S
        )
        cluster.table(OLD.name).apply([Put([(bytes(OLD.row_bytes), 1)], [bytes(OLD.column_bytes)])])
        Regions(url, OLD.name).flush()
        Regions(url, OLD.name).compact(major=True)
        # HBase draws on which of the two servers each of them is.
        there: list[tuple[int, Regions]] = []
        for table in itertools.count():
            if table >= TABLES and len(there) >= TABLES // 4:
                break
            assert table < 4 * TABLES, there
            cluster.administration.create(TableDefinition(f"trouble{table}", {"feed": {}}, {}))
            regions = Regions(url, f"trouble{table}")
            if regions.all()[0].server[1] == server.port:
                there.append((table, regions))
        tables = itertools.cycle([cluster.records(f"trouble{table}") for table, _ in there])
        rows = itertools.count()

        def write() -> None:
            # What is held up for long is refused: that is what is wanted here.
            with suppress(UnavailableError):
                next(tables).put((b"%d" % row, Record(1, VALUE)) for row in itertools.islice(rows, 20))

        with conversation(("127.0.0.1", server.port), "AdminService") as ask:
            specifier = number(1, 1) + text(2, b"trouble,,1.00000000000000000000000000000000.")
            with pytest.raises(AssertionError, match="NotServingRegion"):
                ask("FlushRegion", text(1, specifier))
        all_change(stack, holds, UNTRIMMED)
        with repeating(0, write):
            all_change(stack, _SERVER, *REGION_SERVERS)

        # What does not answer is waited for, until its session ends: then it is dead.
        # Looked up before: the server may hold hbase:meta. By now tables may be divided, and parts be elsewhere.
        regions, region = next(
            (each, part) for _, each in there for part in each.all() if part.server[1] == server.port
        )
        server.process.suspend()
        moving = threading.Thread(target=_move, args=(regions, region, master), daemon=True)
        moving.start()
        all_change(stack, _MASTER, *MASTERS)
        moving.join()


def asks_for_another_version(cluster: HBaseCluster) -> None:
    """Makes a table whose trim no server has, as while servers are replaced one after the other."""
    made = definition(OLD)
    [(key, trim)] = attached(made.settings).items()
    other = replace(trim, arguments={**trim.arguments, "version": "0.0.0"})
    cluster.administration.create(replace(made, settings={**made.settings, key: str(other)}))


def _move(regions: Regions, region: Region, master: tuple[str, int]) -> None:
    with suppress(OSError, AssertionError):  # its server dies
        regions.move(region, master)


def test_a_broker_that_is_lost_and_one_that_refuses(stack: Stack, own: Stack) -> None:
    stack.up("prometheus")
    own.up("kafka")
    # As all clients here have it: an attempt that is refused closes its socket (workers.queue.kafka.reconnecting).
    options = KafkaAddress((f"127.0.0.1:{own.port('kafka')}",)).options()
    with (
        own_servers.broker(own, "broker-2") as second,
        own_servers.watched(stack, {_BROKER: own.port("kafka", "metrics")}),
        closing(kafka.KafkaAdminClient(**options)) as admin,
    ):
        is_watched(stack, _BROKER)
        compacted = {"cleanup.policy": "compact"}
        admin.create_topics(
            [
                NewTopic("on-both", replica_assignments={0: [1, 2]}),
                NewTopic("on-the-second", replica_assignments={0: [2]}),
                NewTopic("by-key", replica_assignments={0: [1]}, topic_configs=compacted),
                NewTopic("damaged", replica_assignments={0: [1]}),
            ]
        )
        with closing(kafka.KafkaProducer(**options, retries=0)) as producer:
            with pytest.raises(KafkaError):
                producer.send("by-key", b"it has no key").get(30)
            producer.send("damaged", b"will not be read").get(30)
        [log] = (own.home / "data" / "kafka" / "damaged-0").glob("*.log")
        log.write_bytes(bytes(log.stat().st_size))
        with closing(kafka.KafkaConsumer(**options, auto_offset_reset="earliest")) as consumer:
            partition = kafka.TopicPartition("damaged", 0)
            consumer.assign([partition])
            consumer.seek(partition, 0)
            with suppress(KafkaError):
                consumer.poll(5_000)
        second.process.kill()
        all_change(stack, _BROKER, *BROKERS)


def test_each_metric_that_needs_trouble_is_shown_here() -> None:
    assert {*MASTERS, UNTRIMMED, *REGION_SERVERS, *BROKERS} == set(SERVERS_IN_TROUBLE)
    assert set(SERVERS_IN_TROUBLE) <= {each.name for _, some in servers.SECTIONS for each in some}
