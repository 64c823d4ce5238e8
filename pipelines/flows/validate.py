"""The flow of `connector validate`: extract, map and validate the rows, and count the faults. The flow needs neither a
service nor a ledger."""

import dataclasses
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypedDict

from connector.clock import Clock
from connector.errors import ConfigurationError, ConnectorError
from connector.fields import FIELD_BY_NAME, FIELD_NAMES
from connector.imports.plan import RowsPlan
from connector.imports.remarks import Remarks, describe_unmapped_columns
from connector.imports.suppression import read_suppression
from connector.load.candidates import read_rows
from connector.outcomes import Fault
from connector.rows import PlannedChunk
from connector.runs.report import Report, Status, end_report, start_report
from connector.runs.row_files import (
    RejectsFile,
    build_invalid_problems,
    build_malformed_problem,
    build_problem_of_unused_row,
)
from connector.spooled_rows import SpooledRows
from connector.subscribers.preparation import PreparedChunk
from connector.tally import SAMPLE_COUNT

_MAX_EXAMPLES = 3  # examples of a kind of fault, with different values
_EXAMPLE_LENGTH = 200  # characters of an example; a longer cell is cut
_CELL_SEPARATOR = " | "  # separates the cells of several columns


class FaultExample(TypedDict):
    """A row in the `faults` of the report."""

    row: Annotated[int, "Number of the row. In a CSV file or a workbook: the number that a spreadsheet program shows."]
    value: Annotated[str, "Text of the cells that the field is read from. The text is not masked."]


@dataclass(slots=True)
class ValidationFinding:
    """One kind of fault: an item of the report's `faults`. The reference shows the description in the
    annotation of each field."""

    field: Annotated[str, "Faulty field. Empty if the whole row is faulty."]
    code: Annotated[str, "Short code of the fault, for programs."]
    message: Annotated[str, "What is wrong."]
    rows: Annotated[int, "Number of rows with this fault."] = 0
    examples: Annotated[list[FaultExample], "Up to three rows with different values."] = dataclasses.field(
        default_factory=list
    )

    def add_example(self, row_number: int, value: str) -> None:
        """Add a row as an example, if its value is new."""
        text = value if len(value) <= _EXAMPLE_LENGTH else f"{value[:_EXAMPLE_LENGTH]}…"
        if len(self.examples) < _MAX_EXAMPLES and all(text != example["value"] for example in self.examples):
            self.examples.append({"row": row_number, "value": text})


class ValidationReport(TypedDict):
    """The keys that only the report of a validation has."""

    faults: Annotated[list[ValidationFinding], "Kinds of faults, the most frequent first."]


VALIDATION_KEYS = ("run_id", "job", "command", "status", "started_at", "finished_at", "rows", "activity",
                   "rejects_file", "messages", "unmapped_columns", "samples")  # fmt: skip
"""The keys that the report of a validation shares with the report of a run."""


@dataclass(slots=True)
class Validation:
    """The results of a validation."""

    report: Report
    remarks: Remarks = dataclasses.field(default_factory=Remarks)
    findings: dict[tuple[str, str], ValidationFinding] = dataclasses.field(default_factory=dict)

    def list_findings(self) -> list[ValidationFinding]:
        """Return the kinds of faults, the most frequent first."""
        fields = ("", *FIELD_NAMES)  # findings about whole rows come before findings about fields
        return sorted(
            self.findings.values(), key=lambda finding: (-finding.rows, fields.index(finding.field), finding.code)
        )

    def as_json(self) -> dict[str, Any]:
        """Return the report: the `VALIDATION_KEYS` of a run, and the keys of `ValidationReport`."""
        report = self.report.as_json()
        faults = [dataclasses.asdict(finding) for finding in self.list_findings()]
        return {**{key: report[key] for key in VALIDATION_KEYS}, "faults": faults}


def run_validation(plan: RowsPlan, rejects_path: Path | None, clock: Clock) -> Validation:
    """Read the source of the plan to its end, and check its rows. With `rejects_path`, write the invalid rows to this
    file, as an import would. The status is `aborted` if the source is empty, or if the source or the suppression list
    cannot be read to its end."""
    report = start_report("validate", plan.job, clock.now())
    validation, counts = Validation(report), dict.fromkeys(("read", "valid", "invalid", "duplicate", "suppressed"), 0)
    report.rows, report.unmapped_columns = counts, list(plan.unmapped_columns)
    report.activity, report.samples = {"active": 0, "inactive": 0}, []
    with ExitStack() as stack:
        source_rows = stack.enter_context(SpooledRows(plan.source, plan.rules.identity_field))
        rejects_file = None
        if rejects_path is not None:
            is_workbook = rejects_path.suffix.lower() == ".xlsx"
            path = rejects_path.with_name(f".{rejects_path.name}.csv") if is_workbook else rejects_path
            workbook_path = rejects_path if is_workbook else None
            rejects_file = stack.enter_context(
                RejectsFile(path, plan.source.columns, report.run_id, clock.now, workbook_path=workbook_path)
            )
        reason = _check_rows(plan, source_rows, validation, rejects_file, clock)
        report.messages += source_rows.messages
    if rejects_file is not None:
        report.rejects_file = rejects_file.path
        report.messages += [rejects_file.failure] if reason and rejects_file.failure else []
        reason = reason or rejects_file.failure
    refusal_messages = [*validation.remarks.describe_import_obstacles(has_is_active_rule=plan.has_is_active_rule)]
    report.messages += _list_messages(plan, validation, refusal_messages)
    status: Status = "aborted" if reason else "partial" if counts["invalid"] or refusal_messages else "ok"
    end_report(report, status, clock.now(), reason)
    return validation


