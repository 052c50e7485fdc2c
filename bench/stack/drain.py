"""`python -m bench.stack.drain HOME CLUSTER`: one writer of one cluster, until it has read all that is in the topic.

It answers each of two lines in JSON: the first one when it is wired. With the second one it begins, and answers with
the cells that it wrote, the seconds from its first request to HBase until nothing was left to read, and its processor
time in them.
"""

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from feedstore.app import config as configuration
from feedstore.following import FEEDS, is_witness
from feedstore.widecolumn import Mutation, WideColumnStore
from tests.widecolumn.written import cells_in, count_in
from workers.app import logs, memory_tuning, wiring
from workers.following.groups import writer_group
from workers.following.topics import DELIVERIES
from workers.queue.port import lag_of


class Counted:
    """A store that knows when it was first written to, and how many cells."""

    def __init__(self, store: WideColumnStore) -> None:
        self._store = store
        self.began: float | None = None
        self.processor_began = 0.0
        self.written = 0

    def apply(self, batch: Sequence[Mutation]) -> None:
        cells = sum(count_in(mutation) for mutation in batch if not _of_canaries(mutation))
        if cells and self.began is None:
            self.began, self.processor_began = time.perf_counter(), time.process_time()
        self._store.apply(batch)
        self.written += cells

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def _of_canaries(mutation: Mutation) -> bool:
    return any(is_witness(cell.row) for cell in islice(cells_in(mutation), 1))  # they have mutations of their own


def main() -> None:
    home, cluster = sys.argv[1:]
    logs.configure("warning")
    memory_tuning.relax()
    config = configuration.load(Path(home), {})
    opened = wiring.open_ports(config, "write")
    replica = opened.replicas[cluster]
    feeds = Counted(replica.tables[FEEDS])
    opened.replicas[cluster] = replace(replica, tables={**replica.tables, FEEDS: feeds})
    wiring.refuse_unsafe(opened, config, [cluster])
    stage = wiring.writer(opened, config, cluster)
    sys.stdin.readline()
    print("{}", flush=True)
    sys.stdin.readline()
    while stage.step() or lag_of(opened.queue, DELIVERIES, writer_group(cluster)):
        pass
    assert feeds.began is not None
    seconds, processor_s = time.perf_counter() - feeds.began, time.process_time() - feeds.processor_began
    print(json.dumps({"cells": feeds.written, "seconds": seconds, "processor_s": processor_s}), flush=True)
    stage.close()
    opened.close()


if __name__ == "__main__":
    main()
