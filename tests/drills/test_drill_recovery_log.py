"""What is told of a recovery from the servers' logs. The lines are of the kinds that the servers write, shortened."""

import random

from deploy.drills import recovery_log as steps
from deploy.drills.hosts import LogLine
from deploy.drills.recovery_log import Step

FAULT_S = 1_000.0
DEAD = "x-host-3,16020,1700000000003"
MASTER, ONE, TWO = "x-control", "x-host-1", "x-host-2"
STATE = "state=RUNNABLE:SERVER_CRASH_START, locked=true; ServerCrashProcedure"


def line(at_s: float, host: str, message: str, thread: str = "PEWorker-1") -> LogLine:
    return LogLine(host, FAULT_S + at_s, f"2026-01-01T00:00:00,000 INFO  [{thread}] {message}")


def crash(has_meta: bool) -> list[LogLine]:
    """From the session's end to the end of its recovery, with two regions; its logs are split on x-host-1."""
    flag = str(has_meta).lower()
    meta = [
        line(3.1, MASTER, f"procedure.ServerCrashProcedure: Splitting WALs pid=7, {STATE} {DEAD}, isMeta: true"),
        line(4.0, MASTER, "procedure2.ProcedureExecutor: Finished pid=8, ppid=7, state=SUCCESS; SplitWALProcedure "
                          "x-host-3%2C16020%2C1700000000003.meta.17.meta, worker=x-host-1,16020,1 in 900 msec"),
        line(4.1, MASTER, f"master.SplitWALManager: {DEAD} WAL count=0, meta=true"),
        line(4.2, MASTER, "assignment.RegionStateStore: pid=9 updating hbase:meta row=1588230740, "
                          "regionState=OPENING, regionLocation=x-host-1,16020,1"),
        line(4.6, MASTER, "assignment.RegionStateStore: pid=9 updating hbase:meta row=1588230740, regionState=OPEN, "
                          "openSeqNum=49, regionLocation=x-host-1,16020,1"),
    ]  # fmt: skip
    return [
        line(2.5, MASTER, "master.RegionServerTracker: RegionServer ephemeral node deleted, processing expiration "
                          f"[{DEAD}]", "RegionServerTracker-0"),
        line(3.0, MASTER, f"procedure.ServerCrashProcedure: Start pid=7, {STATE} {DEAD}, splitWal=true, meta={flag}"),
        *(meta if has_meta else []),
        line(4.7, MASTER, f"procedure.ServerCrashProcedure: Splitting WALs pid=7, {STATE} {DEAD}, isMeta: false"),
        line(5.0, ONE, "util.RecoverLeaseFSUtils: Failed to recover lease, attempt=0 on file="
                       f"hdfs://x-control:8020/hbase/WALs/{DEAD}-splitting/x.17 after 38ms"),
        line(5.3, ONE, "util.RecoverLeaseFSUtils: Failed to recover lease, attempt=1 on file="
                       f"hdfs://x-control:8020/hbase/WALs/{DEAD}-splitting/x.17 after 249ms"),
        line(6.0, MASTER, "procedure2.ProcedureExecutor: Finished pid=10, ppid=7, state=SUCCESS; SplitWALProcedure "
                          "x-host-3%2C16020%2C1700000000003.17, worker=x-host-1,16020,1 in 1.3 sec"),
        line(6.1, MASTER, f"master.SplitWALManager: {DEAD} WAL count=0, meta=false"),
        *(
            line(6.2, MASTER, f"assignment.TransitRegionStateProcedure: Starting pid={pid}, ppid=7, state=RUNNABLE; "
                              f"TransitRegionStateProcedure table=feed, region={region}, ASSIGN; state=OPEN")
            for pid, region in ((11, "aa11"), (12, "bb22"))
        ),
        line(6.8, MASTER, "assignment.RegionStateStore: pid=11 updating hbase:meta row=aa11, regionState=OPEN, "
                          "openSeqNum=9, regionLocation=x-host-1,16020,1"),
        line(7.0, MASTER, "assignment.RegionStateStore: pid=12 updating hbase:meta row=bb22, regionState=OPEN, "
                          "openSeqNum=9, regionLocation=x-host-2,16020,2"),
        line(7.4, MASTER, f"procedure2.ProcedureExecutor: Finished pid=7, state=SUCCESS; ServerCrashProcedure {DEAD}, "
                          f"splitWal=true, meta={flag} in 4.9 sec"),
    ]  # fmt: skip


def told(lines: list[LogLine], target: str = "x-host-3") -> dict[str, Step]:
    """By name, in the order of the steps; the lines come in any order."""
    found = steps.recovery(random.Random(1).sample(lines, len(lines)), FAULT_S, target)
    assert len({step.name for step in found}) == len(found)
    return {step.name: step for step in found}


def at(found: dict[str, Step]) -> dict[str, float | None]:
    return {name: None if step.at_s is None else round(step.at_s, 3) for name, step in found.items()}


