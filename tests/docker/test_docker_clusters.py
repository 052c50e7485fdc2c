"""The clusters themselves: an action goes in at the web's port, and is in both clusters; what dies comes back."""

import itertools
import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from deploy import monitoring
from deploy.docker import names
from deploy.docker.clusters import Clusters, run_check
from deploy.drills.regions import regions
from tests.cli.command import eventually

pytestmark = [pytest.mark.docker, pytest.mark.timeout(900)]

PATIENCE_S = 90.0
FOLLOWERS = 40


@pytest.fixture(scope="module")
def web(clusters: Clusters) -> Iterator[httpx.Client]:
    token = (clusters.home / "token").read_text().strip()
    port = os.environ.get("FEED_WEB_PORT", "18080")
    with httpx.Client(
        base_url=f"http://127.0.0.1:{port}", headers={"Authorization": f"Bearer {token}"}, timeout=10
    ) as client:
        yield client


@pytest.fixture(scope="module")
def feedctl(clusters: Clusters, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Runs feedctl on this machine, in a home that reaches the clusters through the loopback."""
    home = tmp_path_factory.mktemp("on-clusters") / "home"

    def run(*words: str) -> str:
        done = subprocess.run(
            ["feedctl", "--home", str(home), *words], capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    run("init", "--stack", "docker", "--stack-home", str(clusters.home))
    return run


def docker(*words: str) -> str:
    return subprocess.run(["docker", *words], capture_output=True, text=True, timeout=60, check=True).stdout.strip()


def until(what: str, found: Callable[[], Any]) -> Any:
    return eventually(found, what, PATIENCE_S)


def followed_board(web: httpx.Client) -> int:
    """A board with FOLLOWERS followers, who are the users from its own number on; never used before, as the clusters
    may have run for long.
    """
    board = time.time_ns() // 1_000_000
    for follower in range(board, board + FOLLOWERS):
        assert web.post("/v1/follows", json={"follower": str(follower), "board": str(board)}).is_success
    return board


def save(web: httpx.Client, pin: int, board: int) -> None:
    assert web.post("/v1/pins", json={"pin": str(pin), "owner": "2", "board": str(board)}).is_success


def test_an_action_at_the_web_stands_in_both_clusters(web: httpx.Client, feedctl: Callable[..., str]) -> None:
    first = followed_board(web)
    followers = range(first, first + FOLLOWERS)
    pins = [str(first + number) for number in range(60)]
    for pin in pins:
        save(web, int(pin), first)

    def entries(user: int) -> list[str]:
        page = web.get(f"/v1/users/{user}/feed", params={"limit": 100}).json()
        return [each["pin"] for each in page["entries"]]

    for user in (followers[0], followers[16], followers[-1]):
        until(f"the feed of {user}", lambda user=user: sorted(entries(user)) == sorted(pins))
    # Each cluster is asked by itself here.
    for pin in (pins[0], pins[-1]):
        until(
            f"pin {pin} in both clusters",
            lambda pin=pin: (
                web.get(f"/v1/users/{first}/feed/{pin}/why").json()["clusters"] == dict.fromkeys(names.CLUSTERS, True)
            ),
        )
    assert "no difference" in feedctl("verify")


def test_prometheus_sees_every_process_and_server_and_has_the_rules(clusters: Clusters) -> None:
    until("every target to be up", lambda: not clusters.unwatched())
    expected = {names.WEB, *names.WORKERS, names.KAFKA}
    for cluster in names.CLUSTERS:
        expected |= {names.control(cluster), *(names.host(cluster, number) for number in names.HOSTS)}
    asked = {
        each["scrapeUrl"].split("/")[2].split(":")[0] for each in prometheus("targets?state=active")["activeTargets"]
    }
    assert asked == expected
    rules = {rule["name"] for group in prometheus("rules?type=alert")["groups"] for rule in group["rules"]}
    assert rules == set(re.findall(r"alert: (\w+)", monitoring.RULES.read_text()))


def test_prometheus_has_what_hbase_kafka_and_the_workers_count(web: httpx.Client) -> None:
    board = followed_board(web)
    save(web, board, board)
    for asked in (
        *(f'hbase_regions{{server="{names.host(cluster, 1)}"}} > 0' for cluster in names.CLUSTERS),
        *(f'hbase_trim_rows_total{{server="{names.host(cluster, 1)}"}} >= 0' for cluster in names.CLUSTERS),
        *(f'hbase_region_servers{{server="{names.control(cluster)}"}} > 0' for cluster in names.CLUSTERS),
        "kafka_messages_in_total > 0",
        'feed_http_requests_total{program="serve"} > 0',
        *(f'feed_cells_written_total{{cluster="{cluster}"}} > 0' for cluster in names.CLUSTERS),
    ):
        until(asked, lambda asked=asked: prometheus("query", query=asked)["result"])


def prometheus(what: str, **words: str) -> Any:
    answer = httpx.get(f"http://127.0.0.1:{names.PROMETHEUS_LOOPBACK_PORT}/api/v1/{what}", params=words or None)
    return answer.raise_for_status().json()["data"]


def test_pages_come_from_the_other_cluster_while_the_doors_of_a_zone_are_shut(web: httpx.Client) -> None:
    doors = [names.container(names.gateway("a", number)) for number in names.GATEWAYS]
    docker("pause", *doors)
    try:
        pages = [web.get("/v1/users/1/feed") for _ in range(20)]
    finally:
        docker("unpause", *doors)
    assert {page.status_code for page in pages} == {200}
    assert {page.json()["served_by"] for page in pages[10:]} == {"b"}


@pytest.mark.parametrize("cluster", names.CLUSTERS)
@pytest.mark.usefixtures("clusters")
def test_every_host_holds_regions_of_the_feeds(cluster: str) -> None:
    servers = [region.server for region in regions(f"hbase://127.0.0.1:{names.loopback_port(cluster, 1)}/")]
    assert len(servers) == 16
    assert set(servers) == {names.host(cluster, number) for number in names.HOSTS}


@pytest.mark.usefixtures("clusters")
def test_a_process_and_a_host_that_die_come_back_by_themselves() -> None:
    host = names.container(names.host("b", 3))
    kill = "kill -9 $(grep -l 'feed.process=[r]egionserver' /proc/[0-9]*/cmdline | head -1 | cut -d/ -f3)"
    docker("exec", host, "sh", "-c", kill)
    until("the region server to be away", lambda: "regionserver" in run_check(host))
    until("the region server to be back", lambda: run_check(host) == "")
    # As a host dies: its first process, killed from outside. `docker kill` would count as an order to stay away.
    began = docker("inspect", "--format", "{{.State.StartedAt}}", host)
    os.kill(int(docker("inspect", "--format", "{{.State.Pid}}", host)), 9)
    until("the host to be started", lambda: docker("inspect", "--format", "{{.State.StartedAt}}", host) != began)
    until("the host to be back", lambda: run_check(host) == "")


def test_a_cluster_whose_last_host_went_later_comes_back_without_help(
    web: httpx.Client, feedctl: Callable[..., str]
) -> None:
    """The last blocks of the logs are then on the last host alone: a NameNode that starts must not want two of each."""
    hosts = [names.container(names.host("b", number)) for number in names.HOSTS]
    control = names.container(names.control("b"))
    board = followed_board(web)
    pins = itertools.count(board)

    def says(host: str, pattern: str, since: str) -> bool:
        # A log is written to, or HDFS does not notice that one of its replicas is gone.
        save(web, next(pins), board)
        return re.search(pattern, docker("logs", "--since", since, host)) is not None

    began = f"{time.time():.3f}"
    for host in hosts:
        # A host that has just come back is in no log that was begun before.
        until(f"a new log of {host}", lambda host=host: says(host, "Rolled WAL", began))
    try:
        began = f"{time.time():.3f}"
        docker("kill", *hosts[:-1])
        alone = r"newtargets=\[[^,\]]+\]\) successful"
        until("a block of a log to be on the last host alone", lambda: says(control, alone, began))
        docker("kill", hosts[-1], control)
    finally:
        docker("start", control, *hosts)
    # A gateway is ready when its cluster answers it.
    doors = [names.container(names.gateway("b", number)) for number in names.GATEWAYS]
    for name in (control, *hosts, *doors):
        until(f"{name} to be back", lambda name=name: run_check(name) == "")
    assert "no difference" in feedctl("verify")


def test_no_container_shows_a_secret_or_runs_as_root(clusters: Clusters) -> None:
    password = (clusters.home / "secrets" / "mariadb.password").read_text()
    token = (clusters.home / "token").read_text().strip()
    containers = [names.container(name) for name in (*names.SERVERS, *names.CLIENTS)]
    inspected = docker("inspect", *containers)
    image = docker("image", "history", "--no-trunc", json.loads(inspected)[0]["Config"]["Image"])
    processes = [line for name in containers for line in docker("top", name, "-eo", "pid,uid,args").splitlines()[1:]]
    for secret in (password, token):
        assert secret not in inspected + image + "".join(processes)
    assert {line.split()[1] for line in processes} == {"10001"}
