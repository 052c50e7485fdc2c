"""board, reorder-pin, and the lines of replay that move pins."""

import errno
import json
import os
from pathlib import Path

import pytest

from feedstore.boards import SPACING
from feedstore.follows.arranging import Arranged, PlacedRow
from tests.cli.command import Cli
from workers.app import replay

BOARD, OWNER = 9, 2
PINS = range(1, 7)
MS = SPACING.unit


def line(**fields: object) -> str:
    return json.dumps(fields) + "\n"


def saved(*pins: int, board: int = BOARD, ts: int | None = None) -> str:
    return "".join(line(type="save_pin", ts=ts or 1_000 + pin, pin=pin, owner=OWNER, board=board) for pin in pins)


def moved(pin: int, **where: object) -> str:
    return line(type="reorder_pin", ts=5_000, board=BOARD, pin=pin, **where)


@pytest.fixture
def home(cli: Cli) -> Cli:
    """A board with the pins 6, 5, 4, 3, 2, 1, from the top."""
    cli("replay", "-", stdin=saved(*PINS))
    cli.work()
    return cli


def order(cli: Cli, board: int = BOARD) -> list[int]:
    return [pin["pin"] for pin in cli.json("board", board, "--limit", 500)["pins"]]


def test_a_pin_goes_where_it_is_put(home: Cli) -> None:
    assert order(home) == [6, 5, 4, 3, 2, 1]
    home("reorder-pin", BOARD, 1, "--before", 5, "--after", 4)
    assert order(home) == [6, 5, 1, 4, 3, 2]
    home("reorder-pin", BOARD, 6, "--bottom")
    home("reorder-pin", BOARD, 3, "--top")
    home("reorder-pin", BOARD, 2, "--after", 5)
    assert order(home) == [3, 2, 5, 1, 4, 6]
    assert "as before" in home("reorder-pin", BOARD, 2, "--after", 5).stderr


def test_json_of_a_reorder_keeps_every_digit(home: Cli) -> None:
    placed = home.json("reorder-pin", BOARD, 1, "--before", 5, "--after", 4)
    [line] = [each for each in home.json("board", BOARD)["pins"] if each["pin"] == 1]
    assert placed["sequence"] == line["sequence"]
    assert int(placed["sequence"]) > 2**64
    assert placed["changed"]
    assert not home.json("reorder-pin", BOARD, 1, "--before", 5)["changed"]


def test_a_refused_reorder_says_why_and_changes_nothing(home: Cli) -> None:
    refused = home("reorder-pin", BOARD, 1, "--before", 6, "--after", 3, code=1)
    assert "neighbours_apart" in refused.stderr
    assert "between them: 5, 4" in refused.stderr
    words = ["reorder-pin", BOARD, 1, "--before", 6, "--after", 3, "--json"]
    assert json.loads(home(*words, code=1).stdout)["between"] == [5, 4]
    for reason, wrong in (
        ("pin_unknown", [404, "--top"]),
        ("pin_unknown", [1, "--after", 404]),
        ("neighbours_reversed", [1, "--before", 3, "--after", 6]),
    ):
        assert reason in home("reorder-pin", BOARD, *wrong, code=1).stderr
    assert order(home) == [6, 5, 4, 3, 2, 1]


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--top", "--bottom"],
        ["--top", "--before", 5],
        ["--before", 1],
        ["--before", 5, "--after", 5],
    ],
)
def test_a_place_that_cannot_be_is_a_wrong_command_line(home: Cli, words: list[object]) -> None:
    home("reorder-pin", BOARD, 1, *words, code=2)
    assert order(home) == [6, 5, 4, 3, 2, 1]


def test_pages_of_a_board_join(home: Cli) -> None:
    home("reorder-pin", BOARD, 1, "--before", 5, "--after", 4)
    found, cursor = [], None
    while True:
        more = [] if cursor is None else ["--cursor", cursor]
        page = home.json("board", BOARD, "--limit", 2, *more)
        found += [pin["pin"] for pin in page["pins"]]
        cursor = page["cursor"]
        if cursor is None:
            break
    assert found == [6, 5, 1, 4, 3, 2]
    last = home.json("board", BOARD, "--limit", 2, "--bottom")
    assert ([pin["pin"] for pin in last["pins"]], last["cursor"]) == ([3, 2], None)
    above = home.json("board", BOARD, "--limit", 9, "--cursor", last["above"])
    assert ([pin["pin"] for pin in above["pins"]], above["above"]) == ([6, 5, 1, 4], None)
    home("board", BOARD, "--bottom", "--cursor", last["above"], code=2)
    first = home("board", BOARD, "--limit", 2)
    assert "--cursor" in first.stderr
    said = home("board", "show", BOARD, "--sequences").stdout
    assert "room 83" in said
    assert "moved " in said
    home("board", BOARD, "--cursor", "nonsense", code=2)
    home("board", "checks", code=2)


