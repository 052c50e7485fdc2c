"""Whose clusters run on an engine, and what is done to those of others: nothing. With a made-up engine."""

from pathlib import Path
from typing import Any

import pytest

from deploy.docker import clusters as docker_clusters
from deploy.docker.clusters import Clusters
from deploy.docker.engine import Engine
from deploy.local.errors import StackError


class Docker:
    """Answers what is asked of the programs. homes: a line for each container."""

    def __init__(self) -> None:
        self.homes: list[str] = []
        self.said = ""
        self.composed: list[tuple[str, ...]] = []

    def run(self, *words: Any, failed: str, env: Any = None) -> str:
        if words[:2] == ("docker", "ps"):
            return "".join(f"{home}\n" for home in self.homes)
        self.composed.append(tuple(str(word) for word in words[5:]))
        return self.said


@pytest.fixture
def docker(monkeypatch: pytest.MonkeyPatch) -> Docker:
    made = Docker()
    monkeypatch.setattr(docker_clusters, "run", made.run)
    monkeypatch.setattr(docker_clusters.engine, "compose", lambda: ("docker-compose",))
    monkeypatch.setattr(Engine, "answers", lambda _: True)
    return made


def test_the_clusters_of_another_home_are_left_alone(docker: Docker, tmp_path: Path) -> None:
    mine = Clusters(tmp_path / "mine", lambda _: None)
    docker.homes = ["/somebody/elses", "/somebody/elses", ""]
    with pytest.raises(StackError, match="down --home /somebody/elses"):
        mine.up()
    with pytest.raises(StackError, match="down --home /somebody/elses"):
        mine.down()
    assert docker.composed == []
    assert not mine.home.exists()


@pytest.mark.parametrize("homes", [[], ["", ""], ["mine", "mine"]])
def test_ones_own_are_taken_away(docker: Docker, tmp_path: Path, homes: list[str]) -> None:
    docker.homes = [home and str(tmp_path / home) for home in homes]
    Clusters(tmp_path / "mine", lambda _: None).down()
    ((*_, words),) = [docker.composed]
    assert "down" in words
