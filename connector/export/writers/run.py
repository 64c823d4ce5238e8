"""The export whose rows are to be published, and what that changed."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from connector.export.names import EXPORTED_AT, RUN_ID
from connector.pages import Certificate, TotalCount


@dataclass(frozen=True, slots=True)
class Run:
    """The export whose rows are to be published: `rows` of them, each with `exported_at` (aware) as `_exported_at`."""

    run_id: str
    job: str
    certificate: Certificate
    rows: int
    exported_at: datetime
    finished_at: datetime

    @property
    def columns(self) -> Mapping[str, str | datetime]:
        """The values that all its rows share, by column."""
        return {RUN_ID: self.run_id, EXPORTED_AT: self.exported_at}

    @property
    def is_whole(self) -> bool:
        """Whether a subscriber that the filters would list and that is not among the rows has gone from the list:
        it is certified, its TotalCount too."""
        return self.certificate.is_complete and self.certificate.total_count is TotalCount.CHECKED


@dataclass(frozen=True, slots=True)
class Changes:
    """What a publishing did to the target's rows. `closed`: replaced, marked as deleted, or versions that ended."""

    inserted: int = 0
    updated: int = 0
    closed: int = 0
