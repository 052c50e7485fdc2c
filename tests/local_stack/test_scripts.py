"""What `tests/on_the_stack` answers, with a pytest that is a few lines of a shell; and that signals end `.ci/run`, and
what the Makefile starts.
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.command import eventually

pytestmark = pytest.mark.processes

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


DEAF_NO_MORE = (
    "import os, signal, sys; [signal.signal(each, signal.SIG_DFL) for each in (signal.SIGINT, signal.SIGHUP)]; "
    "os.execvp(sys.argv[1], sys.argv[1:])"
)


RECORDS = """#!/bin/sh
echo "$2 $3" >>"$0.said"
"""


def test_ctrl_c_ends_what_the_ci_runs_beside_its_steps(tmp_path: Path) -> None:
    """Its steps are replaced by one that hangs, next to another one that does. Ctrl-C ends the `tee` behind it, too."""
    head, end, _ = (TESTS.parent / ".ci" / "run").read_text(encoding="utf-8").partition("trap clean_up EXIT\n")
    script = tmp_path / ".ci" / "run"
    script.parent.mkdir()
    hangs = "sh -c 'touch {}; exec sleep 600'"
    script.write_text(f"{head}{end}begin simulation {hangs.format('other')}\n{hangs.format('step')}\n")
    script.chmod(0o755)
    # Tests that run in the background of a shell ignore SIGINT, those under nohup SIGHUP; what they start would too.
    words = (sys.executable, "-c", DEAF_NO_MORE, str(script))
    environ = {**os.environ, "TMPDIR": str(tmp_path)}
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(RECORDS)
    python.chmod(0o755)
    running = subprocess.Popen(words, env=environ, start_new_session=True, stdout=subprocess.PIPE)
    try:
        # If it came before the step has begun, bash would wait for the step, as for one that ignores Ctrl-C.
        eventually(lambda: all((tmp_path / each).exists() for each in ("other", "step")), "both have begun")
        assert running.stdout is not None
        running.stdout.close()
        os.killpg(running.pid, signal.SIGINT)
        running.wait(20)
        stopped = python.with_name("python.said").read_text().splitlines()
        assert stopped == ["deploy.docker stop", "deploy.local down", "deploy.local down"]
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
        running.wait(20)


PYTHON = """#!/bin/sh
case "$*" in
*"deploy.local down"*) touch stopping; until [ -e seen ]; do sleep 0.01; done; echo "$*" >new; mv new down ;;
*) touch under-way; exec sleep 600 ;;
esac
"""


@pytest.mark.parametrize("target", ["soak", "test-alerts"])
@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT, signal.SIGTERM])
def test_a_stack_of_a_target_of_make_is_stopped_whatever_ends_it(
    tmp_path: Path, target: str, number: signal.Signals
) -> None:
    """As where a terminal is closed. Its Python is a few lines of a shell, and what the target needs is left out."""
    text = (TESTS.parent / "Makefile").read_text(encoding="utf-8")
    (tmp_path / "Makefile").write_text(re.sub(rf"^{target}: .*$", f"{target}:", text, flags=re.MULTILINE))
    for name, said in (("python", PYTHON), ("tests/clocks/install", "#!/bin/sh\n")):
        program = tmp_path / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(said)
        program.chmod(0o755)
    words = (
        sys.executable,
        "-c",
        DEAF_NO_MORE,
        "make",
        target,
        f"PYTHON={tmp_path / 'python'}",
        f"BIN={tmp_path}",
        "STACK=own",
    )
    running = subprocess.Popen(words, cwd=tmp_path, start_new_session=True, stdout=subprocess.DEVNULL)
    try:
        for each in ("under-way", "stopping"):
            eventually((tmp_path / each).exists, each)
            os.killpg(running.pid, number)  # the second one is of somebody impatient
        (tmp_path / "seen").touch()
        eventually((tmp_path / "down").exists, "it is down")
        assert re.search(r"down --home own-\w+$", (tmp_path / "down").read_text())
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
        running.wait(20)
