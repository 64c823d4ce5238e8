"""The flow of `connector validate`: extract, map and validate, and sum up what is wrong. No service, no ledger."""

import dataclasses
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from connector.clock import Clock
from connector.errors import ConfigurationError, SourceError
from connector.fields import BY_NAME, NAMES, BaseRef
from connector.imports.remarks import SILENT_ACTIVITY, Remarks, describe_unmapped
from connector.imports.suppression import SuppressionPlan, read_suppression
from connector.load.finishing import build_different
from connector.outcomes import Fault
from connector.report import Report, Status, end_report, start_report
from connector.row_files import RejectsFile, build_invalid, build_malformed, own_columns
from connector.rows import Chunk, Source
from connector.subscribers.preparation import PreparedChunk, prepare_chunks
from connector.subscribers.row_bases import BaseColumn, list_columns
from connector.subscribers.rules import FieldMapping, ValidationRules
from connector.subscribers.suppression import Suppression

_EXAMPLES = 3  # different ones of a fault: enough to see what they have in common
_LONGEST_EXAMPLE = 200  # characters; a longer cell is known by its beginning
_BETWEEN = " | "  # of the cells of several columns


@dataclass(frozen=True, slots=True)
class ValidationPlan:
    """What is to be validated, and by which mapping and rules; `limit` is a number of records."""

    job: str
    source: Source
    mapping: FieldMapping
    rules: ValidationRules
    suppression: SuppressionPlan | None = None
    limit: int | None = None
    base: BaseRef | BaseColumn | None = None  # of the rows; None: it was not said
    is_empty_refused: bool = False

    @property
    def base_column(self) -> BaseColumn | None:
        """The column that says each row's base; None: all are for one."""
        return self.base if isinstance(self.base, BaseColumn) else None

    @property
    def columns(self) -> tuple[str, ...]:
        """The source's columns that are used."""
        return list_columns(self.mapping.columns, self.base_column)


@dataclass(frozen=True, slots=True)
class Example:
    """A row with a fault: its record number (from 1), and the cells that the field was read from, as they came."""

    row: int
    value: str


@dataclass(slots=True)
class ValidationFinding:
    """One kind of fault: its field ("" for a record that is no row), its code, how many rows have it, some of them."""

    field: str
    code: str
    message: str
    rows: int = 0
    examples: list[Example] = dataclasses.field(default_factory=list)

    def show(self, row: int, value: str) -> None:
        """Take a row as an example, if its value is new."""
        shown = value if len(value) <= _LONGEST_EXAMPLE else f"{value[:_LONGEST_EXAMPLE]}…"
        if len(self.examples) < _EXAMPLES and all(shown != example.value for example in self.examples):
            self.examples.append(Example(row, shown))


@dataclass(slots=True)
class Validation:
    """What a validation found; of the report's keys those that apply."""

    report: Report
    remarks: Remarks = dataclasses.field(default_factory=Remarks)
    findings: dict[tuple[str, str], ValidationFinding] = dataclasses.field(default_factory=dict)

    def list_findings(self) -> list[ValidationFinding]:
        """Return the kinds of faults, the most frequent first."""
        return sorted(self.findings.values(), key=lambda each: (-each.rows, _place(each.field), each.code))

    def as_json(self) -> dict[str, Any]:
        """Return the verdict as plain JSON values."""
        of_report = self.report.as_json()
        keys = ("run_id", "job", "command", "status", "started_at", "finished_at", "rows", "rejects_file", "messages")
        faults = [dataclasses.asdict(each) for each in self.list_findings()]
        return {**{key: of_report[key] for key in (*keys, "unmapped_columns")}, "faults": faults}


def run_validation(plan: ValidationPlan, rejects: Path | None, clock: Clock) -> Validation:
    """Read the plan's source to its end and say what is wrong with its rows; with `rejects`, write them there as
    an import would. A source or a suppression list that cannot be read to its end makes the verdict `aborted`, and so
    does an empty source."""
    report = start_report("validate", plan.job, clock.now())
    verdict, counts = Validation(report), dict.fromkeys(("read", "valid", "invalid", "duplicate", "suppressed"), 0)
    report.rows, report.unmapped_columns = counts, _list_unmapped(plan)
    with ExitStack() as opened:
        opened.enter_context(plan.source)
        file = None
        if rejects is not None:
            file = opened.enter_context(RejectsFile(rejects, plan.source.columns, report.run_id, clock.now))
        reason = _read_all(plan, verdict, file, clock)
    if file is not None:
        report.rejects_file = file.path
        report.messages += [file.failure] if reason and file.failure else []
        reason = reason or file.failure
    report.messages += _remark(plan, verdict)
    status: Status = "aborted" if reason else "partial" if counts["invalid"] else "ok"
    end_report(report, status, clock.now(), reason)
    return verdict


