"""The flow of import, sync and plan: read, map, validate, plan and load the rows, settle unknown creates, and report.

First the source is read to its end, and its rows are written to disk (connector.spooled_rows). If the job has guards,
the flow then plans all rows and sends nothing (the survey). At the end, the rows are loaded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import aclosing, closing, nullcontext
from functools import partial
from typing import TYPE_CHECKING

from connector.control import Stop
from connector.errors import ConfigurationError, RunAborted
from connector.imports.base_loads import BaseLoads
from connector.imports.plan import LoadPlan
from connector.imports.remarks import (
    MISSING_ACTIVITY_MESSAGE,
    Remarks,
    describe_opt_outs,
    describe_reactivated_rows,
    describe_unmapped_columns,
    describe_unread_entries,
)
from connector.imports.suppression import read_suppression
from connector.ledger.entries import Ledger
from connector.ledger.records import find_or_add_base, find_source_row_count
from connector.ledger.store import Base
from connector.load.session import LoadGuard, RunMode
from connector.outcomes import Outcome
from connector.progress import Progress
from connector.runs.frame import Run, RunSetup, run_with_setup
from connector.runs.problems import ProblemScope
from connector.runs.rejects import is_workbook_name
from connector.runs.report import (
    Report,
    RunScope,
    describe_mapping,
    describe_policy,
    describe_requested_base,
    describe_row_limit,
    drop_empty_values,
)
from connector.runs.row_files import build_invalid_problems, build_malformed_problem, build_problem_of_unused_row
from connector.spooled_rows import SpooledRows
from connector.subscribers.consent import explain_consent
from connector.subscribers.preparation import PreparedChunk
from connector.subscribers.rules import BaseColumn
from connector.tally import Tally, exceeds_share
from connector.texts import choose_form, count
from connector.units import format_share

if TYPE_CHECKING:
    from connector.imports.increments import Increment, IncrementalRun

_FINISHED_EXIT_CODES = (0, 1)  # exit codes ok and partial: all problems are in the ledger or in the rejects file


def _check_guards(
    guard: LoadGuard, tally: Tally, source_row_count: int, *, previous_row_count: int | None, may_be_empty: bool
) -> Iterator[str]:
    """Yield a message for each guard that stops the run.

    `source_row_count` includes the rows of other shards. `previous_row_count` is the row count of the last run that
    read the whole source, or None if the two counts cannot be compared. `may_be_empty`: the source may be empty,
    because the run reads only new rows.
    """
    read_count = tally.read_count
    invalid_count = tally.outcomes[Outcome.INVALID]
    create_count = tally.outcomes[Outcome.CREATED]
    if source_row_count == 0:
        if not may_be_empty:
            yield "`guard`: the source is empty; find out why, or remove the section `guard` from the job"
        return
    if guard.max_invalid is not None and exceeds_share(invalid_count, guard.max_invalid, read_count):
        yield (
            f"guard.max_invalid: {invalid_count:,} of {count(read_count, 'row')} "
            f"{choose_form(invalid_count, 'is', 'are')} invalid ({format_share(invalid_count / read_count)}), and "
            f"{format_share(guard.max_invalid)} are allowed; correct the source, or raise this limit"
        )
    if guard.max_creates is not None and create_count > guard.max_creates:
        yield (
            f"guard.max_creates: {count(create_count, 'subscriber')} would be created, and {guard.max_creates:,} are "
            "allowed; check "
            "whether this is the right source, or raise this limit"
        )
    if previous_row_count is not None and exceeds_share(
        previous_row_count - source_row_count, guard.max_shrink, previous_row_count
    ):
        yield (
            f"guard.max_shrink: {count(source_row_count, 'row')} {choose_form(source_row_count, 'was', 'were')} read, "
            f"{format_share(1 - source_row_count / previous_row_count)} fewer than in the last run "
            f"({previous_row_count:,}), and {format_share(guard.max_shrink)} are allowed; check whether the source is "
            "complete, or raise this limit"
        )


def describe_load(plan: LoadPlan) -> RunScope:
    """Return the source, service, base and settings of a load for its report."""
    cursor_text = ("all rows from the start on" if plan.is_full else "new rows") if plan.increment is not None else ""
    setting_texts = {
        "job_file": "" if plan.job_path is None else str(plan.job_path),
        "options": plan.options,
        "identity": plan.rows.rules.identity_field,
        "fields": describe_mapping(plan.rows.mapping),
        "required": ", ".join(sorted(plan.rows.rules.required)),
        "zip": plan.rows.rules.zip_policy if "address_zip" in plan.rows.mapping.rules else "",
        "limit": describe_row_limit(plan.rows.row_limit),
        "shard": "" if plan.shard.is_whole else str(plan.shard),
        "cursor": cursor_text,
        "suppress": f"a list of {plan.rows.suppression.field}" if plan.rows.suppression is not None else "",
        **describe_policy(plan.policy),
    }
    service_url, account = plan.settings.service.base_url, plan.settings.account
    base_text = describe_requested_base(plan.rows.base)
    return RunScope(plan.rows.source.name, service_url, base_text, account, drop_empty_values(setting_texts))


def _build_problem_scope(plan: LoadPlan) -> ProblemScope:
    column = plan.rows.base_column
    return ProblemScope(
        account=plan.settings.account,
        job=plan.job_name,
        mapping=plan.rows.mapping,
        identity_field=plan.rows.rules.identity_field,
        base_column=None if column is None else column.column,
        reads_complete_source=plan.reads_complete_source
        or (plan.uses_source_of_job and plan.is_full and plan.rows.row_limit is None),
        fails_only_on_new_problems=plan.fails_only_on_new_problems,
    )


async def run_load(plan: LoadPlan, stop: Stop, progress: Progress, source_rows: SpooledRows | None = None) -> Report:
    """Load the rows of the plan's source, and return the report.

    `source_rows` is for several runs over the same rows: a preview, and then the load of the previewed rows. The first
    run reads the source, and the caller closes `source_rows`. Raises ConfigurationError before a row is sent. A run
    that has begun always ends with a report.
    """

    def find_bases(ledger: Ledger) -> list[Base]:
        if isinstance(plan.rows.base, BaseColumn):
            return []
        return [
            find_or_add_base(ledger.connection, plan.settings.account, plan.rows.base.service_id, plan.rows.base.name)
        ]

    setup = RunSetup(
        plan,
        job=plan.rows.job,
        columns=plan.rows.source.columns,
        find_bases=find_bases,
        suppression_reader=partial(read_suppression, plan.rows.suppression)
        if plan.rows.suppression is not None
        else None,
        scope=describe_load(plan),
        columns_by_field={name: rule.columns for name, rule in plan.rows.mapping.rules.items()},
        is_workbook=is_workbook_name(plan.rows.source.name),
        problem_scope=_build_problem_scope(plan),
    )
    with (
        closing(SpooledRows(plan.rows.source, plan.rows.rules.identity_field))
        if source_rows is None
        else nullcontext(source_rows) as rows
    ):
        if not plan.is_planned and not plan.rows.has_is_active_rule:
            raise ConfigurationError(MISSING_ACTIVITY_MESSAGE)
        return await run_with_setup(setup, lambda run: _LoadRun(plan, rows, run).execute(), stop, progress)


class _LoadRun:
    """A load, with its plan, its source rows, its run, its cursor, and messages about its rows."""

    def __init__(self, plan: LoadPlan, source_rows: SpooledRows, run: Run) -> None:
        self._plan, self._source_rows, self._run = plan, source_rows, run
        self._remarks = Remarks()
        self._incremental_run: IncrementalRun | None = None

    async def execute(self) -> None:
        """Plan all rows if the job has guards, load the rows, settle unknown creates, and collect messages."""
        plan, run = self._plan, self._run
        if plan.is_planned:
            loads = await self._load_in_mode(RunMode.PLAN)
            await self._apply_guards()
        elif plan.guard is None:
            loads = await self._load_in_mode(RunMode.LOAD)
        else:
            loads = await self._load_with_guards(plan.guard)
        run.report.unmapped_columns = list(plan.rows.unmapped_columns)
        if self._incremental_run is not None:
            future_value_messages = [*self._incremental_run.describe_future_values()]
            run.report.messages += future_value_messages
            run.is_attention_needed |= bool(future_value_messages)
        # Only a plan has these messages, because a load with an import obstacle has already ended with an error.
        obstacle_messages = [*self._remarks.describe_import_obstacles(has_is_active_rule=plan.rows.has_is_active_rule)]
        run.is_attention_needed |= bool(obstacle_messages)
        run.report.messages += [
            *run.tally.messages,
            *run.tally.row_messages,
            *self._list_messages(loads, obstacle_messages),
        ]

    async def _load_with_guards(self, guard: LoadGuard) -> BaseLoads:
        """Plan all rows first. Load the rows only if no guard stops the run."""
        run, survey = self._run, await self._load_in_mode(RunMode.PLAN)
        await self._apply_guards()
        run.reason = run.reason or run.rows.failure
        if not run.is_running:
            outcomes = run.tally.outcomes  # the planned creates count as unsent, because the run sends nothing
            outcomes[Outcome.UNSENT] += outcomes.pop(Outcome.CREATED, 0)
            return survey
        run.tally.reset_row_counts()
        run.rows.restart()
        self._remarks = Remarks()
        run.create_limits.begin(guard.max_creates, guard.max_rejected)
        return await self._load_in_mode(RunMode.LOAD, survey)

    async def _load_in_mode(self, mode: RunMode, survey: BaseLoads | None = None) -> BaseLoads:
        loads = BaseLoads(self._run, self._plan.rows.base, mode, survey)
        # The planning before a load compares no rows, because the load compares the rows.
        compares_rows = mode is RunMode.LOAD or self._plan.is_planned
        await self._run.finish_load(loads, self._load_source(loads, compares_rows=compares_rows))
        return loads

    async def _apply_guards(self) -> None:
        """End the run if a guard refuses the planned rows."""
        plan, run = self._plan, self._run
        if plan.guard is None or not run.is_running:
            return
        previous_row_count = None
        if plan.reads_complete_source:
            account = plan.settings.account
            previous_row_count = await run.ledger_queue.execute(
                lambda ledger: find_source_row_count(ledger.connection, account, plan.rows.job, "sync")
            )
        guard_messages = _check_guards(
            plan.guard,
            run.tally,
            self._source_rows.source_row_count,
            previous_row_count=previous_row_count,
            may_be_empty=plan.increment is not None,
        )
        if messages_text := "; ".join(guard_messages):
            run.reason = f"{messages_text}. Nothing was sent, and no cursor has moved"

    async def _load_source(self, loads: BaseLoads, *, compares_rows: bool) -> None:
        run = self._run
        if self._source_rows.is_read:
            await self._reuse_rows_of_preview_or_survey()
        else:
            await self._read_source()
        if not self._source_rows.is_read:
            return
        await loads.begin()
        await self._load_chunks(loads)
        await loads.settle()
        run.create_limits.check_rejected_share()
        if compares_rows:
            await run.compare_waiting_rows(loads.sessions)
        if run.is_running and (newcomer_message := await loads.describe_newcomers()) is not None:
            run.tally.add_message(newcomer_message)
        if run.is_running and (unlisted_message := await loads.describe_unlisted_create()) is not None:
            message, is_attention_needed = unlisted_message
            run.tally.add_message(message)
            run.is_attention_needed |= is_attention_needed

    async def _begin_at_cursor(self, increment: Increment) -> None:
        """Begin to read the source at its cursor, and move the cursor when the run ends."""
        run = self._run
        # Imported here, because most loads have no cursor.
        from connector.imports.increments import IncrementalRun, read_saved_cursor

        saved_value = await run.ledger_queue.execute(lambda ledger: read_saved_cursor(ledger, increment))
        incremental_run = IncrementalRun(increment, saved_value, run.clock.now())
        self._incremental_run = incremental_run
        run.report.messages.append(incremental_run.describe_start())
        if not self._plan.is_planned:
            run.on_end = lambda: incremental_run.move_cursor(run.ledger, run.key, self._find_cursor_obstacle(increment))

    def _find_cursor_obstacle(self, increment: Increment) -> str | None:
        """Return the reason why the cursor must not move at the end of the run, or None if the cursor may move."""
        unsent_count = self._run.tally.outcomes[Outcome.UNSENT]
        if self._plan.rows.row_limit is not None:
            return "--limit left out rows of the source"
        if self._run.report.exit_code not in _FINISHED_EXIT_CODES or not increment.source.is_read_to_end:
            return "the run did not finish, and the next run reads all rows again"
        if unsent_count:
            return (
                f"{count(unsent_count, 'row')} {choose_form(unsent_count, 'was', 'were')} not sent, and the next run "
                "reads all rows again"
            )
        return None

    async def _read_source(self) -> None:
        """Read the source to its end in a thread. Raises RunAborted if `refuses_empty_source` and the source has no
        rows."""
        plan, run = self._plan, self._run
        if plan.increment is not None:
            await self._begin_at_cursor(plan.increment)
        self._source_rows.suppression = await run.read_suppression()
        chunks = plan.rows.prepare_chunks(run.clock.now().date(), run.suppression, plan.shard)
        async with aclosing(self._source_rows.spool_in_thread(chunks, run.stop)) as prepared_chunks:
            async for prepared_chunk in prepared_chunks:
                if prepared_chunk.consent_columns and not plan.is_planned:
                    raise ConfigurationError("; ".join(explain_consent(prepared_chunk.consent_columns)))
                self._count_read_rows()
                run.estimate_row_count(prepared_chunk.chunk.read_share, plan.rows.row_limit)
        run.stop.raise_if_stop_requested()
        if not self._source_rows.is_read:
            return
        if self._source_rows.source_row_count == 0 and plan.rows.refuses_empty_source:
            raise RunAborted(f"{plan.rows.source.name} has a header and no rows: there is nothing to import")
        run.source_row_count = self._source_rows.source_row_count if plan.reads_complete_source else None

    async def _reuse_rows_of_preview_or_survey(self) -> None:
        """Use the rows that a preview has read, or that this run has read to plan all rows. Raises RunAborted if the
        suppression list has changed meanwhile. Raises ConfigurationError if a consent column is not mapped."""
        rows, suppression = self._source_rows, await self._run.read_suppression()
        if rows.consent_columns and not self._plan.is_planned:
            raise ConfigurationError("; ".join(explain_consent([*rows.consent_columns])))
        if rows.suppression is not None and (suppression is None or not rows.suppression.has_same_entries(suppression)):
            raise RunAborted("the suppression list has changed since the preview. Nothing was sent. Run again")
        self._count_read_rows()
        self._run.estimate_row_count(1.0, self._plan.rows.row_limit)

    def _count_read_rows(self) -> None:
        row_count, row_limit = self._source_rows.row_count, self._plan.rows.row_limit
        self._run.tally.read_count = row_count if row_limit is None else min(row_count, row_limit)

    async def _load_chunks(self, loads: BaseLoads) -> None:
        async with aclosing(
            self._source_rows.read_in_thread(self._run.stop, self._plan.rows.row_limit)
        ) as prepared_chunks:
            async for prepared_chunk in prepared_chunks:
                self._count_prepared_rows(prepared_chunk)
                await loads.load(prepared_chunk.planned_chunk, prepared_chunk.bases)
                if failure := self._run.rows.failure:
                    raise RunAborted(failure)

    def _count_prepared_rows(self, prepared_chunk: PreparedChunk) -> None:
        """Count and report the rows of a chunk whose outcomes are known without the ledger."""
        run, tally = self._run, self._run.tally
        self._remarks.add_chunk(prepared_chunk)
        run.problems.record_valid_rows(prepared_chunk)
        run.rows.begin_chunk(prepared_chunk)
        tally.add_started_rows(prepared_chunk.invalid_count)
        for malformed_row in prepared_chunk.chunk.malformed_rows:
            tally.report_problem(build_malformed_problem(malformed_row, prepared_chunk.chunk.name))
        for problem in build_invalid_problems(prepared_chunk.chunk, prepared_chunk.faults):
            tally.report_problem(problem)
        tally.count_rows_at_positions(Outcome.DUPLICATE, prepared_chunk.chunk, prepared_chunk.repeated_positions)
        tally.count_rows_at_positions(Outcome.SUPPRESSED, prepared_chunk.chunk, prepared_chunk.suppressed_positions)
        for difference in prepared_chunk.differences:
            run.rows.write_problem(
                build_problem_of_unused_row(prepared_chunk.chunk, difference, self._plan.rows.rules.identity_field)
            )

    def _list_messages(self, loads: BaseLoads, obstacle_messages: Sequence[str]) -> Iterator[str]:
        tally = self._run.tally
        yield from describe_opt_outs(tally, self._run.rows.drift_path)
        yield from self._remarks.messages
        yield from self._source_rows.messages
        if self._plan.rows.row_limit is not None and self._source_rows.row_count > self._plan.rows.row_limit:
            yield (
                f"only {describe_row_limit(self._plan.rows.row_limit)} are used. "
                f"All {self._source_rows.row_count:,} rows were read, because a row beyond --limit may show that a "
                "subscriber is inactive"
            )
        auxiliary_verb = "would be " if self._plan.is_planned else ""
        if tally.outcomes[Outcome.CREATED] and (created_message := loads.describe_created_bases()) is not None:
            yield f"{auxiliary_verb}{created_message}"
        yield from obstacle_messages
        yield from loads.describe_unlisted_entries()
        yield from describe_reactivated_rows(tally, is_planned=self._plan.is_planned)
        yield from describe_unread_entries(tally)
        yield from self._remarks.describe_cells(self._plan.rows.mapping)
        yield from self._run.rows.list_messages()
        yield from describe_unmapped_columns(self._plan.rows.mapping, self._plan.rows.unmapped_columns)
        for name, altered_subscriber_count in sorted(tally.altered_field_counts.items()):
            yield f"the service altered the field `{name}` of {count(altered_subscriber_count, 'created subscriber')}"
