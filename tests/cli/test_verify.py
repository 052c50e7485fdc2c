"""verify: what waits, which users, going on after Ctrl-C; and README's own sequence."""

import json
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from feedstore.following import FEEDS, mutations
from feedstore.widecolumn.progress import Progress
from tests.cli.command import Cli
from workers.catalog.topics import UPDATES
from workers.catalog.updater import updater_group
from workers.following.verify import Finding, Kind, Seen, UserRange, Verifier

README = Path(__file__).resolve().parents[2] / "README.md"


def extra(cli: Cli, *users: int) -> None:
    """Gives unknown users an entry each."""
    with cli.ports(access="write") as ports:
        ports.replicas["b"].tables[FEEDS].apply([mutations.put([(each, 1)], [(6, 1_010)]) for each in users])


def users_found(cli: Cli, *words: object) -> list[int]:
    lines = [json.loads(line) for line in cli("verify", "--json", *words, code=None).stdout.splitlines()]
    return [line["user"] for line in lines if "kind" in line]


def test_a_recorded_pin_that_is_in_no_feed_is_waiting(filled: Cli) -> None:
    filled("save-pin", 50, "--owner", 2, "--board", 20)
    said = filled("verify", code=3).stderr
    assert "nothing is wrong with what has landed; work is waiting, and no worker runs (relay 1)" in said
    assert filled.hint("work --until-idle") in said


def test_where_verify_has_no_answer_a_dry_repair_has_none(filled: Cli) -> None:
    filled("save-pin", 50, "--owner", 2, "--board", 20)
    said = filled("repair", "--dry-run", code=3).stderr
    assert "nothing is wrong with what has landed; work is waiting" in said
    extra(filled, 404)
    assert "1 difference; nothing was done" in filled("repair", "--dry-run", code=1).stderr


def test_updates_of_catalogs_that_wait_are_in_no_feed(filled: Cli) -> None:
    filled.add("[catalogs.ads]\n")
    with filled.ports(access="write") as ports:
        ports.queue.consumer(UPDATES, updater_group("ads", "b")).close()
        ports.queue.publish(UPDATES, [b"an update"])
    assert "no difference" in filled("verify").stderr


def test_what_waits_hides_no_difference(filled: Cli) -> None:
    filled("save-pin", 50, "--owner", 2, "--board", 20)
    filled("unfollow", 1, "--board", 31)
    extra(filled, 404)
    found = filled("verify", code=1)
    assert re.findall(r"user (\d+)  (\w+)", found.stdout) == [("404", "unknown")]
    assert "what has not landed was not compared; work is waiting" in found.stderr


def test_a_refill_that_waits_is_no_work_unless_an_unfollow_waits_for_it(filled: Cli) -> None:
    """A page that ends below the cap asks for one; and so does a writer, which holds its watermark until it is done."""
    filled("feed", 1)
    assert "no difference" in filled("verify").stderr

    with filled.ports(access="write") as ports:
        asked_ms = ports.follows.ask_refill([1], "b", 0)
        Progress(ports.replicas["b"].progress).hold([(asked_ms - 10_000, asked_ms)])
    assert "cluster b waits for a refill after an unfollow" in filled("verify", code=3).stderr


def test_only_some_users_are_looked_at(filled: Cli) -> None:
    extra(filled, 404, 410, 420)
    assert users_found(filled) == [404, 410, 420]
    assert users_found(filled, "--users", "405-415, 420") == [410, 420]
    assert users_found(filled, "--users", "404") == [404]
    assert users_found(filled, "--resume", "404") == [410, 420]
    assert users_found(filled, "--users", "400-415", "--resume", "404") == [410]


@pytest.mark.parametrize(
    "words",
    [
        "0",
        "5-",
        "x",
        "7-5",
        "1,,2",
        f"1-{2**63}",
        "",
        "\N{ARABIC-INDIC DIGIT FIVE}",
        pytest.param("9" * 5_000, id="9s"),
    ],
)
def test_users_that_cannot_be_are_refused(filled: Cli, words: str) -> None:
    assert "--users" in filled("verify", "--users", words, code=2).stderr


def test_a_sample_is_the_same_for_the_same_seed(filled: Cli) -> None:
    for number in range(100, 112):
        filled("follow", number, "--user", 2)
    filled.work()
    assert "2 users, chosen with the seed 7" in filled("verify", "--sample", 2, "--seed", 7).stderr
    chosen = re.search(r"chosen with the seed (\d+)", filled("verify", "--sample", 3).stderr)
    assert chosen is not None
    assert filled.json("verify", "--sample", 5, "--seed", 1)["users"] == 5
    assert filled.json("verify", "--sample", 500, "--seed", 1)["users"] == 13


def test_a_seed_without_a_sample_is_refused_and_not_ignored(filled: Cli) -> None:
    assert "give --sample with it" in filled("verify", "--seed", 7, code=2).stderr
    filled("verify", "--sample", 5, "--users", 1, code=2)


def test_ctrl_c_ends_with_130_and_says_how_to_go_on(filled: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    filled = Cli(filled.home.rename(filled.home.with_name("my home")))
    finding = Finding(5, "b", "extra", 6, 7, 8, b"", "for no known reason")

    def look(self: Verifier, spans: Sequence[UserRange], after_user: int) -> Iterator[Seen]:
        yield Seen(3, 3, 1, 5, [finding])
        raise KeyboardInterrupt

    monkeypatch.setattr(Verifier, "look", look)
    stopped = filled("verify", "--users", "1-9", code=130)
    assert "user 5  extra" in stopped.stdout
    assert f"continue with: {filled.hint('verify --users 1-9 --resume 5')}\n" in stopped.stderr


def test_readmes_sequence_ends_with_a_clean_verify(empty: Cli) -> None:
    block = re.search(r"## Use it\n```sh\n(.*?)```", README.read_text(), re.DOTALL)
    assert block is not None
    commands = [shlex.split(line, comments=True)[1:] for line in block[1].splitlines()]
    assert [words[0] for words in commands][-1] == "verify"
    for words in commands:
        done = empty(*words)
    assert "no difference" in done.stderr


def test_where_most_feeds_lack_entries_a_rebuild_is_named_once(filled: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """A close look at each entry takes hours then, and repair notes each."""

    def missing(cluster: str, users: range, kind: Kind = "missing") -> list[Finding]:
        return [Finding(user, cluster, kind, pin, 1, 1, b"", "why") for user in users for pin in (1, 2)]

    def look(*_: object) -> Iterator[Seen]:
        yield Seen(900, 9_000, 800, 900, missing("a", range(1, 401)) + missing("b", range(1, 801)))
        yield Seen(1_200, 12_000, 801, 1_200, missing("b", range(1_000, 1_001)) + missing("a", range(1_000, 1_150)))
        yield Seen(1_800, 18_000, 802, 1_800, missing("b", range(1_700, 1_701)))
        yield Seen(1_900, 18_000, 802, 1_900, missing("a", range(1_800, 2_800), "masked"))

    monkeypatch.setattr(Verifier, "look", look)
    said = filled("verify", code=1).stderr
    assert re.findall(r"(\S+) of (\S+) users lack entries in cluster (\w)", said) == [("801", "1,200", "b")]
    assert filled.hint("rebuild --all --cluster b") in said
