"""Compares the controller with a client that knows the limit. The service refuses requests at random. The client that
knows the limit obeys each pause, and otherwise sends at the limit."""

from tests.pace.matrix import (
    FIRST_MINUTE_S,
    NO_LIMIT,
    RANDOM_REFUSAL_RUN_LENGTH_S,
    Case,
    Controller,
    RunCounts,
    simulate_run,
)


class ClientWithKnownLimit:
    """A client that knows the rate (requests/s) and the size (requests) of the bucket. The client sends whenever the
    bucket has a token."""

    def __init__(self, rate: float, bucket_size: float) -> None:
        self._rate, self._bucket_size, self._tokens = rate, bucket_size, bucket_size
        self._filled_at, self._paused_until = 0.0, 0.0

    def admit_or_compute_wait(self, now: float) -> float:
        """Return 0 if a request may leave now, otherwise the seconds to wait."""
        if now < self._paused_until:
            return self._paused_until - now
        self._tokens = min(self._bucket_size, self._tokens + (now - self._filled_at) * self._rate)
        self._filled_at = now
        if self._tokens < 1 - 1e-9:
            return (1 - self._tokens) / self._rate
        self._tokens -= 1
        return 0.0

    def record_served_request(self, sent_at: float, now: float) -> None:
        """Do nothing, because the client knows the limit."""

    def record_refusal(self, _sent_at: float, now: float, retry_after_s: float | None) -> None:
        """Put the token of the refused request back into the bucket, because the refusal was random. Begin the pause
        that the refusal asks for."""
        self._tokens += 1
        self._paused_until = max(self._paused_until, now + (retry_after_s or 0.0))


def compare_with_known_limit(
    case: Case, controller: Controller, seed: int, length_s: int = RANDOM_REFUSAL_RUN_LENGTH_S
) -> tuple[float, float, int]:
    """Return the served requests of the controller, divided by the served requests of a client that knows the limit.
    The first quotient is for the whole run, and the second for its first minute. Also return the number of requests
    that the controller sent inside a pause."""
    bucket_size = 1e9 if case.limiter_kind == NO_LIMIT else round(case.rate * case.limiter_span_s)
    counts_with_known_limit = simulate_run(case, ClientWithKnownLimit(case.rate, bucket_size), seed, length_s)
    run_counts = simulate_run(case, controller, seed, length_s)
    return (
        _compute_served_share(run_counts, counts_with_known_limit, length_s),
        _compute_served_share(run_counts, counts_with_known_limit, FIRST_MINUTE_S),
        run_counts.sent_in_pause_count,
    )


def _compute_served_share(run_counts: RunCounts, counts_with_known_limit: RunCounts, length_s: int) -> float:
    return sum(run_counts.served_counts[:length_s]) / sum(counts_with_known_limit.served_counts[:length_s])
