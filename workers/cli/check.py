"""check: finds what is wrong with a home, before anything is written."""

import os
import sys

import click

from feedstore.app.config import FILE_NAME
from feedstore.errors import ConfigError
from workers.app import checks
from workers.app.checks import CheckFinding
from workers.cli.output import answer, note, plural
from workers.cli.session import USAGE, Session, json_option, pass_session

_CONFIGURATION = "configuration"


@click.command(short_help="Name every fault of a home before anything is started.")
@json_option
@pass_session
def check(session: Session, *, as_json: bool) -> None:
    """Check a home before anything is started on it, and name every fault. Writes nothing.

    It checks feed.toml and the environment, places, limits, file permissions, disk space, clocks, the stores in files,
    libraries and the tokens. It does not ask any server: feedctl schema check and feedctl topics check do that. The
    exit status is 2 if there is a fault.

    \b
    Examples:
      feedctl check
      feedctl check --json | jq 'select(.ok | not)'
    """
    try:
        config = session.config
    except ConfigError as error:
        found = [CheckFinding(_CONFIGURATION, str(error))]
        looked: list[tuple[str, str]] = []
    else:
        facts = checks.gather(config, os.environ)
        found = checks.findings(facts)
        overriding = ", ".join(sorted(config.sources.variables.values())) or "nothing"
        looked = [(_CONFIGURATION, f"{session.home / FILE_NAME}; overridden by the environment: {overriding}")]
        wrong = {finding.check for finding in found}
        if "places" in wrong:  # stores that are opened after that may be another home's
            found = [finding for finding in found if finding.check == "places"]
        else:
            looked += [(each.name, each.looked_at(facts)) for each in checks.CHECKS if each.name not in wrong]
    for name, said in looked:
        _tell(name, said, ok=True, as_json=as_json)
    for finding in found:
        _tell(finding.check, finding.message, ok=False, as_json=as_json)
    if found:
        note(f"{plural(len(found), 'fault')} found; check changes nothing")
        sys.exit(USAGE)


def _tell(name: str, said: str, *, ok: bool, as_json: bool) -> None:
    text = f"{'ok   ' if ok else 'WRONG'} {name:<13} {said}"
    answer({"check": name, "ok": ok, "said": said}, text, as_json=as_json)
