"""Works under more load than the clusters can take, with faults at random, and then looks at what came of it.

    python -m tests.soak --stack DIRECTORY                             a quarter of an hour of faults
    python -m tests.soak --stack DIRECTORY --seconds 3600 --seed 7     an hour, with other faults
    python -m tests.soak --stack DIRECTORY --rate 40 --followers 250   more actions, each for fewer feeds

It makes a home of its own on a local stack, with three brokers behind TLS, runs two processes of most stages and a web
server, and has clients save and delete pins, follow, unfollow and read, arrange boards, and post to and read catalogs,
whose generations an operator loads and swaps. Each round draws from the seed what fails, how, and for how long: some of
the processes, and one thing around them. That is a server that is killed or suspended, a gateway or a database that the
network keeps away, a database that is read-only, full or ends connections, or a region that is closed or compacted.
Take a stack of its own.

When the load has ended, everything must land. Status 1: something that was acknowledged is not stored, a feed is not
what the follow store says, a board is in another order, a catalog has something else or answered what it could not,
there are dead letters, a process ended by itself, an action was refused, or a page had no answer though no server was
away that explains it.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final, Protocol

from bench.results import percentile
from deploy.local import Stack
from deploy.local.signals import unwinding
from feedstore.app.config import FILE_NAME
from feedstore.catalog.settings import PINS
from feedstore.portions import chunks
from tests.cli.command import Cli
from tests.soak.clients import FIRST_OWNER, Load, Seen
from tests.soak.database import Database, database
from tests.soak.gates import Gates, gates
from tests.soak.operator import Operator
from tests.soak.orders import Arranger, Orders, wrong_orders
from tests.soak.processes import Site
from tests.soak.records import SECTIONS, Catalogs, Pins, wrong_ads
from tests.soak.regions import TableRegions
from tests.soak.rounds import AROUND, Fault, Of, rounds
from tests.soak.servers import Servers
from tests.stack import certificates, homes
from tests.stack.own_brokers import PASSWORD, USER, Brokers, own_brokers
from tests.stack.own_home import own_home
from workers.cli.session import NOT_NOW
from workers.following.ports import Ports

_REST_S: Final = (3.0, 15.0)
"""Between two rounds, so that what waits may be taken up, or not."""
_LANDS_S: Final = 3_600.0
_LOOKS_EVERY_S: Final = 10.0
_AT_ONCE: Final = 1_000
_SHOWN: Final = 10


class Place(Protocol):
    """Where faults happen."""

    def begin(self, name: str, how: str) -> None: ...

    def end(self, name: str, how: str) -> None: ...


@dataclass(frozen=True)
class Places:
    """All that faults happen to."""

    servers: Servers
    gates: Gates
    database: Database
    regions: TableRegions

    def happen(self, site: Site, faults: Sequence[Fault]) -> None:
        """Begins all of them together, ends each after its time, and waits until all servers answer."""
        with site.cluster_away() if any(fault.takes_a_cluster for fault in faults) else nullcontext():
            began_s = time.monotonic()
            for fault in faults:
                self._of(fault, site).begin(fault.name, fault.how)
            for fault in sorted(faults, key=lambda each: each.lasts_s):
                time.sleep(max(0.0, began_s + fault.lasts_s - time.monotonic()))
                self._of(fault, site).end(fault.name, fault.how)
            self.servers.up()

    def _of(self, fault: Fault, site: Site) -> Place:
        found: Mapping[Of, Place] = {
            "server": self.servers,
            "process": site,
            "gate": self.gates,
            "database": self.database,
            "regions": self.regions,
        }
        return found[fault.of]


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
    parser.add_argument("--around", nargs="+", choices=sorted({*AROUND}), default=AROUND, help="what else fails (all)")
    options = parser.parse_args(arguments)
    stack = Stack(options.stack, lambda _: None)
    with (
        unwinding(),
        tempfile.TemporaryDirectory(prefix="feedstore-soak-") as directory,
        own_brokers(Path(directory) / "brokers", certificates=_certificates(Path(directory))) as brokers,
        gates(stack) as its_gates,
        own_home(stack, Path(directory) / "home", _url(Path(directory), brokers), its_gates.instead) as cli,
        database(stack) as its_database,
        cli.ports() as ports,
    ):
        with (cli.home / FILE_NAME).open("a") as file:
            file.write(SECTIONS)
        homes.eventually(lambda: cli("topics", "apply", code=None).exit_code == 0, "the topics are made")
        homes.replay(cli, _follows(options.owners, options.followers))
        regions = TableRegions(stack, homes.config_of(cli))
        places = Places(Servers(stack, brokers), its_gates, its_database, regions)
        wrong = _soak(places, cli, ports, options)
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


def _soak(places: Places, cli: Cli, ports: Ports, options: argparse.Namespace) -> list[str]:
    """Returns what is wrong, in sentences."""
    site, seen, orders = Site(cli), Seen(), Orders()
    arranger = Arranger(site.address, options.rate / 2, orders)
    records = Catalogs(site.address, Pins(), ports.clock)
    load = Load(
        site.address,
        str(time.time_ns()),
        options.rate,
        options.owners,
        options.followers,
        site.serves,
        ports.clock,
        seen,
        orders,
        arranger,
        records,
    )
    operator = Operator(cli, records.ads, ports.clock)
    with site.running():
        began_s = time.monotonic()

        def say(what: str) -> None:
            print(f"{time.monotonic() - began_s:6.0f} s  {what}", flush=True)

        rests = Random(options.seed)
        with load.running(options.seed), operator.running(options.seed):
            for faults in rounds(Random(options.seed), options.around):
                if time.monotonic() - began_s > options.seconds:
                    break
                pages, failed, told = len(seen.pages_s), len(seen.failed), len(records.wrong)
                places.happen(site, faults)
                time.sleep(rests.uniform(*_REST_S))
                site.look()
                arranger.indexed_ms = max(arranger.indexed_ms, _landed_ms(ports))
                say("; ".join([*map(str, faults), _figures(seen, pages), _behind(ports)]))
                for each in {*seen.failed[failed:]}:
                    say(f"a page failed: {each}")
                for each in records.wrong[told:]:
                    say(f"a catalog: {each}")
        say(f"the load has ended: {_figures(seen, 0)}")
        say(
            f"{arranger.moves:,} moves; {records.posts:,} posts, {records.answers:,} answers of catalogs,"
            f" {operator.loaded:,} loads and {operator.used:,} swaps of {operator.begun:,}"
        )
        is_landed = _land(ports, site, say)
        wrong = [*site.ended, *seen.refused, *(f"a page: {each}" for each in seen.failed)]
        wrong += [*arranger.refused, *records.wrong, *operator.wrong]
        if not is_landed:
            return [*wrong, f"not all has landed after {_LANDS_S:.0f} s: {homes.lags(ports)} wait"]
        wrong += _lost(ports, seen)
        if letters := ports.dead.count():
            wrong.append(f"{letters:,} dead letters")
        wrong += wrong_orders(site.address, orders)
        wrong += wrong_ads(homes.config_of(cli), records.ads, ports.clock())
        wrong += _of_command(cli, "board", "check", "--all")
        wrong += _of_command(cli, "catalog", "verify", PINS)
        say("verify compares every feed")
        found = cli("verify", "--wait", "10m", code=None)
        say(found.stderr.splitlines()[-1])
        if found.exit_code:
            wrong += [f"verify: {line}" for line in found.stdout.splitlines() or found.stderr.splitlines()]
    return wrong


def _of_command(cli: Cli, *words: str) -> list[str]:
    """What a command of feedctl finds, as sentences. If it says to try later, it is repeated."""
    found = homes.eventually(lambda: (made := cli(*words, code=None)).exit_code != NOT_NOW and made, " ".join(words))
    said = found.stdout.splitlines() or found.stderr.splitlines()
    return [f"{' '.join(words)}: {line}" for line in said] if found.exit_code else []


def _landed_ms(ports: Ports) -> int:
    """Up to when every action has been expanded, as far as a cluster says. 0: no one says that now."""
    for cluster in homes.CLUSTERS:
        with suppress(*homes.NOT_NOW):
            return homes.watermark(ports, cluster)
    return 0


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
    """What was acknowledged and is not stored, and what is stored of clients that left."""
    lost = []
    for pins in chunks(seen.left, _AT_ONCE):
        lost += [f"pin {pin} is stored, and its client left before it had asked" for pin in ports.follows.pins(pins)]
    for pins in chunks(seen.saved, _AT_ONCE):
        states = ports.follows.pins(pins)
        for pin in pins:
            if pin not in states:
                lost.append(f"pin {pin} was acknowledged and is not stored")
            elif pin in seen.deleted and states[pin].deleted_ms is None:
                lost.append(f"the deletion of pin {pin} was acknowledged and is not stored")
    return lost


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
