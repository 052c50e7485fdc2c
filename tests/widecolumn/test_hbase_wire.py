"""The adapter against small gateways in this process: real sockets and the real codec, no HBase."""

import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

import pytest
from thriftpy2.protocol import TBinaryProtocol
from thriftpy2.protocol.exc import TProtocolException
from thriftpy2.thrift import TProcessor
from thriftpy2.transport import TBufferedTransport, TSocket, TTransportException

from feedstore.widecolumn import Put, Table, Trim, UnavailableError
from feedstore.widecolumn.hbase import HBaseCluster, Record, pool
from feedstore.widecolumn.hbase.addresses import Address
from feedstore.widecolumn.hbase.sockets import DeadlineSocket
from feedstore.widecolumn.hbase.thrift2 import structs

TABLE = Table("feed", 2, 3, trim=None, purge_window_ms=0)
ROW, A = b"r1", b"aaa"
DEADLINE_S = 60
ROWS = [number.to_bytes(2, "big") for number in range(2_000)]


class Handler:
    """One column in every row; `before` runs first."""

    def __init__(self, before: Callable[[], None] = lambda: None) -> None:
        self.before = before
        self.asked: list[tuple] = []

    def get(self, table: bytes, tget: object) -> object:
        self.asked.append((table, tget))
        self.before()
        return structs.TResult([structs.TFoundColumn(A)])

    def getScannerResults(self, table: bytes, tscan: object, numRows: int) -> list:  # noqa: N802, N803  # HBase's names
        self.asked.append((table, tscan))
        self.before()
        found = [row for row in ROWS if row >= tscan.startRow][:numRows]
        return [structs.TRow(row, [structs.TFoundColumn(A)]) for row in found]

    def putMultiple(self, table: bytes, tputs: list) -> None:  # noqa: N802  # HBase's name
        self.asked.append((table, tputs))
        self.before()


