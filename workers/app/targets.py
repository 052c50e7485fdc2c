"""Tells a Prometheus on this machine what to scrape: writes a file for each process, for its `file_sd_configs`."""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

from feedstore import durable
from feedstore.app.config import Config
from feedstore.errors import ConfigError


@contextlib.contextmanager
def named(config: Config, program: str, address: str) -> Iterator[None]:
    """Keeps a file for this process, if the configuration names a folder, until the process ends in order. If it is
    killed, the file stays until the next process of the same command begins, so that Prometheus notices the absence.
    address: http://HOST:PORT. Raises ConfigError: there is no such folder.
    """
    if config.metrics.targets is None:
        yield
        return
    folder, home = config.home / config.metrics.targets, str(config.home)
    stem = f"{hashlib.sha256(home.encode()).hexdigest()[:12]}-{program}-"
    for left in folder.glob(f"{stem}*.json"):
        if not _runs(left.stem.removeprefix(stem)):
            left.unlink(missing_ok=True)
    path = folder / f"{stem}{os.getpid()}.json"
    target = {"targets": [address.removeprefix("http://")], "labels": {"home": home, "program": program}}
    try:
        # As a whole: Prometheus may read it at any moment. It may be another user, and nothing here is secret.
        durable.replace(path, json.dumps([target]), mode=0o644)
    except OSError as error:
        raise ConfigError(f"metrics.targets: {folder}: {error.strerror or error}") from error
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def _runs(pid: str) -> bool:
    return pid.isdigit() and Path("/proc", pid).exists()
