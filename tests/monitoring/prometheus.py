"""What the Prometheus of a local stack answers."""

import json
import urllib.parse
import urllib.request
from typing import Any

from deploy.local import Stack


def asked(stack: Stack, path: str, **arguments: str) -> Any:
    """path: of its HTTP API, such as `query`."""
    url = f"http://127.0.0.1:{stack.port('prometheus')}/api/v1/{path}?{urllib.parse.urlencode(arguments)}"
    with urllib.request.urlopen(url, timeout=30) as answer:
        return json.load(answer)["data"]


def values(stack: Stack, expression: str) -> list[Any]:
    """The samples of an expression, each with its `metric` and its `value`: the time, and the number as a text."""
    found: list[Any] = asked(stack, "query", query=expression)["result"]
    return found


def change(kind: str, series: str) -> str:
    """An expression: by how much a metric of a kind has changed over a range. A counter begins at 0: its first sample
    is a change, too.
    """
    return f"max_over_time({series})" + (f" - min_over_time({series})" if kind == "gauge" else "")
