"""The flow of `connector validate`: extract, map and validate, and sum up what is wrong. No service, no ledger."""

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from connector.clock import Clock
from connector.errors import SourceError
from connector.extract import Chunk, Source
from connector.fields import NAMES
from connector.mapping import FieldMapping
from connector.outcomes import Fault
from connector.validation import Rules
from pipelines.numbers import describe_numbers
from pipelines.preparing import Prepared, prepare_chunks
from pipelines.rejects import RejectsFile, build_different, build_invalid, build_malformed, own_columns
from pipelines.report import Report, Status, end_report, start_report

_EXAMPLES = 3  # different ones of a fault: enough to see what they have in common
_LONGEST_EXAMPLE = 200  # characters; a longer cell is known by its beginning
_BETWEEN = " | "  # of the cells of several columns


@dataclass(frozen=True, slots=True)
class ValidationPlan:
    """What is to be validated, and by which mapping and rules; `limit` is a number of records."""

    job: str
    source: Source
    mapping: FieldMapping
    rules: Rules
    limit: int | None = None
    is_empty_refused: bool = False


@dataclass(frozen=True, slots=True)
class Example:
    """A row with a fault: its record number (from 1), and the cells that the field was read from, as they came."""

    row: int
    value: str


@dataclass(slots=True)
class Finding:
    """One kind of fault: its field ("" for a record that is no row), its code, how many rows have it, some of them."""

    field: str
    code: str
    message: str
    rows: int = 0
    examples: list[Example] = dataclasses.field(default_factory=list)

    def show(self, row: int, value: str) -> None:
        """Take a row as an example, if its value is none yet."""
        shown = value if len(value) <= _LONGEST_EXAMPLE else f"{value[:_LONGEST_EXAMPLE]}…"
        if len(self.examples) < _EXAMPLES and all(shown != example.value for example in self.examples):
            self.examples.append(Example(row, shown))


@dataclass(slots=True)
class Verdict:
    """What a validation found; of the report's keys those that apply."""

    report: Report
    omitted_zips: int = 0
    number_cells: Counter[str] = dataclasses.field(default_factory=Counter)  # of a workbook, by column
    findings: dict[tuple[str, str], Finding] = dataclasses.field(default_factory=dict)

    def list_findings(self) -> list[Finding]:
        """The kinds of faults, the most frequent first."""
        return sorted(self.findings.values(), key=lambda each: (-each.rows, _place(each.field), each.code))

    def as_json(self) -> dict[str, Any]:
        """The verdict as plain JSON values."""
        of_report = self.report.as_json()
        keys = ("run_id", "job", "command", "status", "started_at", "finished_at", "rows", "rejects_file", "messages")
        faults = [
            {
                "field": each.field,
                "code": each.code,
                "message": each.message,
                "rows": each.rows,
                "examples": [{"row": example.row, "value": example.value} for example in each.examples],
            }
            for each in self.list_findings()
        ]
        return {**{key: of_report[key] for key in (*keys, "unmapped_columns")}, "faults": faults}


def run_validation(plan: ValidationPlan, rejects: Path | None, clock: Clock) -> Verdict:
    """Read the plan's source to its end and say what is wrong with its rows; with `rejects`, write them there as
    an import would. A source that cannot be read to its end makes the verdict `aborted`, and so does an empty one."""
    report = start_report("validate", plan.job, clock.now())
    verdict, counts = Verdict(report), dict.fromkeys(("read", "valid", "invalid", "duplicate"), 0)
    report.rows, report.unmapped_columns = counts, _list_unmapped(plan)
    with ExitStack() as opened:
        opened.enter_context(plan.source)
        file = None
        if rejects is not None:
            file = opened.enter_context(RejectsFile(rejects, plan.source.columns, report.run_id, clock.now))
        reason = _read_all(plan, verdict, file, clock)
    if file is not None:
        report.rejects_file, reason = file.path, reason or file.failure
    report.messages += _remark(plan, verdict)
    status: Status = "aborted" if reason else "partial" if counts["invalid"] else "ok"
    end_report(report, status, clock.now(), reason)
    return verdict


def _read_all(plan: ValidationPlan, verdict: Verdict, file: RejectsFile | None, clock: Clock) -> str | None:
    """Why it could not be read to its end, or None."""
    chunks = prepare_chunks(plan.source, plan.mapping, plan.rules, today=clock.now().date(), limit=plan.limit)
    try:
        for prepared in chunks:
            _count(prepared, verdict.report.rows)
            verdict.omitted_zips += prepared.omitted_zips
            verdict.number_cells.update(prepared.chunk.number_cells)
            _find(prepared, plan.mapping, verdict)
            if file is not None:
                _reject(prepared, plan.rules.identity, file)
    except SourceError as error:
        return str(error)
    if verdict.report.rows["read"] == 0 and plan.is_empty_refused:
        return f"{plan.source.name} has a header and no rows: there is nothing to validate"
    return None


def _count(prepared: Prepared, counts: dict[str, int]) -> None:
    invalid = len({fault.position for fault in prepared.faults}) + len(prepared.chunk.malformed)
    counts["read"] += prepared.read
    counts["invalid"] += invalid
    counts["duplicate"] += prepared.repeated
    counts["valid"] += prepared.read - invalid - prepared.repeated


def _find(prepared: Prepared, mapping: FieldMapping, verdict: Verdict) -> None:
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
        _show_some(finding, prepared.chunk, faults, mapping)


def _pick(verdict: Verdict, name: str, code: str, message: str) -> Finding:
    return verdict.findings.setdefault((name, code), Finding(name, code, message))


def _show_some(finding: Finding, chunk: Chunk, faults: Sequence[Fault], mapping: FieldMapping) -> None:
    """Examples by the cells that the field is read from, as they came; none where it is read from no column."""
    rule = mapping.rules.get(finding.field)
    if rule is None or not rule.columns:
        return
    cells = chunk.frame.iloc[[fault.position for fault in faults]][list(rule.columns)]
    for place, row in cells.drop_duplicates().head(2 * _EXAMPLES).fillna("").iterrows():
        finding.show(int(chunk.numbers[int(str(place))]), _BETWEEN.join(map(str, row)))


def _reject(prepared: Prepared, identity: str, file: RejectsFile) -> None:
    """What an import would write: records that are no rows, invalid ones, and duplicates that differ."""
    for malformed in prepared.chunk.malformed:
        file.write(build_malformed(malformed, prepared.chunk.name), malformed.raw)
    for problem in build_invalid(prepared.chunk, prepared.faults):
        file.write(problem)
    for position in prepared.different:
        file.write(build_different(prepared.chunk, position, identity))


def _remark(plan: ValidationPlan, verdict: Verdict) -> Iterator[str]:
    """What a person should know beyond the sums."""
    if verdict.report.rows["valid"] and "is_active" not in plan.mapping.rules:
        yield (
            "nothing in the source says is_active: they would be created inactive, the service's default; map a column "
            "to is_active, or use --active or --inactive"
        )
    if verdict.omitted_zips:
        yield f"{verdict.omitted_zips} zips are no numbers and would not be sent (zip: omit)"
    yield from describe_numbers(plan.mapping, verdict.number_cells)
    unmapped = _list_unmapped(plan)
    if unmapped:
        yield f"columns not used: {', '.join(unmapped)}"


def _list_unmapped(plan: ValidationPlan) -> list[str]:
    return [name for name in own_columns(plan.source.columns) if name not in plan.mapping.columns]


def _place(name: str) -> int:
    """A field's place in the field table, and before them the whole row's."""
    names: Sequence[str] = ("", *NAMES)
    return names.index(name)
