"""Where a Kafka cluster is and how to speak to it: `kafka://host:port,host:port?security=SASL_SSL&...`.

The url is in `feed.toml`, so it may hold no secret: the SASL password comes from a file that the url names or
from FEED_KAFKA_PASSWORD, the password of a client key from FEED_KAFKA_KEY_PASSWORD.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from feedstore.validation import without_login
from workers.queue.kafka.reconnecting import DIRECT, WaitingClient

PASSWORD = "FEED_KAFKA_PASSWORD"  # noqa: S105 - the name of a variable
KEY_PASSWORD = "FEED_KAFKA_KEY_PASSWORD"  # noqa: S105 - the name of a variable

MAX_POLL_INTERVAL_MS: Final = 300_000

_SECURITY = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_POLL_INTERVAL = "max_poll_interval_ms"
_FILES = ("ca", "cert", "key")
_LOGIN = ("mechanism", "user", "password_file")
_KEYS = ("security", *_LOGIN, *_FILES, "prefix", _POLL_INTERVAL)
_SERVER = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})")
_PREFIX = re.compile(r"[A-Za-z0-9._-]{0,100}")
_NUMBER = re.compile(r"[0-9]{1,9}")
_LEAST_POLL_INTERVAL_MS, _MOST_POLL_INTERVAL_MS = 1_000, 86_400_000


@dataclass(frozen=True)
class KafkaAddress:
    """A Kafka cluster, as a client needs it.

    servers: `host:port` of some brokers, which are asked for all others.
    security: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL; certificates and host names are always checked.
    mechanism, user, password: SASL's. ca: a file of authorities that sign the brokers' certificates, if not the
    system's.
    cert, key, key_password: this client's certificate and its key.
    prefix: precedes the name of every topic and every group, so that several systems can share a cluster.
    max_poll_interval_ms: if a member's thread does not call the client for longer, its partitions move to other
    members.
    """

    servers: tuple[str, ...]
    security: str = "PLAINTEXT"
    mechanism: str | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    key_password: str | None = field(default=None, repr=False)
    prefix: str = ""
    max_poll_interval_ms: int = MAX_POLL_INTERVAL_MS

    def __post_init__(self) -> None:
        if not self.servers:
            raise ValueError("kafka: expected at least one host:port")
        _one_of("security", self.security, _SECURITY)
        if self.security.startswith("SASL"):
            _one_of("mechanism", self.mechanism, _MECHANISMS)
            if not self.user:
                raise ValueError("kafka: user: SASL needs one")
            if not self.password:
                raise ValueError(f"kafka: SASL needs a password, from password_file or {PASSWORD}")
        if not _PREFIX.fullmatch(self.prefix):
            raise ValueError(f"kafka: prefix: expected letters, digits, '.', '_' and '-', got {self.prefix!r}")
        least, interval, most = _LEAST_POLL_INTERVAL_MS, self.max_poll_interval_ms, _MOST_POLL_INTERVAL_MS
        if not least <= interval <= most:
            raise ValueError(f"kafka: {_POLL_INTERVAL}: expected {least} .. {most}, got {interval}")

    def __str__(self) -> str:
        return f"kafka://{','.join(self.servers)}"

    def named(self, name: str) -> str:
        """The name of a topic or group as the cluster knows it."""
        return self.prefix + name

    def group(self, topic: str, group: str) -> str:
        """The name of a consumer group. A group on another topic is another group."""
        return self.named(f"{group}.{topic}")

    def options(self) -> dict[str, object]:
        """The options of every client of kafka-python."""
        options: dict[str, object] = {
            "bootstrap_servers": list(self.servers),
            "client_id": "feedstore",
            "kafka_client": WaitingClient,
            "proxy_url": f"{DIRECT}://",
            "security_protocol": self.security,
            # With this a broker that is back is used within a second, not within half a minute.
            "reconnect_backoff_max_ms": 1_000,
        }
        if self.security.startswith("SASL"):
            options |= {
                "sasl_mechanism": self.mechanism,
                "sasl_plain_username": self.user,
                "sasl_plain_password": self.password,
            }
        if self.security.endswith("SSL"):
            options |= {
                "ssl_check_hostname": True,
                "ssl_cafile": self.ca,
                "ssl_certfile": self.cert,
                "ssl_keyfile": self.key,
                "ssl_password": self.key_password,
            }
        return options


def parse(url: str, base: Path, environ: Mapping[str, str]) -> KafkaAddress:
    """The settings in a `kafka://` url and in the environment. base: where relative paths of files start from.

    Raises:
        ValueError: something is missing, unknown, or a secret; the message says what was expected.
        OSError: a file that the url names cannot be read.
    """
    parts = urlsplit(url)
    if parts.scheme != "kafka" or parts.path not in ("", "/") or parts.fragment:
        raise ValueError(f"url {without_login(url)!r}: expected kafka://HOST:PORT,HOST:PORT?KEY=VALUE")
    if "@" in parts.netloc:
        raise ValueError(f"url: a user goes into user=..., and a password never into a url: use {PASSWORD}")
    servers = tuple(_server(text) for text in parts.netloc.split(","))
    values = _values(parts.query)
    _refuse_ignored(values)
    password_file = values.pop("password_file", None)
    password = (
        _secret(environ, PASSWORD) if password_file is None else (base / password_file).read_text("utf-8").strip()
    )
    for name in values.keys() & set(_FILES):
        (base / values[name]).open("rb").close()  # a client would say that it finds no broker
        values[name] = str(base / values[name])
    interval_ms = _number(_POLL_INTERVAL, values.pop(_POLL_INTERVAL, str(MAX_POLL_INTERVAL_MS)))
    return KafkaAddress(
        servers,
        password=password,
        key_password=_secret(environ, KEY_PASSWORD),
        max_poll_interval_ms=interval_ms,
        **values,
    )


def _secret(environ: Mapping[str, str], name: str) -> str | None:
    secret = environ.get(name)
    try:
        (secret or "").encode()
    except UnicodeEncodeError:
        raise ValueError(f"{name}: expected text in UTF-8") from None
    return secret


def _server(text: str) -> str:
    match = _SERVER.fullmatch(text)
    if match is None or not 1 <= int(match[2]) <= 65_535:
        raise ValueError(f"url: expected HOST:PORT, got {text!r}")
    return text


def _values(query: str) -> dict[str, str]:
    pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ValueError("url: a key is in it twice")
    for name, value in values.items():
        if name not in _KEYS:
            raise ValueError(f"url: expected one of {', '.join(_KEYS)}, got {name!r}")
        if not value and name != "prefix":
            raise ValueError(f"url: {name} is empty")
    return values


def _refuse_ignored(values: Mapping[str, str]) -> None:
    """Raises ValueError if the url's security would use no such thing: a url that names a certificate or a user must
    not be read as one without encryption or login.
    """
    for names, needed in ((_FILES, ("SSL", "SASL_SSL")), (_LOGIN, ("SASL_PLAINTEXT", "SASL_SSL"))):
        for name in names:
            if name in values and values.get("security") not in needed:
                raise ValueError(f"url: {name}: needs security={' or '.join(needed)}")


def _number(name: str, text: str) -> int:
    if _NUMBER.fullmatch(text) is None:
        raise ValueError(f"url: {name}: expected a number, got {text!r}")
    return int(text)


def _one_of(name: str, value: str | None, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ValueError(f"kafka: {name}: expected one of {', '.join(known)}, got {value!r}")
