"""Gets the jars of `deploy/pom.xml` from Maven, once."""

import contextlib
import fcntl
import hashlib
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from deploy.local import processes
from deploy.local.errors import StackError

_PROJECT = Path(__file__).resolve().parents[2]
POM = _PROJECT / "deploy" / "pom.xml"
JARS = _PROJECT / "build" / "stack" / "jars"

_MAVEN_S = 900.0
_SHOWN_LINES = 30


def folder(profile: str) -> Path:
    """Where the jars of a profile are, or will be.

    The name carries the pom's hash: another pom gets another directory, and servers that run keep theirs.
    """
    return JARS / f"{profile}-{hashlib.sha256(POM.read_bytes()).hexdigest()[:12]}"


def ensure(profile: str, say: Callable[[str], None]) -> Path:
    """The directory with the jars of a profile of the pom; the first call downloads them.

    Raises:
        StackError: Maven is missing, or could not get them; the message ends with what it said.
    """
    path = folder(profile)
    if path.is_dir():
        return path
    maven = processes.installed("mvn")
    JARS.mkdir(parents=True, exist_ok=True)
    with _lock():
        if path.is_dir():
            return path
        say(f"getting the jars of {profile} with Maven ...")
        new = path.with_name(f"{path.name}.new")
        shutil.rmtree(new, ignore_errors=True)
        command = [
            maven, "--quiet", "--batch-mode", "--file", str(POM), "--activate-profiles", profile,
            "dependency:copy-dependencies", f"-DoutputDirectory={new}",
        ]  # fmt: skip
        try:
            done = subprocess.run(  # noqa: S603 - the arguments are ours
                command, capture_output=True, text=True, errors="replace", timeout=_MAVEN_S, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise StackError(f"Maven did not get the jars of {profile} in {_MAVEN_S:.0f} s") from error
        if done.returncode != 0:
            end = "\n".join((done.stdout + done.stderr).splitlines()[-_SHOWN_LINES:])
            raise StackError(f"Maven could not get the jars of {profile}:\n{end}")
        new.rename(path)
    return path


@contextlib.contextmanager
def _lock() -> Iterator[None]:
    """Two stacks that start at once must not copy into the same directory."""
    with (JARS / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
