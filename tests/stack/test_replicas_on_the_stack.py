"""A few rounds of faults on replicas in HBase; `python -m tests.replicas --stack DIR` does many, and those of files."""

import random
from pathlib import Path

import pytest

from deploy.local import Stack
from tests.replicas import servers

pytestmark = pytest.mark.stack

STATUS_S = 60.0
"""Far more than it takes: other tests may run on the same machine."""


def test_a_replica_that_was_put_back_or_lost_a_region_is_named_and_healed(stack: Stack, tmp_path: Path) -> None:
    with servers.rounds(stack, tmp_path / "home", random.Random(7), print, STATUS_S) as rounds:
        for number, fault in enumerate(("copied alive", "region emptied")):
            rounds.run(number, fault)
    assert rounds.noticed == 2
