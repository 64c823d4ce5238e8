"""The rate of requests under a limit that the service does not document. The controller finds the limit from the
requests that the service serves and refuses. docs/explanation/pace.md has the rules with their reasons.

- *Search*: While no limit is known, each answer raises the rate. Two answers double the rate.
- *Ramp*: When a limit is known, the rate rises from a guess to the upper bound of the limit. Above the upper bound, the
  rate rises slowly at first and then faster, until the service refuses a request. The refusal gives the bounds of the
  next ramp.
- *Stretch*: The time between two refusals that count. A refusal with a pause (Retry-After) counts at once. Refusals
  without a pause are tolerated up to a share of the requests. Above this share, the third refusal counts. While
  refusals by chance are expected, only the sixth refusal counts.
- *Behind*: A request is behind a refused request if it left later and was in flight when the refusal arrived.
- *Chance*: A refusal by chance does not depend on the rate. Such a refusal costs its pause, and the rate stays.
- *Short pause*: A pause of less than 10 s.

A refusal that counts takes effect in three steps. `record_refusal` ends the stretch. During the pause, the rate stays,
and the answers to the requests behind the refused request are counted. When the first request leaves after the pause,
`_apply_refusal` chooses between chance, a new search and a ramp. A ramp begins to rise after the service has served one
request (`_recover`). After five refusals in a row, only single requests leave. The wait between two requests then
doubles up to one second.

All rates are measured between the times at which requests leave, in seconds of a monotonic clock. The code is pure: the
time `now` is an argument.
"""

import math
from dataclasses import dataclass, replace
from math import exp, inf, log, ulp

_FIRST_RATE = 20.0  # requests/s at the beginning of a search; most services allow this rate for a short time
_SEARCH_GROWTH_SHARE = 0.42  # share by which an answer raises the rate in the search: two answers double the rate
_MAX_BUSY_GAP_FACTOR = 4  # a sender is busy if the gap between two requests is at most this many times 1 / rate
# A ramp after a search ends at most at this many times the mean rate of the search, because the search began slowly.
_FIRST_RAMP_END_FACTOR = 2.0

_LONGEST_RAMP_COSTS = 20.0
"""The length of the longest ramp, as a multiple of the cost of a refusal (its pause, a round trip, and the time of the
refused requests). With 20, a ramp loses 1/21 of the time to its refusal. A longer ramp would find a raised limit
late."""

_LEAST_COST_IN_LONGEST_RAMP_S = 2.0
"""The length of the longest ramp is computed with at least this cost of a refusal (s). With a smaller value, the
service refuses more than 3 % of the requests under a limit of 5 requests/s without pauses."""

_LEAST_COST_S = 0.3  # the length of any other ramp is computed with at least this cost of a refusal (s)
# A ramp begins at least this share below its upper end. Half of this share scales the rise above the upper end.
_LEAST_RISE_SHARE = 0.015
# Seconds in which the rise above the upper end of a ramp grows e-fold, or the window of the limiter if it is longer.
_EXCESS_GROWTH_S = 2.0
_LONGEST_WINDOW_S = 61.0  # the longest window of services; refusals of all requests for a longer time are an outage
_WINDOW_RISE_SHARE = 0.1  # a ramp after a full window ends this share above the mean rate of the window
# At least this many refusals without a pause, or answers behind a refused request, show the cause of a refusal.
_MIN_REFUSALS = 3

_TOLERATED_SHARE, _TOLERATED_CHANCE_SHARE = 0.01, 0.2
"""For each served request, this number of refusals does not count. The first number is for a ramp. The second number is
for a search, or while refusals by chance are expected."""

_RATE_BEHIND_REFUSAL_SHARE = 0.9
"""The controller measures the rate at which the requests behind a refused request were served. A ramp begins at this
share of the measured rate or faster, because few requests do not measure a rate exactly."""

# At most this many served requests prove no rate; after this many refusals in a row, only single requests leave.
_FEW_REQUESTS = 5
# Refusals without a pause are evidence of chance if at least this many requests are served for each refusal.
_SERVED_PER_CHANCE_REFUSAL = 8.0

_SHORTEST_LONG_PAUSE_S = 10.0
"""A refusal with a pause of at least this many seconds never counts as chance, because a wrong guess costs the pause
again."""

