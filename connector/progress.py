"""The progress of a run as a text for a person: the finished share, the rate and the remaining time, as far as they are
known."""

from collections import deque
from collections.abc import Callable

_RATE_WINDOW_S = 10.0  # only the last seconds count, because the rate of a service changes


class Progress:
    """The current activity of a run as a text. `describe` returns the text. `set_describe` replaces this function."""

    def __init__(self) -> None:
        self.describe: Callable[[], str] = lambda: "starting"

    def set_describe(self, describe: Callable[[], str]) -> None:
        """Use this function for the text from now on."""
        self.describe = describe


class ProgressMeter:
    """A meter of the items that are done. `monotonic` returns seconds."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._marks: deque[tuple[float, int]] = deque()

    def describe(self, done_count: int, total: float | None, *, is_estimate: bool = False) -> str:
        """Return a text such as `25% of about 24,000, 830/s, 21 s left`. Unknown parts are left out."""
        rate, text_parts = self._measure_rate(done_count), list[str]()
        if total:
            total_text = f"{total:,.0f}"
            if is_estimate:  # two digits, because more digits would flicker
                rounding_unit: float = 10 ** max(0, len(f"{total:.0f}") - 2)
                total_text = f"about {round(total / rounding_unit) * rounding_unit:,.0f}"
            text_parts.append(f"{min(done_count / total, 1.0):.0%} of {total_text}")
        if rate >= 1:
            text_parts.append(f"{rate:,.0f}/s")
        if total and rate > 0 and done_count < total:
            text_parts.append(f"{_format_seconds((total - done_count) / rate)} left")
        return ", ".join(text_parts)

    def _measure_rate(self, done_count: int) -> float:
        """Return the number of items done per second during about the last `_RATE_WINDOW_S` seconds."""
        now, marks = self._monotonic(), self._marks
        if marks and done_count < marks[-1][1]:  # the count has begun again
            marks.clear()
        marks.append((now, done_count))
        while len(marks) > 2 and marks[1][0] <= now - _RATE_WINDOW_S:
            marks.popleft()
        mark_time, mark_count = marks[0]
        return (done_count - mark_count) / (now - mark_time) if now > mark_time else 0.0


def _format_seconds(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
