"""Pages over HTTP of two versions of this project: processor time and rate, by many servers of each, in turn.

    git worktree add ../before COMMIT && make -C ../before .venv/bench
    python -m bench.http_versions ../before . [--servers 30] [--count 8000]

Each version is a checkout with its own .venv, and serves a home of its own with the same feeds. One and the same
version differs from server to server by more than most changes do, by where the kernel puts it and its memory. So every
sample is a server of its own, with no other next to it, and the middle of many is compared. Pages that are asked for
inside of a server's process, without a network, differ less: `bench/http_in_process.py`.
"""

import argparse
import re
import statistics
import subprocess
import tempfile
from functools import partial
from pathlib import Path
from typing import Final

from bench import http_in_process
from bench.children import ChildError
from bench.deliveries import CAP
from bench.feeds import made_feeds
from bench.measurements.http import CONNECTIONS, LIMIT, LOAD_S, load, serving
from bench.results import interleaved, ratios
from deploy.local.signals import unwinding

FEEDS: Final = 200
WARM: Final = 3_000
"""Requests that are not measured: a server's first ones."""

FILL: Final = f"""
import sys
from pathlib import Path
import bench.measurements
from bench.measurements import http
fill = getattr(http, "home_of", None) or http._home  # its name in older versions
fill(Path(sys.argv[1]), http.made_feeds({FEEDS}, http.CAP, seed=1))
"""


def sample(version: Path, home: Path, paths: list[str], count: int) -> dict[str, float]:
    """What a new server of a version needs for a page."""
    feedctl = [str(version / ".venv" / "bin" / "feedctl"), "--home", str(home), "serve", "--port", "0"]
    log = home.with_suffix(".log")
    log.unlink(missing_ok=True)  # the address is read from it
    with serving(["env", "-C", str(version), f"PYTHONPATH={version}", *feedctl], log) as server:
        load(server, CONNECTIONS, WARM, paths)
        taken = load(server, CONNECTIONS, count, paths)
    return {**taken, "in_process_us": in_process_us(version, home, paths, count)}


def in_process_us(version: Path, home: Path, paths: list[str], count: int) -> float:
    """What a page takes in the thread of a new server, without a network."""
    python = [str(version / ".venv" / "bin" / "python"), "-P", http_in_process.__file__]
    done = subprocess.run(
        ["env", "-C", str(version), f"PYTHONPATH={version}", *python, str(home), str(count)],
        input="\n".join(paths),
        capture_output=True,
        text=True,
        check=False,
        timeout=LOAD_S,
    )
    if not (said := re.search(r"^us (\S+)$", done.stdout, re.MULTILINE)):
        raise ChildError(f"{version}: no page in its process: {done.stderr[-2_000:]}")
    return float(said[1])


def filled(version: Path, home: Path) -> Path:
    python = version / ".venv" / "bin" / "python"
    subprocess.run(
        ["env", "-C", str(version), f"PYTHONPATH={version}", str(python), "-c", FILL, str(home)],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return home


def main() -> None:
    made = argparse.ArgumentParser(
        prog="bench.http_versions", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("before", type=Path, help="a checkout with a .venv")
    made.add_argument("after", type=Path, help="another one")
    made.add_argument("--servers", type=int, default=30, metavar="N", help="of each version (default 30)")
    made.add_argument("--count", type=int, default=8_000, metavar="N", help="requests a server (default 8,000)")
    chosen = made.parse_args()
    versions = {"before": chosen.before.resolve(), "after": chosen.after.resolve()}
    for version in versions.values():
        if not (version / ".venv" / "bin" / "feedctl").exists():
            made.error(f"{version}: no .venv/bin/feedctl; make -C {version} .venv/bench")
    paths = [f"/v1/users/{feed.user}/feed?limit={LIMIT}" for feed in made_feeds(FEEDS, CAP, seed=1)]
    with tempfile.TemporaryDirectory(prefix="http-versions-") as folder:
        homes = {name: filled(version, Path(folder) / name) for name, version in versions.items()}
        sides = {name: partial(sample, versions[name], homes[name], paths, chosen.count) for name in versions}
        taken = interleaved(sides, chosen.servers)
    for field, unit in (
        ("server_us", "us of a processor a page"),
        ("in_process_us", "us of its thread a page, without a network"),
        ("rate", "pages a second"),
    ):
        of = {name: [each[field] for each in some] for name, some in taken.items()}
        for name, values in of.items():
            spread = f"{min(values):,.0f} .. {max(values):,.0f}"
            print(f"{name:6} {statistics.median(values):8,.0f} {unit} ({spread}; {len(values)} servers)")
        pairs = sorted(ratios(of["after"], of["before"]))
        quarters = f"half of the pairs {pairs[len(pairs) // 4]:.3f} .. {pairs[-1 - len(pairs) // 4]:.3f}"
        print(f"after / before: {statistics.median(pairs):.3f} x ({quarters})", flush=True)


if __name__ == "__main__":
    with unwinding():
        main()
