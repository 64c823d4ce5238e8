"""Error classes. Each class stands for one next step of the user: correct the settings, correct the data, or wait.

Each error has a message for a person: what happened, where, and what to do next. No message contains a token or
personal data.
"""

RUN_STOPPED_MESSAGE = "the run was stopped"
"""The reason that a report gives for an unsent row, if no better reason is known."""

OTHER_ACCOUNT_MESSAGE = "this token sees another account, or the base was emptied"
"""If a message of a report contains this text, the service lists none of the known subscribers."""


class ConnectorError(Exception):
    """Any failure that this library expects. `str()` returns a message that can be shown to a person.

    `run_id` is the id of the recorded run that ended with this error, or None if no run was recorded.
    """

    run_id: str | None = None


class ConfigurationError(ConnectorError):
    """The settings, the token, a job, an option or a destination cannot be used. Correct the cause and run again."""


class SourceError(ConnectorError):
    """A source cannot be read, or cannot be read to its end. Correct the data or the access to the data, and run
    again."""


class ContentError(SourceError, ConfigurationError):
    """A source cannot be read to its end, because its content or its format is wrong. Nothing was sent. A person must
    correct the source, and running again does not help."""


class LockedError(ConnectorError):
    """Another run holds the ledger, or writes the same file. Wait until the other run has ended."""


class LedgerError(ConnectorError):
    """The ledger cannot be trusted or cannot be written. Nothing may be sent until a person has checked the ledger."""


class MissingLedgerError(LedgerError, ConfigurationError):
    """The ledger does not exist. Correct its address, or restore a backup. Running again does not help."""


class ForeignLedgerError(LedgerError, ConfigurationError):
    """The file or the database at the address of the ledger is not a ledger. Correct the address, or restore a backup.
    Running again does not help."""


class RunAborted(ConnectorError):  # noqa: N818 - the end of a run, not a fault of the program
    """The run ended early. Its results so far are recorded, and the command can be run again."""


class UnreachableError(SourceError, RunAborted):
    """The database of a source refuses connections now, or is busy. Run again later."""


_EXIT_CODES: tuple[tuple[type[ConnectorError], int], ...] = (
    (ConfigurationError, 2),
    (UnreachableError, 3),
    (SourceError, 2),  # before a run begins; during a run, a SourceError ends the run with the status `aborted`
    (LockedError, 4),
    (LedgerError, 3),
    (RunAborted, 3),
)


def find_exit_code(error: ConnectorError) -> int:
    """Return the exit code of a command that ends with this error and without a report. 2: a person must change
    something. 3: the command can be run again. 4: another run holds a lock."""
    return next((exit_code for error_class, exit_code in _EXIT_CODES if isinstance(error, error_class)), 3)
