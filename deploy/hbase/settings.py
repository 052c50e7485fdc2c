"""Site files: the settings of this folder and those that only a layout knows, as one file for each process.

A process reads `core-site.xml`, `hdfs-site.xml` and `hbase-site.xml`. `deploy/hbase` holds each of them for all
processes, and `hdfs-site.KIND.xml` and `hbase-site.KIND.xml` for some. A later layer overrides an earlier one.

There are two sets of settings. `tuned` has all of them. `defaults` is there to be compared with it: it has only the
settings with the tag `layout`, without which three hosts in containers do not work at all. Everything else is as Hadoop
and HBase have it.
"""

import xml.etree.ElementTree as ET
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from xml.sax.saxutils import escape

TUNED = Path(__file__).resolve().parent
LAYOUT = "layout"
"""The `<tag>` of a setting without which the layout does not work. To Hadoop a tag of this name means nothing."""

Set = Literal["tuned", "defaults"]


@dataclass(frozen=True)
class Setting:
    """A setting that differs from its default. why: the default, and the reason to differ from it. is_of_layout: it is
    not there for speed or recovery; the servers need it here.
    """

    name: str
    value: str
    why: str
    is_of_layout: bool


def read(name: str) -> list[Setting]:
    """The settings of a file of `deploy/hbase`, in its order.

    Raises OSError, ValueError: there is no such file, or it is not one of Hadoop's configuration files.
    """
    try:
        # The file is ours, next to this one in the repository and in the image.
        root = ET.parse(TUNED / name).getroot()  # noqa: S314
    except ET.ParseError as error:
        raise ValueError(f"{TUNED / name}: {error}") from error
    return [
        Setting(_text(item, "name"), _text(item, "value"), _text(item, "description"), _text(item, "tag") == LAYOUT)
        for item in root.iter("property")
    ]


def layers(*names: str, own: Mapping[str, str], of: Set = "tuned") -> dict[str, str]:
    """The settings of several files, as far as they belong to a set, the later ones over the earlier ones, and `own`
    over all of them.
    """
    settings = (each for name in names for each in read(name) if of == "tuned" or each.is_of_layout)
    return {**{each.name: each.value for each in settings}, **own}


def site_xml(values: Mapping[str, str]) -> str:
    """A Hadoop configuration file."""
    properties = "".join(
        f"  <property><name>{escape(name)}</name><value>{escape(value)}</value></property>\n"
        for name, value in values.items()
    )
    return f'<?xml version="1.0"?>\n<configuration>\n{properties}</configuration>\n'


def _text(item: ET.Element, tag: str) -> str:
    return (item.findtext(tag) or "").strip()
