"""A short siege: what does not depend on how fast the machine is. `make siege` is the whole one."""

import pytest

from bench.siege import line, siege


@pytest.mark.processes
def test_a_server_under_siege_neither_grows_nor_keeps_its_adversaries():
    rows = {row.what: row for row in siege(seconds=2.5, patience_s=1.0, connections=50, addresses=3)}
    for what in ("memory grew by", "connections that were left", "tracebacks in the log"):
        assert rows[what].verdict == "met", line(rows[what])
