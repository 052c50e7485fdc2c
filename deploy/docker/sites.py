"""Site files: the tuned settings of `deploy/hbase`, and what only this layout knows, as one file for each process.

A process reads `core-site.xml`, `hdfs-site.xml` and `hbase-site.xml`. `deploy/hbase` holds each of them for everybody,
and `hdfs-site.KIND.xml` and `hbase-site.KIND.xml` for some: a later layer overrides an earlier one.
"""

import xml.etree.ElementTree as ET
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

TUNED = Path(__file__).resolve().parents[1] / "hbase"


@dataclass(frozen=True)
class Setting:
    """A tuned setting. why: its default, and the reason to differ from it."""

    name: str
    value: str
    why: str


def read(name: str) -> list[Setting]:
    """The settings of a file of `deploy/hbase`, in its order.

    Raises:
        OSError, ValueError: there is no such file, or it is not one of Hadoop's configuration files.
    """
    try:
        # The file is ours, beside this one in the repository and in the image.
        root = ET.parse(TUNED / name).getroot()  # noqa: S314
    except ET.ParseError as error:
        raise ValueError(f"{TUNED / name}: {error}") from error
    return [Setting(*(_text(item, tag) for tag in ("name", "value", "description"))) for item in root.iter("property")]


def layers(*names: str, own: Mapping[str, str]) -> dict[str, str]:
    """The settings of several files, the later ones over the earlier ones, and `own` over all of them."""
    return {**{each.name: each.value for name in names for each in read(name)}, **own}


def _text(item: ET.Element, tag: str) -> str:
    return (item.findtext(tag) or "").strip()
