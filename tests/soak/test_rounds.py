"""Which faults come together."""

from itertools import islice
from random import Random

from tests.soak.processes import PROCESSES
from tests.soak.rounds import SERVERS, rounds

ROUNDS = 500


def test_a_seed_draws_the_same_faults_again():
    assert list(islice(rounds(Random(7)), ROUNDS)) == list(islice(rounds(Random(7)), ROUNDS))


def test_one_server_at_a_time_is_away_so_that_a_cluster_answers():
    for faults in islice(rounds(Random(1)), ROUNDS):
        assert faults
        assert sum(fault.of == "server" for fault in faults) <= 1
        names = [fault.name for fault in faults]
        assert len({*names}) == len(names)


def test_every_server_and_process_is_killed_and_suspended():
    drawn = {(fault.name, fault.how) for faults in islice(rounds(Random(1)), ROUNDS) for fault in faults}
    assert drawn == {(name, how) for name in (*SERVERS, *PROCESSES) for how in ("kill", "suspend")}
