"""Logs of what fails on purpose are of no use."""

import logging

import pytest
import structlog


@pytest.fixture(autouse=True)
def quiet() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
