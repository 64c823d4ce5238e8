"""The rate of requests under a limit that the service does not document. The controller finds the limit from the
requests that the service serves and refuses. docs/explanation/pace.md has the rules with their reasons.

- *Search*: While no limit is known, each answer raises the rate. Two answers double the rate.
- *Ramp*: When a limit is known, the rate rises from a guess to the upper bound of the limit. Above the upper bound, the
  rate rises slowly at first and then faster, until the service refuses a request. The refusal gives the bounds of the
  next ramp.
- *Period*: The time from one refusal to the next. A refusal with a pause (Retry-After) ends the period immediately.
  Refusals without a pause are tolerated up to a share of the requests. The third refusal that is not tolerated ends
  the period. While random refusals are expected, the sixth such refusal ends the period.
- *Trailing requests*: The requests that left after the refused request, and before its refusal arrived.
- *Random refusal*: A refusal that does not depend on the rate. Such a refusal costs its pause, and the rate stays.
- *Short pause*: A pause of less than 10 s.

A refusal that ends a period takes effect in three steps. `record_refusal` ends the period. During the pause, the rate
stays, and the answers to the trailing requests are counted. When the first request leaves after the pause,
`_apply_refusal` decides: the refusal was random, or a new search begins, or a ramp begins. A ramp begins to rise after
the service has served one request (`_begin_period_after_refusal`). After five refusals in a row, only single requests
leave. The wait between two requests then doubles up to one second.

All rates are measured between the times at which requests leave, in seconds of a monotonic clock. The code is pure: the
time `now` is an argument.
"""

import math
from dataclasses import dataclass, replace
from math import exp, inf, log, ulp

_FIRST_RATE = 20.0  # requests/s at the beginning of a search; most services allow this rate for a short time
_SEARCH_GROWTH_SHARE = 0.42  # share by which an answer raises the rate in the search: two answers double the rate
_MAX_BUSY_GAP_FACTOR = 4  # a sender is busy if the gap between two requests is at most this many times 1 / rate
# The first ramp after a search ends at most at this many times the mean rate of the search. A search begins slowly, so
# its mean rate is too low.
_FIRST_RAMP_END_PER_MEAN_RATE = 2.0

_MAX_RAMP_LENGTH_PER_REFUSAL_COST = 20.0
"""A ramp lasts at most this many times the cost of a refusal. If two windows of the limiter are longer, the ramp lasts
two windows. The cost is the pause, a round trip, and the time of the refused requests. With 20, a ramp loses 1/21 of
the time to its refusal. A longer ramp would find a raised limit late."""

_MIN_REFUSAL_COST_FOR_LONGEST_RAMP_S = 2.0
"""Least cost of a refusal (s) in the formula for the maximum length of a ramp. With a smaller value, a service that
allows 5 requests/s and asks for no pauses would refuse more than 3 % of the requests."""

# Least cost of a refusal (s) in the formula for the length of a ramp.
_MIN_REFUSAL_COST_S = 0.3
_MIN_RAMP_RISE_SHARE = 0.015  # the lower end of a ramp is at least this share below its upper end
# After the end of a ramp, the rate rises above `end_rate` exponentially, with this time constant. If the limiter counts
# in a longer window, the window is the time constant.
_OVERSHOOT_TIME_CONSTANT_S = 2.0
# The longest window of a limiter. If all requests are refused for a longer time, the cause is an outage.
_LONGEST_WINDOW_S = 61.0
_WINDOW_RISE_SHARE = 0.1  # a ramp after a full window rises to (1 + this share) times the rate of the window
# To decide whether a refusal is random, the controller needs at least this many refusals without a pause, or this many
# answers to trailing requests.
_MIN_REFUSALS = 3

# For each served request, this share of a refusal is tolerated if the refusal asks for no pause. The second share
# applies in a search and while random refusals are expected.
_TOLERATED_REFUSAL_SHARE, _TOLERATED_RANDOM_REFUSAL_SHARE = 0.01, 0.2

