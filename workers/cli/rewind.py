"""rewind: a cluster that lost its latest writes reads them again."""

import click

from workers.app.home import HomeBusyError
from workers.cli.output import emit_json, note, plural, say, when
from workers.cli.session import DURATION, Session, TryLaterError, json_option, naming_damage, pass_session
from workers.following import rewind as rewinding
from workers.queue.port import GroupBusyError


@click.command(short_help="Make a cluster's writers read recent messages again.")
@click.option("--cluster", metavar="NAME", required=True, help="The cluster that lost its latest writes.")
@click.option("--by", "by_ms", required=True, type=DURATION, help="How far the writers go back, such as 10m or 2h.")
@json_option
@pass_session
def rewind(session: Session, cluster: str, by_ms: int, *, as_json: bool) -> None:
    """Make a cluster's writers read again what was published within the last DURATION.

    Use it if a cluster lost writes that it had acknowledged: its zone lost power, or it was restored from a snapshot.
    The watermark of the cluster goes back too, and stays there until the writers have caught up. Until then, readers
    prefer other clusters. Writes that were not lost are repeated, which changes nothing.

    Stop the cluster's writers first. DURATION is the time since the loss, plus how far the cluster was behind at most
    in the minutes before it, plus some minutes to be sure. It may be at most limits.action_age. If you need more, start
    the writers, and use feedctl rebuild --all, which brings back missing entries, and then feedctl repair, which
    removes entries whose delete markers were lost. docs/runbooks/zone-without-power.md has all steps.

    \b
    Examples:
      feedctl rewind --cluster b --by 30m
    """
    session.config.cluster(cluster)  # refuses an unknown one
    try:
        with session.lock(), session.ports("write") as ports, naming_damage(cluster):
            rewound = rewinding.rewind(ports, session.config.limits, cluster, by_ms)
    except HomeBusyError as error:
        raise TryLaterError(f"{error}; nothing was moved") from error
    except GroupBusyError as error:
        raise TryLaterError(f"{error}: stop the writers of cluster {cluster} first; nothing was moved") from error
    if as_json:
        emit_json({"cluster": cluster, "to_ms": rewound.to_ms, "again": rewound.again})
        return
    again = ", ".join(f"{group} reads {plural(count, 'message')} again" for group, count in rewound.again.items())
    say(f"{cluster}: back to {when(rewound.to_ms)} UTC: {again}")
    note("start its writers now; its watermark stays before that time until they have caught up")
    note(
        "then feedctl verify says if that was far enough: a cluster that was damaged does not count as damaged any more"
    )
