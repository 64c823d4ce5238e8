"""The plan of a load: which rows of the source it reads, and how it sends the rows.

`connector.jobs.load_planner` builds these values from a job.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import TYPE_CHECKING

from connector.errors import ConfigurationError
from connector.fields import BaseRef
from connector.imports.suppression import SuppressionPlan
from connector.load.session import LoadGuard
from connector.rows import Source
from connector.runs.frame import RunPlan
from connector.runs.rejects import select_source_columns
from connector.shards import SINGLE_SHARD, Shard
from connector.sources.files import refuse_missing_columns
from connector.subscribers.identity import Suppression
from connector.subscribers.preparation import PreparedChunk, check_mapping, prepare_chunks
from connector.subscribers.rules import BaseColumn, FieldMapping, ValidationRules, explain_missing_column, list_columns

if TYPE_CHECKING:
    from connector.imports.increments import Increment


@dataclass(frozen=True, slots=True)
class RowsPlan:
    """The plan for the rows of a source: their mapping to subscribers, their rules, and the rows that are left out."""

    job: str
    source: Source
    mapping: FieldMapping
    rules: ValidationRules
    base: BaseRef | BaseColumn
    suppression: SuppressionPlan | None = None
    row_limit: int | None = None  # largest number of rows that are used
    ignored_columns: tuple[str, ...] = ()  # columns that are not checked for consent
    refuses_empty_source: bool = False  # whether a source without rows ends the run

    @property
    def has_is_active_rule(self) -> bool:
        """Whether the mapping contains is_active."""
        return "is_active" in self.mapping.rules

    @property
    def base_column(self) -> BaseColumn | None:
        """The column with the base of each row, or None if all rows are for one base."""
        return self.base if isinstance(self.base, BaseColumn) else None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the source that are used."""
        return list_columns(self.mapping.columns, self.base_column)

    @property
    def unmapped_columns(self) -> tuple[str, ...]:
        """The columns of the source that are not used."""
        return tuple(name for name in select_source_columns(self.source.columns) if name not in self.columns)

    def prepare_chunks(
        self, today: date, suppression: Suppression | None, shard: Shard = SINGLE_SHARD
    ) -> Iterator[PreparedChunk]:
        """Read the source chunk by chunk to its end, and prepare the rows of the shard. Raises the errors of
        `connector.subscribers.preparation.prepare_chunks`."""
        return prepare_chunks(
            self.source,
            self.mapping,
            self.rules,
            today=today,
            row_limit=self.row_limit,
            base=self.base_column,
            suppression=suppression,
            shard=shard,
            ignored_columns=self.ignored_columns,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPlan(RunPlan):
    """The plan of a load: its rows, its settings, and the guards that may end the load."""

    rows: RowsPlan
    options: str = ""  # the options with which `import` loads the rejects file; "" for a job file
    increment: Increment | None = None
    guard: LoadGuard | None = None
    fails_only_on_new_problems: bool = False  # only new problems make the run partial
    # Whether the rows come from the source of the job, so that the row counts of consecutive runs are comparable.
    uses_source_of_job: bool = False

    @property
    def reads_complete_source(self) -> bool:
        """Whether each run reads the complete source of the job."""
        return self.uses_source_of_job and self.increment is None and self.rows.row_limit is None


def check_plan(plan: RowsPlan) -> RowsPlan:
    """Return the plan. If a column is mapped to is_active, is_active becomes a required field.

    Raises ConfigurationError if the mapping does not fit the source or one of its files, or if the source lacks an
    ignored column.
    """
    refuse_unknown_columns(plan.source, plan.ignored_columns)
    rules, rule = plan.rules, plan.mapping.rules.get("is_active")
    if rule is not None and rule.default is None:  # an empty cell does not say whether the subscriber is active
        rules = replace(rules, required=rules.required | {"is_active"})
    check_mapping(plan.mapping, rules, plan.source.columns, source_name=plan.source.name, base=plan.base_column)
    refuse_missing_columns(plan.source, plan.columns)
    return replace(plan, rules=rules)


def refuse_unknown_columns(source: Source, ignored_columns: Sequence[str]) -> None:
    """Raise ConfigurationError if the source lacks an ignored column, because the name may be misspelt."""
    for column in ignored_columns:
        if column not in source.columns:
            raise ConfigurationError(f"ignore: {explain_missing_column(column, source.columns)}")
