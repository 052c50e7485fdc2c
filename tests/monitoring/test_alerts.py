"""The alert rules: what they name is there, each has its runbook page, and promtool says what fires when."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy import monitoring
from workers.app.metrics import ALL

PROJECT = Path(__file__).resolve().parents[2]
RUNBOOKS = PROJECT / "docs" / "runbooks" / "alerts"
TESTS = Path(__file__).with_name("alerts.test.yml")
SECTIONS = ["What it says", "What to do", "How to check that it is over", "What not to do"]
OF_TARGETS = {"home", "program", "job", "instance"}
DEFINED = {each.name: {label.name: label for label in each.labels} for each in ALL}


def alerts() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(monitoring.RULES.read_text(encoding="utf-8"))["groups"]
    return list(group["rules"])


ALERTS = {each["alert"]: each for each in alerts()}
FILES = {name: Path(rule["annotations"]["runbook"]) for name, rule in ALERTS.items()}


def test_an_expression_names_metrics_and_labels_that_are_defined() -> None:
    for name, rule in ALERTS.items():
        expression = rule["expr"]
        named = set(re.findall(r"\bfeed_[a-z_0-9]+", expression))
        assert named <= set(DEFINED), name
        labels = {label for metric in named for label in DEFINED[metric]} | OF_TARGETS
        grouped = {word for group in re.findall(r"\b(?:by|on) \(([^)]*)\)", expression) for word in group.split(", ")}
        assert grouped <= labels, name
        for metric, matchers in re.findall(r"\b(feed_[a-z_0-9]+)\{([^}]*)\}", expression):
            for label, operator, value in re.findall(r'(\w+)(=~|=)"([^"]*)"', matchers):
                assert label in DEFINED[metric].keys() | OF_TARGETS, name
                values = DEFINED[metric][label].values if label in DEFINED[metric] else ()
                assert not values or operator != "=" or value in values, f"{name}: {label}={value}"


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_says_how_bad_it_is_and_has_a_page_that_says_what_to_do(name: str) -> None:
    rule = ALERTS[name]
    assert rule["labels"] in ({"severity": "page"}, {"severity": "ticket"})
    assert set(rule["annotations"]) == {"summary", "runbook"}
    page = PROJECT / FILES[name]
    assert page.parent == RUNBOOKS
    text = page.read_text(encoding="utf-8")
    assert f"`{name}`" in text
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == SECTIONS
    assert f"(alerts/{page.name})" in (RUNBOOKS.parent / "README.md").read_text(encoding="utf-8")


def test_each_page_is_that_of_one_alert() -> None:
    assert sorted(RUNBOOKS.glob("*.md")) == sorted(PROJECT / each for each in FILES.values())


def test_each_alert_has_a_case_in_which_it_fires() -> None:
    fires = set(re.findall(r'alertname="(\w+)"', TESTS.read_text(encoding="utf-8")))
    assert fires == set(ALERTS)


def promtool(*words: str | Path) -> None:
    program = shutil.which("promtool")
    assert program is not None, "promtool is not installed: `make test-rules` installs it"
    done = subprocess.run([program, *words], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.promtool
def test_the_rules_fire_and_are_silent_as_their_cases_say(tmp_path: Path) -> None:
    promtool("check", "rules", monitoring.RULES)
    shutil.copy(monitoring.RULES, tmp_path)
    shutil.copy(TESTS, tmp_path)
    promtool("test", "rules", tmp_path / TESTS.name)


@pytest.mark.promtool
def test_prometheus_takes_the_configuration_that_stacks_give_it(tmp_path: Path) -> None:
    text = monitoring.prometheus_yml([f"{tmp_path}/*.json"])
    assert json.loads(text)["scrape_configs"]
    path = tmp_path / "prometheus.yml"
    path.write_text(text, encoding="utf-8")
    promtool("check", "config", path)
