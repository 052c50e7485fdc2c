"""Finds programs of this machine, and runs them to their end: Maven, docker, what makes the directories of servers."""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from deploy.local.errors import StackError

PROJECT = Path(__file__).resolve().parents[2]
_SHOWN_LINES = 30


def installed(program: str) -> str:
    """The path of a program.

    Raises StackError: it is not installed.
    """
    # Servers live where the path of an ordinary user does not lead.
    path = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin"))
    found = shutil.which(program, path=path)
    if found is None:
        raise StackError(f"there is no program {program}: `make stack-ready` installs what is needed")
    return found


class EndedError(StackError):
    """A program ended with another status than 0."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


def run(
    *words: str | Path,
    failed: str,
    timeout_s: float = 900.0,
    env: Mapping[str, str] | None = None,
    is_shown: bool = False,
) -> str:
    """Runs a program to its end and returns what it printed to its standard output.

    failed: what could not be done, if it fails. env: on top of this process's own. is_shown: its output goes to this
    one's standard error as it comes, and nothing is returned.

    Raises:
        EndedError: it ended with another status than 0; the message ends with the end of its output.
        StackError: it cannot be started, or does not end in time.
    """
    argv = tuple(map(str, words))
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=2 if is_shown else subprocess.PIPE,
            stderr=None if is_shown else subprocess.PIPE,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
            env={**os.environ, **(env or {})},
        )
    except FileNotFoundError as error:
        missing = f"{failed}: there is no program {error.filename}"
        raise StackError(f"{missing}; `make stack-ready` or `make docker-ready` installs it") from error
    except OSError as error:
        raise StackError(f"{failed}: {error}") from error
    except subprocess.TimeoutExpired as error:
        raise StackError(f"{failed}: {argv[0]} was not done in {timeout_s:.0f} s") from error
    if done.returncode != 0:
        raise EndedError(f"{failed}: {_end(argv, done)}", done.returncode)
    return done.stdout or ""


def succeeds(*words: str | Path, timeout_s: float = 30.0) -> bool:
    """Whether a program ends with status 0; its output is dropped."""
    try:
        return (
            subprocess.run(tuple(map(str, words)), capture_output=True, timeout=timeout_s, check=False).returncode == 0
        )
    except (OSError, subprocess.TimeoutExpired):
        return False


def _end(words: Sequence[str], done: "subprocess.CompletedProcess[str]") -> str:
    said = "\n".join(f"{done.stdout or ''}{done.stderr or ''}".splitlines()[-_SHOWN_LINES:])
    return f"{' '.join(words[:3])} ended with status {done.returncode}" + (f":\n{said}" if said else "")
