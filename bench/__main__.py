"""`python -m bench`: runs the measurements and writes results.json, results.md and results.png.

A missed target is a result, not an error: the exit status is 1 only where a measurement could not be taken, and 2
where the bench cannot begin.
"""

import argparse
import os
import shutil
import signal
import sys
import traceback
from pathlib import Path

import psutil
import structlog

from bench import actions, report
from bench.context import Context
from bench.measurements import MEASUREMENTS, ON_REQUEST
from bench.redis_server import MissingServerError, require
from bench.results import Row

GENERATED_SIZE = 200_000
QUICK_SIZE = 10_000
SCRATCH = "scratch-"


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument(
        "--actions", type=Path, metavar="FILE", help="JSON-lines actions; without it some are generated"
    )
    parser.add_argument("--size", type=int, default=None, help=f"how many to generate (default {GENERATED_SIZE:,})")
    parser.add_argument("--only", metavar="NAME[,NAME]", help=f"of: {', '.join(MEASUREMENTS)}")
    parser.add_argument("--repeats", type=int, default=5, metavar="N", help="samples a row (default 5)")
    parser.add_argument("--out", type=Path, default=Path("build/bench"), metavar="DIR", help="default build/bench")
    parser.add_argument("--quick", action="store_true", help="everything small: shows that it runs, not how fast")
    chosen = parser.parse_args()
    chosen.names = chosen.only.split(",") if chosen.only else [name for name in MEASUREMENTS if name not in ON_REQUEST]
    unknown = [name for name in chosen.names if name not in MEASUREMENTS]
    if unknown:
        parser.error(f"no measurement {', '.join(unknown)}; there are {', '.join(MEASUREMENTS)}")
    if chosen.repeats < 1:
        parser.error("--repeats: at least 1")
    if chosen.actions and not chosen.actions.is_file():
        parser.error(f"--actions: no file {chosen.actions}")
    return chosen


def main() -> int:
    chosen = options()
    try:
        require()
    except MissingServerError as missing:
        print(missing, file=sys.stderr)
        return 2
    # Workers that run in this process say only what goes wrong; stdout is for the table.
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger("warning"),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    # A polite kill unwinds like Ctrl-C does: every block stops what it started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    out = chosen.out.resolve()
    scratch = out / f"{SCRATCH}{os.getpid()}"
    remove_orphans(out)
    scratch.mkdir(parents=True)
    try:
        return measure(chosen, out, scratch)
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def remove_orphans(out: Path) -> None:
    """What a bench left behind that was killed."""
    for folder in out.glob(f"{SCRATCH}*"):
        if not psutil.pid_exists(int(folder.name.removeprefix(SCRATCH))):
            shutil.rmtree(folder, ignore_errors=True)


def measure(chosen: argparse.Namespace, out: Path, scratch: Path) -> int:
    actions_file = chosen.actions.resolve() if chosen.actions else scratch / "actions.jsonl"
    if not chosen.actions:
        actions.write_generated(actions_file, chosen.size or (QUICK_SIZE if chosen.quick else GENERATED_SIZE))
    context = Context(actions_file, scratch, out.parent, chosen.repeats, chosen.quick)
    about = report.machine()
    about["options"] = {
        "actions": context.actions_count,
        "generated": chosen.actions is None,
        "repeats": chosen.repeats,
        "quick": chosen.quick,
    }
    rows: list[Row] = []
    failed: list[str] = []
    for name in chosen.names:
        context.say(f"{name}: {MEASUREMENTS[name].__doc__}")
        try:
            taken = MEASUREMENTS[name](context)
        except Exception as error:  # noqa: BLE001  # one that fails must not cost the others their numbers
            traceback.print_exc()
            failed.append(name)
            taken = [Row(name, name, "", (), note=f"{type(error).__name__}: {str(error).partition(chr(10))[0]}")]
        for row in taken:
            shown = "not measured" if row.reached is None else report.number(row.reached, row.unit)
            context.say(f"{name}: {row.what}: {shown} {row.verdict}")
        rows += taken
        report.write(out, rows, about)  # after each: what is measured stays, whatever comes
    context.say(f"wrote {out}")
    print(report.markdown(rows, about))
    if failed:
        print(f"could not be measured: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
