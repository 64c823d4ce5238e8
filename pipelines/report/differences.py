"""The differences that a reconciliation finds: their counts for the report, and a CSV file with a line for each
difference and for each field that drifted.
"""

import csv
import io
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypedDict, assert_never

from connector.atomic_file import PartialFile, refuse_foreign_file
from connector.errors import ConfigurationError, RunAborted
from connector.fields import FIELD_NAMES
from connector.ledger.entries import Entry
from connector.rows import CloseableResource
from connector.states import State
from connector.texts import escape_formula

DIFFERENCE_KINDS = ("missing", "extra", "duplicated", "drifted", "vanished")
"""`missing`: in the source and not in the service. `extra`: in the service and not in the source, or without an
identity. `duplicated`: several times in the service. `drifted`: in the service with other values. `vanished`: confirmed
in the ledger and no longer in the service."""

KINDS_THAT_NEED_COMPLETE_LIST = ("missing", "extra", "vanished")
"""Kinds that are certain only if the list is known to be complete."""

_MAX_EXAMPLES = 5  # examples of each kind in the report

DIFFERENCE_COLUMNS = {
    "difference": "Kind of the difference: `missing`, `extra`, `duplicated`, `drifted` or `vanished`.",
    "base": "Name and id of the base. A name or id that is not known is left out.",
    "identity": "Email or client_user_id from the source, otherwise from the service. Empty if only the ledger has "
    "the subscriber (the ledger stores digests), or if the service lists the subscriber without an "
    "identity.",
    "ids": "Subscriber ids in the service. For a vanished subscriber, the id in the ledger.",
    "field": "The field that drifted.",
    "source": "The value in the source, in the form in which a create would send it.",
    "service": "The value in the service.",
    "ledger": "The state in the ledger: `none`, `sending`, `unknown`, `held`, `rejected` or `confirmed`. Empty if the "
    "entry was not read.",
    "message": "The explanation, with the service's message for a refusal.",
}


def name_state(entry: Entry | None) -> str:
    """Return `none`, or the name of the entry's state in reports."""
    return (State.NONE if entry is None else entry.state).report_name


def explain_missing_subscriber(entry: Entry | None, *, is_id_listed: bool) -> str:
    """Return why a subscriber may be missing. `is_id_listed`: the service still lists the id of the entry."""
    state = State.NONE if entry is None else entry.state
    if entry is None or state is State.NONE:
        return "never sent"
    match state:
        case State.DROPPED:
            return entry.message or "no message"
        case State.REJECTED:
            return f"the service rejected the create ({entry.status}): {entry.message or 'no message'}"
        case State.CONFIRMED if is_id_listed:
            return (
                f"the subscriber had the id {entry.subscriber_id}, which the service now lists with another identity "
                "or base"
            )
        case State.CONFIRMED:
            return f"the subscriber had the id {entry.subscriber_id}, which the service no longer lists"
        case State.SENDING:
            return "a run is sending the create, or died while sending the create"
        case State.UNKNOWN:
            return (
                "the create was sent, and no answer came. To find out whether the subscriber exists, run: "
                "connector retry"
            )
        case State.HELD:
            return (
                "the create was sent, and is held for your decision. connector status shows the reason. Then use "
                "connector retry with --held resend, --held accept or --held drop"
            )
    assert_never(state)


@dataclass(slots=True)
class Differences:
    """The counts of the differences that one run found in all bases. `is_certain`: the list is known to be complete.

    A missing subscriber whose entry is confirmed also counts as vanished. `missing_count_by_state` has the number of
    missing subscribers by the state of their entries, and `fields` the number of drifted subscribers by field.
    `examples` are subscriber ids, and row numbers of the source for missing subscribers.
    """

    is_certain: bool = False
    counts: Counter[str] = field(default_factory=Counter)
    fields: Counter[str] = field(default_factory=Counter)
    missing_count_by_state: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[int]] = field(default_factory=lambda: {kind: [] for kind in DIFFERENCE_KINDS})
    file_path: str | None = None

    def count(self, kind: str, example: int) -> None:
        """Count a difference of this kind. `example` is a subscriber id or a row number."""
        self.counts[kind] += 1
        if len(self.examples[kind]) < _MAX_EXAMPLES:
            self.examples[kind].append(example)

    def find_certain_count(self, kind: str) -> int | None:
        """Return the number of differences of a kind. Return None if the number needs a complete list, and the list is
        not known to be complete."""
        return self.counts[kind] if self.is_certain or kind not in KINDS_THAT_NEED_COMPLETE_LIST else None

    @property
    def is_in_agreement(self) -> bool:
        """Whether source, ledger and service are known to agree."""
        return self.is_certain and not any(self.counts.values())

    def as_json(self) -> dict[str, Any]:
        """Return the keys of `DifferencesReport`, which only the report of a reconciliation has."""
        return {
            "differences": {kind: self.find_certain_count(kind) for kind in DIFFERENCE_KINDS},
            "fields": {name: self.fields[name] for name in FIELD_NAMES if self.fields[name]},
            "missing_by_ledger": dict(sorted(self.missing_count_by_state.items())),
            "examples": self.examples,
            "differences_file": self.file_path,
        }


