"""How far a run has come, in words for a person: share, rate, and the time that is left, as far as they are known."""

from collections import deque
from collections.abc import Callable

_LOOKS_BACK_S = 10.0  # the rate is that of the last seconds, since a service's changes


class Progress:
    """What a run is doing, in the words of the function that `follow` received last."""

    def __init__(self) -> None:
        self.describe: Callable[[], str] = lambda: "starting"

    def follow(self, describe: Callable[[], str]) -> None:
        """Show this from now on."""
        self.describe = describe


class Progression:
    """The advance of what is counted towards a total; `monotonic` gives seconds."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._marks: deque[tuple[float, int]] = deque()

    def describe(self, done: int, total: float | None, *, is_estimate: bool = False) -> str:
        """Return `25% of about 24,000, 830/s, 21 s left`, as much of it as is known."""
        rate, parts = self._measure(done), list[str]()
        if total:
            shown = f"{total:,.0f}"
            if is_estimate:  # to two digits: more would flicker
                digits: float = 10 ** max(0, len(f"{total:.0f}") - 2)
                shown = f"about {round(total / digits) * digits:,.0f}"
            parts.append(f"{min(done / total, 1.0):.0%} of {shown}")
        if rate >= 1:
            parts.append(f"{rate:,.0f}/s")
        if total and rate > 0 and done < total:
            parts.append(f"{_show_seconds((total - done) / rate)} left")
        return ", ".join(parts)

    def _measure(self, done: int) -> float:
        """Things done a second, since the mark before the last seconds."""
        now, marks = self._monotonic(), self._marks
        if marks and done < marks[-1][1]:  # it begins again
            marks.clear()
        marks.append((now, done))
        while len(marks) > 2 and marks[1][0] <= now - _LOOKS_BACK_S:
            marks.popleft()
        since, before = marks[0]
        return (done - before) / (now - since) if now > since else 0.0


def _show_seconds(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
