"""`python -m bench.scale`: what 500 million users and 10 million deliveries a second take, and what hot users do to it.

Arithmetic and a simulation: no server is started. The costs of one action, follower and cell are arguments; the
defaults are those of docs/benchmarks.md, and docs/scale.md says where each comes from. The same arguments and seed
print the same tables.
"""

import argparse
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

SECONDS_A_MONTH = 365.25 / 12 * 86_400
KEEP = 0.6
"""The share of a machine that is used at the peak: the rest is for compactions, a lost host and the next year."""


@dataclass(frozen=True)
class Assumptions:
    """What is given, what was measured, and what is bought. Times in s, sizes in bytes, money in USD."""

    users: float = 500e6
    deliveries: float = 10e6  # a second, at the peak, to each cluster
    peak_over_mean: float = 2.0
    entries: float = 600.0  # of a feed, on average; a trim leaves 1,250 at most
    reads: float = 500e3  # pages a second
    top_followers: float = 38e6  # of the most followed: 7.6 % of all, as in the trace
    mean_followers: float = 100.0  # of the owner of a pin
    # Measured, processor time
    action_s: float = 100e-6  # of an expander and its queries, an action
    follower_s: float = 3e-6  # of an expander, a follower that it reads and packs
    cell_s: float = 2e-6  # of a writer, a cell
    stored_s: float = 12.5e-6  # of a region server and a gateway, a cell written, flushed and compacted
    page_s: float = 350e-6  # of a gateway, a region server and a web process, a page
    entry_bytes: float = 18.4  # in HFiles
    delivery_bytes: float = 13.0  # in the queue
    edge_bytes: float = 110.0  # of a follow in both indexes of the database, with what its pages leave free
    # Chosen
    copies: float = 3.0  # of HDFS, and of Kafka
    retention_s: float = 3 * 86_400.0  # of the queue: longer than what an action may age
    partition_deliveries: float = 20e3  # a second, through one partition of the deliveries: half of what a writer does
    region_bytes: float = 10e9
    # Bought: a machine of 8 virtual processors (4 cores), 64 GiB and 1.9 TB of NVMe
    vcpus: float = 8.0
    disk_bytes: float = 1.9e12
    machine_usd: float = 0.69 * 730  # a month, on demand


def sizes(given: Assumptions) -> Iterator[tuple[str, str, str]]:
    """(what, how many, how it comes about), a row a line."""
    actions = given.deliveries / given.mean_followers
    stored = given.users * given.entries * given.entry_bytes
    region_vcpus = given.deliveries * given.stored_s / KEEP
    by_cpu = math.ceil(region_vcpus / given.vcpus)
    by_disk = math.ceil(stored * given.copies / (given.disk_bytes * KEEP))
    region_servers = max(by_cpu, by_disk)
    regions = max(math.ceil(stored / given.region_bytes), region_servers * 4)
    writers = math.ceil(given.deliveries * given.cell_s / KEEP / given.vcpus)
    expanding = math.ceil((actions * given.action_s + given.deliveries * given.follower_s) / KEEP)
    expanders = math.ceil(expanding / given.vcpus)
    pages = math.ceil(given.reads * given.page_s / KEEP / given.vcpus)
    partitions = math.ceil(given.deliveries / given.partition_deliveries)
    mean = given.deliveries / given.peak_over_mean
    kept = mean * given.delivery_bytes * given.retention_s * given.copies
    brokers = max(math.ceil(kept / (given.disk_bytes * KEEP)), 6)
    edges = given.users * given.mean_followers
    shards = math.ceil(edges * given.edge_bytes / (given.disk_bytes * KEEP / 2))
    machines = 2 * (region_servers + writers) + expanders + pages + brokers + 2 * shards
    yield "pins a second", f"{actions:,.0f}", "deliveries / followers of a pin's owner"
    yield "bytes of feeds, a cluster", f"{stored / 1e12:,.1f} TB", "users x entries x bytes an entry"
    yield "region servers, a cluster", f"{region_servers:,}", f"{by_cpu:,} by processors, {by_disk:,} by disks"
    yield "regions, a cluster", f"{regions:,}", "at most 10 GB each, and at least four a server"
    yield "writers' machines, a cluster", f"{writers:,}", "deliveries x time a cell; a gateway on each"
    yield "partitions of feed.deliveries", f"{partitions:,}", "so that a writer of each is half busy"
    yield "ticks in feed.deliveries a second", f"{expanding * partitions:,}", "one an expander and partition"
    yield "brokers", f"{brokers:,}", f"{kept / 1e12:,.0f} TB for three days in three copies"
    yield "expanders' machines", f"{expanders:,}", "actions x time an action + deliveries x time a follower"
    yield "shards of the follow store", f"{shards:,}", "each with a replica; half of a disk is kept free"
    yield "machines for pages", f"{pages:,}", f"{given.reads:,.0f} pages a second"
    yield "machines", f"{machines:,}", "two clusters, one queue, one follow store"
    yield "USD a month", f"{machines * given.machine_usd:,.0f}", f"{given.machine_usd:,.0f} a machine, on demand"
    delivered = mean * SECONDS_A_MONTH
    yield "USD a million deliveries", f"{machines * given.machine_usd / delivered * 1e6:.4f}", "at the mean rate"


def followers(given: Assumptions, rng: np.random.Generator, count: int) -> Floats:
    """The followers of the owners of `count` pins: F(rank) = top x rank^-s, with s such that the mean is as given.
    Who has more followers does not save more pins.
    """
    exponent = _exponent(given)
    # The quantile of a rank that is uniform over the users.
    rank = np.ceil(rng.random(count) * given.users)
    return np.maximum(given.top_followers * rank**-exponent, 1.0)


