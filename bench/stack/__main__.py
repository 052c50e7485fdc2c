"""`python -m bench.stack`: measures the system on the real servers of the local stack, against HBase's own client."""

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench import command
from bench.context import Context
from bench.native import native
from bench.results import Row
from bench.stack import (
    boards,
    catalog,
    crowds,
    drills,
    fanout,
    fanout_on_read,
    outage,
    pages,
    serving,
    space,
    storm,
    sync,
    ticks,
    trace,
    trim,
    visible,
    watermarks,
    writers,
)
from bench.stack.servers import Servers
from deploy.local import Stack, StackError

GENERATED_SIZE = 50_000
MEASUREMENTS: dict[str, Callable[[Servers, Context], list[Row]]] = {
    "writers": writers.measure,
    "writers-fanout": writers.measure_fanout,
    "pages": pages.measure,
    "watermarks": watermarks.measure,
    "ticks": ticks.measure,
    "serving": serving.measure,
    "space": space.measure,
    "storm": storm.measure,
    "crowds": crowds.measure,
    "sync": sync.measure,
    "trim": trim.measure,
    "trim-long": trim.measure_long,
    "trim-on-write": trim.measure_on_write,
    "fanout": fanout.measure,
    "trace": trace.measure,
    "trace-stages": trace.measure_stages,
    "outage": outage.measure,
    "visible": visible.measure,
    "gathering": visible.measure_gathering,
    "drills": drills.measure,
    "fanout-on-read": fanout_on_read.measure,
    "catalog": catalog.measure,
    "boards": boards.measure,
}


def run(chosen: argparse.Namespace, out: Path, scratch: Path) -> int:
    context = command.context(chosen, out, scratch)
    try:
        with running(chosen.stack or scratch / "stack", context) as stack:
            (scratch / "native").mkdir()
            with native(stack.port("hbase-a", "zookeeper"), scratch / "native") as client:
                return command.measure(chosen, context, out, MEASUREMENTS, Servers(stack, client))
    except StackError as error:
        print(error, file=sys.stderr)
        return 2


@contextmanager
def running(home: Path, context: Context) -> Iterator[Stack]:
    """The stack with all its servers up. What ran before keeps running afterwards."""
    stack = Stack(home, context.say)
    mine = [state.name for state in stack.status() if state.pid is None]
    try:
        stack.up()
        yield stack
    finally:
        if mine:
            stack.stop(*mine)


if __name__ == "__main__":
    made = command.parser("bench.stack", __doc__, MEASUREMENTS, "build/bench-stack", GENERATED_SIZE)
    made.add_argument("--stack", type=Path, metavar="DIR", help="a stack to use; without it one is started and removed")
    sys.exit(command.main(command.options(made), run))
