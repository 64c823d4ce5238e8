"""The creates that the sandbox executed, with their times. The source is the truth log of the sandbox, because the
report of a tool may be wrong."""

from dataclasses import dataclass

from connector.sandbox import SandboxProcess


@dataclass(frozen=True, slots=True)
class Creates:
    """The creates that the sandbox executed."""

    stored_times: tuple[float, ...]  # the time at which each subscriber was stored, in Unix seconds, ascending
    duplicate_count: int  # subscribers that were created more than once

    @property
    def span_s(self) -> float:
        """The seconds from the first create to the last."""
        return self.stored_times[-1] - self.stored_times[0] if self.stored_times else 0.0

    def compute_rate(self, skip_s: float = 0.0) -> float:
        """Return the rate in creates/s, without the first `skip_s` seconds.

        Return NaN if fewer than two creates remain, or if less than a second remains after skipping.
        """
        times_after_skip = [time for time in self.stored_times if time >= self.stored_times[0] + skip_s]
        if len(times_after_skip) < 2 or (skip_s and self.span_s < skip_s + 1):
            return float("nan")
        return (len(times_after_skip) - 1) / (times_after_skip[-1] - times_after_skip[0])


def read_creates(sandbox: SandboxProcess) -> Creates:
    """Return all creates since the sandbox was last emptied."""
    truth_log = sandbox.truth()
    create_events = [event for event in truth_log["events"] if event["kind"] == "created"]
    return Creates(tuple(event["at"] for event in create_events), len(truth_log["duplicates"]))
