"""What `tests/on_the_stack` answers, with a pytest that is a few lines of a shell."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
# As pytest ends if no test is left of those that were asked for.
NONE = 5
PYTEST = f"""#!/bin/sh
case "$*" in
*--collect-only*) test -z "$ALONE" && exit {NONE}; echo tests/stack/test_kills.py::test_a_kill ;;
*"stack and not alone"*) exit "${{TOGETHER:-{NONE}}}" ;;
*) exit "$ALONE" ;;
esac
"""


@pytest.mark.parametrize(
    ("together", "alone", "status"),
    [
        ("", "", NONE),  # a name was misspelt: nothing was tested
        ("", "0", 0),
        ("0", "", 0),
        ("0", "1", 1),
        ("1", "0", 1),
    ],
)
def test_it_passes_if_a_test_was_run_and_none_failed(tmp_path: Path, together: str, alone: str, status: int) -> None:
    for name in ("on_the_stack", "scratch"):
        (tmp_path / "tests").mkdir(exist_ok=True)
        shutil.copy(TESTS / name, tmp_path / "tests" / name)
    program = tmp_path / ".venv" / "bin" / "pytest"
    program.parent.mkdir(parents=True)
    program.write_text(PYTEST)
    program.chmod(0o755)
    environ = {**os.environ, "FEED_TEST_STACK": "/a/stack", "TOGETHER": together, "ALONE": alone}
    environ.pop("FEED_TEST_STACK_ALONE", None)
    words = (tmp_path / "tests" / "on_the_stack", "-k", "kills")
    done = subprocess.run(words, capture_output=True, text=True, env=environ, timeout=60, check=False)
    assert done.returncode == status, done.stderr
