"""clock: the time of a home, and whether its processes agree."""

import click
import msgspec

from feedstore.app.wiring import home_clock
from workers.app import clock as clocks
from workers.cli.condition import clocks_ahead_ms, clocks_off
from workers.cli.output import ago, emit_json, note, say, when
from workers.cli.session import Session, TryLaterError, json_option, pass_session
from workers.following.groups import rebuild_command
from workers.queue.port import GroupBusyError


@click.group()
def clock() -> None:
    """Show or set the time that a home goes by.

    \b
    Examples:
      feedctl clock show
      feedctl clock set
    """


@clock.command(short_help="Show the time that the home goes by, and the clocks that differ.")
@json_option
@pass_session
def show(session: Session, *, as_json: bool) -> None:
    """Show the time that the home goes by, since when it does, and the processes and shards whose clocks differ.

    \b
    Examples:
      feedctl clock show
    """
    home = home_clock(session.config)
    anchor = None if home is None else home.anchor()
    own_off_ms = None if home is None else home.own_offset_ms()
    off = [] if home is None else home.off()
    with session.ports("read", feeds=False) as ports:
        now_ms, ahead = ports.clock(), clocks_ahead_ms(ports)
    if as_json:
        emit_json(
            {
                "now_ms": now_ms,
                "anchored_by": None if anchor is None else anchor.program,
                "off": [msgspec.structs.asdict(each) for each in off],
                "shards_ahead_ms": {str(shard): ms for shard, ms in ahead.items()},
            }
        )
        return
    say(f"time      {when(now_ms)} UTC")
    if home is None:
        say("          of this machine: the stores of the home are on servers, and those have their own clocks")
    elif anchor is None:
        say(
            "          of this process: its clock is behind what the home has stamped, and no other process has said"
            " the time since the boot"
        )
    else:
        say(f"          counted from the clock of {anchor.program}")
    for sentence in clocks_off(own_off_ms, off, ahead):
        say(f"off       {sentence}")


@clock.command("set")
@json_option
@pass_session
def set_(session: Session, *, as_json: bool) -> None:
    """Make this machine's clock the time of the home. First check that this clock is right, with the command date.

    Use it after this machine's clock was changed by more than limits.clock_offset, and after a clock that was ahead has
    stamped something. If a shard is ahead, it goes by the right time from then on. What was stamped keeps its time, so
    that later actions still win over earlier ones, and no record is deleted. A catalog of pins in files that is ahead
    is removed, and a worker builds it again. If the command is killed, run it again.

    The command refuses to run while a worker holds the home. On servers, stop relays, expanders and writers first: it
    refuses to run while an expander or a writer runs, and cannot see a relay.

    \b
    Examples:
      feedctl clock set
    """
    try:
        with session.lock():
            done = clocks.set_clock(session.config)
    except GroupBusyError as error:
        raise TryLaterError(f"{error}; nothing was brought back") from error
    for name in done.lost:
        note(f"cluster {name} is gone or damaged, and was left out: {rebuild_command(name)}")
    for each in done.catalogs:
        note(_about(each))
    if as_json:
        emit_json({"shards": {str(shard): ms for shard, ms in done.shards.items()}, "clusters": list(done.clusters)})
        return
    for shard, ms in done.shards.items():
        say(f"shard {shard} was {ago(ms)} ahead; from now on it uses the right time")
    for name in done.clusters:
        note(f"cluster {name}: its watermark is unknown until a worker has run: feedctl work")
    note("the home goes by this machine's clock")


def _about(catalog: clocks.AheadCatalog) -> str:
    """What became of a catalog that was ahead, or could not be looked at, or what to do about it."""
    name, cluster, removed, path, error = catalog
    if removed:
        return f"catalog {name} of cluster {cluster} was ahead, too, and was removed: a worker builds it again"
    if error is not None:
        return (
            f"catalog {name} of cluster {cluster} could not be looked at, and may be ahead: {error}. Once it answers,"
            " or was built or loaded again, run this again"
        )
    what = f"remove {path}" if path is not None else "drop the tables catalogs and cat.* of that cluster in HBase"
    return (
        f"catalog {name} of cluster {cluster} is ahead, too: it hides updates, and takes no batch: end all processes"
        f" that read it, {what}, and build or load it again"
    )
