"""Where a MySQL shard is, and how it is reached: `mysql://user@host:3306/follows_0?ca=ca.pem&password_file=secret`."""

import hashlib
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Literal, cast
from urllib.parse import parse_qsl, unquote, urlsplit

from feedstore.domain import InvalidValueError
from feedstore.validation import without_login

PASSWORD_VARIABLE: Final = "FEED_MYSQL_PASSWORD"  # noqa: S105 - the name of a variable, not a password
"""The environment's password for every shard whose url names no `password_file`."""

DEFAULT_PORT: Final = 3306

Tls = Literal["verify", "encrypt", "off"]
"""verify: the certificate and the host's name are checked. encrypt: neither is. off: in the clear."""

_TLS: Final = ("verify", "encrypt", "off")
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
_PARAMETERS: Final = ("ca", "cert", "key", "password_file", "tls")


@dataclass(frozen=True)
class MySQLServer:
    """One shard's database. Its text names the place and no secret.

    ca, cert, key: files. Without `ca`, the system's authorities are trusted.
    """

    host: str
    port: int
    user: str
    database: str
    password: str = field(default="", repr=False)
    tls: Tls = "verify"
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None

    def __str__(self) -> str:
        return f"mysql://{self.user}@{self.host}:{self.port}/{self.database}"

    def without_database(self) -> "MySQLServer":
        return replace(self, database="")

    def lock_name(self, purpose: str = "") -> str:
        """The name of a lock of this database alone: names are the whole server's, and at most 64 characters."""
        return "feedstore." + hashlib.blake2b(self.database.encode(), digest_size=16).hexdigest() + purpose

    def tls_context(self) -> ssl.SSLContext | None:
        """Raises OSError if one of its files cannot be used."""
        if self.tls == "off":
            return None
        for file in filter(None, (self.ca, self.cert, self.key)):
            file.open("rb").close()  # the error of `ssl` would not name it
        context = ssl.create_default_context(cafile=None if self.ca is None else str(self.ca))
        # What the servers make for themselves at their first start lacks extensions that the strict mode asks for.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if self.tls == "encrypt":
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self.cert is not None:
            context.load_cert_chain(self.cert, self.key)
        return context


def parse(url: str, base: Path, environ: Mapping[str, str]) -> MySQLServer:
    """The server that a url names. base: where relative paths of files start from.

    The password comes from `password_file`, else from FEED_MYSQL_PASSWORD; a url with a password in it is refused,
    because urls are in configurations and logs. `tls` is `verify` unless the host is this machine, or it says
    otherwise.

    Raises:
        InvalidValueError: the url or the password cannot be used; the message does not repeat a password.
        OSError: the password file cannot be read.
    """
    expected = (
        "mysql://USER@HOST[:PORT]/DATABASE[?ca=FILE&cert=FILE&key=FILE&password_file=FILE&tls=verify|encrypt|off]"
    )
    try:
        parts = urlsplit(url)
        port = parts.port or DEFAULT_PORT
        host = parts.hostname or ""
        host.encode("idna")  # as a connection would
        given = dict(parse_qsl(parts.query, strict_parsing=True)) if parts.query else {}
    except ValueError:
        raise InvalidValueError("url", without_login(url), expected) from None
    if parts.password is not None or "password" in given:
        raise InvalidValueError("url", "mysql://...", "no password in it: use password_file, or the environment")
    database = unquote(parts.path.removeprefix("/"))
    named = bool(host and parts.username and database) and "/" not in database and "`" not in database
    if parts.scheme != "mysql" or not named or not given.keys() <= set(_PARAMETERS):
        raise InvalidValueError("url", without_login(url), expected)
    tls = given.get("tls", "off" if host in _LOOPBACK and "ca" not in given else "verify")
    if (
        tls not in _TLS
        or (tls == "off" and given.keys() & {"ca", "cert", "key"})
        or ("key" in given and "cert" not in given)  # it would be ignored
    ):
        raise InvalidValueError("url", without_login(url), expected)
    files = {name: base / given[name] for name in ("ca", "cert", "key") if name in given}
    if "password_file" in given:
        try:
            password = (base / given["password_file"]).read_text("utf-8").rstrip("\r\n")
        except ValueError:
            raise InvalidValueError("password_file", given["password_file"], "a file of text in UTF-8") from None
    else:
        password = environ.get(PASSWORD_VARIABLE, "")
        try:
            password.encode()
        except UnicodeEncodeError:
            raise InvalidValueError(PASSWORD_VARIABLE, "...", "text in UTF-8") from None
    return MySQLServer(host, port, unquote(parts.username or ""), database, password, cast("Tls", tls), **files)
