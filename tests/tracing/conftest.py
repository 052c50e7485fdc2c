"""A tracer whose spans are kept."""

import pytest

from tests.tracing.recorded import Spans


@pytest.fixture
def spans() -> Spans:
    return Spans()
