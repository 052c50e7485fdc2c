"""One drill with everything around it: starts an engine and the clusters, kills a host under load, and takes all of it
away again, whatever happens.
"""

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from deploy.docker import engine, image, names
from deploy.docker.clusters import Clusters
from deploy.local.errors import StackError
from deploy.local.programs import run
from deploy.local.servers import Say
from deploy.local.signals import undisturbed, unwinding
from deploy.local.waiting import becomes

DRILL = "kill-host"
SEEN = ("hbase_region_servers", "hbase_dead_region_servers")
"""The metrics that change on the remaining servers if a host is lost."""

_DRILL_S = 600.0
_TRIES = 2
_WATCHED_S = 60.0
"""How long it may take until the last process is scraped: HBase's servers are scraped each quarter of a minute."""
_ASK_S = 1.0
_LOG_LINES = 40


def make_ready(home: Path, say: Say) -> None:
    """Does the work of `docker-ready`: programs, engine, Compose, base image, and a container that shows that it works.

    Raises:
        NoEngineError: no engine can run here.
        StackError: something else is missing.
    """
    engine.install()
    engine.Engine(home).ensure(say)
    say(f"compose: {' '.join(engine.compose())}")
    engine.try_out(image.ensure_base(say))


def smoke(home: Path, say: Say) -> None:
    """Runs the drill once, with the budgets of a smoke. Its report stays in `feed/drills` of the home. Nothing that was
    started keeps running, not the engine either; an engine that ran before is left running.

    home: of these clusters only.

    Raises:
        NoEngineError: no engine can run here.
        StackError: something failed. The logs of the containers were said before.
    """
    # The home of an earlier run knows clusters that are gone.
    feed = home / "feed"
    shutil.rmtree(feed, ignore_errors=True)
    clusters = Clusters(home, say)
    is_up = False
    with unwinding():
        try:
            make_ready(home, say)
            clusters.refuse_those_of_another_home()
            is_up = True
            clusters.up()
            _until_none(clusters.unwatched, "not watched")
            say("Prometheus sees every process and server, and has the rules")
            _drill(clusters, feed, say)
            _until_none(lambda: clusters.unchanged(SEEN), "a host was lost, and these metrics have not changed")
            say("Prometheus has seen that a host was lost")
        except StackError:
            if is_up:
                _show_logs(clusters, say)
            raise
        finally:
            with undisturbed():
                _take_away(clusters, say, is_up=is_up)


def _until_none(left: Callable[[], list[str]], failed: str) -> None:
    """Waits until Prometheus lacks nothing.

    Raises StackError: it still does; the message begins with `failed`.
    """
    if not becomes(lambda: not left(), _WATCHED_S, _ASK_S):
        raise StackError(f"{failed} after {_WATCHED_S:.0f} s:\n" + "\n".join(left()))


def _drill(clusters: Clusters, feed: Path, say: Say) -> None:
    # Next to the Python that runs this, in the same environment.
    feedctl = Path(sys.executable).with_name("feedctl")
    init = ("init", "--stack", "docker", "--stack-home", clusters.home)
    run(feedctl, "--home", feed, *init, failed="the drill's home could not be made")
    for seed in range(1, _TRIES + 1):
        words = ("drill", "run", DRILL, "--seed", str(seed), "--budgets", "smoke")
        try:
            run(feedctl, "--home", feed, *words, failed=f"the drill {DRILL}", timeout_s=_DRILL_S, is_shown=True)
        except StackError:
            if seed == _TRIES or _has_lost(feed):
                raise
            # A reader has a second for a page, and may get no processor for as long.
            say("it did not pass; once more, as others may be using this machine: what fails twice is a fault")
        else:
            return


def _has_lost(feed: Path) -> bool:
    """Whether a run lost something, or had more than it should: no machine is too busy for that."""
    figures = [json.loads(report.read_bytes())["figures"] for report in (feed / "drills").glob("*.json")]
    return any(each[name] for each in figures for name in ("missing", "extra", "differing"))


def _take_away(clusters: Clusters, say: Say, *, is_up: bool) -> None:
    try:
        if is_up:
            clusters.down()
    finally:
        engine.Engine(clusters.home).stop(say)


def _show_logs(clusters: Clusters, say: Say) -> None:
    for name in (*names.SERVERS, *names.CLIENTS):
        say(f"--- {name}: the last {_LOG_LINES} lines of its log")
        say(clusters.log(name, _LOG_LINES))
