"""Rights of clients: bearer tokens with scopes and an expiry, in a file with their hashes.

Servers read the file again when it changes: issuing or revoking a token needs no restart.
"""

import contextlib
import hashlib
import ipaddress
import os
import re
import secrets
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Final, Literal, NamedTuple, Protocol

import msgspec
import structlog
from msgspec import Meta

from feedstore import durable, validation
from feedstore.errors import ConfigError
from feedstore.http import problems
from feedstore.http.problems import ProblemError
from feedstore.validation import words

Scope = Literal["read", "write", "operate"]
SCOPES: Final[tuple[Scope, ...]] = ("read", "write", "operate")
"""read: pages, relations, status and metrics. write: actions. operate: dead letters. None includes another."""

_log = structlog.get_logger()

LOOK_S: Final = 1.0
"""How often a server checks if its file has changed."""

_PREFIX: Final = "feed_"
_TOKEN_CHARS_MAX: Final = 200
_TOKENS_MAX: Final = 100


class Access(Protocol):
    """Decides by the headers of a request whether it may do something."""

    def refuse(self, scope: Scope, headers: Mapping[bytes, bytes]) -> None:
        """Raises ProblemError if the request does not have a scope."""

    def scopes(self, headers: Mapping[bytes, bytes]) -> frozenset[Scope]:
        """All scopes of a request. Raises ProblemError if it has none at all."""


