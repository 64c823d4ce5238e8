"""A list without an order is certified by its parts, where the filters work, and by nothing else."""

from random import Random
from typing import Any

import pytest

from connector.paging.certificate import Order, Reason
from connector.paging.overlap import Measures
from tests.paging.simulated import THOROUGH, SimulatedList, read


def shuffled(seed: int, count: int = 500, **options: Any) -> SimulatedList:
    return SimulatedList(Random(seed), count, "shuffled", limit=100, **options)


@pytest.mark.parametrize("seed", range(10))
def test_a_quiet_list_is_certified_by_two_rounds_of_its_parts(seed: int) -> None:
    simulated = shuffled(seed)
    result = read(simulated, measures=THOROUGH)

    certificate = result.certificate
    assert (certificate.reason, certificate.order, certificate.sweeps) == (Reason.PARTITIONS, Order.UNSTABLE, 4)
    assert certificate.is_complete
    assert sorted(result.rows) == sorted(simulated.ids)
    assert (certificate.distinct, certificate.total_first, certificate.total_last) == (500, 500, 500)
    assert (certificate.appeared, certificate.vanished) == (0, 0)


@pytest.mark.parametrize(
    ("count", "splits_by", "is_complete"),
    [
        (150, ("is_active",), True),
        (500, ("is_active",), False),  # halves of 250 do not fit an answer of 100
        (350, ("base_id",), True),
        (220, ("gender",), True),
        (500, ("base_id", "gender"), True),
        (2000, ("is_active", "base_id", "gender"), True),  # 30 parts of 67
        (5000, ("is_active", "base_id", "gender"), False),
        (500, (), False),
    ],
)
def test_a_list_is_split_by_the_filters_it_may_be_split_by(
    count: int, splits_by: tuple[str, ...], *, is_complete: bool
) -> None:
    result = read(shuffled(1, count), measures=Measures(splits_by))

    assert result.certificate.reason is (Reason.PARTITIONS if is_complete else Reason.UNSTABLE_ORDER)
    assert not is_complete or len(set(result.rows)) == count


@pytest.mark.parametrize("filters", ["ignored", "lossy"])
def test_filters_that_do_not_work_leave_the_list_uncertified_and_the_last_sweep_to_be_had(filters: str) -> None:
    simulated = shuffled(3, filters=filters)
    result = read(simulated, measures=THOROUGH)

    assert result.certificate.reason is Reason.UNSTABLE_ORDER
    assert result.certificate.sweeps == max(result.sweeps) == 2
    assert result.certificate.distinct == len(result.rows) > 200


def test_one_dimension_that_does_not_work_is_left_out() -> None:
    result = read(shuffled(4, 300, filters="lossy by activity"), measures=Measures(THOROUGH.splits_by))

    assert result.certificate.reason is Reason.PARTITIONS
    assert len(set(result.rows)) == 300


def test_parts_whose_rows_are_not_as_asked_are_no_parts_even_if_they_come_to_the_whole() -> None:
    result = read(shuffled(7, 150, filters="inverted"), measures=Measures(("is_active",)))

    assert result.certificate.reason is Reason.UNSTABLE_ORDER


@pytest.mark.parametrize("total", ["none", "cap", "wrong"])
def test_without_an_honest_total_count_nothing_is_certified(total: str) -> None:
    assert not read(shuffled(5, total=total), measures=THOROUGH).certificate.is_complete


def test_who_appears_between_two_rounds_is_counted_and_a_third_round_decides() -> None:
    reasons = set()
    for seed in range(30):
        simulated = shuffled(seed, 300, inserts=0.02)
        result = read(simulated, measures=THOROUGH)
        assert not result.is_false(simulated)
        reasons.add((result.certificate.reason, result.certificate.sweeps > 4, result.certificate.appeared > 0))
    assert (Reason.PARTITIONS, True, True) in reasons


@pytest.mark.parametrize("touches", [0.02, 0.1, 0.5])
def test_who_changes_sides_in_the_middle_of_a_round_is_missed_by_no_certificate(touches: float) -> None:
    certified = 0
    for seed in range(24):
        simulated = shuffled(seed, 300, touches=touches, inserts=touches / 4, deletes=touches / 4)
        result = read(simulated, measures=THOROUGH)
        assert not result.is_false(simulated), f"seed {seed}: {result.certificate}"
        certified += result.certificate.is_complete
    assert certified > 0 or touches > 0.1


def test_a_list_that_never_rests_ends_after_five_rounds() -> None:
    simulated = shuffled(6, 300, inserts=0.3, deletes=0.3)
    result = read(simulated, measures=THOROUGH)

    assert result.certificate.reason in (Reason.CHANGING, Reason.UNSTABLE_ORDER)
    assert result.certificate.sweeps <= 2 + 5 + 1
    assert simulated.requests < 384 + 24 * 4
    assert len(result.rows) > 200, "the output is a fragment of a round"