_MAX_REFUSALS_WITHOUT_EVIDENCE = 10
"""After this many refusals without evidence of chance, refusals by chance are no longer expected. After this many
refusals without a contradiction, a limit is certain."""

_MAX_CATCH_UP_S = 0.005  # a late sender may catch up at most this many seconds: one turn of the event loop
# After this many seconds, a ramp begins at half of the low rate of an earlier limit, because limits change.
_LIMIT_HALF_LIFE_S = 86_400.0
# The age of a limit lowers the rate at which a ramp begins. The lowest possible rate is this share of the low rate. If
# `_FIRST_RATE` is lower than this share of the low rate, the lowest possible rate is `_FIRST_RATE`.
_LEAST_LOW_RATE_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class FoundLimit:
    """A limit that a run has found. The next ramp rises from `low_rate` to `high_rate` (requests/s). `pause_s` is the
    pause that a refusal asks for. `window_s` is the longest period in which the service's limiter may count
    requests."""

    low_rate: float
    high_rate: float
    pause_s: float
    window_s: float

    def scale(self, factor: float) -> "FoundLimit":
        """Return the limit with both rates multiplied by `factor`. Shards convert the limit of a shard to the limit of
        all shards, or back."""
        return replace(self, low_rate=self.low_rate * factor, high_rate=self.high_rate * factor)


@dataclass(frozen=True, slots=True)
class _Ramp:
    """A ramp: in `length_s` seconds, the rate rises from `low_rate` to `high_rate` requests/s. After that, the excess
    above `high_rate` grows e-fold in `excess_growth_s` seconds."""

    low_rate: float
    high_rate: float
    length_s: float
    excess_growth_s: float

    def compute_rate(self, sending_s: float) -> float:
        """Return the rate (requests/s) after `sending_s` seconds in which the run sent requests."""
        if sending_s < self.length_s:
            return self.low_rate * math.pow(self.high_rate / self.low_rate, sending_s / self.length_s)
        excess_factor = exp(min((sending_s - self.length_s) / self.excess_growth_s, 30.0)) - 1
        return self.high_rate * (1 + _LEAST_RISE_SHARE / 2 * excess_factor)


