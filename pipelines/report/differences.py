"""What a reconciliation found: in sum, and one by one as a CSV, a line for each and for each field that
drifted.
"""

import csv
import io
import shutil
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, NotRequired, TypedDict

from connector.atomic_file import PartialFile, refuse_foreign
from connector.errors import ConfigurationError, RunAborted
from connector.fields import NAMES
from connector.ledger.entries import Entry
from connector.rows import CloseableResource
from connector.spool import describe_no_room
from connector.states import State
from connector.texts import guard_formula

NO_ENTRY = "none"

_MEANINGS = {
    State.SENDING: "is being sent, or was when a run died",
    State.UNKNOWN: "was sent, and it is not known what became of it: connector retry settles it",
    State.HELD: "was sent, and is left to you: connector status says why; then connector retry "
    "--held resend, accept or drop",
}

KINDS = ("missing", "extra", "duplicated", "drifted", "vanished")
"""In the source and not in the service; in the service and not in the source, or without an identity; there several
times; there with other values; confirmed in the ledger, and there no longer."""

OF_THE_LIST = ("missing", "extra", "vanished")
"""Kinds that are certain only if the list is known to be complete."""

_EXAMPLES = 5  # of each kind: enough to look at one and see

DIFFERENCE_COLUMNS = {
    "difference": "missing, extra, duplicated, drifted or vanished.",
    "base": "The base, by name and id as far as they are known.",
    "identity": "Email or client_user_id, as the source has it, or else the service. Empty for an entry that only the "
    "ledger knows, since it keeps digests, and for a subscriber that is listed without one.",
    "ids": "Subscriber ids in the service; of a vanished one the id that it had.",
    "field": "The field that drifted.",
    "source": "What the source says, as it would be sent.",
    "service": "What the service has.",
    "ledger": "What the ledger says: none, sending, unknown, held, rejected or confirmed; empty where not asked.",
    "message": "What that means, with the service's words for a refusal.",
}


def name_state(entry: Entry | None) -> str:
    """Return `none`, or the name of the entry's state."""
    return NO_ENTRY if entry is None else entry.state.name.lower()


def explain_missing(entry: Entry | None, *, is_id_listed: bool) -> str:
    """Return why a subscriber may be missing; `is_id_listed`: the id that the ledger knows is still on the list."""
    if entry is None:
        return "never sent"
    if entry.state is State.REJECTED:
        return f"the service rejected it ({entry.status}): {entry.message or 'no words'}"
    if entry.state is State.CONFIRMED and is_id_listed:
        return f"was there as {entry.subscriber_id}, an id that is listed under another identity or base now"
    if entry.state is State.CONFIRMED:
        return f"was there as {entry.subscriber_id}, and is not listed any more"
    return _MEANINGS[entry.state]


@dataclass(slots=True)
class Differences:
    """The sums of one run, over all of its bases. `is_certain`: the list is known to be complete.

    A missing subscriber that the ledger has confirmed is vanished, too: both count it. `missing_by_ledger` are the
    missing by what the ledger says of them; `fields` the drifted by field; `examples` are subscriber ids, and of the
    missing record numbers of the source. `forgotten` is how many left the ledger (None: that was not asked for).
    """

    is_certain: bool = False
    counts: Counter[str] = field(default_factory=Counter)
    fields: Counter[str] = field(default_factory=Counter)
    missing_by_ledger: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[int]] = field(default_factory=lambda: {kind: [] for kind in KINDS})
    file: str | None = None
    forgotten: int | None = None

    def count(self, kind: str, example: int) -> None:
        """Count one more of this kind."""
        self.counts[kind] += 1
        if len(self.examples[kind]) < _EXAMPLES:
            self.examples[kind].append(example)

    def read_count(self, kind: str) -> int | None:
        """Return how many there are of a kind; None where that cannot be known."""
        return self.counts[kind] if self.is_certain or kind not in OF_THE_LIST else None

    @property
    def are_none(self) -> bool:
        """Whether source, ledger and service are known to agree."""
        return self.is_certain and not any(self.counts.values())

    def as_json(self) -> dict[str, Any]:
        """Return the keys that only the report of a reconciliation has: those of `DifferencesReport`."""
        return {
            "differences": {kind: self.read_count(kind) for kind in KINDS},
            "fields": {name: self.fields[name] for name in NAMES if self.fields[name]},
            "missing_by_ledger": dict(sorted(self.missing_by_ledger.items())),
            "examples": self.examples,
            "differences_file": self.file,
            **({"forgotten": self.forgotten} if self.forgotten is not None else {}),
        }


