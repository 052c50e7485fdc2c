"""Works under more load than the clusters can take, with faults at random, and then looks at what came of it.

    python -m tests.soak --stack DIRECTORY                             a quarter of an hour of faults
    python -m tests.soak --stack DIRECTORY --seconds 3600 --seed 7     an hour, with other faults
    python -m tests.soak --stack DIRECTORY --rate 40 --followers 250   more actions, each for fewer feeds

It makes a home of its own on a local stack, with three brokers behind TLS, runs two processes of most stages and a web
server, and has clients save and delete pins, follow, unfollow and read. Each round draws from the seed what is killed
or suspended, for how long: a server, some of the processes, or both. Take a stack of its own.

When the load has ended, everything must land. Status 1: something that was acknowledged is not stored, a feed is not
what the follow store says, there are dead letters, a process ended by itself, an action was refused, or a page had no
answer though no server was away that explains it.
"""

import argparse
import json
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from random import Random
from typing import Final

from bench.results import percentile
from deploy.local import Stack
from tests.cli.command import Cli
from tests.soak.clients import FIRST_OWNER, Load, Seen
from tests.soak.processes import Site
from tests.soak.rounds import Fault, rounds
from tests.soak.servers import Servers
from tests.stack import certificates, homes
from tests.stack.own_brokers import PASSWORD, USER, Brokers, own_brokers
from tests.stack.own_home import own_home
from workers.following.ports import Ports

_REST_S: Final = (3.0, 15.0)
"""Between two rounds, so that what waits may be taken up, or not."""
_LANDS_S: Final = 3_600.0
_LOOKS_EVERY_S: Final = 10.0
_AT_ONCE: Final = 1_000
_SHOWN: Final = 10


