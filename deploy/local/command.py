"""What the command lines of stacks have in common. Progress goes to stderr, the requested output to stdout."""

import contextlib
import dataclasses
import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from deploy.local.errors import StackError


def run(command: Callable[[], int], interrupted: str) -> int:
    """Runs one command and returns the exit status. interrupted: what is so after Ctrl-C."""
    try:
        status = command()
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (StackError, OSError) as error:  # of the system: a disk that is full, a home that may not be written
        say(f"error: {error}")
        return 1
    except KeyboardInterrupt:
        say(f"interrupted; {interrupted}")
        return 130
    return status


def show(states: Sequence[Any], lines: Iterable[str], *, as_json: bool) -> int:
    """Shows dataclasses with a `state`, and returns the exit status. lines: the same for people."""
    if as_json:
        print(json.dumps([dataclasses.asdict(each) for each in states], default=str, indent=2))
    else:
        print(*lines, sep="\n")
    return 0 if all(each.state == "ready" for each in states) else 3


def say(line: str) -> None:
    """One line of progress. If nothing takes it, as where Ctrl-C has ended a `tee` behind this, it is lost: what is
    being stopped must stop all the same.
    """
    with contextlib.suppress(OSError):
        print(line, file=sys.stderr, flush=True)
