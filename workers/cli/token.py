"""token: the tokens of the HTTP API."""

from datetime import UTC, datetime
from pathlib import Path

import click

from feedstore.app.config import FILE_NAME
from feedstore.clocks import wall_ms
from feedstore.errors import ConfigError
from feedstore.http import tokens
from feedstore.http.tokens import SCOPES, Scope
from feedstore.settings import duration_ms
from workers.cli.output import OutputError, emit_json, note, say
from workers.cli.session import Parsed, Session, json_option, pass_session


@click.group()
def token() -> None:
    """Create, list and revoke tokens for the HTTP API.

    \b
    Examples:
      feedctl token new --name web --scope read --scope write
      feedctl token list
      feedctl token revoke web
    """


def _end(text: str) -> datetime | None:
    """When a token that is made now expires; None: never."""
    if text == "never":
        return None
    try:
        return datetime.fromtimestamp(wall_ms() // 1_000 + duration_ms(text) // 1_000, UTC)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{error}, or never") from error


@token.command()
@click.option("--name", required=True, help="The token's name in the file: what it is for.")
@click.option(
    "--scope",
    "scopes",
    type=click.Choice(SCOPES),
    multiple=True,
    required=True,
    help="What the token allows. Repeat the option for several scopes; no scope includes another.",
)
@click.option(
    "--expires",
    type=Parsed("duration", _end),
    default="365d",
    show_default=True,
    metavar="DURATION",
    help="How long the token is valid, such as 90d, or the word never.",
)
@pass_session
def new(session: Session, name: str, scopes: tuple[Scope, ...], expires: datetime | None) -> None:
    """Create a token, print it to stdout, and store only its hash.

    The hash is saved in the file that feed.toml names (http.tokens). If a server was started with this file, it loads
    the change within seconds. If a server was started without a file, start it again.

    \b
    Examples:
      feedctl token new --name web --scope read --scope write
      feedctl token new --name sre --scope read --scope operate --expires 90d
    """
    path = _tokens(session)
    is_first = not path.exists()
    issued = tokens.issue(path, name, scopes, expires)
    try:
        say(issued)
    except OutputError:
        tokens.revoke(path, name)  # it was shown to no one
        raise
    until = "never expires" if expires is None else f"expires at {expires:%Y-%m-%d %H:%M:%S} UTC"
    note(f"saved its hash to {path}; the token {until}; {_loaded(is_first=is_first)}")


def _loaded(*, is_first: bool) -> str:
    """The sentence that says when servers know a token. No server starts if its file is missing."""
    if is_first:
        return "a server that runs is open to this machine without a token until it is started again"
    return "servers that were started with this file load it within seconds"


@token.command(name="list")
@json_option
@pass_session
def list_tokens(session: Session, *, as_json: bool) -> None:
    """List the tokens: names, scopes and expiry. The tokens themselves are not stored.

    \b
    Examples:
      feedctl token list
    """
    now_ms = wall_ms()
    for each in tokens.listed(_tokens(session)):
        if as_json:
            expires_ms = None if each.expires is None else int(each.expires.timestamp() * 1_000)
            emit_json(
                {
                    "name": each.name,
                    "scopes": each.scopes,
                    "sha256": each.sha256,
                    "expires_ms": expires_ms,
                    "expired": each.expired(now_ms),
                }
            )
            continue
        end = "never expires" if each.expires is None else f"expires {each.expires.astimezone(UTC):%Y-%m-%d %H:%M:%S}"
        say(f"{each.name:<20} {','.join(each.scopes):<20} {'HAS EXPIRED' if each.expired(now_ms) else end}")


@token.command()
@click.argument("name")
@pass_session
def revoke(session: Session, name: str) -> None:
    """Revoke the token NAME: running servers refuse it within seconds.

    \b
    Examples:
      feedctl token revoke web
    """
    tokens.revoke(_tokens(session), name)
    note(f"revoked {name}; running servers refuse it within seconds")


def _tokens(session: Session) -> Path:
    """The file with the tokens. Raises ConfigError: there is none."""
    path = session.config.http.tokens
    if path is None:
        file = session.home / FILE_NAME
        raise ConfigError(f'{file}: http.tokens is not set: in the section [http], write: tokens = "tokens.toml"')
    return path
