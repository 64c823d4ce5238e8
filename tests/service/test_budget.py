"""The budget of retries: a tenth of the requests of ten seconds, and never less than ten."""

import pytest
from hypothesis import given, strategies as st

from connector.service.retry import RetryBudget


@pytest.mark.parametrize(("requests", "retries"), [(0, 10), (50, 10), (100, 10), (200, 20), (5000, 500)])
def test_so_many_of_so_many_requests_may_be_sent_again(requests: int, retries: int) -> None:
    budget = RetryBudget()
    for _ in range(requests):
        budget.note_request(1.0)
    assert [budget.take(2.0) for _ in range(retries + 3)] == [True] * retries + [False] * 3


def test_what_was_spent_comes_back_ten_seconds_later() -> None:
    budget = RetryBudget()
    assert sum(budget.take(0.0) for _ in range(20)) == 10
    assert not budget.take(6.0)
    assert budget.take(12.0)


@given(st.lists(st.tuples(st.floats(0, 3), st.booleans()), max_size=300))
def test_in_no_ten_seconds_more_are_sent_again_than_the_budget_has(steps: list[tuple[float, bool]]) -> None:
    budget, now = RetryBudget(), 0.0
    retried: list[float] = []
    requested: list[float] = []
    for gap_s, is_retry in steps:
        now += gap_s
        if not is_retry:
            budget.note_request(now)
            requested.append(now)
        elif budget.take(now):
            retried.append(now)
            lately = sum(now - 10 < each for each in retried)
            assert lately <= max(10, 0.1 * sum(now - 11 <= each for each in requested) + 1)
