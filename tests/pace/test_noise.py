"""Random refusals, which do not depend on the rate, do not stop a client, and do not lower its rate for long."""

from math import inf

import pytest

from tests.pace.clients import LoadClient
from tests.pace.world import LimitedService, simulate_client

SEEDS = range(1, 3)  # tests check the mean of several runs, because random refusals sometimes look like a limit


def count_served_requests(service: LimitedService, since_s: float, until_s: float) -> float:
    """Return the number of served requests from `since_s` to `until_s`, as the mean of several runs."""
    requests = [request for seed in SEEDS for request in simulate_client(LoadClient(), service, until_s, seed)]
    return sum(request.is_served for request in requests if since_s <= request.answered_at < until_s) / len(SEEDS)


@pytest.mark.parametrize("random_refusal_share", [0.01, 0.05])
def test_a_service_without_a_limit_is_used_fully_despite_random_refusals(random_refusal_share: float) -> None:
    service = LimitedService([(0, inf)], 0.05, capacity=20, random_refusal_share=random_refusal_share)
    assert count_served_requests(service, 25, 45) >= 0.8 * 800 * 20


@pytest.mark.parametrize("random_refusal_share", [0.01, 0.05])
def test_the_client_uses_most_of_the_limit_after_two_minutes_of_random_refusals(random_refusal_share: float) -> None:
    service = LimitedService([(0, 100)], 0.05, random_refusal_share=random_refusal_share)
    assert count_served_requests(service, 120, 180) >= 0.8 * 100 * 60  # measured with 32 seeds: 0.9


@pytest.mark.parametrize("random_refusal_share", [0.01, 0.02])
def test_the_client_finds_a_doubled_limit_despite_random_refusals(random_refusal_share: float) -> None:
    service = LimitedService([(0, 2.5), (300, 5)], 0.05, random_refusal_share=random_refusal_share)
    assert count_served_requests(service, 400, 900) >= 0.95 * 5 * 500