class IssuedToken(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A token in the file. expires: when it begins to be refused; None: never, as in older files."""

    name: Annotated[
        str, Meta(pattern=r"^[A-Za-z0-9._-]{1,64}\Z", extra=words("a name of up to 64 letters, digits, dots, _ and -"))
    ]
    scopes: Annotated[list[Scope], Meta(min_length=1)]
    sha256: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z", extra=words("64 hexadecimal digits"))]
    expires: Annotated[datetime, Meta(tz=True)] | None = None

    def expired(self, now_ms: int) -> bool:
        return self.expires is not None and now_ms >= self.expires.timestamp() * 1_000


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    tokens: Annotated[list[IssuedToken], Meta(max_length=_TOKENS_MAX)] = []


class _Seen(NamedTuple):
    """A fingerprint of a file, to see if it has changed."""

    inode: int
    size: int
    changed_ns: int


class Tokens:
    """Admits requests with one of the tokens in a file, within its scopes and until it expires.

    clock: monotonic seconds. wall_ms: ms since 1970. The first request after LOOK_S checks the file. If the file has
    become unreadable, that is logged, and the tokens that were read last stay valid: a slip of an editor must not lock
    out everybody, and tokens still expire.
    """

    def __init__(self, path: Path, clock: Callable[[], float], wall_ms: Callable[[], int]) -> None:
        """Raises ConfigError if the file is missing or wrong, or if everybody may read it."""
        self._path = path
        self._clock = clock
        self._wall_ms = wall_ms
        self._seen = _seen(path)
        self._unreadable: _Seen | None = None
        """The fingerprint of the file when it could not be read."""
        self._tokens = _by_hash(path)
        self._looked_s = clock()

    def refuse(self, scope: Scope, headers: Mapping[bytes, bytes]) -> None:
        if scope not in self.scopes(headers):
            raise ProblemError(problems.FORBIDDEN, f"this request needs a token with the scope {scope}")

    def scopes(self, headers: Mapping[bytes, bytes]) -> frozenset[Scope]:
        self._look()
        kind, token = _authorization(headers)
        if kind != b"bearer" or not 0 < len(token) <= _TOKEN_CHARS_MAX:
            raise _unauthenticated("send Authorization: Bearer TOKEN")
        found = self._tokens.get(hashlib.sha256(token).digest())
        if found is None:
            raise _unauthenticated("unknown token")
        if found.expired(self._wall_ms()):
            raise _unauthenticated("the token has expired")
        return frozenset(found.scopes)

    def _look(self) -> None:
        now_s = self._clock()
        if now_s - self._looked_s < LOOK_S:
            return
        self._looked_s = now_s
        seen = _seen(self._path)
        if seen == self._seen:
            return
        try:
            self._tokens = _by_hash(self._path)
        except ConfigError as error:
            # The file is read again at the next look, as it may be right by then: a revoked token must not stay valid.
            if seen != self._unreadable:
                _log.error("tokens.unreadable", error=str(error))
            self._unreadable = seen
        else:
            self._seen, self._unreadable = seen, None
            _log.info("tokens.changed", tokens=len(self._tokens))


def _seen(path: Path) -> _Seen:
    """Unlike that of any file if there is no such file, or it cannot be looked at."""
    try:
        status = path.stat()
    except OSError:
        return _Seen(0, 0, 0)
    return _Seen(status.st_ino, status.st_size, status.st_ctime_ns)


def _by_hash(path: Path) -> dict[bytes, IssuedToken]:
    # Tokens are looked up by their hashes, which a client cannot choose, so the time of a look-up reveals nothing about
    # them.
    return {bytes.fromhex(token.sha256): token for token in listed(path)}


class Loopback:
    """Admits requests from this machine, without tokens: to read and to write, not to operate.

    Web pages of other sites, in a browser of this machine, must not be admitted. They cannot send our kind of body, nor
    read our answers, as long as their host name does not pass as ours. So the Host header must name this machine.
    """

    _SCOPES: Final[frozenset[Scope]] = frozenset({"read", "write"})

    def refuse(self, scope: Scope, headers: Mapping[bytes, bytes]) -> None:
        if scope not in self.scopes(headers):
            raise ProblemError(
                problems.FORBIDDEN,
                f"the scope {scope} needs a token: name a file in feed.toml ([http] tokens), then"
                f" feedctl token new --name NAME --scope {scope}, then start the server again",
            )

    def scopes(self, headers: Mapping[bytes, bytes]) -> frozenset[Scope]:
        if not _is_ours(headers.get(b"host", b"")):
            raise ProblemError(
                problems.MISDIRECTED,
                "without tokens, the Host must be the loopback of this machine: let a proxy send localhost,"
                " or name a file of tokens in feed.toml ([http] tokens)",
            )
        # A client with a token would believe that the token admits it, so it is refused. A proxy's Basic header is
        # ignored.
        if b"authorization" in headers and _authorization(headers)[0] == b"bearer":
            raise _unauthenticated("this server was started without a tokens file, so it knows no token: send none")
        return self._SCOPES


def _authorization(headers: Mapping[bytes, bytes]) -> tuple[bytes, bytes]:
    """The scheme of an Authorization header, in lower case, and what follows; both are empty without one."""
    scheme, _, rest = headers.get(b"authorization", b"").partition(b" ")
    return scheme.lower(), rest


def is_loopback(host: str) -> bool:
    """Whether a host's name or address is this machine's loopback. No resolver is asked."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def listed(path: Path) -> list[IssuedToken]:
    """The tokens in a file, in its order. Raises ConfigError if it is missing or wrong, or if everybody may read it."""
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_mode & 0o007:
                raise ConfigError(f"{path}: other users can read it: chmod o-rwx {path}")
            raw = tomllib.load(file)
    except FileNotFoundError:
        command = "feedctl token new --name web --scope read --scope write"
        raise ConfigError(f"{path}: not found; make a token with: {command}") from None
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from error
    try:
        return msgspec.convert(raw, _File).tokens
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: {validation.refused(error, raw, _File, table='a table')}") from error


def issue(path: Path, name: str, scopes: Sequence[Scope], expires: datetime | None = None) -> str:
    """Makes a token and adds its hash to a file, which is made if it is missing. The caller must keep the token, as it
    is not stored.

    Raises ConfigError: the file cannot be used, or has a token of that name.
    """
    with _changing(path):
        there = listed(path) if path.exists() else []
        if any(token.name == name for token in there):
            raise ConfigError(f"{path}: a token {name!r} already exists: first feedctl token revoke {name}")
        if len(there) == _TOKENS_MAX:
            raise ConfigError(f"{path}: it already holds {_TOKENS_MAX} tokens")
        token = _PREFIX + secrets.token_urlsafe(32)
        sha256 = hashlib.sha256(token.encode()).hexdigest()
        said = {"name": name, "scopes": list(scopes), "sha256": sha256, "expires": expires}
        try:
            new = msgspec.convert(said, IssuedToken)
        except msgspec.ValidationError as error:
            raise ConfigError(f"token: {validation.refused(error, said, IssuedToken)}") from error
        text = path.read_text("utf-8") if path.exists() else ""
        durable.replace(path, text + ("\n" if text and not text.endswith("\n") else "") + _block(new), _rights(path))
    return token


def revoke(path: Path, name: str) -> None:
    """Takes a token out of a file. Everything else in the file stays, including comments.

    Raises ConfigError: the file cannot be used, has no token of that name, or is not written as `issue` writes it.
    """
    with _changing(path):
        there = listed(path)
        if all(token.name != name for token in there):
            names = ", ".join(token.name for token in there) or "none"
            raise ConfigError(f"{path}: no token {name!r}; there are: {names}")
        text = path.read_text("utf-8")
        rest = "".join(block for block in _BLOCKS.split(text) if not _is_named(block, name))
        try:
            left = msgspec.convert(tomllib.loads(rest), _File).tokens
        except (tomllib.TOMLDecodeError, msgspec.ValidationError):
            left = None
        if left != [token for token in there if token.name != name]:
            raise ConfigError(f"{path}: it was edited by hand: delete the lines of the token {name!r} in it")
        durable.replace(path, rest, _rights(path))


_BLOCKS: Final = re.compile(r"^(?=\[\[tokens\]\])", re.MULTILINE)


def _is_named(block: str, name: str) -> bool:
    """Whether a part of a file is the token of a name, and only that."""
    try:
        tokens = msgspec.convert(tomllib.loads(block), _File).tokens
    except (tomllib.TOMLDecodeError, msgspec.ValidationError):
        return False
    return [token.name for token in tokens] == [name]


def _block(token: IssuedToken) -> str:
    scopes = ", ".join(f'"{scope}"' for scope in token.scopes)
    expires = "" if token.expires is None else f"expires = {token.expires.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}\n"
    return f'[[tokens]]\nname = "{token.name}"\nscopes = [{scopes}]\nsha256 = "{token.sha256}"\n{expires}\n'


@contextlib.contextmanager
def _changing(path: Path) -> Iterator[None]:
    """`durable.changing`. Raises ConfigError if the file cannot be changed."""
    try:
        with durable.changing(path):
            yield
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from error


def _rights(path: Path) -> int:
    return path.stat().st_mode & 0o770 if path.exists() else 0o600


_host: Final = re.compile(r"(?:\[([^\]]*)\]|([^:]*))(?::[0-9]*)?").fullmatch


@lru_cache(maxsize=128)
def _is_ours(header: bytes) -> bool:
    """Whether the name in a Host header, without its port, is this machine's loopback."""
    found = _host(header.decode("latin-1"))
    return found is not None and is_loopback(found[1] or found[2] or "")


def _unauthenticated(detail: str) -> ProblemError:
    return ProblemError(problems.UNAUTHENTICATED, detail, headers={"www-authenticate": 'Bearer realm="feedstore"'})
