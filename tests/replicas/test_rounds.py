"""A few rounds of faults on replicas; `python -m tests.replicas --rounds 200` does many."""

import random
from pathlib import Path

import pytest

from tests.replicas.files import InFiles, rounds


@pytest.mark.long
@pytest.mark.parametrize("fault", ["emptied", "deleted", "put back"])
def test_a_fault_of_a_replica_is_named_and_healed_and_no_page_is_wrong(tmp_path: Path, fault: str) -> None:
    assert fault in InFiles.kinds
    rounds(tmp_path / "home", random.Random(7), print).run(0, fault)
