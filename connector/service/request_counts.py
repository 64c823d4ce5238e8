"""The numbers of requests in a report. The text after the type of a key is its description in the reference."""

from dataclasses import dataclass
from typing import Annotated


@dataclass(slots=True)
class RequestCounts:
    """Counts of the attempts of one operation. The retrier counts `retried`."""

    sent: Annotated[int, "Number of requests that were sent, including repeated ones."] = 0
    retried: Annotated[int, "Number of requests that were sent again."] = 0
    limited: Annotated[int, "Number of requests that the service refused because there were too many (429)."] = 0
    failed: Annotated[int, "Number of requests that neither succeeded nor were refused."] = 0
