"""What a reconciliation found, in sum: how much differs, in which fields, and a few of each, by numbers that name
nobody to a stranger."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from connector.fields import NAMES

KINDS = ("missing", "extra", "duplicated", "drifted", "vanished")
"""In the source and not in the service; in the service and not in the source, or without an identity; there several
times; there with other values; confirmed in the ledger, and there no longer."""

OF_THE_LIST = ("missing", "extra", "vanished")
"""Kinds that nobody can be said to be of unless the list is known to be complete."""

_EXAMPLES = 5  # of each kind: enough to look at one and see


@dataclass(slots=True)
class Differences:
    """The sums of one run, over all of its bases. `is_certain`: the list is known to be complete.

    Whoever is missing and confirmed in the ledger is vanished, too: both count them. `missing_by_ledger` are the
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
        """One more of this kind."""
        self.counts[kind] += 1
        if len(self.examples[kind]) < _EXAMPLES:
            self.examples[kind].append(example)

    def tell(self, kind: str) -> int | None:
        """How many there are of a kind; None where that cannot be known."""
        return self.counts[kind] if self.is_certain or kind not in OF_THE_LIST else None

    @property
    def are_none(self) -> bool:
        """Whether source, ledger and service are known to agree."""
        return self.is_certain and not any(self.counts.values())

    def as_json(self) -> dict[str, Any]:
        """The keys that a report has beside a run's."""
        return {
            "differences": {kind: self.tell(kind) for kind in KINDS},
            "fields": {name: self.fields[name] for name in NAMES if self.fields[name]},
            "missing_by_ledger": dict(sorted(self.missing_by_ledger.items())),
            "examples": self.examples,
            "differences_file": self.file,
            **({"forgotten": self.forgotten} if self.forgotten is not None else {}),
        }
