"""The unit of docs/deploying.md fits the program that it starts."""

import re
import shlex
from configparser import ConfigParser
from pathlib import Path

from feedstore.http.settings import HttpSettings
from feedstore.replicas.settings import ServingSettings
from tests.documents.test_commands import taken
from workers.app import metrics, writer_process
from workers.cli.session import USAGE

PAGE = (Path(__file__).parents[2] / "docs" / "deploying.md").read_text(encoding="utf-8")


def unit() -> ConfigParser:
    parser = ConfigParser(interpolation=None, strict=False)
    parser.read_string(PAGE.partition("```ini\n")[2].partition("```")[0])
    return parser


def test_it_waits_for_the_end_and_leaves_a_misconfigured_process_alone() -> None:
    service = unit()["Service"]
    serves_ms = HttpSettings().patience_ms + HttpSettings().drain_ms + ServingSettings().deadline_ms
    assert int(service["TimeoutStopSec"]) > max(writer_process._END_S, serves_ms / 1_000)
    assert int(service["RestartPreventExitStatus"]) == USAGE


def test_each_process_has_a_command_that_is_taken() -> None:
    commands = [shlex.split(each) for each in re.findall(r"^(?:\| .*`)?COMMAND=([^`\n]+)", PAGE, re.MULTILINE)]
    assert {words[0] for words in commands} == {"relay", "expand", "write", "serve", "work"}
    for words in commands:
        taken(words)


def test_the_metrics_that_it_names_are_there() -> None:
    named = set(re.findall(r"\bfeed_[a-z_]+\b", PAGE))
    assert named
    assert named <= {each.name for each in metrics.ALL}