def main(arguments: Sequence[str]) -> int:
    summary, _, details = str(__doc__).partition("\n\n")
    parser = argparse.ArgumentParser(
        prog="python -m tests.soak",
        description=summary,
        epilog=details,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--stack", type=Path, required=True, help="the home of a local stack, which is started")
    parser.add_argument("--seconds", type=float, default=900.0, help="how long faults happen (900)")
    parser.add_argument("--seed", type=int, default=1, help="of the faults and the clients (1)")
    parser.add_argument("--rate", type=float, default=20.0, help="actions a second (20)")
    parser.add_argument("--followers", type=int, default=1_000, help="of each user who saves pins (1000)")
    parser.add_argument("--owners", type=int, default=4, help="users who save pins (4)")
    options = parser.parse_args(arguments)
    # A polite kill unwinds as Ctrl-C does: what has been started is stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    stack = Stack(options.stack, lambda _: None)
    with (
        tempfile.TemporaryDirectory(prefix="feedstore-soak-") as directory,
        own_brokers(Path(directory) / "brokers", certificates=_certificates(Path(directory))) as brokers,
        own_home(stack, Path(directory) / "home", _url(Path(directory), brokers)) as cli,
        cli.ports() as ports,
    ):
        homes.replay(cli, _follows(options.owners, options.followers))
        wrong = _soak(Servers(stack, brokers), cli, ports, options)
    for line in wrong[:_SHOWN]:
        print(f"WRONG: {line}", flush=True)
    print(f"{len(wrong):,} faults" if wrong else "all is as it must be", flush=True)
    return int(bool(wrong))


def _certificates(directory: Path) -> Path:
    folder = directory / "tls"
    folder.mkdir()
    certificates.write(folder)
    (folder / "password").write_text(PASSWORD)
    return folder


def _url(directory: Path, brokers: Brokers) -> str:
    """As in production: with TLS, a user and a password."""
    files = f"ca={directory}/tls/ca.pem&password_file={directory}/tls/password"
    return f"kafka://{brokers.at('SASL_SSL')}?security=SASL_SSL&mechanism=SCRAM-SHA-512&user={USER}&{files}"


def _follows(owners: int, followers: int) -> list[bytes]:
    return [
        json.dumps({"type": "follow", "ts": 1, "follower": follower, "user": FIRST_OWNER + owner}).encode()
        for owner in range(owners)
        for follower in range(1, followers + 1)
    ]


def _soak(servers: Servers, cli: Cli, ports: Ports, options: argparse.Namespace) -> list[str]:
    """Returns what is wrong, in sentences."""
    site, seen = Site(cli), Seen()
    load = Load(site.address, str(time.time_ns()), options.rate, options.owners, options.followers, site.serves, seen)
    with site.running():
        began_s = time.monotonic()

        def say(what: str) -> None:
            print(f"{time.monotonic() - began_s:6.0f} s  {what}", flush=True)

        rests = Random(options.seed)
        with load.running(options.seed):
            for faults in rounds(Random(options.seed)):
                if time.monotonic() - began_s > options.seconds:
                    break
                pages, failed = len(seen.pages_s), len(seen.failed)
                _happen(servers, site, faults)
                time.sleep(rests.uniform(*_REST_S))
                site.look()
                say("; ".join([*map(str, faults), _figures(seen, pages), _behind(ports)]))
                for each in {*seen.failed[failed:]}:
                    say(f"a page failed: {each}")
        say(f"the load has ended: {_figures(seen, 0)}")
        is_landed = _land(ports, site, say)
        wrong = [*site.ended, *seen.refused, *(f"a page: {each}" for each in seen.failed)]
        if not is_landed:
            return [*wrong, f"not all has landed after {_LANDS_S:.0f} s: {homes.lags(ports)} wait"]
        wrong += _lost(ports, seen)
        if letters := ports.dead.count():
            wrong.append(f"{letters:,} dead letters")
        say("verify compares every feed")
        found = cli("verify", "--wait", "10m", code=None)
        say(found.stderr.splitlines()[-1])
        if found.exit_code:
            wrong += [f"verify: {line}" for line in found.stdout.splitlines() or found.stderr.splitlines()]
    return wrong


def _happen(servers: Servers, site: Site, faults: Sequence[Fault]) -> None:
    """Begins all of them together, ends each after its time, and waits until all servers answer."""
    with site.server_away() if any(fault.of == "server" for fault in faults) else nullcontext():
        _happen_now(servers, site, faults)


def _happen_now(servers: Servers, site: Site, faults: Sequence[Fault]) -> None:
    began_s = time.monotonic()
    for fault in faults:
        match fault.of, fault.how:
            case "process", how:
                site.break_(fault.name, how)
            case "server", "kill":
                servers.kill(fault.name)
            case "server", "suspend":
                servers.suspend(fault.name)
    for fault in sorted(faults, key=lambda each: each.lasts_s):
        time.sleep(max(0.0, began_s + fault.lasts_s - time.monotonic()))
        match fault.of, fault.how:
            case "process", how:
                site.mend(fault.name, how)
            case "server", "kill":
                servers.start(fault.name)
            case "server", "suspend":
                servers.resume(fault.name)
    servers.up()


def _figures(seen: Seen, pages: int) -> str:
    took = seen.pages_s[pages:]
    p50_ms, p99_ms = (1_000 * percentile(took or [0.0], share) for share in (0.5, 0.99))
    return (
        f"{seen.actions:,} actions, {seen.unanswered:,} attempts unanswered; {len(seen.pages_s):,} pages, p50"
        f" {p50_ms:.0f} ms, p99 {p99_ms:.0f} ms; {len(seen.excused):,} failed in faults, {len(seen.failed):,} without"
    )


def _behind(ports: Ports) -> str:
    """How far each cluster is behind, as far as servers say."""
    said = []
    for cluster in homes.CLUSTERS:
        behind = "unknown"
        with suppress(*homes.NOT_NOW):
            if mark_ms := homes.watermark(ports, cluster):
                behind = f"{(ports.follows.about_now().latest_ms - mark_ms) / 1_000:.0f} s behind"
        said.append(f"{cluster} {behind}")
    return ", ".join(said)


def _land(ports: Ports, site: Site, say: Callable[[str], None]) -> bool:
    """Waits until all that was recorded has landed in both clusters. Returns whether it has in time."""
    until_ms = homes.eventually(ports.follows.now, "the follow store has a time")
    until_s = time.monotonic() + _LANDS_S
    while time.monotonic() < until_s:
        with suppress(*homes.NOT_NOW):
            if all(homes.watermark(ports, cluster) > until_ms for cluster in homes.CLUSTERS):
                say("all has landed")
                return True
        site.look()
        say(f"{_behind(ports)}; waiting: {homes.lags(ports)}")
        time.sleep(_LOOKS_EVERY_S)
    return False


def _lost(ports: Ports, seen: Seen) -> list[str]:
    """What was acknowledged and is not stored."""
    lost = []
    for pins in _portions(seen.saved):
        states = ports.follows.pins(pins)
        for pin in pins:
            if pin not in states:
                lost.append(f"pin {pin} was acknowledged and is not stored")
            elif pin in seen.deleted and states[pin].deleted_ms is None:
                lost.append(f"the deletion of pin {pin} was acknowledged and is not stored")
    return lost


def _portions(pins: Sequence[int]) -> Iterable[Sequence[int]]:
    return (pins[first : first + _AT_ONCE] for first in range(0, len(pins), _AT_ONCE))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
