import pytest

from feedstore.widecolumn.hbase.addresses import Address, Addresses


def test_a_url_names_every_gateway():
    found = Addresses.parse("hbase://h1:9091,h2:9092,[::1]:9093/")
    assert found.thrift2 == (Address("h1", 9091), Address("h2", 9092), Address("::1", 9093))
    assert (found.namespace, found.connections, found.read_ms, found.sync) == ("default", 16, 5_000, "disk")


def test_a_url_may_set_the_namespace_and_the_limits():
    found = Addresses.parse("hbase://h:1/feeds_1?connections=3&connect_ms=4&read_ms=5&write_ms=6&sync=memory")
    assert found == Addresses((Address("h", 1),), "feeds_1", 3, 4, 5, 6, "memory")


@pytest.mark.parametrize("older", ["thrift1=h:2", "thrift1=h:2,i:2&read_ms=5"])
def test_what_only_older_homes_name_is_not_used(older: str):
    assert Addresses.parse(f"hbase://h:1/n?{older}") == Addresses.parse(f"hbase://h:1/n?{older.partition('&')[2]}")


@pytest.mark.parametrize(
    ("url", "wrong"),
    [
        ("rocksdb:data/a", "expected hbase://"),
        ("hbase:///n", "gateways: expected at least one"),
        ("hbase://h/", "expected HOST:PORT, got 'h'"),
        ("hbase://h:0/", "expected HOST:PORT, got 'h:0'"),
        ("hbase://h..i:1/", "expected HOST:PORT, got 'h..i:1'"),
        ("hbase://h:70000/", "expected HOST:PORT"),
        ("hbase://h:1/a-b", "namespace: expected letters"),
        ("hbase://h:1/?retries=3", "unknown option retries"),
        ("hbase://h:1/?read_ms=0", "read_ms: expected a whole number"),
        ("hbase://h:1/?sync=never", "sync: expected disk or memory, got 'never'"),
        ("hbase://h:1/?read_ms=1&read_ms=2", "an option is in it twice"),
        ("hbase://h:1/?read_ms=fast", "read_ms: expected a whole number"),
    ],
)
def test_a_url_that_cannot_be_is_refused_by_name(url: str, wrong: str):
    with pytest.raises(ValueError, match=wrong) as caught:
        Addresses.parse(url)
    assert repr(url) in str(caught.value)
