"""The section [traces] of the configuration."""

from typing import Annotated

from msgspec import Meta

from feedstore.settings import Section
from feedstore.validation import words


class TracesSettings(Section, frozen=True):
    """endpoint: where spans are sent in OTLP over HTTP, with its path; None: traces are off. sample: the share of
    requests that are recorded, unless the client has decided that. Secrets for a receiver are in the environment, in
    OpenTelemetry's variable OTEL_EXPORTER_OTLP_HEADERS.
    """

    endpoint: (
        Annotated[
            str, Meta(pattern=r"^https?://[^\s/@]+/\S*\Z", extra=words("http://HOST:PORT/PATH, without a password"))
        ]
        | None
    ) = None
    sample: Annotated[float, Meta(ge=0, le=1)] = 0.01