@dataclass(slots=True)
class _Stretch:
    """A stretch: the requests between two refusals that count. `refused_sent_at` and the fields below it are about the
    second refusal."""

    # The time at which the first request left; after a refusal by a limit, the first request that was served.
    began_at: float = inf
    served_count: int = 0
    excess_refusal_count: float = 0.0  # number of refusals beyond the tolerated share
    # Number of requests served before the first refusal that `excess_refusal_count` counts.
    served_before_count: int = 0
    refused_sent_at: float = inf  # the time at which the refused request left
    rate: float = 1.0  # the rate at which the refusal arrived (requests/s); after a search, at most twice the mean rate
    sending_s: float = 1.0  # the seconds from `began_at` to `refused_sent_at`
    sending_and_pause_s: float = 1.0  # the sum of `sending_s` and the longer of the pauses before and after the stretch
    served_behind_refusal_count: int = 0  # number of served requests behind the refused request
    refused_behind_refusal_count: int = 0  # number of refused requests behind the refused request


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
        # Answers to requests that left before this time count for the stretch of the last refusal.
        self._old_answers_until = -inf
        self._ramp: _Ramp | None = None  # None during a search
        self._ramp_sending_s = 0.0  # seconds in which the run has sent requests since the ramp began
        self._stretch = _Stretch()  # the present stretch
        self._ended_stretch = _Stretch()  # the stretch before the last refusal
        self._is_measured = False  # whether a refusal of this run showed a limit
        self._is_undecided = False  # whether `_apply_refusal` must still run for the last refusal
        # True if the last refusal was chance, or if a request was served or a search began after the refusal.
        self._has_recovered = True
        self._refused_in_row_count = 0
        # The smallest number of served requests of a stretch. A limiter can save up at most so many unused requests.
        self._fewest_served_count = inf
        self._pause_s = self._window_s = 0.0  # the values of `FoundLimit`
        # The highest rate (requests/s) that the service is proved to allow, since the limit last fell.
        self._proved_rate = 0.0
        self._remaining_chance_count = 0
        """The number of refusals without evidence of chance after which chance is no longer expected. With 0, chance is
        not expected."""

        self._largest_stretch: _Stretch | None = None
        """The stretch with the most served requests, among the stretches after short pauses since the last
        contradiction."""

        self._is_after_short_pause = False  # whether the present stretch began after a short pause
        self._agreement_count = 0
        """The number of refusals in a row, with short pauses, that no earlier stretch contradicts. From ten on, the
        limit is certain."""

        if found_limit is not None:
            self._pause_s, self._window_s = found_limit.pause_s, found_limit.window_s
            least_rate = min(_FIRST_RATE, _LEAST_LOW_RATE_SHARE * found_limit.low_rate)
            self._begin_ramp(
                max(found_limit.low_rate * 0.5 ** (max(found_limit_age_s, 0.0) / _LIMIT_HALF_LIFE_S), least_rate),
                found_limit.high_rate,
            )

    @property
    def found_limit(self) -> FoundLimit | None:
        """The limit that is known now, or None during a search. If an earlier stretch contradicts a limit, a new search
        begins, so the limit is None. The last refusal counts even during its pause."""
        if self._is_undecided:
            self._apply_refusal()
        if self._ramp is None:
            return None
        sending_s = max(self._last_departed_at - self._stretch.began_at, 1 / self.rate)
        low_rate = max(
            self._ramp.low_rate, min(self._stretch.served_count / (sending_s + self._pause_s), self._ramp.high_rate)
        )
        return FoundLimit(low_rate, max(self._ramp.high_rate, self.rate), self._pause_s, self._window_s)

    @property
    def is_measured(self) -> bool:
        """Whether this run has measured the limit. A refusal that was not chance measures the limit, and so does a rate
        above the earlier limit."""
        if self._is_undecided:
            self._apply_refusal()
        return self._is_measured or (self._ramp is not None and self.rate > self._ramp.high_rate)

    def admit_or_compute_wait(self, now: float) -> float:
        """Return 0 if a request may leave, and count the request as sent. Otherwise return the seconds to wait."""
        wait_s = max(self._due_at, self._paused_until) - now
        if wait_s > 2 * ulp(now):  # a smaller wait is a rounding error of floats
            return wait_s
        self._record_departure(now)
        return 0.0

    def reserve(self, now: float) -> float:
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

    def record_served(self, sent_at: float, now: float) -> None:
        """Record that a request sent at `sent_at` got an answer other than a refusal because of the rate."""
        self._mean_round_trip_s += 0.1 * (now - sent_at - self._mean_round_trip_s)
        if sent_at < self._old_answers_until:
            self._ended_stretch.served_behind_refusal_count += sent_at > self._ended_stretch.refused_sent_at
            return
        if not self._has_recovered:
            self._recover(sent_at)
        self._stretch.served_count += 1
        self._refused_in_row_count = 0
        tolerated_share = (
            _TOLERATED_CHANCE_SHARE if self._ramp is None or self._remaining_chance_count else _TOLERATED_SHARE
        )
        self._stretch.excess_refusal_count = max(self._stretch.excess_refusal_count - tolerated_share, 0.0)
        if self._ramp is None and self._is_sender_busy:  # with this rule, a high rate at most triples in a round trip
            self.rate = min(
                self.rate + min(_SEARCH_GROWTH_SHARE * self.rate, 2 / self._mean_round_trip_s), self._ceiling
            )

    def record_refusal(self, sent_at: float, now: float, retry_after_s: float | None = None) -> None:
        """Record that a request sent at `sent_at` was refused because of the rate. No request leaves for
        `retry_after_s` seconds."""
        pause_s, ended_stretch, stretch = retry_after_s or 0.0, self._ended_stretch, self._stretch
        self._paused_until = max(self._paused_until, now + pause_s)
        if sent_at < self._old_answers_until:
            ended_stretch.refused_behind_refusal_count += sent_at > ended_stretch.refused_sent_at
            return
        self._refused_in_row_count += 1
        if not self._has_recovered:
            self._old_answers_until = max(now, self._paused_until)
            return
        if not stretch.excess_refusal_count:
            stretch.served_before_count = stretch.served_count
        stretch.excess_refusal_count += 1
        if not pause_s and stretch.excess_refusal_count < (
            2 * _MIN_REFUSALS if self._remaining_chance_count else _MIN_REFUSALS
        ):
            return
        self._pause_s, self._old_answers_until = pause_s, max(now, self._paused_until)
        stretch.refused_sent_at, stretch.rate = sent_at, self.rate
        stretch.sending_s = max(sent_at - stretch.began_at, 1 / self.rate)
        # This time includes the longer of the pauses before and after the stretch.
        stretch.sending_and_pause_s = max(stretch.sending_s + pause_s, sent_at - ended_stretch.refused_sent_at)
        if self._ramp is None:  # in a search, the rate is far above the mean rate that was served
            stretch.rate = min(self.rate, _FIRST_RAMP_END_FACTOR * max(stretch.served_count, 1) / stretch.sending_s)
        self._ended_stretch, self._stretch = stretch, _Stretch()
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
        """Record the time at which a request leaves, and return the seconds since the request before it."""
        self._stretch.began_at = min(self._stretch.began_at, departed_at)
        gap_s = departed_at - max(self._last_departed_at, self._stretch.began_at)
        self._is_sender_busy = gap_s * self.rate <= _MAX_BUSY_GAP_FACTOR
        self._last_departed_at = departed_at
        return gap_s

    def _apply_refusal(self) -> None:
        """Choose the effect of the last refusal: no effect if the refusal was chance, a new search, or a ramp."""
        ended_stretch, rate_behind_refusal, self._is_undecided = self._ended_stretch, 0.0, False
        if (
            ended_stretch.served_behind_refusal_count > _FEW_REQUESTS
            and self._last_departed_at > ended_stretch.refused_sent_at
        ):
            rate_behind_refusal = (ended_stretch.served_behind_refusal_count - 1) / (
                self._last_departed_at - ended_stretch.refused_sent_at
            )
        is_pause_short = 0 < self._pause_s < _SHORTEST_LONG_PAUSE_S
        if is_pause_short and self._detect_contradiction():
            self._ramp, self._has_recovered = None, True
        elif self._detect_chance(is_pause_short, rate_behind_refusal):
            self._has_recovered = True
        else:
            self._window_s = max(self._window_s, min(self._pause_s, _LONGEST_WINDOW_S))
            self._begin_ramp(*self._find_ramp_rates(rate_behind_refusal))
            self._is_measured = True
        if self._has_recovered:
            self._refused_in_row_count = 0
        self._is_after_short_pause = is_pause_short

    def _find_ramp_rates(self, rate_behind_refusal: float) -> tuple[float, float]:
        """Return the rates (requests/s) at which the next ramp begins and ends."""
        ended_stretch = self._ended_stretch
        self._fewest_served_count = min(self._fewest_served_count, ended_stretch.served_count)
        # The service serves at least one request after a pause.
        proved_rate = max(ended_stretch.served_count, 1) / ended_stretch.sending_and_pause_s
        if ended_stretch.sending_s >= self._pause_s:
            proved_rate = max(
                proved_rate, (ended_stretch.served_count - 2 * self._fewest_served_count) / ended_stretch.sending_s
            )
        first_rate = max((proved_rate * ended_stretch.rate) ** 0.5, _RATE_BEHIND_REFUSAL_SHARE * rate_behind_refusal)
        return first_rate, max(ended_stretch.rate, rate_behind_refusal)

    def _detect_contradiction(self) -> bool:
        """Return whether an earlier stretch contradicts the limit: more of its requests were served than a limit at the
        refused rate allows."""
        ended_stretch, largest_stretch = self._ended_stretch, self._largest_stretch
        if ended_stretch.refused_behind_refusal_count >= max(_MIN_REFUSALS, ended_stretch.served_behind_refusal_count):
            # Only a limit refuses most requests behind the refused request.
            self._agreement_count = _MAX_REFUSALS_WITHOUT_EVIDENCE
        if self._agreement_count >= _MAX_REFUSALS_WITHOUT_EVIDENCE or not self._is_after_short_pause:
            return False
        if largest_stretch is None or ended_stretch.served_count > largest_stretch.served_count:
            self._largest_stretch = ended_stretch
        if self._ramp is None or largest_stretch is None:
            return False
        allowed_count = (
            ended_stretch.served_count
            + _FEW_REQUESTS
            + ended_stretch.rate * max(largest_stretch.sending_s - ended_stretch.sending_s, 0.0)
        )
        is_contradicted = largest_stretch.served_count > allowed_count
        # A stretch contradicts a limit only once, because the limit may have fallen since the stretch.
        if is_contradicted:
            self._largest_stretch = None
        self._agreement_count = 0 if is_contradicted else self._agreement_count + 1
        return is_contradicted

    def _detect_chance(self, is_pause_short: bool, rate_behind_refusal: float) -> bool:
        """Return whether the last refusal counts as chance, and record the evidence for or against chance."""
        ended_stretch = self._ended_stretch
        are_most_behind_refusal_served = is_pause_short and ended_stretch.served_behind_refusal_count >= max(
            _MIN_REFUSALS, 3 * ended_stretch.refused_behind_refusal_count
        )
        # During a search the rate doubles, so a limit refuses most requests behind the refused request.
        if self._ramp is None:
            if are_most_behind_refusal_served:
                self._remaining_chance_count = _MAX_REFUSALS_WITHOUT_EVIDENCE
            return are_most_behind_refusal_served
        if self._pause_s:
            is_refusal_single = are_most_behind_refusal_served and not ended_stretch.refused_behind_refusal_count
        else:
            is_refusal_single = (
                ended_stretch.served_count - ended_stretch.served_before_count
                >= _SERVED_PER_CHANCE_REFUSAL * ended_stretch.excess_refusal_count
            )
        is_below_proved_rate = ended_stretch.rate < self._proved_rate
        if is_below_proved_rate and not is_refusal_single:
            self._proved_rate = 0.0  # the limit has fallen
        self._remaining_chance_count = (
            _MAX_REFUSALS_WITHOUT_EVIDENCE
            if is_below_proved_rate and is_refusal_single
            else max(self._remaining_chance_count - 1, 0)
        )
        self._proved_rate = max(
            self._proved_rate,
            (ended_stretch.served_count - _FEW_REQUESTS) / ended_stretch.sending_and_pause_s,
            rate_behind_refusal,
        )
        return are_most_behind_refusal_served and self._remaining_chance_count > 0

    def _recover(self, sent_at: float) -> None:
        """Begin the stretch at `sent_at`, when the first request left that was served after the refusal. If the service
        refused all requests until the end of a window, begin a ramp at the rate of this window."""
        self._has_recovered, self._stretch.began_at = True, sent_at
        ended_stretch, paused_s = self._ended_stretch, sent_at - self._ended_stretch.refused_sent_at
        is_pause_too_long = (
            self._refused_in_row_count >= _FEW_REQUESTS and self._pause_s + 1.0 < paused_s < _LONGEST_WINDOW_S
        )
        # With fewer requests, the cause was an outage and not a full window.
        if is_pause_too_long and ended_stretch.served_count > _FEW_REQUESTS:
            mean_rate = ended_stretch.served_count / (ended_stretch.sending_s + paused_s)
            self._window_s = max(self._window_s, paused_s)
            self._begin_ramp(mean_rate, (1 + _WINDOW_RISE_SHARE) * mean_rate)
            self._is_measured = True

    def _begin_ramp(self, low_rate: float, high_rate: float) -> None:
        low_rate = min(low_rate, (1 - _LEAST_RISE_SHARE) * high_rate)
        self.rate = min(low_rate, self._ceiling)
        log_width = log(high_rate / low_rate)
        refusal_cost_s = self._pause_s + self._mean_round_trip_s + (1 if self._pause_s else _MIN_REFUSALS) / self.rate
        longest_ramp_s = _LONGEST_RAMP_COSTS * max(refusal_cost_s, _LEAST_COST_IN_LONGEST_RAMP_S)
        length_s = max(
            min(2 * max(refusal_cost_s, _LEAST_COST_S) / min(log_width, 1.0), longest_ramp_s), 2 * self._window_s
        )
        self._ramp = _Ramp(low_rate, high_rate, length_s, max(_EXCESS_GROWTH_S, self._window_s))
        self._ramp_sending_s = 0.0