class Gateway:
    """Serves each connection in a thread of its own until it is stopped."""

    def __init__(self, handler: Handler, service: object = structs.Pages, port: int = 0) -> None:
        self._listening = socket.create_server(("127.0.0.1", port))
        self.port = self._listening.getsockname()[1]
        self._processor = TProcessor(service, handler)
        self._connections: list[socket.socket] = []
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def stop(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._accepting.join()  # or a connection that it just took would stay open
        self._listening.close()
        for each in self._connections:
            with suppress(OSError):  # the other side may have closed it
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            self._connections.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        protocol = TBinaryProtocol(TBufferedTransport(TSocket(sock=connection)))
        try:
            while True:
                self._processor.process(protocol, protocol)
        except (TTransportException, TProtocolException, OSError):
            pass  # the client has gone


@contextmanager
def opened(*ports: int, options: str = "", table: Table = TABLE) -> Iterator[HBaseCluster]:
    hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
    cluster = HBaseCluster.open(f"hbase://{hosts}/?reads=gateways{options}", [table], check=False)
    yield cluster
    cluster.close()


def test_a_page_is_one_call():
    handler = Handler()
    gateway = Gateway(handler)
    with opened(gateway.port) as cluster:
        assert cluster.table("feed").read(ROW, b"aa0", 7) == [A]
    ((table, get),) = handler.asked
    assert (table, get.row, get.storeLimit) == (b"default:feed", ROW, 7)
    assert b"ColumnRangeFilter" in get.filterBytes
    assert [(each.family, each.qualifier) for each in get.columns] == [(b"feed", None)]
    gateway.stop()


def test_a_chunk_of_a_scan_is_one_call_and_the_one_that_is_not_full_is_the_last():
    gateway = Gateway(handler := Handler())
    with opened(gateway.port) as cluster:
        found = list(cluster.table("feed").scan())
    assert found == [(row, [A]) for row in ROWS]
    scans = [scan for _, scan in handler.asked]
    assert [scan.limit for scan in scans] == [2, 8, 32, 128, 512, 1_000, 1_000]
    gateway.stop()


def test_a_chunk_of_a_scan_is_bounded_by_what_a_trim_leaves_of_a_row():
    """After many short rows, all rows of the next chunk may be as long as a trim leaves them."""
    gateway = Gateway(handler := Handler())
    with opened(gateway.port, table=replace(TABLE, trim=Trim(1_000, 250))) as cluster:
        assert [row for row, _ in cluster.table("feed").scan()] == ROWS
    assert max(scan.limit for _, scan in handler.asked) == 80
    gateway.stop()


def test_a_scan_whose_gateway_dies_goes_on_with_another_one():
    dying, alive = Gateway(Handler()), Gateway(Handler())
    with opened(dying.port, alive.port) as cluster:
        rows = cluster.table("feed").scan()
        found = [next(rows)]
        dying.stop()
        found += rows
    assert [row for row, _ in found] == ROWS
    alive.stop()


def test_a_sweep_is_left_to_hbase():
    gateway = Gateway(handler := Handler())
    with opened(gateway.port) as cluster:
        assert cluster.table("feed").sweep(1) is None
    assert handler.asked == []
    gateway.stop()


def test_a_gateway_that_was_started_anew_is_not_noticed():
    handler = Handler()
    gateway = Gateway(handler)
    with opened(gateway.port) as cluster:
        for _ in range(3):
            assert cluster.table("feed").read(ROW, None, 1) == [A]
            gateway.stop()
            gateway = Gateway(handler, port=gateway.port)
    gateway.stop()


def test_a_gateway_that_is_gone_is_unavailable_or_passed_over():
    gone, alive = Gateway(Handler()), Gateway(Handler())
    with opened(gone.port, alive.port) as two, opened(gone.port) as one:
        for cluster in (two, one):
            assert cluster.table("feed").read(ROW, None, 1) == [A]
        gone.stop()
        for _ in range(4):
            assert two.table("feed").read(ROW, None, 1) == [A]
        with pytest.raises(UnavailableError, match=f"127.0.0.1:{gone.port}"):
            one.table("feed").read(ROW, None, 1)
    alive.stop()


def test_a_gateway_that_hangs_is_given_up_in_time(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pool, "DOWN_S", 60.0)
    release = threading.Event()
    hanging, alive = Gateway(hangs := Handler(release.wait)), Gateway(Handler())
    with opened(hanging.port, alive.port, options="&read_ms=4000") as cluster:
        began = time.monotonic()
        assert cluster.table("feed").read(ROW, None, 1) == [A]
        assert 1.9 < time.monotonic() - began < 3.9
        assert cluster.table("feed").read(ROW, None, 1) == [A]
        assert len(hangs.asked) == 1, "it is asked last now"
    release.set()
    hanging.stop()
    alive.stop()


def test_a_read_gives_up_at_its_deadline():
    release = threading.Event()
    hanging = Gateway(Handler(release.wait))
    with opened(hanging.port, options="&read_ms=60000") as cluster:
        began = time.monotonic()
        with pytest.raises(UnavailableError):
            cluster.table("feed").read(ROW, None, 1, began + 0.1)
        assert time.monotonic() - began < 30
        with pytest.raises(UnavailableError, match="not asked: its time was over"):
            cluster.table("feed").read(ROW, None, 1, began)
    release.set()
    hanging.stop()


def test_a_gateway_that_trickles_is_given_up_in_time():
    """Each byte comes quickly; the answer never does."""
    listening = socket.create_server(("127.0.0.1", 0))

    def trickle() -> None:
        connection, _ = listening.accept()
        with connection:
            for byte in b"\x80\x01\x00\x02\x00\x00\x10\x00" + b"g" * 4_096:
                try:
                    connection.send(bytes([byte]))
                except OSError:
                    return
                time.sleep(0.02)

    thread = threading.Thread(target=trickle)
    thread.start()
    with opened(listening.getsockname()[1], options="&read_ms=300") as cluster:
        began = time.monotonic()
        with pytest.raises(UnavailableError):
            cluster.table("feed").read(ROW, None, 1)
        assert time.monotonic() - began < 30
    thread.join()
    listening.close()


def test_what_hbase_answers_is_the_ports_own_error():
    def fail() -> None:
        raise structs.TIOError("Failed 1 action: the region is not online\n\tat Some.java:1", canRetry=True)

    gateway = Gateway(Handler(fail), structs.Writes)
    with opened(gateway.port) as cluster:
        with pytest.raises(UnavailableError, match=r"Failed 1 action: the region is not online$"):
            cluster.table("feed").apply([Put([(ROW, 1)], [A])])
        with pytest.raises(UnavailableError, match="is it a Thrift2 gateway"):
            cluster.table("feed").read(ROW, None, 1)
    gateway.stop()


def test_a_large_batch_goes_over_the_wire():
    handler = Handler()
    gateway = Gateway(handler, structs.Writes)
    rows = [(number.to_bytes(2, "big"), number + 1) for number in range(9_500)]
    with opened(gateway.port) as cluster:
        cluster.table("feed").apply([Put(rows, [A])])
    assert sorted(len(puts) for _, puts in handler.asked) == [2_000, *[2_500] * 3]
    assert sorted((put.row, put.timestamp) for _, puts in handler.asked for put in puts) == rows
    gateway.stop()


def test_a_write_that_hangs_is_given_up_in_time_and_made_elsewhere():
    release = threading.Event()
    hanging, alive = Gateway(Handler(release.wait), structs.Writes), Gateway(handler := Handler(), structs.Writes)
    with opened(hanging.port, alive.port, options="&write_ms=4000") as cluster:
        for row in (b"r1", b"r2"):  # gateways take turns: one of the two is first asked of the one that hangs
            cluster.table("feed").apply([Put([(row, 1)], [A])])
    assert [[put.row for put in puts] for _, puts in handler.asked] == [[b"r1"], [b"r2"]]
    release.set()
    hanging.stop()
    alive.stop()


def test_a_write_that_no_gateway_answers_is_unavailable():
    release = threading.Event()
    hanging = Gateway(Handler(release.wait), structs.Writes)
    with opened(hanging.port, options="&write_ms=200") as cluster, pytest.raises(UnavailableError, match="timed out"):
        cluster.table("feed").apply([Put([(ROW, 1)], [A])])
    release.set()
    hanging.stop()


def test_writes_outlive_a_gateway_that_was_started_again():
    handler = Handler()
    gateway = Gateway(handler, structs.Writes)
    with opened(gateway.port) as cluster:
        for number in range(3):
            cluster.table("feed").apply([Put([(ROW, 1 + number)], [A])])
            gateway.stop()
            gateway = Gateway(handler, structs.Writes, port=gateway.port)
    assert [put.timestamp for _, puts in handler.asked for put in puts] == [1, 2, 3]
    gateway.stop()


def test_what_is_sent_as_bytes_and_as_structs_shares_a_connection():
    handler = Handler()
    gateway = Gateway(handler, structs.Writes)
    with opened(gateway.port, options="&connections=1") as cluster:
        for number in range(1, 4):
            cluster.table("feed").apply([Put([(ROW, number)], [A])])
            cluster.records("records").put([(b"r", Record(number, b"value"))])
    assert [put.columnValues[0].value for _, puts in handler.asked for put in puts] == [b"", b"value"] * 3
    gateway.stop()


def test_a_request_may_be_larger_than_any_buffer():
    handler = Handler()
    gateway = Gateway(handler, structs.Writes)
    columns = [number.to_bytes(3, "big") for number in range(9_500)]
    with opened(gateway.port) as cluster:
        cluster.table("feed").apply([Put([(ROW, 1)], columns)])
    [(_, [put])] = handler.asked
    assert [value.qualifier for value in put.columnValues] == columns
    gateway.stop()


def test_a_socket_gives_up_on_a_peer_that_vanishes():
    gateway = Gateway(Handler())
    connected = DeadlineSocket.connect(Address("127.0.0.1", gateway.port), 1)
    options = connected._socket.getsockopt
    assert options(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    assert options(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        assert options(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 10_000
    assert connected.is_silent()
    gateway.stop()
    select.select([connected._socket], [], [], DEADLINE_S)
    assert not connected.is_silent()
    connected.close()
    assert connected._socket.fileno() == -1


def named(monkeypatch: pytest.MonkeyPatch, *hosts: str) -> None:
    """Gives the name `gateways` these addresses."""
    resolve = socket.getaddrinfo

    def resolved(host: str, port: int, *args: int, **named: int) -> list[tuple]:
        return [
            found
            for each in (hosts if host == "gateways" else [host])
            for found in resolve(each, port, *args, **named)  # type: ignore[arg-type]
        ]

    monkeypatch.setattr(socket, "getaddrinfo", resolved)


def test_the_addresses_of_one_name_share_the_time(monkeypatch: pytest.MonkeyPatch):
    """One name may lead to all gateways of a cluster, and the machines of some may be gone."""
    given_s: list[float] = []

    class Hanging(socket.socket):
        def connect(self, _: object) -> None:
            given_s.append(self.gettimeout() or 0.0)
            raise TimeoutError("timed out")

    named(monkeypatch, "127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5")
    monkeypatch.setattr(socket, "socket", Hanging)
    with pytest.raises(TimeoutError):
        DeadlineSocket.connect(Address("gateways", 9), 2.0)
    assert len(given_s) == 4
    assert given_s[0] <= 0.5


def test_a_name_that_is_not_resolved_in_time_is_no_connection(monkeypatch: pytest.MonkeyPatch):
    """The system asks for a name as long as it likes: a quarter of a minute where no name server answers."""
    asked: list[object] = []
    begun, release = threading.Event(), threading.Event()

    def hangs(host: str, port: int, **_: object) -> list:
        asked.append(host)
        begun.set()
        release.wait(DEADLINE_S)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", hangs)
    for _ in range(3):
        with pytest.raises(TimeoutError, match="the name gateways was not resolved in time"):
            DeadlineSocket.connect(Address("gateways", 9), 0.01)
    assert begun.wait(DEADLINE_S)
    assert asked == ["gateways"], "calls that fail do not add up to threads"
    release.set()


def test_a_name_that_is_not_there_is_no_connection(monkeypatch: pytest.MonkeyPatch):
    def unknown(host: str, port: int, **_: object) -> list:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(OSError, match="Name or service not known"):
        DeadlineSocket.connect(Address("nowhere", 9), DEADLINE_S)


def test_an_address_that_refuses_costs_a_try(monkeypatch: pytest.MonkeyPatch):
    gateway = Gateway(Handler())
    named(monkeypatch, "127.0.0.2", "127.0.0.1")
    connected = DeadlineSocket.connect(Address("gateways", gateway.port), DEADLINE_S)
    assert connected.is_silent()
    connected.close()
    gateway.stop()
