"""Gets jars with Maven, once: those of `deploy/pom.xml`, and those that are built here: the trim and the placement."""

import contextlib
import fcntl
import hashlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from deploy.local import processes
from deploy.local.programs import PROJECT, installed, run

POM = PROJECT / "deploy" / "pom.xml"
TRIM, PLACEMENT = "trim", "placement"
BUILT = {TRIM: PROJECT / "coprocessor", PLACEMENT: PROJECT / "deploy" / "placement"}
"""The modules of jars that are built here: of HBase's region servers and master, and of HDFS's NameNode."""
JARS = PROJECT / "build" / "stack" / "jars"
AGENT = "agent"
"""The profile of the agent that shows a JVM's metrics."""


def folder(profile: str) -> Path:
    """Where the jars of a profile are, or will be.

    The name carries the pom's hash: another pom gets another directory, and servers that run keep theirs until they
    have ended.
    """
    return JARS / f"{profile}-{hashlib.sha256(POM.read_bytes()).hexdigest()[:12]}"


def ensure(profile: str, say: Callable[[str], None]) -> Path:
    """The directory with the jars of a profile of the pom; the first call downloads them.

    Raises StackError: Maven is missing, or could not get them; the message ends with its output.
    """

    def get(new: Path) -> None:
        _maven(
            f"get the jars of {profile}", POM,
            "--activate-profiles", profile, "dependency:copy-dependencies", f"-DoutputDirectory={new}",
        )  # fmt: skip

    return _made(folder(profile), f"getting the jars of {profile} with Maven ...", say, get)


def built_folder(name: str) -> Path:
    """Where the jar of one of BUILT is, or will be. The folder's name carries the hash of its sources: no server that
    starts gets another jar than theirs.
    """
    module, digest = BUILT[name], hashlib.sha256()
    for file in _sources(module):
        digest.update(f"{file.relative_to(module)}\0{file.stat().st_size}\0".encode() + file.read_bytes())
    return JARS / f"{name}-{digest.hexdigest()[:12]}"


def build(name: str, say: Callable[[str], None]) -> Path:
    """The directory with the jar of one of BUILT, feedstore-NAME.jar; built if the sources are new.

    Raises StackError: Maven is missing, or could not build it; the message ends with its output.
    """
    module, jar = BUILT[name], f"feedstore-{name}.jar"

    def make(new: Path) -> None:
        # A copy: the files that were hashed are the ones that are built, and no other build uses the same place.
        sources = new / "sources"
        for file in _sources(module):
            copy = sources / file.relative_to(module)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)
        _maven(f"build the {name}", sources / "pom.xml", "-Dmaven.test.skip=true", "package")
        (sources / "target" / jar).rename(new / jar)
        shutil.rmtree(sources)

    return _made(built_folder(name), f"building the {name} with Maven ...", say, make)


def _sources(module: Path) -> list[Path]:
    sources = [file for file in (module / "src" / "main").rglob("*") if file.is_file()]
    return sorted([module / "pom.xml", *sources])


def _made(path: Path, said: str, say: Callable[[str], None], make: Callable[[Path], None]) -> Path:
    """A directory that is there, or is made as a whole."""
    if path.is_dir():
        return path
    JARS.mkdir(parents=True, exist_ok=True)
    with _lock():
        if path.is_dir():
            return path
        say(said)
        new = path.with_name(f"{path.name}.new")
        shutil.rmtree(new, ignore_errors=True)
        make(new)
        new.rename(path)
        _remove_others(path)
    return path


def _remove_others(made: Path) -> None:
    """Removes the directories that others of this name were in, but for those that a running program names: a JVM opens
    jars of its class path when it needs them.
    """
    others = [each for each in JARS.glob(f"{made.name.rpartition('-')[0]}-*") if each != made]
    used = "\n".join(
        word for each in Path("/proc").iterdir() if each.name.isdigit() for word in processes.arguments(int(each.name))
    )
    for other in others:
        if str(other) not in used:
            shutil.rmtree(other)


def _maven(what: str, pom: Path, *words: str) -> None:
    run(installed("mvn"), "--quiet", "--batch-mode", "--file", pom, *words, failed=f"Maven could not {what}")


@contextlib.contextmanager
def _lock() -> Iterator[None]:
    """Two stacks that start at once must not make the same directory."""
    with (JARS / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
