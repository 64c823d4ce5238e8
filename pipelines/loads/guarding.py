"""A job's guards, judged by the sums of a survey before anything is sent: whether the run may go on."""

from collections.abc import Iterator

from connector.load import Limits, Tally, is_excess
from connector.outcomes import Outcome
from pipelines.jobs import Guard
from pipelines.units import show_share
from pipelines.words import agree, count

_NOTHING_MOVED = "Nothing was sent, and no cursor has moved"


def build_limits(guard: Guard | None) -> Limits:
    """Those of the guards that are judged while the run goes on; a source may have changed since it was surveyed."""
    return Limits() if guard is None else Limits(guard.max_creates, guard.max_rejected)


def find_trip(guard: Guard, tally: Tally, *, last_read: int | None, may_be_empty: bool) -> str | None:
    """Why the run may not go on, every guard that says so; None: it may.

    `last_read` is how many rows the last whole run read, None where that says nothing of this one; a source may be
    empty if it is asked only for what is new.
    """
    said = list(_judge(guard, tally, last_read, may_be_empty))
    return f"{'; '.join(said)}. {_NOTHING_MOVED}" if said else None


def _judge(guard: Guard, tally: Tally, last_read: int | None, may_be_empty: bool) -> Iterator[str]:
    read, invalid, creates = tally.read, tally.outcomes[Outcome.INVALID], tally.outcomes[Outcome.CREATED]
    if read == 0:
        if not may_be_empty:
            yield "guard: the source is empty; see why, or take the guard section out of the job"
        return
    if guard.max_invalid is not None and is_excess(invalid, guard.max_invalid, read):
        yield (
            f"guard.max_invalid: {invalid:,} of {count(read, 'row')} {agree(invalid, 'is', 'are')} "
            f"invalid ({show_share(invalid / read)}), and "
            f"{show_share(guard.max_invalid)} are allowed; correct the source, or raise the guard"
        )
    if guard.max_creates is not None and creates > guard.max_creates:
        yield (
            f"guard.max_creates: {creates:,} would be created, and {guard.max_creates:,} are allowed; see whether the "
            "source is the right one, or raise the guard"
        )
    if last_read is not None and is_excess(last_read - read, guard.max_shrink, last_read):
        yield (
            f"guard.max_shrink: {count(read, 'row')} {agree(read, 'was', 'were')} read, "
            f"{show_share(1 - read / last_read)} fewer than by the last run "
            f"({last_read:,}), and {show_share(guard.max_shrink)} are allowed; see whether the source is whole, or "
            "raise the guard"
        )


def withdraw(tally: Tally) -> None:
    """Whoever was only planned to be created was not sent, since the run ended with its survey."""
    planned = tally.outcomes.pop(Outcome.CREATED, 0)
    tally.outcomes[Outcome.UNSENT] += planned