def _read_all(plan: ValidationPlan, verdict: Validation, file: RejectsFile | None, clock: Clock) -> str | None:
    """Return why it could not be read to its end, or None."""
    try:
        suppression = _read_list(plan, verdict.report)
        for prepared in prepare_chunks(
            plan.source,
            plan.mapping,
            plan.rules,
            today=clock.now().date(),
            limit=plan.limit,
            suppression=suppression,
            base=plan.base_column,
        ):
            _count(prepared, verdict.report.rows)
            verdict.remarks.take(prepared)
            _find(prepared, plan, verdict)
            if file is not None:
                _reject(prepared, plan.rules.identity, file)
    except (SourceError, ConfigurationError) as error:  # a list without any identity is the latter
        return str(error)
    if verdict.report.rows["read"] == 0 and plan.is_empty_refused:
        return f"{plan.source.name} has a header and no rows: there is nothing to validate"
    return None


def _read_list(plan: ValidationPlan, report: Report) -> Suppression | None:
    """The job's suppression list, as a load reads it, and what is to be said of it."""
    if plan.suppression is None:
        return None
    suppression, messages = read_suppression(plan.suppression, lambda: False)
    report.messages += messages
    return suppression


def _count(prepared: PreparedChunk, counts: dict[str, int]) -> None:
    counts["read"] += prepared.read
    counts["invalid"] += prepared.invalid
    counts["duplicate"] += len(prepared.repeats)
    counts["suppressed"] += len(prepared.suppressed)
    counts["valid"] += len(prepared.planned.identities)


def _find(prepared: PreparedChunk, plan: ValidationPlan, verdict: Validation) -> None:
    for malformed in prepared.chunk.malformed:
        finding = _pick(verdict, "", malformed.code, malformed.message)
        finding.rows += 1
        finding.show(malformed.number, malformed.raw)
    by_kind: dict[tuple[str, str], list[Fault]] = defaultdict(list)
    for fault in prepared.faults:
        by_kind[fault.field, fault.code].append(fault)
    for (name, code), faults in by_kind.items():
        finding = _pick(verdict, name, code, faults[0].message)
        finding.rows += len(faults)
        _show_some(finding, prepared.chunk, faults, _list_sources(plan, name))


def _pick(verdict: Validation, name: str, code: str, message: str) -> ValidationFinding:
    return verdict.findings.setdefault((name, code), ValidationFinding(name, code, message))


def _list_sources(plan: ValidationPlan, name: str) -> list[str]:
    """The source's columns that a field is read from."""
    if plan.base_column is not None and name in BY_NAME and BY_NAME[name].is_of_base:
        return [plan.base_column.column]
    rule = plan.mapping.rules.get(name)
    return [] if rule is None else list(rule.columns)


def _show_some(finding: ValidationFinding, chunk: Chunk, faults: Sequence[Fault], columns: list[str]) -> None:
    """Examples by the cells that the field is read from, as they came; none where it is read from no column."""
    if not columns:
        return
    cells = chunk.frame.iloc[[fault.position for fault in faults]][columns]
    for place, row in cells.drop_duplicates().head(2 * _EXAMPLES).fillna("").iterrows():
        finding.show(int(chunk.numbers[int(str(place))]), _BETWEEN.join(map(str, row)))


def _reject(prepared: PreparedChunk, identity: str, file: RejectsFile) -> None:
    """What an import would write: records that are no rows, invalid ones, and duplicates that differ."""
    for malformed in prepared.chunk.malformed:
        file.write(build_malformed(malformed, prepared.chunk.name))
    for problem in build_invalid(prepared.chunk, prepared.faults):
        file.write(problem)
    for position in prepared.different:
        file.write(build_different(prepared.chunk, position, identity))


def _remark(plan: ValidationPlan, verdict: Validation) -> Iterator[str]:
    """What a person should know beyond the sums."""
    yield from verdict.remarks.messages
    if "is_active" not in plan.mapping.rules:
        yield f"an import of this is refused: {SILENT_ACTIVITY}"
    yield from verdict.remarks.describe_cells(plan.mapping)
    yield from describe_unmapped(plan.mapping, _list_unmapped(plan))


def _list_unmapped(plan: ValidationPlan) -> list[str]:
    return [name for name in own_columns(plan.source.columns) if name not in plan.columns]


def _place(name: str) -> int:
    """A field's place in the field table, and before them the whole row's."""
    names: Sequence[str] = ("", *NAMES)
    return names.index(name)