_TRAILING_RATE_FACTOR = 0.9
"""The next ramp begins at this many times the rate of the served trailing requests, or higher. Trailing requests left
after the refused request, and before its refusal arrived. The factor is below 1, because few requests do not measure a
rate exactly."""

# A rate cannot be measured with this many served requests or fewer. After this many refusals in a row, only single
# requests leave.
_FEW_REQUESTS = 5
# Refusals without a pause seem to be random if at least this many requests are served for each refusal.
_SERVED_REQUESTS_PER_RANDOM_REFUSAL = 8.0

_SHORTEST_LONG_PAUSE_S = 10.0
"""A refusal with a pause of at least this many seconds never counts as random. After a wrong guess, the next refusal
would cost the long pause again."""

_MAX_REFUSALS_WITHOUT_EVIDENCE = 10
"""After ten refusals in a row that do not look random, random refusals are no longer expected. After ten refusals in a
row that earlier periods do not contradict, a limit is certain."""

_MAX_CATCH_UP_S = 0.005  # a late sender may catch up at most this many seconds: one turn of the event loop
# The first ramp of a run begins at the `ramp_start_rate` of an earlier run's limit. Limits change, so this rate is
# halved for each day since the limit was found.
_LIMIT_HALF_LIFE_S = 86_400.0
# The first ramp never begins below the smaller of two rates: this share of `ramp_start_rate`, and `_FIRST_RATE`.
_MIN_START_RATE_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class FoundLimit:
    """A limit that a run has found. The next ramp rises from `ramp_start_rate` to `ramp_end_rate` (requests/s).
    `pause_s` is the pause that a refusal asks for. `window_s` is the longest period in which the service's limiter may
    count requests."""

    ramp_start_rate: float
    ramp_end_rate: float
    pause_s: float
    window_s: float

    def scale(self, factor: float) -> "FoundLimit":
        """Return the limit with both rates multiplied by `factor`. Shards convert the limit of a shard to the limit of
        all shards, or back."""
        return replace(self, ramp_start_rate=self.ramp_start_rate * factor, ramp_end_rate=self.ramp_end_rate * factor)


@dataclass(frozen=True, slots=True)
class _Ramp:
    """A ramp: in `length_s` seconds, the rate rises from `start_rate` to `end_rate` requests/s. After that, the rate
    rises above `end_rate` exponentially, with the time constant `overshoot_time_constant_s`."""

    start_rate: float
    end_rate: float
    length_s: float
    overshoot_time_constant_s: float

    def compute_rate(self, sending_s: float) -> float:
        """Return the rate (requests/s) after `sending_s` seconds in which the run sent requests."""
        if sending_s < self.length_s:
            return self.start_rate * math.pow(self.end_rate / self.start_rate, sending_s / self.length_s)
        overshoot_factor = exp(min((sending_s - self.length_s) / self.overshoot_time_constant_s, 30.0)) - 1
        return self.end_rate * (1 + _MIN_RAMP_RISE_SHARE / 2 * overshoot_factor)


@dataclass(slots=True)
class _Period:
    """The requests from one refusal to the next. A tolerated refusal does not end a period. The fields from
    `refused_request_sent_at` to the last field are about the refusal that ended the period."""

    # The time at which the first request of the period left. After a refusal by a limit, the first served request
    # counts.
    began_at: float = inf
    served_count: int = 0
    excess_refusal_count: float = 0.0  # number of refusals beyond the tolerated share
    # Number of requests that were served before the first refusal beyond the tolerated share.
    served_count_before_excess_refusals: int = 0
    refused_request_sent_at: float = inf  # the time at which the refused request left
    # The rate (requests/s) when the refusal arrived. If the refusal ended a search, this value is at most twice the
    # mean rate of the served requests.
    rate: float = 1.0
    sending_s: float = 1.0  # the seconds from `began_at` to `refused_request_sent_at`
    sending_and_pause_s: float = 1.0  # the sum of `sending_s` and the longer of the pauses before and after the period
    # Trailing requests are sent after the refused request, before the client receives the refusal. The service served
    # or refused each of them.
    served_trailing_request_count: int = 0
    refused_trailing_request_count: int = 0


