"""Where the base image's packages come from."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from deploy.docker import image
from deploy.local.errors import StackError
from deploy.local.programs import succeeds

DEB822 = """\
Types: deb
# http://snapshot.example/debian/20250520
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main

Types: deb
URIs: http://mirror.example/debian-security
Suites: bookworm-security
"""
ONE_LINE = """\
# deb http://old.example/debian bookworm main
deb https://packages.vendor.example/apt stable main
deb [arch=amd64] http://mirror.example/debian bookworm main
deb http://mirror.example/debian-security bookworm-security main
"""


@pytest.fixture
def apt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "sources.list.d").mkdir()
    monkeypatch.setattr(image, "_SOURCES", (tmp_path / "sources.list", tmp_path / "sources.list.d"))
    return tmp_path


def test_the_mirror_is_the_one_that_apt_uses(apt: Path) -> None:
    (apt / "sources.list.d" / "debian.sources").write_text(DEB822)
    assert image.mirror() == "http://mirror.example/debian"
    assert image._archive(is_security=True) == "http://mirror.example/debian-security"


def test_it_is_found_in_the_old_format_too(apt: Path) -> None:
    (apt / "sources.list").write_text(ONE_LINE)
    assert image.mirror() == "http://mirror.example/debian"


def test_where_there_is_none_it_says_what_is_left(apt: Path) -> None:
    with pytest.raises(StackError, match="registry"):
        image.mirror()


def test_the_new_root_looks_for_updates_where_this_machine_does(tmp_path: Path) -> None:
    (tmp_path / "etc" / "apt").mkdir(parents=True)
    image._with_updates(tmp_path, "http://m.example/debian", "http://m.example/debian-security")
    assert (tmp_path / "etc" / "apt" / "sources.list").read_text().splitlines() == [
        "deb http://m.example/debian bookworm main",
        "deb http://m.example/debian bookworm-updates main",
        "deb http://m.example/debian-security bookworm-security main",
    ]


def test_a_mirror_with_a_password_does_not_get_into_an_image(apt: Path) -> None:
    (apt / "sources.list").write_text("deb https://user:secret@mirror.example/debian bookworm main\n")
    with pytest.raises(StackError, match="registry") as raised:
        image.mirror()
    assert "secret" not in str(raised.value)


@pytest.mark.processes
@pytest.mark.skipif(not succeeds("unshare", "--mount", "true"), reason="only root mounts something")
def test_what_a_killed_debootstrap_has_mounted_is_not_left(apt: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (apt / "sources.list").write_text(ONE_LINE)
    roots = apt / "roots"
    roots.mkdir()
    for name, does in {
        "docker": "exit 1",
        "debootstrap": 'mkdir -p "$4/proc" && mount -t tmpfs none "$4/proc" && touch "$4/proc/1" && kill -9 $$',
    }.items():
        (apt / name).write_text(f"#!/bin/sh\n{does}\n")
        (apt / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{apt}:{os.environ['PATH']}")
    monkeypatch.setattr(image, "install", lambda *_: None)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(tempfile, "tempdir", str(roots))
    try:
        with pytest.raises(StackError, match="put together"):
            image.ensure_base(lambda _: None)
        assert list(roots.iterdir()) == []
    finally:
        for left in roots.glob("*/root/proc"):
            subprocess.run(["umount", left], check=False)


@pytest.mark.parametrize(
    ("there", "base"),
    [
        ({image.BASE, image.MADE_BASE}, image.BASE),
        ({image.MADE_BASE}, image.MADE_BASE),
        (set(), image.BASE),
    ],
)
def test_what_was_made_here_has_a_name_of_its_own(monkeypatch: pytest.MonkeyPatch, there: set[str], base: str) -> None:
    ran: list[tuple[object, ...]] = []
    monkeypatch.setattr(image, "_make_context", lambda _: None)
    monkeypatch.setattr(image, "succeeds", lambda *words, **_: words[-1] in there)
    monkeypatch.setattr(image, "run", lambda *words, **_: ran.append(words))
    image.build(lambda _: None)
    assert f"BASE={base}" in ran[0]
    assert "ARG BASE=debian:bookworm-slim\nFROM ${BASE}" in (image.PROJECT / "deploy/docker/Dockerfile").read_text()


def test_no_image_is_made_under_debians_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    ran: list[tuple[object, ...]] = []
    monkeypatch.setattr(image, "run", lambda *words, **_: ran.append(words))
    image._import(tmp_path / "root")
    assert ran[0][-1] == image.MADE_BASE != image.BASE


def test_the_image_asks_no_index_for_this_package_and_keeps_what_it_got(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[tuple[object, ...]] = []

    def run(*words: object, **_: object) -> None:
        ran.append(words)
        new = words[words.index("--dest") + 1]
        assert isinstance(new, Path)
        new.mkdir()
        for name in (wheel.name, "click.whl"):
            (new / name).touch()

    monkeypatch.setattr(image, "WHEELS", tmp_path)
    monkeypatch.setattr(image, "run", run)
    own, old = tmp_path / "own", tmp_path / "0123456789ab"
    for folder in (own, old):
        folder.mkdir()
    wheel = own / "feedstore-1-py3-none-any.whl"
    wheel.touch()
    made = image._wheels(own, lambda _: None)
    assert ran[0][-1] == f"feedstore[mysql,kafka,hbase,http,hosts] @ file://{wheel}"
    assert [each.name for each in made.iterdir()] == ["click.whl"]
    assert {each.name for each in tmp_path.iterdir()} == {"own", made.name}
    assert image._wheels(own, lambda _: None) == made
    assert len(ran) == 1
    monkeypatch.setattr(image, "_EXTRAS", ("mysql",))
    assert image._wheels(own, lambda _: None) != made


@pytest.mark.parametrize("module", ["container", "supervisor", "znode_cleanup"])
def test_what_runs_in_a_container_imports_only_what_is_in_the_image(tmp_path: Path, module: str) -> None:
    (tmp_path / "deploy").mkdir()
    for part in image.PARTS:
        (tmp_path / "deploy" / part).symlink_to(image.PROJECT / "deploy" / part)
    subprocess.run(
        [sys.executable, "-P", "-c", f"import deploy.docker.{module}"],
        check=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
