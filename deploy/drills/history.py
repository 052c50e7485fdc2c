"""Where runs are kept: for each a report, the samples of its load, a page and a picture, all of one name."""

import gzip
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from deploy.drills import plot
from deploy.drills.page import markdown
from deploy.drills.report import VERSION, DrillRun, Report
from deploy.drills.samples import CallSample

SAMPLES_MAX = 200_000
"""The most samples that are kept of a run: every call that failed, and an even selection of the others."""

_SAMPLES = ".samples.jsonl.gz"


class HistoryError(Exception):
    """A file that was named is no report, or cannot be read; the message says which one."""


class Kept(NamedTuple):
    """path: of the report; the other files of the run are next to it."""

    path: Path
    report: Report


def prepare(folder: Path) -> None:
    """Makes the folder. Raises OSError: it cannot be made, or nothing can be written there."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        pass


def keep(folder: Path, run: DrillRun, say: Callable[[str], None]) -> Path:
    """Writes the files of a run, and returns where its page is. The report is there before anything that may fail."""
    setting = run.report.setting
    moment = setting.started_at.replace(":", "").replace("+0000", "Z")
    path = folder / f"{setting.drill}-{moment}-{setting.seed}.json"
    folder.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(run.report), indent=1))
    _write_samples(path.with_suffix(_SAMPLES), run.samples)
    picture = draw(Kept(path, run.report), run.samples, say)
    page = path.with_suffix(".md")
    page.write_text(markdown(run.report, picture), encoding="utf-8")
    return page


def draw(kept: Kept, samples: Sequence[CallSample], say: Callable[[str], None]) -> str:
    """Writes the picture of a run, and returns its name; empty if it cannot be drawn, and `say` is told why."""
    path = kept.path.with_suffix(".png")
    try:
        plot.draw(kept.report, samples, path)
    except Exception as error:  # noqa: BLE001 - whatever it is, what the drill found must not be lost for a picture
        say(f"no picture (the extra drills draws it): {type(error).__name__}: {error}")
        return ""
    return path.name


def load(path: Path, say: Callable[[str], None]) -> list[Kept]:
    """A report, or those of a folder in the order of time; `say` is told which files of a folder are no reports of this
    version.

    Raises HistoryError: there is nothing there, or the one file named is no report.
    """
    if not path.is_dir():
        return [_load(path)]
    found = []
    for each in sorted(path.glob("*.json")):
        try:
            found.append(_load(each))
        except HistoryError as error:
            say(str(error))
    return sorted(found, key=lambda kept: (kept.report.setting.started_at, kept.path.name))


def samples_of(kept: Kept) -> list[CallSample]:
    """Raises HistoryError."""
    path = kept.path.with_suffix(_SAMPLES)
    try:
        with gzip.open(path, "rb") as file:
            return [CallSample(*each) for each in msgspec.json.Decoder().decode_lines(file.read())]
    except (OSError, EOFError, TypeError, msgspec.DecodeError) as error:
        raise HistoryError(f"{path}: the samples of the run cannot be read: {error}") from error


def thinned(samples: Sequence[CallSample], most: int = SAMPLES_MAX) -> list[CallSample]:
    """At most about `most` samples, in their order; no call that failed is left out."""
    failed = sum(not each.is_done for each in samples)
    every = max(1, -(-(len(samples) - failed) // max(1, most - failed)))
    kept = []
    done = 0
    for each in samples:
        if not each.is_done or done % every == 0:
            kept.append(each)
        done += each.is_done
    return kept


def _load(path: Path) -> Kept:
    try:
        text = path.read_bytes()
        version = msgspec.json.decode(text, type=_Versioned).version
        if version != VERSION:
            raise HistoryError(
                f"{path}: a report of version {version}; this reads version {VERSION}: run the drill again"
            )
        return Kept(path, msgspec.json.decode(text, type=Report))
    except OSError as error:
        raise HistoryError(f"{path}: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise HistoryError(f"{path}: no report of a drill: {error}") from error


class _Versioned(msgspec.Struct):
    version: int


def _write_samples(path: Path, samples: Sequence[CallSample]) -> None:
    """Writes a line for each sample, as a list of its fields; times to a tenth of a millisecond."""
    lines: Iterable[object] = (
        (kind, caller, round(began_s, 4), round(took_s, 4), is_done, detail)
        for kind, caller, began_s, took_s, is_done, detail in thinned(samples)
    )
    path.write_bytes(gzip.compress(msgspec.json.Encoder().encode_lines(lines)))
