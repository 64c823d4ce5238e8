"""What a load needs to know, as values: the rows of its source and how they are read, and how they are sent.

The planner of `connector.jobs.load_planner` makes these values from a job.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from connector.errors import ConfigurationError
from connector.fields import BaseRef
from connector.imports.increments import Increment
from connector.imports.suppression import SuppressionPlan
from connector.load.session import LoadGuard, LoadPolicy
from connector.row_files import select_source_columns
from connector.rows import Source
from connector.settings import Settings
from connector.shards import WHOLE, Shard
from connector.sources.files import refuse_lacking
from connector.subscribers.preparation import check_mapping
from connector.subscribers.row_bases import BaseColumn, list_columns
from connector.subscribers.rules import FieldMapping, ValidationRules, explain_missing


@dataclass(frozen=True, slots=True)
class RowsPlan:
    """The rows of a source, how they become subscribers, and which of them are left out; `limit` is a number of
    rows."""

    job: str
    source: Source
    mapping: FieldMapping
    rules: ValidationRules
    base: BaseRef | BaseColumn
    suppression: SuppressionPlan | None = None
    limit: int | None = None
    ignored: tuple[str, ...] = ()  # columns that say nothing about consent
    is_empty_refused: bool = False

    @property
    def says_activity(self) -> bool:
        """Whether anything says is_active."""
        return "is_active" in self.mapping.rules

    @property
    def base_column(self) -> BaseColumn | None:
        """The column that says each row's base; None: all are for one."""
        return self.base if isinstance(self.base, BaseColumn) else None

    @property
    def columns(self) -> tuple[str, ...]:
        """The source's columns that are used."""
        return list_columns(self.mapping.columns, self.base_column)

    @property
    def unmapped_columns(self) -> tuple[str, ...]:
        """The source's columns that become no field."""
        return tuple(name for name in select_source_columns(self.source.columns) if name not in self.columns)


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """A load: its rows, how they are sent, and what ends it."""

    command: str
    rows: RowsPlan
    policy: LoadPolicy
    settings: Settings
    by_job: str = ""  # the name of the job file, where there is one
    increment: Increment | None = None
    wait_s: float = 0.0
    shard: Shard = WHOLE  # only the rows whose identities are in the shard are loaded
    guard: LoadGuard | None = None
    is_own_source: bool = False  # the source is the job's own, so the row counts of consecutive runs are comparable
    is_full: bool = False  # what earlier runs have reported as changed is compared again
    is_planned: bool = False
    rows_path: Path | None = None  # where a plan tells of each row
    are_rows_reported: bool = False  # whether its report does, too

    @property
    def is_whole(self) -> bool:
        """Whether all of the job's source is read, each time."""
        return self.is_own_source and self.increment is None and self.rows.limit is None


def check_rows(plan: RowsPlan) -> RowsPlan:
    """Return the plan with all that its rules demand, if its mapping can serve each file of the source.

    Raises ConfigurationError and SourceError.
    """
    refuse_unknown_columns(plan.source, plan.ignored)
    rules, rule = plan.rules, plan.mapping.rules.get("is_active")
    if rule is not None and rule.default is None:  # an empty cell says nothing either
        rules = replace(rules, required=rules.required | {"is_active"})
    check_mapping(plan.mapping, rules, plan.source.columns, where=plan.source.name, base=plan.base_column)
    refuse_lacking(plan.source, plan.columns)
    return replace(plan, rules=rules)


def refuse_unknown_columns(source: Source, ignored: Sequence[str]) -> None:
    """Raise ConfigurationError if the source lacks a column that is to be ignored: its name may be misspelt."""
    for column in ignored:
        if column not in source.columns:
            raise ConfigurationError(f"ignore: {explain_missing('column', column, source.columns)}")


@contextmanager
def closed_on_error(source: Source) -> Iterator[None]:
    """Close the source if the body raises."""
    try:
        yield
    except BaseException:
        source.close()
        raise