def _check_rows(
    plan: RowsPlan, source_rows: SpooledRows, validation: Validation, rejects_file: RejectsFile | None, clock: Clock
) -> str | None:
    """Read and check all rows. Return None, or the reason if the rows could not be read to the end."""
    try:
        suppression = None
        if plan.suppression is not None:
            suppression, messages = read_suppression(plan.suppression, lambda: False)
            validation.report.messages += messages
        counts = validation.report.rows
        chunks = plan.prepare_chunks(clock.now().date(), suppression)
        for _ in source_rows.spool(chunks):
            pass
        for prepared_chunk in source_rows.read(plan.row_limit):
            counts["read"] += prepared_chunk.chunk.record_count
            counts["invalid"] += prepared_chunk.invalid_count
            counts["duplicate"] += len(prepared_chunk.repeated_positions)
            counts["suppressed"] += len(prepared_chunk.suppressed_positions)
            counts["valid"] += (
                len(prepared_chunk.valid_chunk.identities)
                - len(prepared_chunk.repeated_positions)
                - len(prepared_chunk.suppressed_positions)
            )
            validation.remarks.add_chunk(prepared_chunk)
            _count_valid(prepared_chunk.planned_chunk, plan.rules.identity_field, validation.report)
            _add_findings(prepared_chunk, plan, validation)
            # The file has the same rows as the rejects file of an import: malformed rows, invalid rows, and different
            # rows of one subscriber.
            if rejects_file is not None:
                problems = [
                    build_malformed_problem(malformed_row, prepared_chunk.chunk.name)
                    for malformed_row in prepared_chunk.chunk.malformed_rows
                ]
                problems += build_invalid_problems(prepared_chunk.chunk, prepared_chunk.faults)
                identity_field = plan.rules.identity_field
                problems += [
                    build_problem_of_unused_row(prepared_chunk.chunk, difference, identity_field)
                    for difference in prepared_chunk.differences
                ]
                for problem in problems:
                    rejects_file.write_problem(problem)
    except ConfigurationError:  # a person must correct the job or a file, so the status must not be `aborted`
        raise
    except ConnectorError as error:
        return str(error)
    if validation.report.rows["read"] == 0 and plan.refuses_empty_source:
        return f"{plan.source.name} has a header and no rows, so nothing was validated"
    return None


def _count_valid(planned_chunk: PlannedChunk, identity_field: str, report: Report) -> None:
    """Count the active and inactive subscribers of a chunk, and keep the values of the first subscribers."""
    subscribers, activity = planned_chunk.subscribers, report.activity or {}
    active_count = int(subscribers["is_active"].eq(True).sum()) if "is_active" in subscribers else 0
    activity["active"] += active_count
    activity["inactive"] += len(subscribers) - active_count
    samples = report.samples or []
    sample_indices = list(range(min(SAMPLE_COUNT - len(samples), len(subscribers))))
    report.samples = [*samples, *(dict(row.values) for row in read_rows(planned_chunk, sample_indices, identity_field))]


def _add_findings(prepared_chunk: PreparedChunk, plan: RowsPlan, validation: Validation) -> None:
    """Add the faults of a chunk to the findings. The examples show the cells that the faulty field is read from."""
    findings, chunk = validation.findings, prepared_chunk.chunk
    for malformed_row in chunk.malformed_rows:
        new_finding = ValidationFinding("", malformed_row.code, malformed_row.message)
        finding = findings.setdefault(("", malformed_row.code), new_finding)
        finding.rows += 1
        finding.add_example(malformed_row.number, malformed_row.raw_record)
    faults_by_kind: dict[tuple[str, str], list[Fault]] = defaultdict(list)
    for fault in prepared_chunk.faults:
        faults_by_kind[fault.field, fault.code].append(fault)
    for (name, code), faults in faults_by_kind.items():
        finding = findings.setdefault((name, code), ValidationFinding(name, code, faults[0].message))
        finding.rows += len(faults)
        rule = plan.mapping.rules.get(name)
        columns = [] if rule is None else list(rule.columns)
        if plan.base_column is not None and name in FIELD_BY_NAME and FIELD_BY_NAME[name].is_of_base:
            columns = [plan.base_column.column]
        if not columns:
            continue
        cells = chunk.frame.iloc[[fault.position for fault in faults]][columns]
        for index, row in cells.drop_duplicates().head(2 * _MAX_EXAMPLES).fillna("").iterrows():
            finding.add_example(int(chunk.row_numbers[int(str(index))]), _CELL_SEPARATOR.join(map(str, row)))


def _list_messages(plan: RowsPlan, validation: Validation, refusal_messages: Sequence[str]) -> Iterator[str]:
    """Yield messages about facts that the counts do not show. `refusal_messages` are reasons why an import of the rows
    is refused."""
    yield from validation.remarks.messages
    yield from refusal_messages
    yield from validation.remarks.describe_cells(plan.mapping)
    yield from describe_unmapped_columns(plan.mapping, plan.unmapped_columns)