class DifferenceCounts(TypedDict):
    """The report's `differences`. The numbers of `KINDS_THAT_NEED_COMPLETE_LIST` are null if the list is not known to
    be complete."""

    missing: Annotated[int | None, "Number of rows of the source whose subscribers the service does not list."]
    extra: Annotated[int | None, "Number of listed subscribers that the source does not have."]
    duplicated: Annotated[int, "Number of subscribers that the service lists several times."]
    drifted: Annotated[int, "Number of subscribers whose values differ between the source and the service."]
    vanished: Annotated[
        int | None, "Number of subscribers that an earlier run confirmed and that the service no longer lists."
    ]


class DifferencesReport(TypedDict):
    """The keys that only the report of a reconciliation has."""

    differences: Annotated[DifferenceCounts, "Number of differences of each kind. Null if the number is not known."]
    fields: Annotated[dict[str, int], "Number of drifted subscribers by field."]
    missing_by_ledger: Annotated[
        dict[str, int],
        "Number of missing subscribers by their state in the ledger: `none`, `sending`, `unknown`, `held`, `rejected` "
        "or `confirmed`.",
    ]
    examples: Annotated[
        dict[str, list[int]],
        "Up to five examples of each kind: row numbers of missing subscribers, and subscriber ids for the other kinds.",
    ]
    differences_file: Annotated[str | None, "Path of the file of `--to`. Null without `--to`."]


class DifferenceFile(CloseableResource):
    """The CSV file of the differences, a context manager. `publish` moves the finished file to its path. Without a
    path, nothing is written. Raises RunAborted if the file cannot be written."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._partial: PartialFile | None = None
        if path is None:
            return
        try:
            self._partial = PartialFile(path)
        except ConfigurationError as error:
            raise RunAborted(f"--to {path}: {error}") from None
        self._text = io.TextIOWrapper(self._partial.file, "utf-8", "backslashreplace", newline="")
        self._write_line(DIFFERENCE_COLUMNS)

    def write(
        self,
        kind: str,
        base_name: str,
        identity_text: str,
        ids: Sequence[int],
        *,
        field_name: str = "",
        source_text: str = "",
        service_text: str = "",
        state_name: str = "",
        message: str = "",
    ) -> None:
        """Write the line of a difference. `state_name` is the state in the ledger, or empty."""
        ids_text = "; ".join(map(str, ids))
        self._write_line(
            [kind, base_name, identity_text, ids_text, field_name, source_text, service_text, state_name, message]
        )

    def _write_line(self, cells: Iterable[str]) -> None:
        if self._partial is not None:
            with self._translate_errors():
                csv.writer(self._text).writerow(map(escape_formula, cells))

    def publish(self) -> str | None:
        """Move the finished file to its path, readable only by its owner, and return the path."""
        if self._partial is None:
            return None
        with self._translate_errors():
            self._text.flush()
            self._partial.publish()
        return str(self._path)

    def close(self) -> None:
        """Delete the file, unless `publish` has moved the file to its path."""
        if self._partial is not None:
            with suppress(OSError, ValueError):  # OSError: the disk is full; ValueError: `publish` closed the file
                self._text.detach()
            self._partial.close()

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise RunAborted(f"--to {self._path} cannot be written: {error.strerror}") from None


def check_difference_path(path: Path | None, report_path: Path | None) -> None:
    """Raise ConfigurationError if the differences cannot be written to `path`: only an earlier file of differences is
    overwritten."""
    if path is None:
        return
    if path.suffix.lower() != ".csv":
        raise ConfigurationError(f"--to {path}: the differences are written as CSV. Name a file that ends in .csv")
    header = (",".join(DIFFERENCE_COLUMNS) + "\r\n").encode()
    refuse_foreign_file("--to", path, lambda beginning: beginning.startswith(header))
    if report_path is not None and report_path.absolute() == path.absolute():
        raise ConfigurationError(f"--to {path}: the report has the same path. Name another file")
