"""The progress of a run as a text for a person: the finished share, the rate and the remaining time, as far as they are
known."""

from collections import deque
from collections.abc import Callable

_RATE_WINDOW_S = 10.0  # the rate is measured over this time only, because the rate of a service changes


class Progress:
    """The current activity of a run as a text. `describe` returns the text. `set_describe_function` replaces the
    function `describe`."""

    def __init__(self) -> None:
        self.describe: Callable[[], str] = lambda: "starting"

    def set_describe_function(self, describe: Callable[[], str]) -> None:
        """Replace the function `describe`, which returns the activity of the run as a text."""
        self.describe = describe


class ProgressMeter:
    """Measures how many items are done per second. `monotonic` is a clock that returns seconds."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._measured_counts: deque[tuple[float, int]] = deque()

    def describe(self, done_count: int, total_count: float | None, *, is_estimate: bool = False) -> str:
        """Return a text such as `25% of about 24,000, 830/s, 21 s left`. Unknown parts are left out."""
        rate, text_parts = self._measure_rate(done_count), list[str]()
        if total_count:
            total_text = f"{total_count:,.0f}"
            if is_estimate:  # two digits, because more digits would flicker
                rounding_unit: float = 10 ** max(0, len(f"{total_count:.0f}") - 2)
                total_text = f"about {round(total_count / rounding_unit) * rounding_unit:,.0f}"
            text_parts.append(f"{min(done_count / total_count, 1.0):.0%} of {total_text}")
        if rate >= 1:
            text_parts.append(f"{rate:,.0f}/s")
        if total_count and rate > 0 and done_count < total_count:
            text_parts.append(f"{_format_seconds((total_count - done_count) / rate)} left")
        return ", ".join(text_parts)

    def _measure_rate(self, done_count: int) -> float:
        """Return the number of items done per second during about the last `_RATE_WINDOW_S` seconds."""
        now, measured_counts = self._monotonic(), self._measured_counts
        if measured_counts and done_count < measured_counts[-1][1]:  # the run reads the list from its beginning again
            measured_counts.clear()
        measured_counts.append((now, done_count))
        while len(measured_counts) > 2 and measured_counts[1][0] <= now - _RATE_WINDOW_S:
            measured_counts.popleft()
        first_time, first_count = measured_counts[0]
        return (done_count - first_count) / (now - first_time) if now > first_time else 0.0


def _format_seconds(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
