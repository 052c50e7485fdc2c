"""Makes the dashboard, `dashboard.json`, for Grafana: the site's plots, a panel for each metric of our processes, and
one for each of HBase's and Kafka's servers. Also writes docs/server-metrics.md, which lists the latter.

python -m deploy.monitoring.dashboard            # writes both
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from deploy import monitoring
from deploy.monitoring import servers
from deploy.monitoring.servers import ServerMetric
from feedstore.metering import Definition
from feedstore.metering.plots import Growth, Largest, Quantile, Reading, query
from workers.app.metrics import SECTIONS
from workers.app.plots import PLOTS

FILE: Final = Path(__file__).with_name("dashboard.json")
COLUMNS: Final = 24
_WIDTH, _HEIGHT = 8, 7
_SOURCE: Final = {"type": "prometheus", "uid": "${source}"}
_MATCHING: Final = 'home="$home"'
_WINDOW: Final = "$__rate_interval"
_UNITS: Final = {"seconds": "s", "bytes": "bytes"}
_NO_PANEL: Final = {"feed_build_info"}
"""Its value is always 1."""
_SIGNED: Final = {"feed_clock_offset_seconds"}
"""Also below 0: the largest value of several processes would hide that."""
_LEAST: Final = {
    "feed_cluster_behind_seconds",
    "feed_cluster_breaker_open",
    "feed_cluster_parts_answer",
    "feed_store_free_bytes",
}
"""The alerts take the smallest value of several processes, and so do these panels."""


def dashboard() -> dict[str, Any]:
    """As Grafana imports it."""
    return {
        "title": "feedstore",
        "uid": "feedstore",
        "schemaVersion": 39,
        "time": {"from": "now-1h", "to": "now"},
        "refresh": "10s",
        "timezone": "browser",
        "templating": {
            "list": [
                {"name": "source", "label": "Source", "type": "datasource", "query": "prometheus"},
                {
                    "name": "home",
                    "label": "Home",
                    "type": "query",
                    "datasource": _SOURCE,
                    "query": "label_values(feed_build_info, home)",
                    "refresh": 2,
                },
            ]
        },
        "panels": list(_panels()),
    }


def text() -> str:
    return json.dumps(dashboard(), indent=1) + "\n"


def _panels() -> Iterator[dict[str, Any]]:
    number, top = 1, 0
    first = [
        (plot.title, plot.says, plot.unit, [(_asked(reading), _legend(reading)) for reading in plot.readings])
        for plot in PLOTS
    ]
    rows = [("The last hour", first)]
    rows += [
        (title, [_of(each) for each in definitions if each.name not in _NO_PANEL]) for title, definitions in SECTIONS
    ]
    rows += [(title, list(_of_servers(metrics))) for title, metrics in servers.SECTIONS]
    for title, panels in rows:
        yield {"id": number, "type": "row", "title": title, "gridPos": {"x": 0, "y": top, "w": COLUMNS, "h": 1}}
        number, top = number + 1, top + 1
        width = COLUMNS // len(panels) if title == rows[0][0] else _WIDTH
        for at, (name, says, unit, asked) in enumerate(panels):
            place = {"x": at * width % COLUMNS, "y": top + at * width // COLUMNS * _HEIGHT, "w": width, "h": _HEIGHT}
            yield {
                "id": number,
                "type": "timeseries",
                "title": name,
                "description": says,
                "datasource": _SOURCE,
                "gridPos": place,
                "fieldConfig": {
                    "defaults": {"unit": _UNITS.get(unit, "short")} | ({} if name in _SIGNED else {"min": 0}),
                    "overrides": [],
                },
                "options": {"tooltip": {"mode": "multi"}},
                "targets": [
                    {"refId": chr(ord("A") + place), "datasource": _SOURCE, "expr": expression, "legendFormat": legend}
                    for place, (expression, legend) in enumerate(asked)
                ],
            }
            number += 1
        top += -(-len(panels) * width // COLUMNS) * _HEIGHT


def _asked(reading: Reading) -> str:
    return query(reading, _MATCHING, _WINDOW)


def _legend(reading: Reading) -> str:
    return f"{{{{{reading.by}}}}}" + (f" p{100 * reading.q:g}" if isinstance(reading, Quantile) else "")


def _of(definition: Definition) -> tuple[str, str, str, list[tuple[str, str]]]:
    """The panel of a metric, by all of its labels."""
    labels = [*(["instance"] if definition.name in _SIGNED else []), *(label.name for label in definition.labels)]
    by = ", ".join(labels)
    legend = " ".join(f"{{{{{label}}}}}" for label in labels) or definition.name
    readings: list[tuple[Reading, str]]
    match definition.kind:
        case "gauge" if definition.name in _LEAST:
            least = f"min by ({by}) ({definition.name}{{{_MATCHING}}})"
            return definition.name, definition.help, definition.unit, [(least, legend)]
        case "gauge":
            readings = [(Largest(definition, by), legend)]
        case "counter":
            readings = [(Growth(definition, by), legend)]
        case "histogram":
            readings = [(Quantile(definition, by, q), f"{legend} p{100 * q:g}") for q in (0.5, 0.99)]
        case "summary":
            braces = f"{{{_MATCHING}}}[{_WINDOW}]"
            mean = f"rate({definition.name}_sum{braces}) / rate({definition.name}_count{braces})"
            return definition.name, definition.help, definition.unit, [(mean, legend)]
    unit = definition.unit if definition.kind != "counter" else ""
    return definition.name, definition.help, unit, [(_asked(reading), said) for reading, said in readings]


def _of_servers(metrics: Sequence[ServerMetric]) -> Iterator[tuple[str, str, str, list[tuple[str, str]]]]:
    """A panel for each name, by server and by its own labels."""
    named: dict[str, list[ServerMetric]] = {}
    for each in metrics:
        named.setdefault(each.name, []).append(each)
    for name, (first, *_) in named.items():
        by = ["server", *first.labels]
        legend = " ".join(f"{{{{{label}}}}}" for label in by)
        matching = f'job="{monitoring.SERVERS_JOB}"'
        asked = f"rate({name}{{{matching}}}[{_WINDOW}])" if first.kind == "counter" else f"{name}{{{matching}}}"
        unit = next((each for each in ("seconds", "bytes") if first.kind == "gauge" and name.endswith(each)), "")
        yield name, first.help, unit, [(f"sum by ({', '.join(by)}) ({asked})", legend)]


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
    servers.PAGE.write_text(servers.page(), encoding="utf-8")
