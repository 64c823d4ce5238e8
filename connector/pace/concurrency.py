"""The limit of requests in flight. The limit follows the number of requests that the service works on at the
same time, so that few requests wait in the service.

A round is a group of successive requests. The mean round-trip time of a round is compared with the smallest mean of all
rounds. If the mean is close to the smallest mean and the limit is used, the limit grows. The limit doubles until the
first slow round or refusal, and then grows by a tenth.

In a slow round, requests wait for each other in the service. Then the limit falls to the number of requests that would
hardly wait (Little's law: the same rate at little more than the smallest mean). If the service serves fewer requests
per second after a fall, the requests did not wait for each other, and the service has become slower. In this case, the
mean of the present round becomes the smallest mean.

For requests of the list, a refusal or a failure also reduces the limit: to a half while the limit doubles, and to three
quarters later. After refusals, the limit grows only after several good rounds. Each refusal multiplies the number of
these good rounds by four, up to 16. Each growth of the limit halves the number.
"""

from math import inf

_FIRST_LIMIT = 16.0
_LOWEST_LIMIT = 1.0
_GOOD_ROUND_FACTOR = 1.15  # the limit grows if the mean round-trip time is at most this many times the smallest mean
_SLOW_ROUND_FACTOR = 1.25  # a round is slow if its mean round-trip time is more than this many times the smallest mean
_TOLERANCE_S = 0.003  # seconds: on loopback, the work of this process changes a round trip by milliseconds
# A fall of the limit is large if the new limit is less than this share of the limit before the fall.
_LARGE_FALL_FACTOR = 0.8
# The service has become slower if, after a large fall of the limit, the service serves less than this share of the
# requests per second that it served before the fall.
_SLOWER_SERVICE_FACTOR = 0.85
_GROWTH_SHARE = 0.1
_MIN_ANSWERS_IN_ROUND = 16
_SHORTEST_ROUND_S = 0.1
_MAX_ROUNDS_TO_GROW = 16

_REDUCTION_FACTOR_WHILE_DOUBLING, _REDUCTION_FACTOR_AFTER_DOUBLING = 0.5, 0.75
"""The factors by which a refusal reduces the limit. A refusal after a doubling means that the limit before the doubling
was right. After growth by a tenth, the limit is nearly right."""


class ConcurrencyLimit:
    """A limit of requests in flight: `allowed_count`, which begins at `first_limit` and never exceeds `ceiling`.

    Slow rounds do not reduce the limit below `min_limit_in_slow_rounds`, but refusals do. A round has at least
    `min_answers_in_round` answers.
    """

    def __init__(
        self,
        ceiling: int,
        *,
        first_limit: float = _FIRST_LIMIT,
        min_limit_in_slow_rounds: float = _LOWEST_LIMIT,
        min_answers_in_round: int = _MIN_ANSWERS_IN_ROUND,
    ) -> None:
        self._ceiling = max(float(ceiling), _LOWEST_LIMIT)
        self._limit = min(first_limit, self._ceiling)
        self._min_limit_in_slow_rounds = min(min_limit_in_slow_rounds, self._ceiling)
        self._min_answers_in_round = min_answers_in_round
        self._rounds_to_grow = 1  # number of good rounds before the limit grows; a refusal increases this number
        self._good_round_count = 0
        self._is_doubling = True
        self._least_mean_round_trip_s = inf  # the smallest mean round-trip time of all rounds
        # The limit and the requests served per second before a fall of the limit.
        self._limit_and_rate_before_fall: tuple[float, float] | None = None
        self._round_began_at = -inf
        self._first_answered_at = 0.0  # the time of the round's first answer
        self._answer_count, self._round_trip_sum_s, self._largest_in_flight_count = 0, 0.0, 0

    @property
    def allowed_count(self) -> int:
        """The number of requests that may be in flight, at least 1."""
        return int(self._limit)

    def record_answer(self, sent_at: float, now: float, in_flight_count: int) -> None:
        """Record the answer to an attempt that left at `sent_at` (s). `in_flight_count` is the number of requests in
        flight when the answer came, including this request."""
        if sent_at < self._round_began_at:  # the attempt left in an earlier round
            return
        if not self._answer_count:
            self._first_answered_at = now
        self._answer_count += 1
        self._round_trip_sum_s += now - sent_at
        self._largest_in_flight_count = max(self._largest_in_flight_count, in_flight_count)
        is_round_full = self._answer_count >= max(self._min_answers_in_round, self._limit / 2)
        if is_round_full and now - self._round_began_at >= _SHORTEST_ROUND_S:
            self._end_round(self._round_trip_sum_s / self._answer_count, now)

    def record_refusal(self, sent_at: float, now: float) -> None:
        """Reduce the limit because an attempt that left at `sent_at` (s) was refused or failed.

        Attempts that left before the present round began are ignored.
        """
        if sent_at < self._round_began_at:
            return
        reduced_limit = self._limit * (
            _REDUCTION_FACTOR_WHILE_DOUBLING if self._is_doubling else _REDUCTION_FACTOR_AFTER_DOUBLING
        )
        self._is_doubling, self._limit_and_rate_before_fall = False, None
        self._rounds_to_grow, self._good_round_count = min(4 * self._rounds_to_grow, _MAX_ROUNDS_TO_GROW), 0
        self._limit = max(_LOWEST_LIMIT, min(reduced_limit, self._limit - 1))
        self._begin_round(now)

    def _begin_round(self, now: float) -> None:
        self._round_began_at, self._answer_count, self._round_trip_sum_s, self._largest_in_flight_count = now, 0, 0.0, 0

    def _end_round(self, mean_round_trip_s: float, now: float) -> None:
        is_limit_used = self._largest_in_flight_count >= 0.9 * int(self._limit)
        served_per_s = (self._answer_count - 1) / max(now - self._first_answered_at, _SHORTEST_ROUND_S / 100)
        self._begin_round(now)
        self._least_mean_round_trip_s = min(self._least_mean_round_trip_s, mean_round_trip_s)
        if (
            self._limit_and_rate_before_fall is not None
            and self._limit < _LARGE_FALL_FACTOR * self._limit_and_rate_before_fall[0]
        ):
            if is_limit_used and served_per_s < _SLOWER_SERVICE_FACTOR * self._limit_and_rate_before_fall[1]:
                self._least_mean_round_trip_s = mean_round_trip_s
            self._limit_and_rate_before_fall = None
        if mean_round_trip_s > _SLOW_ROUND_FACTOR * self._least_mean_round_trip_s + _TOLERANCE_S:
            self._is_doubling = False
            self._limit_and_rate_before_fall = self._limit_and_rate_before_fall or (self._limit, served_per_s)
            reduced_limit = (
                self._limit * (_GOOD_ROUND_FACTOR * self._least_mean_round_trip_s + _TOLERANCE_S) / mean_round_trip_s
            )
            self._limit = max(reduced_limit, min(self._min_limit_in_slow_rounds, self._limit))
        elif is_limit_used and mean_round_trip_s <= _GOOD_ROUND_FACTOR * self._least_mean_round_trip_s + _TOLERANCE_S:
            self._grow_limit()

    def _grow_limit(self) -> None:
        self._good_round_count += 1
        if self._good_round_count < self._rounds_to_grow:
            return
        self._rounds_to_grow, self._good_round_count = max(1, self._rounds_to_grow // 2), 0
        grown_limit = 2 * self._limit if self._is_doubling else self._limit + max(1.0, _GROWTH_SHARE * self._limit)
        self._limit = min(grown_limit, self._ceiling)