class DifferenceCounts(TypedDict):
    """The report's `differences`. A number is null if the list is not known to be complete."""

    missing: Annotated[int | None, "Rows of the source whose subscribers the service does not list."]
    extra: Annotated[int | None, "Listed subscribers that the source does not have."]
    duplicated: Annotated[int, "Subscribers that the service lists several times."]
    drifted: Annotated[int, "Subscribers whose values differ between the source and the service."]
    vanished: Annotated[int | None, "Subscribers that an earlier run confirmed and that the service lists no longer."]


class DifferencesReport(TypedDict):
    """The keys that only the report of a reconciliation has."""

    differences: Annotated[DifferenceCounts, "Number of differences of each kind. Null: not known."]
    fields: Annotated[dict[str, int], "Number of drifted subscribers by field."]
    missing_by_ledger: Annotated[
        dict[str, int],
        "Number of missing subscribers by their state in the ledger: none, sending, unknown, held, rejected or "
        "confirmed.",
    ]
    examples: Annotated[
        dict[str, list[int]],
        "Up to five examples of each kind: record numbers of missing rows, otherwise subscriber ids.",
    ]
    differences_file: Annotated[str | None, "Path of the file of `--to`. Null without `--to`."]
    forgotten: Annotated[
        NotRequired[int], "With `--forget-missing`: number of entries that were deleted from the ledger."
    ]


class DifferenceFile(CloseableResource):
    """A context manager; `publish` is the last that is done with it. Without a path nothing is kept."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._file = None if path is None else tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`
        self._text = (
            None if self._file is None else io.TextIOWrapper(self._file, "utf-8", "backslashreplace", newline="")
        )
        if self._text is not None:
            csv.writer(self._text).writerow(DIFFERENCE_COLUMNS)

    def write(
        self,
        difference: str,
        base: str,
        identity: str,
        ids: Sequence[int],
        *,
        field: str = "",
        source: str = "",
        service: str = "",
        ledger: str = "",
        message: str = "",
    ) -> None:
        """Add a line. Raises RunAborted when it cannot be kept."""
        if self._text is None:
            return
        joined = "; ".join(map(str, ids))
        cells = [difference, base, identity, joined, field, source, service, ledger, message]
        try:
            csv.writer(self._text).writerow(map(guard_formula, cells))
        except OSError as error:
            raise RunAborted(describe_no_room("the differences", error)) from None

    def publish(self) -> str | None:
        """Put the lines where they were asked for, readable by their owner alone; the path. Raises RunAborted."""
        if self._path is None or self._text is None or self._file is None:
            return None
        try:
            self._text.seek(0)  # writes what it holds
            with PartialFile(self._path) as partial:  # beside the target first, then in its place
                shutil.copyfileobj(self._file, partial.file)
                partial.publish()
        except OSError as error:
            raise RunAborted(f"--to {self._path} cannot be written: {error.strerror}") from None
        except ConfigurationError as error:
            raise RunAborted(f"--to {self._path}: {error}") from None
        return str(self._path)

    def close(self) -> None:
        """Let go of the lines."""
        if self._text is not None:
            self._text.close()


def check_difference_path(path: Path | None, report: Path | None) -> None:
    """Raise ConfigurationError if the differences cannot be written there: of files that are there they take the place
    only of one like themselves."""
    if path is None:
        return
    if path.suffix.lower() != ".csv":
        raise ConfigurationError(f"--to {path}: the differences are written as CSV; name a file ending in .csv")
    header = (",".join(DIFFERENCE_COLUMNS) + "\r\n").encode()
    refuse_foreign("--to", path, lambda beginning: beginning.startswith(header))
    if report is not None and report.absolute() == path.absolute():
        raise ConfigurationError(f"--to {path}: that is the report's file, too; name another")
