"""The image of every container: its base, its build context, and the build."""

import hashlib
import json
import os
import shutil
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

from deploy.docker.engine import install
from deploy.local import jars
from deploy.local.errors import StackError
from deploy.local.programs import PROJECT, run, succeeds
from deploy.local.servers import Say

BASE = "debian:bookworm-slim"
MADE_BASE = "feedstore/base:bookworm"
"""The image that is made here if no registry gives BASE."""
SUITE = "bookworm"
IMAGE = "feedstore/cluster:local"
CONTEXT = PROJECT / "build" / "docker" / "context"
WHEELS = PROJECT / "build" / "docker" / "wheels"
PARTS = ("__init__.py", "local", "docker", "hbase", "monitoring")
"""The parts of the folder `deploy` that are in the image: those that its containers import, and no more."""

_EXTRAS = ("mysql", "kafka", "hbase", "http", "hosts")
_PYTHON = "3.11"
"""The Python of Debian bookworm. The wheels are for it, whichever Python runs this program."""
_PLATFORMS = ("manylinux_2_17_x86_64", "manylinux2014_x86_64", "manylinux_2_28_x86_64", "linux_x86_64")
_PULL_S = 60.0
_SOURCES = (Path("/etc/apt/sources.list"), Path("/etc/apt/sources.list.d"))


def ensure_base(say: Say) -> str:
    """Debian's image: from the engine, from a registry, or else MADE_BASE, of Debian's packages. Returns its name.

    Raises StackError: there is none, and it cannot be made.
    """
    for name in (BASE, MADE_BASE):
        if _is_there(name):
            say(f"base: {name} is there")
            return name
    say(f"base: asking the registry for {BASE}")
    if succeeds("docker", "pull", "--quiet", BASE, timeout_s=_PULL_S):
        return BASE
    if os.geteuid() != 0:
        raise StackError(
            f"no registry gives {BASE}. Only root can make one of Debian's packages: run `make docker-ready` as root"
        )
    install("debootstrap")
    say(f"base: no registry; making {MADE_BASE} of Debian's packages (a minute)")
    with tempfile.TemporaryDirectory(prefix="feedstore-base-") as folder:
        root = Path(folder, "root")
        # What it mounts in the new root goes with it, if it is killed too: the folder is removed then.
        run(
            "unshare", "--mount",
            "debootstrap", "--variant=minbase", "--include=ca-certificates", SUITE, root, mirror(),
            failed="Debian's packages could not be put together",
        )  # fmt: skip
        _with_updates(root, mirror(), _archive(is_security=True))
        _import(root)
    say(f"base: made {MADE_BASE}")
    return MADE_BASE


def _is_there(name: str) -> bool:
    return succeeds("docker", "image", "inspect", name)


def mirror() -> str:
    """Where apt on this machine gets Debian's own packages.

    Raises StackError: its configuration names none, or one with a password.
    """
    found = _archive(is_security=False)
    if found is None:
        raise StackError(
            "apt's configuration on this machine names no mirror of Debian: the base image must come from a registry"
        )
    return found


def _archive(*, is_security: bool) -> str | None:
    for word in _apt_words():
        is_archive = word.startswith(("http://", "https://", "file:/")) and "debian" in word
        if is_archive and ("security" in word) == is_security:
            if "@" in word:
                raise StackError(
                    "apt's configuration on this machine names a mirror with a user or a password, which would be "
                    "in the image: the base image must come from a registry"
                )
            return word
    return None


def _apt_words() -> Iterator[str]:
    for file in (_SOURCES[0], *sorted(_SOURCES[1].glob("*"))):
        if not file.is_file() or file.suffix not in {".list", ".sources"}:
            continue
        for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
            words = line.split()
            if words[:1] in (["deb"], ["URIs:"]):
                yield from words[1:]


