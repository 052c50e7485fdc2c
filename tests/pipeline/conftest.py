"""Logs of what fails on purpose are of no use, but to the tests that look at them."""

import logging
from collections.abc import Iterator, MutableMapping
from typing import Any

import pytest
import structlog


@pytest.fixture(autouse=True)
def quiet() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


@pytest.fixture
def logged(quiet: None) -> Iterator[list[MutableMapping[str, Any]]]:
    """The lines of the log, as they come; without those for debugging."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.INFO))
    with structlog.testing.capture_logs() as logs:
        yield logs
