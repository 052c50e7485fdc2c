"""Who may do what: bearer tokens with scopes, in a file that holds their hashes."""

import hashlib
import ipaddress
import os
import secrets
import tomllib
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Final, Literal, Protocol

import msgspec
from msgspec import Meta

from feedstore.serving.config import ConfigError
from feedstore.serving.http import problems
from feedstore.serving.http.problems import ProblemError

Scope = Literal["read", "write", "operate"]
SCOPES: Final[tuple[Scope, ...]] = ("read", "write", "operate")
"""read: feeds, relations, status and metrics. write: actions. operate: dead letters. None includes another."""

_PREFIX: Final = "feed_"
_TOKEN_CHARS_MAX: Final = 200
_TOKENS_MAX: Final = 100


class Access(Protocol):
    """Decides whether a request may do something. authorization, host: its headers."""

    def refuse(self, scope: Scope, authorization: bytes | None, host: bytes | None) -> None:
        """Raises ProblemError where it may not."""
        ...

    def scopes(self, authorization: bytes | None, host: bytes | None) -> frozenset[Scope]:
        """All that it may do. Raises ProblemError where it may do nothing at all."""
        ...


class _Token(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: Annotated[str, Meta(pattern="^[A-Za-z0-9._-]{1,64}$")]
    scopes: Annotated[list[Scope], Meta(min_length=1)]
    sha256: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    tokens: Annotated[list[_Token], Meta(max_length=_TOKENS_MAX)] = []


class Tokens:
    """Lets in whoever brings one of some tokens, as far as its scopes reach."""

    def __init__(self, tokens: Sequence[_Token]) -> None:
        # Found by their hashes, which nobody can choose: how long it takes says nothing about the tokens.
        self._scopes = {bytes.fromhex(token.sha256): frozenset(token.scopes) for token in tokens}

    def refuse(self, scope: Scope, authorization: bytes | None, host: bytes | None) -> None:
        if scope not in self.scopes(authorization, host):
            raise ProblemError(problems.FORBIDDEN, f"the scope {scope} is needed")

    def scopes(self, authorization: bytes | None, host: bytes | None) -> frozenset[Scope]:  # noqa: ARG002 - any host
        kind, _, token = (authorization or b"").partition(b" ")
        if kind.lower() != b"bearer" or not 0 < len(token) <= _TOKEN_CHARS_MAX:
            raise _unauthenticated("send Authorization: Bearer TOKEN")
        found = self._scopes.get(hashlib.sha256(token).digest())
        if found is None:
            raise _unauthenticated("the token is not known")
        return found


class Loopback:
    """Lets in whoever is on this machine, without tokens: to read and to write, not to operate.

    A page of some website in a browser of this machine is not meant. It cannot send our kind of body, nor read our
    answers, as long as its own name is not taken for ours: so the host must be this machine.
    """

    _SCOPES: Final[frozenset[Scope]] = frozenset({"read", "write"})

    def refuse(self, scope: Scope, authorization: bytes | None, host: bytes | None) -> None:
        if scope not in self.scopes(authorization, host):
            detail = f"the scope {scope} needs a token: feedctl token new --scope {scope}"
            raise ProblemError(problems.FORBIDDEN, detail)

    def scopes(self, authorization: bytes | None, host: bytes | None) -> frozenset[Scope]:  # noqa: ARG002 - no tokens
        if not _is_ours(host or b""):
            raise ProblemError(problems.MISDIRECTED, "without tokens, the host must be this machine's loopback")
        return self._SCOPES


def is_loopback(host: str) -> bool:
    """Whether a host's name or address is this machine's loopback, whatever a resolver says."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def load(path: Path) -> Tokens:
    """Raises ConfigError: the file is missing, wrong, or everybody may read it."""
    return Tokens(_read(path).tokens)


def issue(path: Path, name: str, scopes: Sequence[Scope]) -> str:
    """Makes a token and adds its hash to a file, which is made where it is missing. Whoever gets it must keep it: it
    stands nowhere else.

    Raises ConfigError: the file cannot be used, or has a token of that name.
    """
    there = _read(path).tokens if path.exists() else []
    if any(token.name == name for token in there):
        raise ConfigError(f"{path}: there is a token {name!r} already")
    if len(there) == _TOKENS_MAX:
        raise ConfigError(f"{path}: it holds {_TOKENS_MAX} tokens already")
    token = _PREFIX + secrets.token_urlsafe(32)
    try:
        new = msgspec.convert(
            {"name": name, "scopes": list(scopes), "sha256": hashlib.sha256(token.encode()).hexdigest()}, _Token
        )
    except msgspec.ValidationError as error:
        raise ConfigError(f"token: {error}") from error
    listed = ", ".join(f'"{scope}"' for scope in new.scopes)
    line = f'[[tokens]]\nname = "{new.name}"\nscopes = [{listed}]\nsha256 = "{new.sha256}"\n\n'
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            os.write(file, line.encode())
            os.fsync(file)
        finally:
            os.close(file)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from error
    return token


def _read(path: Path) -> _File:
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_mode & 0o007:
                raise ConfigError(f"{path}: everybody may use it: chmod o-rwx {path}")
            return msgspec.convert(tomllib.load(file), _File)
    except FileNotFoundError:
        raise ConfigError(f"{path}: not found; make a token with: feedctl token new") from None
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from error
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: {error}") from error


@lru_cache(maxsize=128)
def _is_ours(header: bytes) -> bool:
    """Whether the name in a Host header, without its port, is this machine's loopback."""
    host = header.decode("latin-1")
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    return is_loopback(name)


def _unauthenticated(detail: str) -> ProblemError:
    return ProblemError(problems.UNAUTHENTICATED, detail, headers={"www-authenticate": 'Bearer realm="feedstore"'})