def _with_updates(root: Path, debian: str, security: str | None) -> None:
    """Adds Debian's updates, as its own image has them; a system made by debootstrap knows the release only."""
    lines = [f"deb {debian} {SUITE} main", f"deb {debian} {SUITE}-updates main"]
    if security is not None:
        lines.append(f"deb {security} {SUITE}-security main")
    (root / "etc" / "apt" / "sources.list").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _import(root: Path) -> None:
    for package in (root / "var" / "cache" / "apt" / "archives").glob("*.deb"):
        package.unlink()
    archive = root.with_suffix(".tar")
    with tarfile.open(archive, "w") as tar:
        tar.add(root, arcname=".")
    run("docker", "import", archive, MADE_BASE, failed="the base image could not be imported")


def build(say: Say) -> None:
    """Makes the image if anything in it is new; the engine's cache decides that.

    Raises StackError: something cannot be had or built.
    """
    _make_context(say)
    say("image: building")
    base = MADE_BASE if _is_there(MADE_BASE) and not _is_there(BASE) else BASE
    # The classic builder: Debian's engine has no other.
    run(
        "docker", "build", "--quiet", "--build-arg", f"BASE={base}", "--tag", IMAGE,
        "--file", PROJECT / "deploy" / "docker" / "Dockerfile", CONTEXT,
        failed="the image could not be built", env={"DOCKER_BUILDKIT": "0"},
    )  # fmt: skip


def _make_context(say: Say) -> None:
    shutil.rmtree(CONTEXT, ignore_errors=True)
    own = _own_wheel(say)
    folders = {
        "jars/hbase": jars.ensure("hbase", say),
        "jars/kafka": jars.ensure("kafka", say),
        "jars/agent": jars.ensure(jars.AGENT, say),
        "jars/trim": jars.build(jars.TRIM, say),
        "jars/placement": jars.build(jars.PLACEMENT, say),
        "wheels": _wheels(own, say),
        "own": own,
    }
    for name, folder in folders.items():
        _linked(folder, CONTEXT / name)
    for name in PARTS:
        _linked(PROJECT / "deploy" / name, CONTEXT / "deploy" / name)


def _linked(source: Path, target: Path) -> None:
    """Links to the same files, or copies if the target is on another file system; without Python's caches."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_file():
        _link(source, target)
        return
    shutil.copytree(source, target, copy_function=_link, ignore=shutil.ignore_patterns("__pycache__"))


def _link(source: str | Path, target: str | Path) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _wheels(own: Path, say: Say) -> Path:
    """The folder with the wheels that the Python package needs, for the Python of the image. own: that of its wheel."""
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = [_PYTHON, _EXTRAS, project["dependencies"], project["optional-dependencies"]]
    folder = WHEELS / hashlib.sha256(json.dumps(needed).encode()).hexdigest()[:12]
    if folder.is_dir():
        return folder
    say("wheels: getting them with pip")
    new = folder.with_suffix(".new")
    shutil.rmtree(new, ignore_errors=True)
    platforms = [word for each in _PLATFORMS for word in ("--platform", each)]
    # No index knows this package: pip reads in its wheel what it needs.
    (wheel,) = own.glob("*.whl")
    run(
        sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--only-binary=:all:",
        "--implementation", "cp", "--python-version", _PYTHON, *platforms, "--dest", new,
        f"{project['name']}[{','.join(_EXTRAS)}] @ {wheel.as_uri()}",
        failed="the Python packages of the image could not be had",
    )  # fmt: skip
    (new / wheel.name).unlink()
    new.rename(folder)
    for other in WHEELS.iterdir():
        if other not in (folder, own):
            shutil.rmtree(other)
    return folder


def _own_wheel(say: Say) -> Path:
    say("wheels: building this package's")
    new = WHEELS / "own"
    shutil.rmtree(new, ignore_errors=True)
    run(
        sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps", "--wheel-dir", new,
        PROJECT, failed="this package's wheel could not be built", env={"SOURCE_DATE_EPOCH": "1700000000"},
    )  # fmt: skip
    return new
