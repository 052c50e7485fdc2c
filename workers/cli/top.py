"""top: shows the condition of a home again and again."""

import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from types import FrameType
from typing import NamedTuple

import click

from feedstore.errors import NotNowError
from workers.cli.condition import ClusterStatus, Condition, look, looking, problems
from workers.cli.looks import Looks
from workers.cli.output import Heartbeat, ago, can_draw, counted, draw, say
from workers.cli.session import DURATION, REFUSED, Session, pass_session
from workers.cli.signals import handled
from workers.cli.status import workers
from workers.following.landed import REBUILDING_MS
from workers.following.ports import Ports


class LastLook(NamedTuple):
    """The findings of a look, and its time, in monotonic seconds."""

    at_s: float
    condition: Condition


@click.command(short_help="Show the status and rates again and again until Ctrl-C.")
@click.option(
    "--every", "every_ms", type=DURATION, default="2s", show_default=True, help="How often it looks, such as 5s."
)
@click.option(
    "--once", is_flag=True, help="Look twice, print the state and the rates, and end with the exit status of `status`."
)
@pass_session
def top(session: Session, every_ms: int, *, once: bool) -> None:
    """Show what `status` shows, and messages a second, again and again until Ctrl-C.

    What needs attention is on top. If a server does not answer, the command says so and looks again. If the output is
    not a terminal, it prints each look below the one before.

    \b
    Examples:
      feedctl top
      feedctl top --every 10s
      feedctl top --once
    """
    with suppress(KeyboardInterrupt):
        if once:
            _once(session, every_ms / 1_000)
        else:
            interrupt = Interrupt()
            with handled(interrupt.note, signal.SIGINT):
                _again(session, every_ms / 1_000, interrupt)


class Interrupt:
    """Makes Ctrl-C raise KeyboardInterrupt, as always, and notes it: an exception inside a library's callback is lost.

    came: whether there was a Ctrl-C. It is no Event: the code that the signal interrupts could hold an Event's lock.
    """

    def __init__(self) -> None:
        self.came = False

    def note(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - as the interpreter calls it
        self.came = True
        raise KeyboardInterrupt


def _once(session: Session, every_s: float) -> None:
    with looking(session.config) as opened:
        before = _looked(session, *opened)
        time.sleep(every_s)
        seen = _looked(session, *opened)
    say("\n".join(rendered(str(session.home), before, seen)))
    if problems(seen.condition, None):
        sys.exit(REFUSED)


def _again(session: Session, every_s: float, interrupt: Interrupt) -> None:
    with ExitStack() as stack:
        opened: tuple[Ports, Looks] | None = None
        before: LastLook | None = None
        while not interrupt.came:
            seen: LastLook | None = None
            try:
                opened = opened or stack.enter_context(looking(session.config))
                seen = _looked(session, *opened)
                lines = list(rendered(str(session.home), before, seen))
            except NotNowError as error:
                lines = [str(session.home), f"! not known now: {error}"]
            Heartbeat.end_any()  # from now on there is something to see
            if can_draw():
                draw(lines)
            else:
                say("\n".join([*lines, ""]))
            before = seen
            time.sleep(every_s)


def _looked(session: Session, ports: Ports, looks: Looks) -> LastLook:
    # No rows are read to find blocks that cannot be read: `top` runs for hours.
    return LastLook(time.monotonic(), look(ports, session.config, 0.0, looks))


def rendered(home: str, before: LastLook | None, seen: LastLook) -> Iterator[str]:
    """The lines of a screen. before: the previous look, for rates. Lines that begin with ! need attention. Pure."""
    found = seen.condition
    yield f"{home}   worker: {workers(found)}"
    wrong = problems(found, None)
    yield from (f"! {each}" for each in wrong)
    if not wrong:
        yield "nothing needs attention"
    yield ""
    yield f"{'group':<24}{'to do':>14}{'a second':>12}"
    rates = {} if before is None else _rates(before, seen)
    for group, left in found.groups.items():
        yield f"{group:<24}{counted(left):>14}{_number(rates.get(group)):>12}"
    if found.waits_ms is not None:
        yield f"the oldest action that is not relayed: {ago(max(0, found.waits_ms))}"
    yield ""
    yield f"{'cluster':<16}{'behind':>12}  {'waits for':<12}{'put off':>9}{'refills':>9}{'fanouts':>9}{'parked':>9}"
    for name, state in found.clusters.items():
        yield f"{name:<16}{_behind(state):>12}  {state.kept_back_by or '-':<12}" + "".join(
            f"{counted(state.holds.get(kind)):>9}" for kind in ("put_off", "refill", "fanout", "parked")
        )
    yield ""
    yield f"dead letters    {counted(found.dead)}"
    for disk in found.disks or ():
        share = disk.free_bytes / disk.capacity_bytes if disk.capacity_bytes else 0.0
        yield f"disk            {disk.free_bytes / (1 << 30):,.1f} GiB free ({share:.0%}): {disk.store}"


def _rates(before: LastLook, seen: LastLook) -> Mapping[str, float]:
    """How many messages per second each group was done with. A group that went back has no rate."""
    took_s = seen.at_s - before.at_s
    done = before.condition.done
    if took_s <= 0:
        return {}
    return {
        group: (now - done[group]) / took_s
        for group, now in seen.condition.done.items()
        if group in done and now >= done[group]
    }


def _number(rate: float | None) -> str:
    return "-" if rate is None else f"{rate:,.0f}"


def _behind(state: ClusterStatus) -> str:
    if state.watermark_ms == REBUILDING_MS:
        return "rebuilt"
    return "unknown" if state.behind_ms is None else ago(state.behind_ms)
