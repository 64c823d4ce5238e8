"""When a mail run is to end early, by what its emails were answered. Every further one would cost somebody theirs."""

from collections import Counter

from connector.protocol import TOO_MANY_REQUESTS, refusal_kind

_UNKNOWN_FIRST = 3  # of the first, none of which the service accepted
_UNKNOWN_IN_ROW = 5
_REFUSED_IN_ROW = 20
_REDIRECTS = range(300, 400)


class Ending:
    """Told of every answer; `reason` is why the run is to end, in words, or None while it may go on. `has_accepted`
    says whether the service has accepted an email: until then they leave one at a time."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self.has_accepted = False
        self._unknown_in_row = 0
        self._refused_in_row = Counter[str]()

    def end(self, reason: str) -> None:
        """The run is to end for this reason, unless it has one."""
        self.reason = self.reason or reason

    def note_accepted(self) -> None:
        """The service took on an email."""
        self.has_accepted, self._unknown_in_row = True, 0
        self._refused_in_row.clear()

    def note_refused(self, status: int, words: str) -> None:
        """It refused one, which is not sent again."""
        said = f"{status}: {words}"
        if status == TOO_MANY_REQUESTS:
            self.end(
                f"the service refused an email for its rate ({said}), and the job does not say that it may be sent "
                "again: lower load.max_rate, or set mail.retry_limited, and run again with --rejected"
            )
        elif not self.has_accepted:
            self.end(
                f"the service refused the first email ({said}), and may refuse every other alike. Nothing else was "
                "sent: correct what it says, and run again; with --rejected this one is sent, too"
            )
        else:
            kind = refusal_kind(status, words)
            self._refused_in_row[kind] += 1
            if self._refused_in_row[kind] >= _REFUSED_IN_ROW:
                self.end(f"the service refused {_REFUSED_IN_ROW} emails in a row alike ({kind}): correct what it says")

    def note_unknown(self, status: int | None, words: str) -> None:
        """Its answer to one says nothing certain; `status` is None when there was none."""
        self._unknown_in_row += 1
        if status in _REDIRECTS:
            self.end(f"the service redirects ({status}), which is never followed: correct service.base_url ({words})")
        elif self._unknown_in_row >= (_UNKNOWN_IN_ROW if self.has_accepted else _UNKNOWN_FIRST):
            said = f"status {status}, {words}" if status is not None else words
            self.end(
                f"{self._unknown_in_row} emails in a row had no certain answer (last: {said}): run again when the "
                "service works; those will not be sent again"
            )

    def note_unreachable(self, words: str) -> None:
        """One could not be sent at all."""
        self.end(f"the service cannot be reached: {words}. Run it again; nobody is sent an email twice")