class RateController:
    """Decides when the next request may leave. The rate never exceeds `ceiling` (requests/s).

    `found_limit` is the limit that an earlier run found `found_limit_age_s` seconds ago.
    """

    def __init__(
        self, ceiling: float = inf, found_limit: FoundLimit | None = None, found_limit_age_s: float = 0.0
    ) -> None:
        self.rate = min(_FIRST_RATE, ceiling)  # requests/s
        self._ceiling = ceiling
        self._mean_round_trip_s = 0.1  # mean round-trip time of served requests
        # The time at which the next request may leave, and the time at which the last request left.
        self._due_at = self._last_departed_at = -inf
        # Whether requests leave about as fast as the rate allows; otherwise the rate does not grow.
        self._is_sender_busy = True
        self._paused_until = -inf
        # Requests that left before this time belong to the ended period.
        self._ended_period_until = -inf
        self._ramp: _Ramp | None = None  # None during a search
        self._ramp_sending_s = 0.0  # seconds in which the run has sent requests since the ramp began
        self._current_period = _Period()
        self._ended_period = _Period()  # the period that the last refusal ended
        self._is_limit_measured = False  # whether a refusal of this run showed a limit
        self._is_undecided = False  # whether `_apply_refusal` must still run for the last refusal
        # False from a refusal until the next served request. A random refusal or a new search sets the value to True.
        self._has_recovered = True
        self._refused_in_row_count = 0
        # The smallest number of requests that were served in any period. This number is the estimate of a burst (the
        # requests that a limiter allows at once after idle time).
        self._fewest_served_count = inf
        self._pause_s = self._window_s = 0.0  # the values of `FoundLimit`
        # The highest rate (requests/s) that the service is proved to allow, since the limit last fell.
        self._proved_rate = 0.0
        self._random_refusal_countdown = 0
        """While this number is above 0, random refusals are expected. A refusal that looks random sets the number to
        10. A refusal in a ramp that does not look random lowers the number by one."""

        self._largest_period: _Period | None = None
        """The period with the most served requests since the last contradiction (`_detect_contradiction`). Only periods
        that began after a short pause count."""

        self._is_after_short_pause = False  # whether the present period began after a short pause
        self._agreement_count = 0
        """The number of consecutive comparisons that found no contradiction (`_detect_contradiction`). From ten
        comparisons on, it is certain that the service has a limit."""

        if found_limit is not None:
            self._pause_s, self._window_s = found_limit.pause_s, found_limit.window_s
            min_start_rate = min(_FIRST_RATE, _MIN_START_RATE_SHARE * found_limit.ramp_start_rate)
            age_factor = 0.5 ** (max(found_limit_age_s, 0.0) / _LIMIT_HALF_LIFE_S)
            self._begin_ramp(max(found_limit.ramp_start_rate * age_factor, min_start_rate), found_limit.ramp_end_rate)

    @property
    def found_limit(self) -> FoundLimit | None:
        """The limit that is known now, or None during a search. The limit includes the effect of the last refusal, even
        during the pause after this refusal."""
        if self._is_undecided:
            self._apply_refusal()
        if self._ramp is None:
            return None
        sending_s = max(self._last_departed_at - self._current_period.began_at, 1 / self.rate)
        ramp_start_rate = max(
            self._ramp.start_rate,
            min(self._current_period.served_count / (sending_s + self._pause_s), self._ramp.end_rate),
        )
        return FoundLimit(ramp_start_rate, max(self._ramp.end_rate, self.rate), self._pause_s, self._window_s)

    @property
    def is_limit_measured(self) -> bool:
        """Whether this run has measured the limit: a limit refused a request, or the service allowed a higher rate than
        the limit of the earlier run."""
        if self._is_undecided:
            self._apply_refusal()
        return self._is_limit_measured or (self._ramp is not None and self.rate > self._ramp.end_rate)

    def admit_or_compute_wait(self, now: float) -> float:
        """Return 0 if a request may leave, and count the request as sent. Otherwise return the seconds to wait."""
        wait_s = max(self._due_at, self._paused_until) - now
        if wait_s > 2 * ulp(now):  # a smaller wait is a rounding error of floats
            return wait_s
        self._record_departure(now)
        return 0.0

    def reserve_departure(self, now: float) -> float:
        """Reserve the time of the next request, and return the seconds until that time.

        Readers of the list call this method, because they limit their own concurrency. While no limit and no ceiling is
        known, the request waits only for the end of a pause.
        """
        leaves_at = max(now, self._paused_until)
        if self._is_undecided:
            self._apply_refusal()
        if self._ramp is None and self._ceiling == inf:
            self._update_departure_time(leaves_at)
        else:
            leaves_at = max(leaves_at, self._due_at)
            self._record_departure(leaves_at)
        return leaves_at - now

    def record_served_request(self, sent_at: float, now: float) -> None:
        """Record that the service answered a request sent at `sent_at`, and did not refuse it because of the rate."""
        self._mean_round_trip_s += 0.1 * (now - sent_at - self._mean_round_trip_s)
        if sent_at < self._ended_period_until:
            self._ended_period.served_trailing_request_count += sent_at > self._ended_period.refused_request_sent_at
            return
        if not self._has_recovered:
            self._begin_period_after_refusal(sent_at)
        self._current_period.served_count += 1
        self._refused_in_row_count = 0
        tolerated_share = (
            _TOLERATED_RANDOM_REFUSAL_SHARE
            if self._ramp is None or self._random_refusal_countdown
            else _TOLERATED_REFUSAL_SHARE
        )
        self._current_period.excess_refusal_count = max(
            self._current_period.excess_refusal_count - tolerated_share, 0.0
        )
        if self._ramp is None and self._is_sender_busy:
            # With the second bound, a high rate at most triples in a round trip.
            self.rate = min(
                self.rate + min(_SEARCH_GROWTH_SHARE * self.rate, 2 / self._mean_round_trip_s), self._ceiling
            )

    def record_refusal(self, sent_at: float, now: float, retry_after_s: float | None = None) -> None:
        """Record that a request sent at `sent_at` was refused because of the rate. No request leaves for
        `retry_after_s` seconds."""
        pause_s, ended_period, current_period = retry_after_s or 0.0, self._ended_period, self._current_period
        self._paused_until = max(self._paused_until, now + pause_s)
        if sent_at < self._ended_period_until:
            ended_period.refused_trailing_request_count += sent_at > ended_period.refused_request_sent_at
            return
        self._refused_in_row_count += 1
        if not self._has_recovered:
            self._ended_period_until = max(now, self._paused_until)
            return
        if not current_period.excess_refusal_count:
            current_period.served_count_before_excess_refusals = current_period.served_count
        current_period.excess_refusal_count += 1
        if not pause_s and current_period.excess_refusal_count < (
            2 * _MIN_REFUSALS if self._random_refusal_countdown else _MIN_REFUSALS
        ):
            return
        self._pause_s, self._ended_period_until = pause_s, max(now, self._paused_until)
        current_period.refused_request_sent_at, current_period.rate = sent_at, self.rate
        current_period.sending_s = max(sent_at - current_period.began_at, 1 / self.rate)
        current_period.sending_and_pause_s = max(
            current_period.sending_s + pause_s, sent_at - ended_period.refused_request_sent_at
        )
        if self._ramp is None:  # in a search, the rate is far above the mean rate that was served
            current_period.rate = min(
                self.rate,
                _FIRST_RAMP_END_PER_MEAN_RATE * max(current_period.served_count, 1) / current_period.sending_s,
            )
        self._ended_period, self._current_period = current_period, _Period()
        self._is_undecided, self._has_recovered = True, False

    def _record_departure(self, departed_at: float) -> None:
        """Record that a request leaves at `departed_at`, and set the time at which the next request may leave."""
        if self._is_undecided:
            self._apply_refusal()
        gap_s = self._update_departure_time(departed_at)
        if self._ramp is not None and self._is_sender_busy and self._has_recovered:
            self._ramp_sending_s += max(gap_s, 0.0)
            self.rate = min(self._ramp.compute_rate(self._ramp_sending_s), self._ceiling)
        self._due_at = max(self._due_at, self._paused_until, departed_at - _MAX_CATCH_UP_S) + 1 / self.rate
        if self._refused_in_row_count >= _FEW_REQUESTS:  # only single requests leave: the wait grows to one second
            doubling_count = min(self._refused_in_row_count - _FEW_REQUESTS, 30)
            self._due_at = max(self._due_at, departed_at + min(self._mean_round_trip_s * 2.0**doubling_count, 1.0))

    def _update_departure_time(self, departed_at: float) -> float:
        """Record the time at which a request leaves, and return the seconds since the previous request."""
        self._current_period.began_at = min(self._current_period.began_at, departed_at)
        gap_s = departed_at - max(self._last_departed_at, self._current_period.began_at)
        self._is_sender_busy = gap_s * self.rate <= _MAX_BUSY_GAP_FACTOR
        self._last_departed_at = departed_at
        return gap_s

    def _apply_refusal(self) -> None:
        """Choose the effect of the last refusal: a new search, a new ramp, or no effect for a random refusal."""
        ended_period, trailing_rate, self._is_undecided = self._ended_period, 0.0, False
        trailing_sending_s = self._last_departed_at - ended_period.refused_request_sent_at
        if ended_period.served_trailing_request_count > _FEW_REQUESTS and trailing_sending_s > 0:
            trailing_rate = (ended_period.served_trailing_request_count - 1) / trailing_sending_s
        is_pause_short = 0 < self._pause_s < _SHORTEST_LONG_PAUSE_S
        if is_pause_short and self._detect_contradiction():
            self._ramp, self._has_recovered = None, True
        elif self._detect_random_refusal(is_pause_short, trailing_rate):
            self._has_recovered = True
        else:
            self._window_s = max(self._window_s, min(self._pause_s, _LONGEST_WINDOW_S))
            self._begin_ramp(*self._find_ramp_rates(trailing_rate))
            self._is_limit_measured = True
        if self._has_recovered:
            self._refused_in_row_count = 0
        self._is_after_short_pause = is_pause_short

    def _find_ramp_rates(self, trailing_rate: float) -> tuple[float, float]:
        """Return the rates (requests/s) at which the next ramp begins and ends."""
        ended_period = self._ended_period
        self._fewest_served_count = min(self._fewest_served_count, ended_period.served_count)
        # The service serves at least one request after a pause.
        proved_rate = max(ended_period.served_count, 1) / ended_period.sending_and_pause_s
        if ended_period.sending_s >= self._pause_s:
            proved_rate = max(
                proved_rate, (ended_period.served_count - 2 * self._fewest_served_count) / ended_period.sending_s
            )
        start_rate = max((proved_rate * ended_period.rate) ** 0.5, _TRAILING_RATE_FACTOR * trailing_rate)
        return start_rate, max(ended_period.rate, trailing_rate)

    def _detect_contradiction(self) -> bool:
        """Return whether an earlier period shows that the rate of the last refusal is not the limit, because the
        service served more requests in that period than a limit at this rate allows."""
        ended_period, largest_period = self._ended_period, self._largest_period
        if ended_period.refused_trailing_request_count >= max(
            _MIN_REFUSALS, ended_period.served_trailing_request_count
        ):
            # Random refusals would not refuse half of the trailing requests, so the service certainly has a limit.
            self._agreement_count = _MAX_REFUSALS_WITHOUT_EVIDENCE
        if self._agreement_count >= _MAX_REFUSALS_WITHOUT_EVIDENCE or not self._is_after_short_pause:
            return False
        if largest_period is None or ended_period.served_count > largest_period.served_count:
            self._largest_period = ended_period
        if self._ramp is None or largest_period is None:
            return False
        allowed_count = (
            ended_period.served_count
            + _FEW_REQUESTS
            + ended_period.rate * max(largest_period.sending_s - ended_period.sending_s, 0.0)
        )
        is_limit_contradicted = largest_period.served_count > allowed_count
        if is_limit_contradicted:
            # The limit may have fallen since the earlier period, so this period is not compared with the next limits.
            self._largest_period = None
        self._agreement_count = 0 if is_limit_contradicted else self._agreement_count + 1
        return is_limit_contradicted

    def _detect_random_refusal(self, is_pause_short: bool, trailing_rate: float) -> bool:
        """Return whether the last refusal counts as random, and record the evidence for or against random refusals."""
        ended_period = self._ended_period
        meets_search_rule = is_pause_short and ended_period.served_trailing_request_count >= max(
            _MIN_REFUSALS, 3 * ended_period.refused_trailing_request_count
        )
        # During a search the rate doubles, so a limit refuses most of the trailing requests.
        if self._ramp is None:
            if meets_search_rule:
                self._random_refusal_countdown = _MAX_REFUSALS_WITHOUT_EVIDENCE
            return meets_search_rule
        if self._pause_s:
            has_few_refusals = meets_search_rule and not ended_period.refused_trailing_request_count
        else:
            has_few_refusals = (
                ended_period.served_count - ended_period.served_count_before_excess_refusals
                >= _SERVED_REQUESTS_PER_RANDOM_REFUSAL * ended_period.excess_refusal_count
            )
        is_below_proved_rate = ended_period.rate < self._proved_rate
        if is_below_proved_rate and not has_few_refusals:
            self._proved_rate = 0.0  # the limit has fallen
        self._random_refusal_countdown = (
            _MAX_REFUSALS_WITHOUT_EVIDENCE
            if is_below_proved_rate and has_few_refusals
            else max(self._random_refusal_countdown - 1, 0)
        )
        self._proved_rate = max(
            self._proved_rate,
            (ended_period.served_count - _FEW_REQUESTS) / ended_period.sending_and_pause_s,
            trailing_rate,
        )
        return meets_search_rule and self._random_refusal_countdown > 0

    def _begin_period_after_refusal(self, sent_at: float) -> None:
        """Begin the new period at `sent_at`, the time at which the first request left that was served after the
        refusal. If the service refused all requests until the end of the limiter's time window, begin a ramp at the
        mean rate of this window."""
        self._has_recovered, self._current_period.began_at = True, sent_at
        ended_period, paused_s = self._ended_period, sent_at - self._ended_period.refused_request_sent_at
        is_pause_too_long = (
            self._refused_in_row_count >= _FEW_REQUESTS and self._pause_s + 1.0 < paused_s < _LONGEST_WINDOW_S
        )
        # If the service served only a few requests before the refusals, the cause was an outage and not a full window.
        if is_pause_too_long and ended_period.served_count > _FEW_REQUESTS:
            mean_rate = ended_period.served_count / (ended_period.sending_s + paused_s)
            self._window_s = max(self._window_s, paused_s)
            self._begin_ramp(mean_rate, (1 + _WINDOW_RISE_SHARE) * mean_rate)
            self._is_limit_measured = True

    def _begin_ramp(self, start_rate: float, end_rate: float) -> None:
        start_rate = min(start_rate, (1 - _MIN_RAMP_RISE_SHARE) * end_rate)
        self.rate = min(start_rate, self._ceiling)
        log_width = log(end_rate / start_rate)
        refusal_cost_s = self._pause_s + self._mean_round_trip_s + (1 if self._pause_s else _MIN_REFUSALS) / self.rate
        longest_ramp_s = _MAX_RAMP_LENGTH_PER_REFUSAL_COST * max(refusal_cost_s, _MIN_REFUSAL_COST_FOR_LONGEST_RAMP_S)
        length_s = max(
            min(2 * max(refusal_cost_s, _MIN_REFUSAL_COST_S) / min(log_width, 1.0), longest_ramp_s), 2 * self._window_s
        )
        self._ramp = _Ramp(start_rate, end_rate, length_s, max(_OVERSHOOT_TIME_CONSTANT_S, self._window_s))
        self._ramp_sending_s = 0.0