def test_an_export_has_every_pin_in_its_order_and_every_digit(home: Cli, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    home("reorder-pin", BOARD, 1, "--before", 6)
    file = tmp_path / "board.parquet"
    assert "6 pins written" in home("board", "export", BOARD, file).stderr
    table = parquet.read_table(file)
    shown = home.json("board", BOARD, "--limit", 500)["pins"]
    assert str(table.schema.field("sequence").type) == "decimal128(38, 0)"
    assert [
        {**each, "sequence": str(each["sequence"])}
        for each in table.select(["pin", "sequence", "moved_ms"]).to_pylist()
    ] == [{name: each[name] for name in ("pin", "sequence", "moved_ms")} for each in shown]
    assert [each["pin"] for each in shown] == [6, 1, 5, 4, 3, 2]
    assert home.json("board", "export", 10, file, "--json") == {"board": 10, "pins": 0, "file": str(file)}
    assert parquet.read_table(file).num_rows == 0
    assert home("board", "export", BOARD, tmp_path / "none" / "x", code=1).stderr
    assert "expected a file" in home("board", "export", BOARD, "", code=2).stderr
    home("board", "export", BOARD, tmp_path / os.fsdecode(b"board\xff"))
    assert [each.name for each in tmp_path.iterdir() if each.suffix in {".new", ".parquet"}] == ["board.parquet"]


def test_an_export_replaces_files_only(home: Cli, tmp_path: Path) -> None:
    """Root could replace a device, such as /dev/null."""
    pytest.importorskip("pyarrow.parquet")
    os.mkfifo(tmp_path / "pipe")
    assert "expected a file" in home("board", "export", BOARD, tmp_path / "pipe", code=2).stderr
    assert (tmp_path / "pipe").is_fifo()
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "file")
    home("board", "export", BOARD, tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").stat().st_size


def test_an_export_that_fails_leaves_nothing_behind(home: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyarrow.parquet")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("pyarrow.parquet.ParquetWriter.write_table", full)
    home("board", "export", BOARD, tmp_path / "board.parquet", code=1)
    assert not list(tmp_path.glob("board.parquet*"))


def test_replay_moves_pins_in_the_order_of_its_lines(cli: Cli) -> None:
    done = cli(
        "replay",
        "-",
        stdin=saved(1, 2, 3)
        + moved(1, before=3, after=2)
        + moved(2, to="top")
        + saved(4)
        + moved(4, after=1)
        + moved(3, before=2, to="top")
        + moved(3, before=404)
        + moved(3, before=2, after=1)
        + line(type="reorder_pin", ts=1, board=BOARD, pin=3, sideways=1),
        code=1,
    )
    assert order(cli) == [2, 3, 4, 1]
    assert "7 actions recorded, 4 bad lines" in done.stderr
    for number, reason in (
        (8, "top or bottom, without"),
        (9, "pin_unknown"),
        (10, "neighbours_apart"),
        (11, "sideways"),
    ):
        assert f"line {number}: " in done.stderr
        assert reason in done.stderr


@pytest.mark.parametrize("held", [replay.HELD, 2], ids=["few pins", "more pins than are held"])
@pytest.mark.parametrize("recorded", [0, 6, 8])
@pytest.mark.parametrize("works", [True, False], ids=["a worker", "no worker"])
def test_a_reorder_of_a_replay_sees_all_lines_before_it(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, held: int, recorded: int, *, works: bool
) -> None:
    """Whether they are expanded or not; and if the replay stopped between two lines, and continued."""
    monkeypatch.setattr(replay, "HELD", held)
    lines = [
        *saved(*PINS).splitlines(keepends=True),
        moved(1, before=6),
        line(type="delete_pin", ts=1, pin=5),
        moved(2, before=1, after=4),
        moved(3, to="bottom"),
    ]
    if recorded:
        cli("replay", "-", stdin="".join(lines[:recorded]))
    if works:
        cli.work()
    cli("replay", "-", "--from-line", recorded + 1, stdin="".join(lines))
    cli.work()
    assert order(cli) == [6, 1, 2, 4, 3]


def test_a_replay_without_reorders_leaves_the_boards_to_the_workers_until_it_holds_many_pins(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "HELD", 2)
    cli("replay", "-", stdin=saved(1, 2))
    assert order(cli) == []
    cli("replay", "-", stdin=saved(3, 4, 5))
    assert order(cli) == [5, 4, 3]


def test_a_crowded_board_stops_a_replay_which_continues_when_there_is_room(cli: Cli) -> None:
    run = range(1, 801)
    cli("replay", "-", stdin=saved(*run, ts=1_000))
    cli.work()
    # As after very many drops: the whole run is one apart, and so has no room at all.
    with cli.ports() as ports:
        top = 10**28
        rows = [PlacedRow(pin, top - pin, (top - pin) // MS, 1_000, 0) for pin in run]
        ports.follows.arrange(BOARD, (), lambda _now, _rows: (Arranged(placed=rows), None))
    lines = line(type="follow", ts=1, follower=1, user=OWNER) + moved(800, before=400, after=401)
    stopped = cli("replay", "-", stdin=lines, code=3)
    assert cli.hint("work") in stopped.stderr
    assert "--from-line 2" in stopped.stderr
    assert "a worker makes room" in cli("reorder-pin", BOARD, 800, "--before", 400, code=3).stderr
    cli.work()
    cli("replay", "-", "--from-line", 2, stdin=lines)
    assert order(cli)[399:402] == [400, 800, 401]
    cli.work()
    cli("board", "check", BOARD)


@pytest.fixture
def narrow(home: Cli) -> Cli:
    """Pins 3 and 2 of the board have one place, and nothing was asked for; pin 77 was never saved."""
    with home.ports() as ports:
        places = [(3, 10**28), (2, 10**28), (77, 10**27)]
        rows = [PlacedRow(pin, sequence, sequence // MS, 1_000 + pin, 5) for pin, sequence in places]
        ports.follows.arrange(BOARD, (), lambda _now, _rows: (Arranged(placed=rows), None))
    return home


def test_check_names_what_is_wrong_on_one_board_or_on_all(narrow: Cli) -> None:
    narrow("replay", "-", stdin=saved(11, 12, board=10))
    narrow("reorder-pin", 10, 11, "--after", 12)
    found = narrow("board", "check", BOARD, code=1)
    assert "pin 3: at the same place as pin 2" in found.stdout
    assert "pin 77: deleted, and still has a place" in found.stdout
    lines = [json.loads(text) for text in narrow("board", "check", "--all", "--json", code=1).stdout.splitlines()]
    assert lines == [
        {"board": 9, "finding": "narrow", "pin": 3},
        {"board": 9, "finding": "dead", "pin": 77},
        {"boards": 2, "pins": 8, "findings": 2},
    ]
    assert "no" not in narrow("board", "check", 10).stdout
    narrow("board", "check", code=2)
    narrow("board", "check", 9, "--all", code=2)


def test_respace_makes_room_and_keeps_the_order(narrow: Cli) -> None:
    before = [pin for pin in order(narrow) if pin != 77]
    found = narrow.json("board", "respace", BOARD)
    assert found["rows"] > 0
    assert found["dropped"] == 1
    assert order(narrow) == before
    narrow("board", "check", BOARD)
    assert "nothing was written" in narrow("board", "respace", BOARD, 3).stderr


def test_respace_ends_and_says_where_it_could_not_make_room(home: Cli) -> None:
    """Three placed pins with one number are not possible, unless the store was damaged."""
    with home.ports() as ports:
        rows = [PlacedRow(pin, 10**28, 10**28 // MS, 1_000 + pin, 5) for pin in (6, 5, 4)]
        ports.follows.arrange(BOARD, (), lambda _now, _rows: (Arranged(placed=rows), None))
    given_up = home("board", "respace", BOARD, code=3)
    assert "no room was made at 2 places, the first at pin 5" in given_up.stderr
    assert home.hint("reorder-pin") in given_up.stderr
    assert order(home) == [3, 2, 1, 4, 5, 6]
    home("reorder-pin", BOARD, 5, "--top")
    assert home.json("board", "respace", BOARD)["rows"] > 0
    home("board", "check", BOARD)


@pytest.mark.parametrize(
    ("pin", "said"),
    [(404, "pin 404 was never saved"), (1, "pin 1 was deleted"), (11, "pin 11 is on board 10")],
)
def test_room_around_a_pin_that_is_not_on_the_board_is_refused(home: Cli, pin: int, said: str) -> None:
    home("replay", "-", stdin=saved(11, board=10))
    home("delete-pin", 1)
    assert said in home("board", "respace", BOARD, pin, code=1).stderr


def test_reset_brings_back_the_order_of_time(narrow: Cli) -> None:
    narrow("board", "reset", BOARD)
    assert order(narrow) == [6, 5, 4, 3, 2, 1]
    narrow("board", "check", "--all")


def test_the_moves_of_a_home_survive_its_worker(home: Cli, tmp_path: Path) -> None:
    home("reorder-pin", BOARD, 1, "--top")
    home("delete-pin", 1)
    assert order(home) == [1, 6, 5, 4, 3, 2], "the handler of the deletion has not been there"
    home.work()
    assert order(home) == [6, 5, 4, 3, 2]
    home("board", "check", "--all")
