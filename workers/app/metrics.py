"""All metrics of all processes, and the page that lists them (docs/metrics.md)."""

from collections.abc import Iterator, Sequence
from typing import Final

from feedstore.boards import metrics as of_boards
from feedstore.catalog import metrics as of_catalogs
from feedstore.following import metrics as of_reads
from feedstore.follows import metrics as of_follows
from feedstore.http import metrics as of_requests
from feedstore.metering import WORKERS, Definition, Label, definitions_of
from feedstore.metering import metrics as of_processes
from feedstore.widecolumn import metrics as of_clusters
from workers.boards import metrics as of_respacing
from workers.following import metrics as of_feeds
from workers.pipeline import metrics as of_stages
from workers.queue import metrics as of_queues

SECTIONS: Final[tuple[tuple[str, Sequence[Definition]], ...]] = (
    ("Feeds on their way", definitions_of(of_feeds)),
    ("Stages, relays and loops", definitions_of(of_stages)),
    ("The queue", definitions_of(of_queues)),
    ("Calls to clusters", definitions_of(of_clusters)),
    ("The follow store", definitions_of(of_follows)),
    ("Reads, replicas and groups", definitions_of(of_reads)),
    ("Requests", definitions_of(of_requests)),
    ("Boards", (*definitions_of(of_boards), *definitions_of(of_respacing))),
    ("Catalogs", definitions_of(of_catalogs)),
    ("Processes", definitions_of(of_processes)),
)
ALL: Final[tuple[Definition, ...]] = tuple(each for _, definitions in SECTIONS for each in definitions)
"""The list from which metrics are served, docs/metrics.md is written, and rules and dashboards are checked."""

_HEAD: Final = """\
# Metrics

Every metric of every process, for people who write rules and dashboards. `make schemas` writes this page from the
code: do not edit it. How to have them served: [operating.md](operating.md#metrics).

Names do not change from the first release on. Counters count from the start of each process. What is unknown has no
sample: ask for `absent(...)` where that matters. Several processes may say the same of a group or a cluster: take the
`max by (group)`. The column *by* names the commands that serve a metric (`worker`: `work`, `relay`, `expand` and
`write`; `work` does what the other three do apart). A `serve` that is the worker of its home serves those of `work`,
too.
"""


def page() -> str:
    """The text of docs/metrics.md."""
    return "\n".join([_HEAD, *(_section(title, definitions) for title, definitions in SECTIONS), _labels()])


def _section(title: str, definitions: Sequence[Definition]) -> str:
    rows = "\n".join(
        f"| `{each.name}` | {each.kind} | {', '.join(f'`{label.name}`' for label in each.labels)} | {each.help} |"
        f" {_by(each)} | `{each.where}` |"
        for each in definitions
    )
    return f"## {title}\n| metric | kind | labels | meaning | by | counted in |\n|---|---|---|---|---|---|\n{rows}\n"


def _by(definition: Definition) -> str:
    by: list[str] = list(definition.by)
    if set(WORKERS) <= set(by):
        by = [*(each for each in by if each == "serve"), "worker"]
    return ", ".join(by)


def _labels() -> str:
    rows = "\n".join(f"| `{name}` | {metrics} | {values} |" for name, metrics, values in _label_rows())
    return f"## Labels\nAll values that each can have.\n\n| label | of | values |\n|---|---|---|\n{rows}\n"


def _label_rows() -> Iterator[tuple[str, str, str]]:
    found: dict[Label, list[str]] = {}
    for definition in ALL:
        for label in definition.labels:
            found.setdefault(label, []).append(definition.name)
    several = {name for name in (label.name for label in found) if sum(each.name == name for each in found) > 1}
    for label, names in sorted(found.items(), key=lambda each: each[0].name):
        values = label.of or ", ".join(f"`{value}`" for value in label.values)
        yield label.name, ", ".join(f"`{name}`" for name in names) if label.name in several else "all", values