def test_a_crash_with_meta_is_told_step_by_step() -> None:
    found = told(crash(has_meta=True))
    assert list(at(found).items()) == [
        (steps.DETECTED, 2.5),
        (steps.BEGUN, 3.0),
        (steps.META_SPLIT_BEGUN, 3.1),
        (steps.META_SPLIT, 4.1),
        (steps.META_OPENING, 4.2),
        (steps.META_OPEN, 4.6),
        (steps.SPLIT_BEGUN, 4.7),
        (steps.LEASE, 5.3),
        (steps.SPLIT, 6.1),
        (steps.OPENING, 6.2),
        (steps.OPEN, 7.0),
        (steps.DONE, 7.4),
    ]
    detected, begun = found[steps.DETECTED], found[steps.BEGUN]
    assert (detected.host, detected.took_s) == (MASTER, 2.5)
    assert detected.line.startswith("master.RegionServerTracker: RegionServer ephemeral node deleted")
    assert begun.took_s == 0.5
    assert (found[steps.OPEN].note, found[steps.LEASE].note) == ("2 regions", "2 times in all")
    assert [None if each is None else round(each, 3) for each in steps.spans(found.values())] == [
        2.5,
        2.4,
        0.5,
        0.8,
    ]


def test_a_crash_without_meta_has_no_steps_of_it() -> None:
    found = told(crash(has_meta=False))
    assert not any("hbase:meta" in name for name in found)
    assert [None if each is None else round(each, 3) for each in steps.spans(found.values())] == [
        2.5,
        1.4,
        None,
        0.8,
    ]


def test_what_is_not_seen_is_said_and_ends_the_list() -> None:
    # The master that would have told the rest is not there.
    found = told([each for each in crash(has_meta=True) if each.at < FAULT_S + 6.9])
    assert at(found)[steps.OPENING] == 6.2
    assert list(at(found).items())[-2:] == [(steps.OPEN, None), (steps.DONE, None)]
    assert found[steps.OPEN].note == "1 of 2 regions seen"
    assert steps.spans(found.values()).reopen is None


def test_a_region_server_that_was_never_missed_is_not_detected() -> None:
    before = [LogLine(each.host, each.at - 100, each.text) for each in crash(has_meta=False)]
    found = told(before)
    assert steps.DETECTED in found
    assert set(at(found).values()) == {None}
    assert steps.spans(found.values()) == (None, None, None, None)
    assert steps.expired(before, FAULT_S) == []
    # Nothing of the kind is expected of a host that has none.
    assert told(before, "x-gateway-1") == {}
    assert told([]) == {}


def test_servers_that_are_taken_for_dead_are_counted_whoever_is_broken() -> None:
    assert steps.expired(crash(has_meta=False), FAULT_S) == ["x-host-3"]
    other = told(crash(has_meta=False), "x-host-1")
    assert at(other)["x-host-3 is taken for dead"] == 2.5
    assert at(other)["the recovery of x-host-3 is done"] == 7.4


def broken(at_s: float, host: str, prefix: str) -> LogLine:
    thread = f"AsyncFSWAL-0-hdfs://x-control:8020/hbase{prefix}-prefix:{host},16020,17"
    return line(at_s, host, "wal.AsyncFSWAL: sync failed", thread)


def rolled(at_s: float, host: str, prefix: str) -> LogLine:
    path = f"/hbase{prefix}/WALs/{host},16020,17/{host}%2C16020%2C17"
    return line(at_s, host, f"wal.AbstractFSWAL: Rolled WAL {path}.1 with entries=3; new WAL {path}.2", "roller")


def test_logs_that_lose_a_datanode_are_followed_until_the_last_has_a_new_pipeline() -> None:
    lines = [
        *crash(has_meta=False),
        broken(0.2, ONE, ""),
        broken(0.4, ONE, ""),
        broken(0.3, MASTER, "/MasterData"),
        rolled(0.1, TWO, ""),  # by the clock, as logs are rolled now and then
        rolled(2.2, ONE, ""),
        rolled(2.7, MASTER, "/MasterData"),
        rolled(20.0, ONE, ""),
        broken(9.0, TWO, ""),  # after the recovery: when the target comes back
        broken(0.3, "x-host-3", ""),  # the target's own
        line(1.1, MASTER, "blockmanagement.DatanodeManager: Skipped stale nodes for recovery : 1"),
        line(8.0, MASTER, "hdfs.StateChange: BLOCK* removeDeadDatanode: lost heartbeat from 10.0.0.3:9866"),
    ]
    found = told(lines)
    seen = at(found)
    assert (seen[steps.BROKEN], seen[steps.MASTER_REBUILT], seen[steps.REBUILT]) == (0.2, 2.7, 2.7)
    assert found[steps.BROKEN].note == "2 logs in all"
    assert (seen[steps.STALE], seen[steps.DEAD]) == (1.1, 8.0)
    # One is still without: nothing says that all are well.
    assert steps.REBUILT not in told([each for each in lines if each.at != FAULT_S + 2.2 and each.at < FAULT_S + 19])


