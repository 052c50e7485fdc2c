"""deploy/hbase: every setting differs from its default and says why, and the timeouts fit into each other."""

import xml.etree.ElementTree as ET

import pytest

from deploy.hbase import settings as hadoop_settings

FILES = sorted(path.name for path in hadoop_settings.TUNED.glob("*.xml"))


@pytest.mark.parametrize("file", FILES)
def test_every_setting_has_its_default_and_a_reason_and_stands_once(file: str) -> None:
    settings = hadoop_settings.read(file)
    assert settings
    assert len({each.name for each in settings}) == len(settings)
    for each in settings:
        default, _, reason = each.why.removeprefix("Default: ").partition(". ")
        assert each.why.startswith("Default: "), each.name
        assert default != each.value, each.name
        assert len(reason) > 20 or reason.startswith("..."), each.name


def test_no_file_is_left_out_by_its_name() -> None:
    assert FILES == [
        "core-site.xml",
        "hbase-site.gateway.xml",
        "hbase-site.server.xml",
        "hbase-site.xml",
        "hdfs-site.datanode.xml",
        "hdfs-site.namenode.xml",
        "hdfs-site.xml",
    ]


def test_a_session_is_one_that_zookeeper_grants() -> None:
    hbase = hadoop_settings.layers("hbase-site.xml", own={})
    tick, session = int(hbase["hbase.zookeeper.property.tickTime"]), int(hbase["zookeeper.session.timeout"])
    assert 2 * tick <= session <= 20 * tick


def test_a_dead_datanode_is_stale_before_a_log_writer_gives_up_and_that_before_a_write_does() -> None:
    hdfs = hadoop_settings.layers("hdfs-site.xml", "hdfs-site.namenode.xml", own={})
    stale, socket = int(hdfs["dfs.namenode.stale.datanode.interval"]), int(hdfs["dfs.client.socket-timeout"])
    gateway = hadoop_settings.layers("hbase-site.xml", "hbase-site.gateway.xml", own={})
    assert stale < socket < int(hdfs["dfs.datanode.socket.write.timeout"])
    assert socket < int(gateway["hbase.rpc.write.timeout"]) < int(gateway["hbase.client.operation.timeout"])
    # A master that notes a region at the host which held hbase:meta must ask again, and not because a log stalls.
    server = hadoop_settings.layers("hdfs-site.xml", "hbase-site.xml", "hbase-site.server.xml", own={})
    assert socket < int(server["hbase.rpc.write.timeout"]) <= 3_000
    # A caller that waits for hbase:meta has time left for the region itself.
    assert int(gateway["hbase.client.meta.operation.timeout"]) < int(gateway["hbase.client.operation.timeout"])
    assert int(gateway["hbase.client.meta.read.rpc.timeout"]) < int(gateway["hbase.client.meta.operation.timeout"])


def test_a_datanode_is_stale_after_missed_heartbeats_only() -> None:
    namenode = hadoop_settings.layers("hdfs-site.namenode.xml", own={})
    datanode = hadoop_settings.layers("hdfs-site.datanode.xml", own={})
    heartbeat = datanode["dfs.heartbeat.interval"]
    assert heartbeat.endswith("ms")
    assert 3 * int(heartbeat.removesuffix("ms")) < int(namenode["dfs.namenode.stale.datanode.interval"])
    # In the NameNode's it is whole seconds: anything shorter would become 0.
    assert int(namenode["dfs.heartbeat.interval"]) >= 1


def test_a_log_recovery_is_asked_for_again_only_when_one_has_had_its_time() -> None:
    server = hadoop_settings.layers("hdfs-site.xml", "hbase-site.server.xml", own={})
    assert int(server["hbase.lease.recovery.dfs.timeout"]) > int(server["dfs.client.socket-timeout"]) + 1_000


@pytest.mark.parametrize("file", FILES)
def test_no_log_is_ever_given_up_for_speed(file: str) -> None:
    assert "hbase.lease.recovery.timeout" not in {each.name for each in hadoop_settings.read(file)}


def test_a_namenode_that_starts_wants_one_replica_though_a_log_has_two() -> None:
    namenode = hadoop_settings.layers("hdfs-site.namenode.xml", own={})
    assert int(namenode["dfs.namenode.replication.min"]) == 2
    assert int(namenode["dfs.namenode.safemode.replication.min"]) == 1


@pytest.mark.parametrize("file", FILES)
def test_no_log_is_split_into_store_files(file: str) -> None:
    """They can bring back what was deleted since (docs/decisions/0020)."""
    assert "hbase.wal.split.to.hfile" not in {each.name for each in hadoop_settings.read(file)}


def test_later_layers_stand_over_earlier_ones() -> None:
    merged = hadoop_settings.layers("hdfs-site.namenode.xml", "hdfs-site.datanode.xml", own={"dfs.blocksize": "1"})
    assert merged["dfs.heartbeat.interval"] == "250ms"
    assert merged["dfs.namenode.replication.min"] == "2"
    assert merged["dfs.blocksize"] == "1"


def test_the_default_settings_have_no_timeout_and_no_placement_of_ours() -> None:
    # An explicit list: a change that tags another one says here that a comparison with the defaults goes without it.
    kept = {each.name for file in FILES for each in hadoop_settings.read(file) if each.is_of_layout}
    assert kept == {
        "dfs.client.block.write.replace-datanode-on-failure.policy",
        "dfs.namenode.datanode.registration.ip-hostname-check",
        "dfs.namenode.redundancy.considerLoad",
        "hbase.coprocessor.master.classes",
        "hbase.master.info.port",
        "hbase.master.wait.on.regionservers.mintostart",
        "hbase.regionserver.info.port",
        "hbase.thrift.info.port",
        "hbase.thrift.maxQueuedRequests",
        "hbase.thrift.maxWorkerThreads",
        "hbase.thrift.minWorkerThreads",
        "hbase.thrift.server.socket.read.timeout",
        "hbase.unsafe.regionserver.hostname.disable.master.reversedns",
    }


def test_the_default_settings_are_a_part_of_the_tuned_ones() -> None:
    own = {"dfs.blocksize": "1"}
    for file in FILES:
        defaults = hadoop_settings.layers(file, own=own, of="defaults")
        assert defaults.items() <= hadoop_settings.layers(file, own=own).items()
        assert defaults["dfs.blocksize"] == "1"


@pytest.mark.parametrize("file", FILES)
def test_a_tag_is_one_that_means_something(file: str) -> None:
    tags = [tag.text for tag in ET.parse(hadoop_settings.TUNED / file).getroot().iter("tag")]
    assert set(tags) <= {hadoop_settings.LAYOUT}
