"""A stack starts, ends, kills and finds its servers; shown with servers that are small Python programs."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from fake_servers import ANSWERS, DEAF, ENDS, NEVER_ANSWERS, FakeServer, StackOf

from deploy.local import Stack, StackError, processes
from deploy.local.errors import NotReadyError
from deploy.local.home import Home
from deploy.local.ports import LOOPBACK
from deploy.local.waiting import becomes


def test_up_starts_what_is_named_and_what_that_needs_in_order(home: Home, stack_of: StackOf) -> None:
    said: list[str] = []
    cluster, gateway = FakeServer(home, "hbase-a"), FakeServer(home, "thrift2-a", needs=("hbase-a",))
    broker = FakeServer(home, "kafka")
    stack = stack_of(gateway, cluster, broker, said=said)
    stack.up("thrift2-a")
    assert [line.split(":")[0] for line in said if "prepared" not in line] == ["hbase-a"] * 2 + ["thrift2-a"] * 2
    assert stack.pid("hbase-a") is not None
    assert stack.pid("kafka") is None


def test_all_are_prepared_before_the_time_begins(home: Home, stack_of: StackOf) -> None:
    """Maven's downloads take longer than any start."""
    said: list[str] = []
    stack = stack_of(FakeServer(home, "hbase-a"), FakeServer(home, "thrift2-a", needs=("hbase-a",)), said=said)
    stack.up("thrift2-a")
    assert said[:2] == ["hbase-a: prepared", "thrift2-a: prepared"]


def test_up_and_stop_may_be_repeated(home: Home, stack_of: StackOf) -> None:
    server = FakeServer(home, "kafka")
    stack = stack_of(server)
    stack.up("kafka")
    pid = stack.pid("kafka")
    stack.up("kafka")
    assert (stack.pid("kafka"), server.starts) == (pid, 1)
    stack.stop("kafka")
    stack.stop("kafka")
    assert stack.pid("kafka") is None


def test_up_restarts_only_what_was_killed(home: Home, stack_of: StackOf) -> None:
    stack = stack_of(FakeServer(home, "kafka"), FakeServer(home, "mariadb"))
    stack.up("kafka", "mariadb")
    kafka, mariadb = stack.pid("kafka"), stack.pid("mariadb")
    stack.kill("kafka")
    assert stack.pid("kafka") is None
    stack.up("kafka", "mariadb")
    assert stack.pid("mariadb") == mariadb
    assert stack.pid("kafka") not in (None, kafka)


