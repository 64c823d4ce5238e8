"""Errors, grouped by what the caller does next: fix the configuration, fix the data, wait, or stop.

Each carries a message for a person (what, where, what to do next); none carries a token or a person's data.
"""

STOPPED = "the run was stopped"
"""Why something was given up, where all that can be said is that the run was to end."""


class ConnectorError(Exception):
    """Any failure that this library foresees; `str()` of it is fit to show to a person.

    `run_id` is the run on record that ended with this error, or None if no run is on record for it.
    """

    run_id: str | None = None


class ConfigurationError(ConnectorError):
    """Settings, a job or an option cannot be used as given: nothing was started. Fix it and run again."""


class SourceError(ConnectorError):
    """A source cannot be read, or not to its end: fix the data or its access and run again."""


class ContentError(SourceError, ConfigurationError):
    """The content or the format of a source is at fault, so that it cannot be read to its end: nothing was sent, and a
    person must correct the source. Running again does not help."""


class LockedError(ConnectorError):
    """Another run holds the ledger, or writes the same file: wait for it."""


class LedgerError(ConnectorError):
    """The ledger cannot be trusted or written: nothing may be sent until a person has looked at it."""


class RunAborted(ConnectorError):  # noqa: N818 - an ending of a run, not a fault of the program
    """The run had to end early; what was done is recorded, and it can be run again."""


class UnreachableError(SourceError, RunAborted):
    """The database of a source refuses connections now, or is busy: run again later."""


_EXIT_CODES: tuple[tuple[type[ConnectorError], int], ...] = (
    (ConfigurationError, 2),
    (UnreachableError, 3),
    (SourceError, 2),  # here it was found before anything started; in a run it is an aborted report
    (LockedError, 4),
    (LedgerError, 3),
    (RunAborted, 3),
)


def find_exit_code(error: ConnectorError) -> int:
    """Return the exit code of a command that ends with this error and has no report: 2 for what a person must change,
    3 for what may pass, 4 for a lock."""
    return next((code for kind, code in _EXIT_CODES if isinstance(error, kind)), 3)
