"""The command line of a bench: runs measurements and writes results.json, results.md and results.png.

A missed target is a result, not an error: the exit status is 1 only where a measurement could not be taken, and 2
where the bench cannot begin.
"""

import argparse
import os
import shutil
import sys
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import psutil
import structlog

from bench import actions, report
from bench.children import without_settings
from bench.context import Context
from bench.results import Row
from deploy.local.signals import unwinding

GENERATED_SIZE = 200_000
QUICK_SIZE = 10_000
SCRATCH = "scratch-"
KILLED_S = 10.0

Measurement = Callable[[Context], list[Row]]


def parser(
    prog: str,
    doc: str | None,
    measurements: Mapping[str, Callable[..., list[Row]]],
    out: str,
    size: int = GENERATED_SIZE,
) -> argparse.ArgumentParser:
    """The options that every bench has. size: how many actions are generated where none are given."""
    lines = (f"  {name:<16} {each.__doc__}\n" for name, each in measurements.items())
    made = argparse.ArgumentParser(
        prog=prog,
        description=doc,
        epilog=f"measurements:\n{''.join(lines)}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--actions", type=Path, metavar="FILE", help="JSON-lines actions; without it some are generated")
    made.add_argument("--size", type=int, default=None, help=f"how many to generate (default {size:,})")
    made.add_argument("--only", metavar="NAME[,NAME]", help="some of those below")
    made.add_argument("--repeats", type=int, default=5, metavar="N", help="samples a row (default 5)")
    made.add_argument("--out", type=Path, default=Path(out), metavar="DIR", help=f"default {out}")
    made.add_argument("--quick", action="store_true", help="everything small: shows that it runs, not how fast")
    made.set_defaults(generated=size, known=[*measurements])
    return made


def options(made: argparse.ArgumentParser) -> argparse.Namespace:
    """The command line, checked."""
    chosen = made.parse_args()
    chosen.names = chosen.only.split(",") if chosen.only else chosen.known
    unknown = [name for name in chosen.names if name not in chosen.known]
    if unknown:
        made.error(f"no measurement {', '.join(unknown)}; there are {', '.join(chosen.known)}")
    for name in ("repeats", "size"):
        if (number := getattr(chosen, name)) is not None and number < 1:
            made.error(f"--{name}: at least 1")
    if chosen.actions and not chosen.actions.is_file():
        made.error(f"--actions: no file {chosen.actions}")
    return chosen


def main(chosen: argparse.Namespace, run: Callable[[argparse.Namespace, Path, Path], int]) -> int:
    """Calls `run(options, out, scratch)` in surroundings where what it starts also ends."""
    without_settings()
    # Workers that run in this process say only what goes wrong; stdout is for the table.
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger("warning"),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    out = chosen.out.resolve()
    scratch = out / f"{SCRATCH}{os.getpid()}"
    remove_orphans(out)
    scratch.mkdir(parents=True)
    try:
        with unwinding():  # every block stops what it started
            return run(chosen, out, scratch)
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def remove_orphans(out: Path) -> None:
    """What a bench left behind that was killed. It may have had the number of this process: in a container each has."""
    for folder in out.glob(f"{SCRATCH}*"):
        number = folder.name.removeprefix(SCRATCH)
        if number.isdecimal() and (int(number) == os.getpid() or not psutil.pid_exists(int(number))):
            _kill_those_of(folder)
            shutil.rmtree(folder, ignore_errors=True)


def _kill_those_of(folder: Path) -> None:
    """The processes that name a file of the folder: Redis, workers, a stack. Without the files nothing stops those."""
    ours = {os.getpid(), *(each.pid for each in psutil.Process().parents())}
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.pid not in ours and any(f"{folder}/" in word for word in process.cmdline()):
                process.kill()
                process.wait(KILLED_S)


def context(chosen: argparse.Namespace, out: Path, scratch: Path) -> Context:
    """What the measurements get; actions are generated here where none are given."""
    actions_file = chosen.actions.resolve() if chosen.actions else scratch / "actions.jsonl"
    if not chosen.actions:
        actions.write_generated(actions_file, chosen.size or (QUICK_SIZE if chosen.quick else chosen.generated))
    return Context(actions_file, scratch, out.parent, chosen.repeats, chosen.quick)


def measure(
    chosen: argparse.Namespace,
    given: Context,
    out: Path,
    measurements: Mapping[str, Callable[..., list[Row]]],
    *before: object,
) -> int:
    """Takes the chosen measurements, each with a word on what it is. before: what they take before the context."""
    known = report.machine()
    known["options"] = {
        "actions": given.actions_count,
        "generated": chosen.actions is None,
        "repeats": chosen.repeats,
        "quick": chosen.quick,
    }
    taken: dict[str, list[Row]] = {}
    failed: list[str] = []
    for name in chosen.names:
        given.say(f"{name}: {measurements[name].__doc__}")
        try:
            taken[name] = measurements[name](*before, given)
        except Exception as error:  # noqa: BLE001  # one that fails must not cost the others their numbers
            traceback.print_exc()
            failed.append(name)
            taken[name] = [Row(name, "", (), note=f"{type(error).__name__}: {str(error).partition(chr(10))[0]}")]
        for row in taken[name]:
            shown = "not measured" if row.reached is None else report.number(row.reached, row.unit)
            given.say(f"{name}: {row.what}: {shown} {row.verdict}")
        report.write(out, taken, known)  # after each: what is measured stays, whatever comes
    given.say(f"wrote {out}")
    print((out / report.TABLE).read_text())
    if failed:
        print(f"could not be measured: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0
