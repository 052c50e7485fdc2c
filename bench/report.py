"""Writes what was measured: results.json, a Markdown table, and a plot."""

import json
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from pathlib import Path
from typing import Any

from bench.results import Row

TABLE = "results.md"


def machine() -> dict[str, Any]:
    """What the numbers depend on."""
    model = "unknown"
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line.split(":", 1)[1].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line]
        model = names[0] if names else model
    return {
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _first_line(["git", "describe", "--always", "--dirty", "--abbrev=12"]),
        "processor": model,
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "load_average": os.getloadavg(),
        "system": platform.platform(terse=True),
        "python": platform.python_version(),
        "redis_server": _first_line(["redis-server", "--version"]),
        **{package: _version(package) for package in ("rocksdict", "redis", "msgspec")},
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _first_line(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return done.stdout.partition("\n")[0].strip()


def write(out: Path, taken: Mapping[str, Sequence[Row]], about: dict[str, Any]) -> None:
    """taken: the rows of each measurement."""
    out.mkdir(parents=True, exist_ok=True)
    as_json = [{"measurement": name, **_as_json(row)} for name, rows in taken.items() for row in rows]
    (out / "results.json").write_text(json.dumps({**about, "rows": as_json}, indent=2) + "\n")
    rows = list(chain.from_iterable(taken.values()))
    (out / TABLE).write_text(markdown(rows, about))
    plot(out / "results.png", rows)


def _as_json(row: Row) -> dict[str, Any]:
    return {
        "what": row.what,
        "unit": row.unit,
        "samples": list(row.samples),
        "reached": row.reached,
        "target": f"{row.target.kind} {row.target.value:g}" if row.target else None,
        "verdict": row.verdict or None,
        "note": row.note or None,
    }


def markdown(rows: Sequence[Row], about: dict[str, Any]) -> str:
    lines = [
        "| What | Target | Reached (median) | Min .. max | |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        bound = (
            f"{'<=' if row.target.kind == 'at most' else '>='} {number(row.target.value, row.unit)}"
            if row.target
            else ""
        )
        reached = "" if row.reached is None else f"**{number(row.reached, row.unit)}**"
        spread = f"{number(min(row.samples), row.unit)} .. {number(max(row.samples), row.unit)}" if row.samples else ""
        what = f"{row.what} ({row.note})" if row.note else row.what
        lines.append(f"| {what} | {bound} | {reached} | {spread} | {row.verdict} |")
    options = about.get("options", {})
    footer = (
        f"{about['processor']}, {about['cores']} cores; Python {about['python']}; rocksdict {about['rocksdict']}; "
        f"{about['redis_server']}; redis-py {about['redis']}. Commit {about['commit']}, {about['measured_at']}, "
        f"{options.get('actions', '?')} actions, {options.get('repeats', '?')} repeats. "
        "Each ratio comes from pairs taken in turn in one run; medians, with the smallest and largest sample."
    )
    if options.get("quick"):
        footer = f"Quick: shows that it runs, and its numbers mean nothing. {footer}"
    return "\n".join([*lines, "", footer, ""])


def number(value: float, unit: str) -> str:
    shown = f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.3g}"
    return f"{shown} {unit}".strip()


def plot(path: Path, rows: Sequence[Row]) -> None:
    """How much of its bound each row with a target uses up, on a logarithmic axis: left of the line is met."""
    from matplotlib.figure import Figure  # noqa: PLC0415  # slow to import, and needed only here

    bounded = [row for row in rows if row.target and row.samples and min(row.samples) > 0][::-1]
    figure = Figure(figsize=(10, 1.2 + 0.45 * max(1, len(bounded))), layout="constrained")
    axes = figure.subplots()
    for place, row in enumerate(bounded):
        assert row.target
        assert row.reached
        shares = sorted(row.target.share(sample) for sample in row.samples)
        middle = row.target.share(row.reached)
        met = row.verdict == "met"
        axes.barh(place, middle, color="#2a7f62" if met else "#c8553d", height=0.6)
        axes.errorbar(
            middle, place, xerr=[[middle - shares[0]], [shares[-1] - middle]], color="black", capsize=3, linewidth=1
        )
        axes.annotate(
            number(row.reached, row.unit),
            (shares[-1], place),
            (6, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
        )
    axes.axvline(1.0, color="black", linewidth=1)
    axes.set_yticks(range(len(bounded)), [row.what for row in bounded], fontsize=8)
    axes.set_xscale("log")
    axes.margins(x=0.15)
    axes.set_xlabel("share of the bound that is used (log); 1 is the target, less is better")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.savefig(path, dpi=150)
