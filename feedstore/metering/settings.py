"""The section [metrics] of the configuration."""

from typing import Annotated, Final

from msgspec import Meta

from feedstore.errors import ConfigError
from feedstore.settings import Section
from feedstore.validation import words

_ADDRESS: Final = "HOST:PORT or PORT, such as 127.0.0.1:9464"


def split(address: str) -> tuple[str, int]:
    """Host and port of HOST:PORT, [IPv6]:PORT or PORT; PORT alone is on this machine's loopback. Raises ConfigError."""
    host, _, port = address.rpartition(":")
    if not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise ConfigError(f"expected {_ADDRESS}, got {address!r}")
    return host.removeprefix("[").removesuffix("]") or "127.0.0.1", int(port)


class MetricsSettings(Section, frozen=True):
    """listen: where a worker serves its metrics, HOST:PORT or PORT; None: nowhere. targets: a directory in which each
    process that serves metrics is named for a Prometheus of this machine. prometheus: http://HOST:PORT of one that
    scrapes all processes; the plots of the last hour come from it.
    """

    listen: (
        Annotated[
            str,
            Meta(
                pattern=r"^(([^\s:\[\]]+|\[[0-9A-Fa-f:.]+\])?:)?"
                r"([0-9]{1,4}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])\Z",
                extra=words(_ADDRESS),
            ),
        ]
        | None
    ) = None
    targets: str | None = None
    prometheus: (
        Annotated[str, Meta(pattern=r"^https?://[^\s/@]+\Z", extra=words("http://HOST:PORT, without a password"))]
        | None
    ) = None
