"""The numbers of requests in a report. The text after the type of a key is its description in the reference."""

from dataclasses import dataclass
from typing import Annotated, TypedDict


@dataclass(slots=True)
class RequestCounts:
    """Counts of the attempts of one operation. The retrier counts `retried`."""

    sent: Annotated[int, "Number of requests that were sent, including repeated ones."] = 0
    retried: Annotated[int, "Number of requests that were sent again."] = 0
    limited: Annotated[int, "Number of requests that the service refused because there were too many (429)."] = 0
    failed: Annotated[int, "Number of requests that neither succeeded nor were refused."] = 0


class TimelineReport(TypedDict):
    """The report's `timeline`: lists with an item for each interval."""

    bucket_s: Annotated[float, "Length of an interval, in seconds. The last interval may be shorter."]
    seconds: Annotated[float, "Length of the whole timeline, in seconds."]
    sent: Annotated[list[int], "Requests that ended in each interval."]
    limited: Annotated[list[int], "Requests that the service refused because there were too many (429)."]
    failed: Annotated[list[int], "Requests that neither succeeded nor were refused."]
    round_trip_ms: Annotated[list[float | None], "Mean time from request to answer, in milliseconds."]
    paused_s: Annotated[list[float], "Seconds of pauses that the service asked for."]
