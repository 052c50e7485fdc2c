"""The section [traces] of the configuration."""

from typing import Annotated

import msgspec
from msgspec import Meta

from feedstore.validation import words


class TracesSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """endpoint: where spans are sent in OTLP over HTTP, with its path; None: traces are off. sample: the share of
    requests that are recorded, of those whose client has not decided that. Secrets that a receiver asks for are in the
    environment, as OpenTelemetry has them (OTEL_EXPORTER_OTLP_HEADERS).
    """

    endpoint: (
        Annotated[
            str, Meta(pattern=r"^https?://[^\s/@]+/\S*\Z", extra=words("http://HOST:PORT/PATH, without a password"))
        ]
        | None
    ) = None
    sample: Annotated[float, Meta(ge=0, le=1)] = 0.01