def test_a_master_that_takes_over_is_told() -> None:
    lines = [
        LogLine(MASTER, FAULT_S + 0.1, "supervisor: master: ended by SIGKILL; again in 5.0 s"),
        line(2.0, ONE, "master.ActiveMasterManager: Registered as active master=x-host-1,16000,17"),
        LogLine(MASTER, FAULT_S + 5.1, "supervisor: master: started, process 77, life 2"),
        line(6.0, ONE, "master.HMaster: Master has completed initialization 4.000sec"),
    ]
    assert list(at(told(lines, MASTER)).items()) == [
        ("master of x-control ended by SIGKILL", 0.1),
        ("the other master takes over", 2.0),
        ("master of x-control starts", 5.1),
        ("the new master is ready", 6.0),
    ]


def test_sessions_that_end_are_told_once_a_host() -> None:
    timed_out = (
        "zookeeper.ClientCnxn: Client session timed out, have not heard from server in 2001ms for session id 0x1"
    )
    lines = [
        line(2.0, ONE, timed_out),
        line(2.1, ONE, timed_out),
        line(2.5, TWO, timed_out),
        line(9.0, ONE, "zookeeper.ClientCnxn: Unable to reconnect to ZooKeeper service, session 0x1 has expired"),
        line(9.1, ONE, "regionserver.HRegionServer: ***** ABORTING region server x-host-1,16020,17: expired *****"),
        LogLine(MASTER, FAULT_S + 9.2, "***** ABORTING region server x-host-1,16020,17: expired *****"),
    ]
    assert list(at(told(lines, MASTER)).items()) == [
        ("x-host-1 does not hear from ZooKeeper", 2.0),
        ("x-host-2 does not hear from ZooKeeper", 2.5),
        ("x-host-1 has lost its session", 9.0),
        ("the region server of x-host-1 gives up", 9.1),
    ]


def test_evidence_is_short_and_without_time_and_thread() -> None:
    text = "2026-01-01T00:00:00,000 WARN  [IPC Server [a] handler 1] x.Y: " + "z" * 500
    assert steps.shown(text).startswith("x.Y: zzz")
    assert len(steps.shown(text)) == 240
    assert steps.shown("supervisor: master: started, process 77, life 2\n").startswith("supervisor: ")


def test_a_servers_own_time_counts_where_the_engine_was_late() -> None:
    fault_s = 1_767_225_600.0  # 2026-01-01, midnight
    takes_over = "INFO  [main] master.ActiveMasterManager: Registered as active master=x-host-1,16000,17"

    def told_at(own: str, engine_s: float) -> float | None:
        (step,) = steps.recovery([LogLine(ONE, fault_s + engine_s, f"{own} {takes_over}")], fault_s, MASTER)
        return step.at_s

    assert told_at("2026-01-01T00:00:02,250", 3.5) == 2.25
    # Of a machine in another time zone.
    assert told_at("2026-01-01T01:00:02,250", 3.5) == 3.5


def test_where_the_time_of_a_split_and_of_an_opening_went_is_noted() -> None:
    path = f"hdfs://x-control:8020/hbase/WALs/{DEAD}-splitting/x-host-3%2C16020%2C1700000000003"
    lines = [
        *crash(has_meta=False),
        line(5.0, ONE, f"wal.WALSplitter: Open {path}.17 took 912ms"),
        line(5.9, ONE, f"wal.WALSplitter: Processed 74 edits across 5 Regions in 380 ms; skipped=1; WAL={path}.17, x"),
        line(5.0, TWO, f"wal.WALSplitter: Open {path}.16 took 20ms"),
        line(5.2, TWO, f"wal.WALSplitter: Processed 9 edits across 1 Regions in 100 ms; skipped=1; WAL={path}.16, x"),
        line(5.0, TWO, f"wal.WALSplitter: Open {path}.meta.15.meta took 9000ms"),
        line(6.3, ONE, "handler.AssignRegionHandler: Open feed,\\x10,17.aa11."),
        line(6.3, TWO, "handler.AssignRegionHandler: Open feed,,17.bb22."),
        line(
            6.5, TWO, "regionserver.HRegion: Finished flush of dataSize ~1 KB/1, heapSize ~1 KB/1 for bb22 in 310ms, x"
        ),
        line(6.6, ONE, "handler.AssignRegionHandler: Opened feed,\\x10,17.aa11."),
        line(6.8, TWO, "handler.AssignRegionHandler: Opened feed,,17.bb22."),
    ]
    found = told(lines)
    assert found[steps.SPLIT].note == "2 logs; the slowest: 0.9 s to get its lease and open it, 0.4 s for its edits"
    assert found[steps.OPEN].note == "2 regions; the slowest took 0.5 s, 0.3 s of it to flush what was replayed"
