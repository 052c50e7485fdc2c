"""Which faults come together."""

from itertools import islice
from random import Random

from tests.soak.rounds import WAYS, rounds

ROUNDS = 1_000


def test_a_seed_draws_the_same_faults_again():
    assert list(islice(rounds(Random(7)), ROUNDS)) == list(islice(rounds(Random(7)), ROUNDS))


def test_one_thing_at_a_time_is_wrong_around_the_processes_so_that_a_cluster_answers():
    for faults in islice(rounds(Random(1)), ROUNDS):
        assert faults
        assert sum(fault.of != "process" for fault in faults) <= 1
        names = [fault.name for fault in faults]
        assert len({*names}) == len(names)


def test_everything_fails_in_each_of_its_ways():
    drawn = {(fault.of, fault.name, fault.how) for faults in islice(rounds(Random(1)), ROUNDS) for fault in faults}
    assert drawn == {(of, name, how) for of, named in WAYS.items() for name, ways in named.items() for how in ways}


def test_what_may_fail_around_the_processes_can_be_chosen():
    drawn = {fault.of for faults in islice(rounds(Random(1), ["gate"]), ROUNDS) for fault in faults}
    assert drawn == {"gate", "process"}
