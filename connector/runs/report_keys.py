"""The keys of the objects in a report. The reference shows the annotation of each key."""

from typing import Annotated, Literal, TypedDict


class LoadRowCounts(TypedDict):
    """The `rows` of import, sync, plan and retry: the outcomes, in the order in which a run decides them."""

    read: Annotated[int, "Rows that the run read: the sum of the other numbers."]
    invalid: Annotated[int, "The row failed validation. The row is in the rejects file."]
    duplicate: Annotated[
        int,
        "The row is not used, because another row has the same identity and base. The first row that says inactive is "
        "used, otherwise the first row. If an invalid row may say inactive, no active row is used. The rejects file "
        "has each duplicate with different values. Its code is `differs`, or `overruled` if another row says or may "
        "say inactive.",
    ]
    suppressed: Annotated[
        int,
        "The subscriber is on the job's suppression list. With `suppress: {inactive: true}` in the job, also: the "
        "row says active, and the list shows the subscriber as inactive.",
    ]
    exists: Annotated[int, "The subscriber exists already."]
    changed: Annotated[
        int, "The subscriber exists, and its values differ from the source. The drift file has the differences."
    ]
    created: Annotated[
        int,
        "The service answered the create with a new Id, or the list shows the subscriber of a create without a clear "
        "answer. If the list never shows the last new subscriber, the report has a message.",
    ]
    rejected: Annotated[
        int,
        "The service refused the create, and its list did not show the subscriber when the run looked. The rejects "
        "file has the service's answer.",
    ]
    unknown: Annotated[int, "The subscriber may exist: a create got no answer. The next run looks the subscriber up."]
    unsent: Annotated[int, "The run ended before the row was sent."]


class MailRowCounts(TypedDict):
    """The `rows` of mail and send: the number of rows with each outcome."""

    read: Annotated[int, "Rows that the run read: the sum of the other numbers."]
    sent: Annotated[int, "The service accepted the email. In a preview: the email would be sent."]
    already_sent: Annotated[int, "An earlier run of the campaign sent the email."]
    invalid: Annotated[int, "The row failed validation. The row is in the rejects file."]
    duplicate: Annotated[int, "An earlier row has the same address."]
    suppressed: Annotated[
        int,
        "The address is on the suppression list, the row says inactive, or the service lists the address as inactive.",
    ]
    rejected: Annotated[int, "The service refused the email. The rejects file has the service's answer."]
    unknown: Annotated[int, "The email may have been sent: no answer came. The email is not sent again."]
    unsent: Annotated[int, "The run ended before the email was sent."]


class ExportRowCounts(TypedDict):
    """The `rows` of export: the number of listed subscribers and of written rows."""

    read: Annotated[int, "Listed subscribers."]
    written: Annotated[int, "Rows that were written to the destination."]


class CheckedRowCounts(TypedDict):
    """The `rows` of validate and reconcile: the number of source rows with each result."""

    read: Annotated[int, "Rows of the source: the sum of the other numbers."]
    valid: Annotated[int, "The row is valid, and no earlier row has its identity."]
    invalid: Annotated[int, "The row failed validation."]
    duplicate: Annotated[int, "Another row with the same identity and base is used."]
    suppressed: Annotated[int, "The subscriber is on the job's suppression list."]


class Activity(TypedDict):
    """The numbers of active and inactive subscribers, in the report's `activity`."""

    active: Annotated[int, "Number of active subscribers."]
    inactive: Annotated[int, "Number of inactive subscribers."]


class CauseExample(TypedDict):
    """An example of a row with a cause, in the report's `causes`."""

    row: Annotated[int, "Number of the row. In a CSV file or a workbook: the number that a spreadsheet program shows."]
    file: Annotated[str, "Name of the source or file."]
    value: Annotated[str, "Masked text of the cell that caused the problem."]


class Cause(TypedDict):
    """A cause of problems with rows, in the report's `causes`."""

    outcome: Annotated[str, "Outcome of the rows."]
    field: Annotated[str, "Faulty field. Empty if the whole row is faulty."]
    code: Annotated[str, "Short code of the problem, for programs."]
    message: Annotated[str, "Description of the problem, without personal data."]
    rows: Annotated[int, "Number of rows with this cause."]
    examples: Annotated[list[CauseExample], "Up to three of the rows with this cause."]


class SettledCounts(TypedDict):
    """The numbers of unknown creates that the run has resolved, in the report's `settled`."""

    found: Annotated[int, "Number of entries whose subscriber a look-up found in the service."]
    absent: Annotated[int, "Number of entries whose subscriber is proved absent."]


class ReceiptCounts(TypedDict):
    """The destination and the number of receipts, in the report's `receipts`."""

    to: Annotated[str, "Destination of the receipts."]
    rows: Annotated[
        int, "Number of receipts that this run wrote. Receipts that earlier runs left unwritten count, too."
    ]


class ProblemCounts(TypedDict):
    """The problems of one kind in the report's `problems`."""

    new: Annotated[
        int,
        "Number of problems that no finished run of the job has seen before. Without a job: number of all problems.",
    ]
    open: Annotated[int, "Number of problems of the job that are open after the run. In a plan: before the run."]


class Problems(ProblemCounts):
    """The numbers of the job's problems, in total and by kind, in the report's `problems`."""

    kinds: Annotated[
        dict[str, ProblemCounts],
        "Numbers of new and of open problems by kind: `invalid`, `rejected`, `held`, `unknown` and `opted_out`.",
    ]


class EmailReport(TypedDict, total=False):
    """The state of a single email and the service's answer, in the report's `email`."""

    state: Annotated[Literal["sent", "rejected", "unknown", "unsent"], "State of the email."]
    request_id: Annotated[int, "SendMessageRequestId of a sent email."]
    message_id: Annotated[str, "Message-ID of a sent email."]
    http_status: Annotated[int | None, "HTTP status of the answer, if the email is rejected or unknown."]
    message: Annotated[str, "Answer of the service, or the reason why no answer came."]


class ErrorReport(TypedDict):
    """The JSON of a command that ended without a report."""

    status: Annotated[
        Literal["usage", "aborted", "locked", "stopped"],
        "How the command ended. `usage`: exit code 2. `aborted`: 3. `locked`: 4. `stopped`: 130 or 143.",
    ]
    message: Annotated[str, "What happened, and what to do."]
