"""What watches the system: the alert rules, the dashboard, and the configuration of a Prometheus that has both.

It needs nothing but the standard library: a stack is started before anything is installed.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

RULES: Final = Path(__file__).with_name("alerts.yml")
"""The alert rules, as Prometheus reads them."""
EVERY_S: Final = 5
"""How often targets are scraped and rules evaluated: an alert with `for: 20s` fires within half a minute."""


def prometheus_yml(rules: str, targets: Sequence[str]) -> str:
    """The configuration of a Prometheus. rules: the path of its rules; targets: patterns of files that name targets
    (`file_sd`), read again when they change. JSON is YAML.
    """
    return json.dumps(
        {
            "global": {"scrape_interval": f"{EVERY_S}s", "evaluation_interval": f"{EVERY_S}s"},
            "rule_files": [rules],
            "scrape_configs": [
                {
                    "job_name": "feedstore",
                    "scrape_timeout": f"{EVERY_S - 1}s",
                    "file_sd_configs": [{"files": list(targets), "refresh_interval": "5s"}],
                }
            ],
        },
        indent=2,
    )