def _exponent(given: Assumptions) -> float:
    """By bisection. The sum over ranks is its integral: top x (users^(1-s) - 1) / (1 - s) / users."""
    low, high = 0.01, 0.99
    for _ in range(60):
        middle = (low + high) / 2
        mean = given.top_followers * (given.users ** (1 - middle) - 1) / (1 - middle) / given.users
        low, high = (middle, high) if mean > given.mean_followers else (low, middle)
    return low


@dataclass(frozen=True)
class Waits:
    """Seconds. wait_s: of a pin until its handler begins, at these percentiles. hot_s: from when the pin with the most
    followers was saved until the delivery of the last of them is in the queue. load: of the busiest second of a
    partition of the deliveries over the mean, at the median and the busiest partition.
    """

    wait_s: dict[str, float]
    hot_s: float
    load: tuple[float, float]


def simulate(given: Assumptions, partitions: int, expanders: int, span_s: float, part: float, seed: int) -> Waits:
    """Pins arrive at random in `span_s`, each in one of so many expanders' partitions of the actions. After a quarter
    of it, the most followed user of all saves one.

    part: a fanout is cut into tasks of so many followers, each of which waits for its turn in some partition;
    math.inf: one handler reads all followers of a pin.
    """
    rng = np.random.default_rng(seed)
    pins = int(given.deliveries / given.mean_followers * span_s)
    reached = followers(given, rng, pins)
    arrives = np.sort(rng.random(pins) * span_s)
    hot = pins // 4
    reached[hot] = given.top_followers
    parts = np.maximum(np.ceil(reached / part), 1).astype(np.int64)
    task_of = np.repeat(np.arange(pins), parts)
    at = arrives[task_of]
    size = np.minimum(reached[task_of], part)
    first = np.zeros(len(task_of), bool)
    first[np.cumsum(parts) - parts] = True
    takes = size * given.follower_s + np.where(first, given.action_s, 0.0)
    where = rng.integers(0, expanders, len(task_of))
    waits = np.empty(len(task_of))
    for number in range(expanders):
        mine = where == number
        waits[mine] = _waits(at[mine], takes[mine])
    ends = at + waits + takes
    percentiles = {name: float(np.quantile(waits[first], q)) for name, q in PERCENTILES.items()}
    hot_s = float(ends[task_of == hot].max() - arrives[hot])
    return Waits(percentiles, hot_s, _load(given, rng, at + waits, size, partitions, span_s))


PERCENTILES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999, "longest": 1.0}
PACK = 10_000
"""The cells of a message of the deliveries."""


def _waits(at: Floats, takes: Floats) -> Floats:
    """Of tasks that one server does in their order. Lindley's recursion, W' = max(0, W + takes - gap), as a running
    minimum.
    """
    if not len(at):
        return np.empty(0)
    steps = np.concatenate([[0.0], takes[:-1] - np.diff(at)])
    walked = np.cumsum(steps)
    return walked - np.minimum.accumulate(np.minimum(walked, 0.0))


def _load(
    given: Assumptions, rng: np.random.Generator, begins: Floats, size: Floats, partitions: int, span_s: float
) -> tuple[float, float]:
    """Deliveries go to the partitions in packs, one after the other, while they are made."""
    packs = np.ceil(size / PACK).astype(np.int64)
    order = np.repeat(np.arange(len(size)), packs)
    number = np.arange(len(order)) - np.repeat(np.cumsum(packs) - packs, packs)
    second = (begins[order] + number * PACK * given.follower_s).astype(np.int64)
    cells = np.minimum(size[order] - number * PACK, PACK)
    inside = second < int(span_s)
    slots = rng.integers(0, partitions, len(order))  # each expander takes them in turn, from its own place
    loads = np.zeros((partitions, int(span_s)))
    np.add.at(loads, (slots[inside], second[inside]), cells[inside])
    mean = loads.mean()
    busiest = loads.max(axis=1) / mean
    return float(np.median(busiest)), float(busiest.max())


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="bench.scale",
        description=__doc__,
        epilog="example: python -m bench.scale --users 50e6 --deliveries 1e6",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for field in fields(Assumptions):
        parser.add_argument(f"--{field.name.replace('_', '-')}", type=float, default=field.default)
    parser.add_argument("--seconds", type=float, default=120.0, help="that are simulated (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    chosen = vars(parser.parse_args(arguments))
    span_s, seed = chosen.pop("seconds"), chosen.pop("seed")
    given = replace(Assumptions(), **chosen)
    print("| what | | how |\n|---|---|---|")
    for row in sizes(given):
        print(f"| {' | '.join(row)} |")
    actions = given.deliveries / given.mean_followers
    busy = actions * given.action_s + given.deliveries * given.follower_s
    expanders = math.ceil(busy / KEEP)
    partitions = math.ceil(given.deliveries / given.partition_deliveries)
    print(f"\n{expanders} expanders, {partitions} partitions of the deliveries, {span_s:g} s, seed {seed}")
    print("| a fanout is done | wait p50 | p99 | p99.9 | longest | most followed pin | busiest second / mean |")
    print("|---|---|---|---|---|---|---|")
    for part in (math.inf, 1e6, 1e5, 1e4):
        found = simulate(given, partitions, expanders, span_s, part, seed)
        how = "by one handler" if part == math.inf else f"in parts of {part:,.0f}"
        waited = " | ".join(f"{value:.3g} s" for value in found.wait_s.values())
        print(f"| {how} | {waited} | {found.hot_s:.3g} s | {found.load[0]:.2f}, {found.load[1]:.2f} |")


if __name__ == "__main__":
    main()
