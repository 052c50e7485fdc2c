"""`feedctl verify` of a home that holds all the actions."""

import json

from bench import loaded, ours
from bench.children import MIB, run
from bench.context import Context
from bench.results import Row, at_least, at_most

VERIFY_S = 1_200.0


def measure(context: Context) -> list[Row]:
    """Verify of all feeds in both replicas"""
    home = loaded.home(context)
    rates: list[float] = []
    peaks: list[float] = []
    for _ in range(context.repeats):
        log = context.folder("verify") / "verify.log"
        done = run(ours.feedctl(home, "verify", "--json"), log, VERIFY_S)
        assert done.seconds
        rates.append(_entries(log.read_text()) / done.seconds)
        peaks.append(done.peak_bytes / MIB)
    return [
        Row("verify of all feeds in both replicas, start included", "entries/s", rates, at_least(200_000)),
        Row("verify, peak memory", "MiB", peaks, at_most(300)),
    ]


def _entries(printed: str) -> int:
    """The entries that verify says it compared, in its summary on the last line of JSON."""
    for line in reversed(printed.splitlines()):
        if line.startswith("{"):
            return int(json.loads(line)["entries"])
    raise ValueError(f"verify printed no summary: {printed[-500:]}")