def test_up_starts_again_what_runs_and_does_not_answer(
    home: Home, stack_of: StackOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An HBase that was suspended for a while: its region server has ended, and its process lives."""
    monkeypatch.setattr("deploy.local.stack.REVIVE_S", 0.2)
    said: list[str] = []
    cluster, gateway = FakeServer(home, "hbase-a"), FakeServer(home, "thrift2-a", needs=("hbase-a",))
    stack = stack_of(cluster, gateway, said=said)
    stack.up("hbase-a", "thrift2-a")
    half_dead, asking = stack.pid("hbase-a"), stack.pid("thrift2-a")
    cluster.answer.unlink()
    said.clear()
    stack.up("hbase-a", "thrift2-a", deadline_s=20.0)
    assert stack.pid("hbase-a") not in (None, half_dead)
    assert stack.pid("thrift2-a") == asking, "it answers"
    assert (cluster.starts, gateway.starts) == (2, 1)
    assert said[0] == "hbase-a: runs and has not answered for 0 s, starting it again"


def test_up_starts_again_what_ends_after_it_has_answered(home: Home, stack_of: StackOf) -> None:
    """An HBase that was suspended for long: it answers, and its master ends while the gateway is waited for."""
    cluster, gateway = FakeServer(home, "hbase-a"), FakeServer(home, "thrift2-a", needs=("hbase-a",))
    stack = stack_of(cluster, gateway)
    stack.up("hbase-a", "thrift2-a")

    def asks_the_cluster() -> None:
        if cluster.starts == 1:
            if (pid := stack.pid("hbase-a")) is not None:
                os.kill(pid, signal.SIGKILL)
            raise NotReadyError("the cluster does not answer")

    gateway.asks = asks_the_cluster
    stack.up("hbase-a", "thrift2-a", deadline_s=20.0)
    assert (cluster.starts, gateway.starts) == (2, 1)


def test_what_was_started_and_does_not_answer_is_not_started_a_second_time(
    home: Home, stack_of: StackOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deploy.local.stack.REVIVE_S", 0.1)
    server = FakeServer(home, "kafka", NEVER_ANSWERS)
    stack = stack_of(server)
    stack.start("kafka", wait=False)
    with pytest.raises(StackError, match="not ready after 2 s"):
        stack.up("kafka", deadline_s=2.0)
    assert server.starts == 2


def test_up_resumes_what_is_suspended_and_starts_it_where_it_ends_by_that(
    home: Home, stack_of: StackOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A region server that was away for too long ends when it is resumed."""
    # Short sleeps: a signal that arrives just before one is handled after it.
    lasts = "\nwhile True: time.sleep(0.05)"
    server = FakeServer(home, "kafka", ANSWERS.replace("time.sleep(600)", lasts))
    server.script = f"signal.signal(signal.SIGCONT, lambda *_: sys.exit(1)); {server.script}"
    stack = stack_of(server, FakeServer(home, "mariadb"))
    stack.up("kafka", "mariadb")
    kafka, mariadb = stack.pid("kafka"), stack.pid("mariadb")
    server.answer.unlink()
    stack.suspend("kafka", "mariadb")
    stack.up("kafka", "mariadb", deadline_s=20.0)
    assert [each.state for each in stack.status("kafka", "mariadb")] == ["ready", "ready"]
    assert stack.pid("mariadb") == mariadb
    assert stack.pid("kafka") not in (None, kafka)


def test_start_does_not_start_what_a_server_needs(home: Home, stack_of: StackOf) -> None:
    stack = stack_of(FakeServer(home, "hbase-a"), FakeServer(home, "thrift2-a", needs=("hbase-a",)))
    stack.start("thrift2-a")
    assert stack.pid("hbase-a") is None
    assert stack.pid("thrift2-a") is not None


def test_a_server_keeps_nothing_open_that_its_starter_was_given(home: Home, stack_of: StackOf) -> None:
    """A lock that `flock` took for `up` would be held as long as the server runs."""
    stack = stack_of(FakeServer(home, "kafka"))
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    stack.up("kafka")
    os.close(writing)
    with os.fdopen(reading, "rb") as end:
        assert end.read() == b""
    assert stack.pid("kafka") is not None


def test_a_server_that_ends_is_told_of_at_once_with_its_log(home: Home, stack_of: StackOf) -> None:
    stack = stack_of(FakeServer(home, "kafka", ENDS))
    with pytest.raises(StackError, match=r"(?s)kafka: ended before it was ready.*kafka\.log.*no such disk"):
        stack.up("kafka")


def test_a_server_that_does_not_answer_is_told_of_with_the_reason_and_its_log(home: Home, stack_of: StackOf) -> None:
    server = FakeServer(home, "kafka", NEVER_ANSWERS)
    # On a busy machine a program may take longer than the second until it says anything.
    server.asks = lambda: becomes(lambda: "waiting for the moon" in home.log("kafka").read_text(encoding="utf-8"), 60.0)
    stack = stack_of(server)
    with pytest.raises(StackError, match=r"(?s)not ready after 1 s: it has not answered.*waiting for the moon"):
        stack.up("kafka", deadline_s=1.0)


def test_what_does_not_end_is_killed(home: Home, stack_of: StackOf) -> None:
    said: list[str] = []
    stack = stack_of(FakeServer(home, "kafka", DEAF, patience_s=0.3), said=said)
    stack.up("kafka")
    stack.stop("kafka")
    assert stack.pid("kafka") is None
    assert "killed" in said[-1]


def test_a_suspended_server_is_shown_goes_on_and_ends(home: Home, stack_of: StackOf) -> None:
    stack = stack_of(FakeServer(home, "kafka"))
    stack.up("kafka")
    stack.suspend("kafka")
    assert stack.status("kafka")[0].state == "suspended"
    stack.resume("kafka")
    assert stack.status("kafka")[0].state == "ready"
    stack.suspend("kafka")
    began = time.monotonic()
    stack.stop("kafka")
    assert time.monotonic() - began < 5
    assert stack.pid("kafka") is None


def test_a_dying_process_is_not_gone_before_its_ports_are(
    home: Home, stack_of: StackOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its command line goes first, its sockets last."""
    stack = stack_of(FakeServer(home, "kafka"))
    stack.up("kafka")
    with stack._held(["kafka"]) as ((_, process),):
        monkeypatch.setattr(processes, "is_ours", lambda pid, mark: False)
        assert not process.wait_gone(0.2)
        process.kill()
    assert not Path(f"/proc/{process.pid}").exists()


def test_a_process_that_took_a_recorded_number_is_left_alone(home: Home, stack_of: StackOf) -> None:
    stack = stack_of(FakeServer(home, "kafka"))
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as stranger:
        home.pid_file("kafka").write_text(f"{stranger.pid}\n", encoding="ascii")
        stack.stop("kafka")
        stack.kill("kafka")
        assert stranger.poll() is None
        stranger.kill()


def test_a_server_that_was_not_recorded_before_a_crash_is_found(home: Home, stack_of: StackOf) -> None:
    server = FakeServer(home, "kafka")
    stack = stack_of(server)
    stack.up("kafka")
    home.pid_file("kafka").unlink()
    stack.up("kafka")
    assert server.starts == 1
    stack.stop("kafka")
    assert stack.pid("kafka") is None


def test_a_port_that_a_stranger_took_is_named(home: Home, stack_of: StackOf) -> None:
    with socket.create_server((LOOPBACK, 0)) as stranger:
        port = stranger.getsockname()[1]
        stack = stack_of(FakeServer(home, "kafka", ports={"client": port}))
        with pytest.raises(StackError, match=rf"its port {port} \(client\) is taken"):
            stack.up("kafka")


def test_two_commands_at_once_start_a_server_once(home: Home, stack_of: StackOf) -> None:
    server = FakeServer(home, "kafka")
    first, second = stack_of(server), stack_of(server)
    threads = [threading.Thread(target=stack.up, args=("kafka",)) for stack in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert server.starts == 1


def test_servers_outlive_the_session_that_started_them(home: Home, stack_of: StackOf) -> None:
    stack = stack_of(FakeServer(home, "kafka"))
    stack.up("kafka")
    pid = stack.pid("kafka")
    assert pid is not None
    assert os.getsid(pid) == pid != os.getsid(0)


def test_status_says_what_is_not_ready_and_why(home: Home, stack_of: StackOf) -> None:
    stack = stack_of(FakeServer(home, "kafka", NEVER_ANSWERS), FakeServer(home, "mariadb"))
    stack.start("kafka", wait=False)
    kafka, mariadb = stack.status("kafka", "mariadb")
    assert (kafka.state, kafka.detail) == ("not ready", "it has not answered")
    assert kafka.resident_bytes > 0
    assert (mariadb.state, mariadb.pid) == ("stopped", None)


def test_an_unknown_server_is_refused_before_anything_is_done(home: Home) -> None:
    with pytest.raises(StackError, match="no server 'hbase-c'; there are kafka, "):
        Stack(home.root).up("kafka", "hbase-c")


def test_what_runs_otherwise_than_it_would_be_started_now_is_named(home: Home, stack_of: StackOf) -> None:
    said: list[str] = []
    server = FakeServer(home, "kafka")
    stack = stack_of(server, said=said)
    stack.up("kafka")
    assert stack.outdated("kafka") == []
    server.script += "; print('with other jars')"
    pid = stack.pid("kafka")
    said.clear()
    stack.up("kafka")
    assert (stack.outdated("kafka"), stack.pid("kafka")) == (["kafka"], pid)
    assert said[0] == "kafka: runs as it was started before, and would be started otherwise now: stop it first"
    stack.stop("kafka")
    assert stack.outdated("kafka") == []
