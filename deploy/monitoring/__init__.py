"""The monitoring of the system: the alert rules, the dashboard, and the configuration of a Prometheus that has both.

It needs nothing but the standard library: a stack is started before anything is installed.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

RULES: Final = Path(__file__).with_name("alerts.yml")
"""The alert rules, as Prometheus reads them."""
EVERY_S: Final = 5
"""How often targets are scraped and rules evaluated: an alert with `for: 20s` fires within half a minute."""
SERVERS_EVERY_S: Final = 15
"""How often HBase's servers and Kafka's brokers are scraped: no rule waits for their metrics."""
JOB, SERVERS_JOB = "feedstore", "servers"


@dataclass(frozen=True)
class Target:
    """address: HOST:PORT. labels: of all that is scraped there."""

    address: str
    labels: Mapping[str, str]

    @property
    def entry(self) -> dict[str, Any]:
        """As Prometheus' `static_configs` have it."""
        return {"targets": [self.address], "labels": dict(self.labels)}


def prometheus_yml(
    files: Sequence[str] = (),
    *,
    processes: Sequence[Target] = (),
    servers: Sequence[Target] = (),
    token_file: str | None = None,
) -> str:
    """The configuration of a Prometheus with our RULES. JSON is YAML.

    files: patterns of files that name processes of ours (`file_sd`), read again when they
    change. processes: those that are always the same. servers: of HBase and Kafka. token_file: has the token that the
    processes ask for.
    """
    own: dict[str, Any] = {"job_name": JOB, "scrape_timeout": f"{EVERY_S - 1}s"}
    if files:
        own["file_sd_configs"] = [{"files": list(files), "refresh_interval": "5s"}]
    if processes:
        own["static_configs"] = [each.entry for each in processes]
    if token_file is not None:
        own["authorization"] = {"credentials_file": token_file}
    theirs = {
        "job_name": SERVERS_JOB,
        "scrape_interval": f"{SERVERS_EVERY_S}s",
        "scrape_timeout": f"{SERVERS_EVERY_S - 1}s",
        "static_configs": [each.entry for each in servers],
    }
    return json.dumps(
        {
            "global": {"scrape_interval": f"{EVERY_S}s", "evaluation_interval": f"{EVERY_S}s"},
            "rule_files": [str(RULES)],
            "scrape_configs": [own, theirs],
        },
        indent=2,
    )
