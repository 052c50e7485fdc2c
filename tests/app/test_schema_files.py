"""The files of schemas/ that are made from code are up to date, and the check says when they are not."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from workers.app import schemas


def test_the_files_are_up_to_date() -> None:
    assert schemas.stale(schemas.ROOT, schemas.EXPORTS) == [], "run python -m workers.app.schemas"


def test_a_missing_and_a_changed_file_are_named(tmp_path: Path) -> None:
    exports = {"a.json": lambda: "a\n", "b.json": lambda: "b\n"}
    assert schemas.stale(tmp_path, exports) == ["a.json", "b.json"]
    schemas.write(tmp_path, exports)
    assert schemas.stale(tmp_path, exports) == []
    (tmp_path / "b.json").write_text("b")
    assert schemas.stale(tmp_path, exports) == ["b.json"]


def test_the_command_checks_and_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schemas, "ROOT", tmp_path / "schemas")
    check = CliRunner().invoke(schemas.main, ["--check"])
    assert (check.exit_code, "feed.actions.schema.json" in check.output) == (1, True)
    assert CliRunner().invoke(schemas.main, []).exit_code == 0
    assert CliRunner().invoke(schemas.main, ["--check"]).exit_code == 0


def test_every_file_ends_with_one_line_end() -> None:
    for name, export in schemas.EXPORTS.items():
        assert export().endswith("\n"), name
        assert not export().endswith("\n\n"), name
