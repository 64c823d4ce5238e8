"""A load in parts by the engine: one command leads it, its workers run the parts, and one report says what came of it.

Theory of operation. The command takes part 0 of a joint run in the shared ledger (`connector/ledger/parts.py`), and
submits the ordinary flow of each part as a task. Where the job has guards, all parts are surveyed first, each by a task
of its own, and the sums are judged; while the parts load, the sums of what they say are judged once a second. A part
whose worker died is run again from its beginning: what its earlier attempts have created is in the ledger under their
own runs, and counts as created in the end.
"""

import asyncio
import gc
import logging
import os
import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path

from connector.clock import Clock, system_clock
from connector.control import Stop, enter_in_thread, work_beside
from connector.databases import parse_place
from connector.errors import ConfigurationError, LedgerError, LockedError, RunAborted
from connector.fields import BaseRef
from connector.imports.flow import LoadPlan, describe_load, find_trip, run_load
from connector.imports.plan import RowOptions
from connector.ledger.commits import Commits, open_commits
from connector.ledger.entries import Ledger
from connector.ledger.parts import Part, count_created_before, count_unresolved_before, end_part, open_part, take_part
from connector.ledger.records import find_or_add_base, find_rows_read, finish_run, start_run
from connector.load.session import Limits, Tally
from connector.outcomes import Outcome
from connector.progress import Progress, Progression
from connector.report import OpenReport, Report, end_report, end_run, record_report, start_report
from connector.settings import SettingOptions
from connector.sources.inputs import STANDARD_INPUT
from connector.subscribers.rules import ValidationRules
from pipelines.flows.engine import Engine, EngineOptions, Message, TaskContext, TaskEnd, open_engine
from pipelines.flows.joint_report import PartEnd, merge_parts
from pipelines.flows.load_plan import FileReading, plan_import, plan_import_by_job, plan_sync
from pipelines.jobs.build import build_policy
from pipelines.jobs.models import Job, Load
from pipelines.jobs.reader import load_job, override_load
from pipelines.jobs.settings import read_settings

_SAID_S = 1.0  # between two messages of a part
_RENEWED_S = 5.0  # between two renewals of the command's own lease

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class JointOrder:
    """What a load in parts is to do: a job, or the import of a `file`, with what was said of it. It goes to each
    worker, and holds no secret: these come from the worker's own environment.

    `job_digest` is of the job file (`digest_job`), which must be the same at each worker.
    """

    command: str
    job_path: Path | None
    job_digest: str = ""
    file: Path | str | None = None
    options: RowOptions = RowOptions()  # noqa: RUF009 - a frozen value
    rules: ValidationRules = ValidationRules()  # noqa: RUF009 - a frozen value
    reading: FileReading = FileReading()  # noqa: RUF009 - a frozen value
    load: Mapping[str, object] = field(default_factory=dict)
    wait_s: float = 0.0
    time_limit_s: float | None = None

    def load_job(self, environ: Mapping[str, str]) -> Job | None:
        """Return the job that it follows; None: none. Raises ConfigurationError, also for another file than was
        meant."""
        if self.job_path is None:
            return None
        job = load_job(self.job_path, environ)
        if digest_job(self.job_path) != self.job_digest:
            raise ConfigurationError(
                f"the job file {self.job_path} of {platform.node()} differs from the one of the command: give all "
                "workers the same file"
            )
        return job

    def plan(self, environ: Mapping[str, str], part: tuple[int, int]) -> LoadPlan:
        """Return the load of part I of N, its source opened. Raises ConfigurationError and SourceError."""
        job = self.load_job(environ)
        settings = read_settings(environ, job, SettingOptions(time_limit_s=self.time_limit_s))
        if self.file is None:
            if job is None:
                raise ConfigurationError("a sync needs a job")
            return plan_sync(job, settings, limit=None, wait_s=self.wait_s, part=part)
        if job is None:
            policy = build_policy(override_load(Load(), self.load), self.rules)
            given = (self.file, self.options, self.rules, policy, settings)
            return plan_import(*given, reading=self.reading, wait_s=self.wait_s, part=part)
        job = job.model_copy(update={"load": override_load(job.load, self.load)})
        return plan_import_by_job(self.file, job, settings, reading=self.reading, wait_s=self.wait_s, part=part)


def digest_job(path: Path | None) -> str:
    """Return a digest of the job file, "" for none; raises ConfigurationError when it cannot be read."""
    if path is None:
        return ""
    try:
        return blake2b(path.read_bytes(), digest_size=16).hexdigest()
    except OSError as error:
        raise ConfigurationError(f"the job file {path} cannot be read: {error.strerror}") from None


async def run_joint_load(
    order: JointOrder, options: EngineOptions, stop: Stop, progress: Progress, clock: Clock | None = None
) -> Report:
    """Load all parts by the engine, one for each worker, and return one report of them.

    Raises ConfigurationError and SourceError before anything is sent; a run that has begun always ends in a report.
    """
    clock = clock or system_clock()
    if order.file == Path(STANDARD_INPUT):
        raise ConfigurationError("-: standard input is read once, and each part reads the whole file: give a file")
    plan = order.plan(os.environ, (1, 1))
    plan.source.close()
    settings = plan.settings
    if isinstance(parse_place(settings.ledger_url), Path):
        raise ConfigurationError(
            "--engine: a ledger in SQLite has one writer, and the parts of a run write at the same time. Keep the "
            "ledger in PostgreSQL: set CONNECTOR_LEDGER=postgresql://… for the command and every worker"
        )
    async with open_engine(options) as engine:
        progress.follow(lambda: f"opening the ledger ({engine.describe()})")
        report = start_report(plan.command, plan.job, clock.now(), describe_load(plan))
        logger.info("engine: %(text)s", {"text": engine.describe()})
        with record_report(report, settings.state_dir, settings.retention_s):
            await _JointLoad(order, plan, engine, report, stop, progress, clock).lead()
        return report.close()


class _JointLoad:
    """One load in parts, as the command leads it."""

    def __init__(
        self,
        order: JointOrder,
        plan: LoadPlan,
        engine: Engine,
        report: OpenReport,
        stop: Stop,
        progress: Progress,
        clock: Clock,
    ) -> None:
        self._order, self._plan, self._engine, self._report = order, plan, engine, report
        self._stop, self._progress, self._clock = stop, progress, clock
        self._surveyed: list[str] = []  # ids of the runs that only surveyed
        self._limits = Limits()

    async def lead(self) -> None:
        """Take the ledger, run the parts, and end the report. Raises ConfigurationError where nothing was sent."""
        report, stop, settings = self._report, self._stop, self._plan.settings
        try:
            part = _lead(self._plan, 0, self._engine.workers, report.run_id)
            opened = open_part(
                settings.ledger_url,
                part,
                wait_s=self._order.wait_s,
                is_stopped=stop.event.is_set,
                may_make=settings.may_make_ledger,
            )
            async with enter_in_thread(opened, stop) as ledger:
                with open_commits(ledger) as commits:
                    key = self._begin(ledger, part)
                    async with work_beside(self._keep_lease(commits)):
                        ends, reason = await self._run_parts(commits)
                    self._end(ledger, key, ends, reason)
        except LockedError as error:
            report.signal = stop.signal
            end_report(report, "locked" if stop.signal is None else "stopped", self._clock.now(), str(error))
        except LedgerError as error:
            if report.finished_at is None or report.exit_code in (0, 1):
                end_report(report, "aborted", self._clock.now(), str(error))

    def _begin(self, ledger: Ledger, part: Part) -> int:
        """Record the run, and take part 0."""
        report, base, account = self._report, self._plan.base, self._plan.settings.account
        with ledger.transaction() as connection:
            if isinstance(base, BaseRef):
                found = find_or_add_base(connection, account, base.service_id, base.name)
                if found.service_id is None:
                    raise ConfigurationError(
                        f"the id of the base {base.name} is not known yet, and the parts of a run need it: give the "
                        "base by its id (--base-id), or run it once without --engine and with --limit 1, which learns "
                        "the id"
                    )
            names = report.run_id, report.job, report.command
            key = start_run(connection, *names, report.started_at.timestamp(), account=account)
            lease = take_part(ledger, part, key, self._clock.monotonic)
        ledger.store.lease = lease
        return key

    async def _keep_lease(self, commits: Commits) -> None:
        """Keep part 0, so that no other joint run begins meanwhile."""
        while True:
            await asyncio.sleep(_RENEWED_S)
            try:
                await commits.ask(lambda _ledger: None)
            except LedgerError as error:
                self._stop.end(str(error))
                return

    async def _run_parts(self, commits: Commits) -> tuple[list[PartEnd], str | None]:
        """Survey the parts if there are guards, then load them; return how they ended, and why that was too early."""
        guard, deaths = self._plan.guard, Counter[int]()
        if guard is not None:
            ends = await self._run_all(is_survey=True)
            deaths.update({end.number: end.deaths for end in ends})
            trip = await self._judge(ends, commits) if all(_is_well(end) for end in ends) else None
            if trip is not None or not all(_is_well(end) for end in ends) or self._stop.event.is_set():
                return [_withdraw(end) for end in ends], trip
            self._surveyed = [end.report.run_id for end in ends if end.report is not None]
            self._limits = Limits(guard.max_creates, guard.max_rejected)
        ends = await self._run_all(is_survey=False)
        for end in ends:
            end.deaths += deaths[end.number]
        return ends, self._find_reason(ends)

    async def _judge(self, ends: Sequence[PartEnd], commits: Commits) -> str | None:
        """Return why the guards do not let pass what all parts together would do; None: they do."""
        plan, tally = self._plan, Tally(lambda _: None)
        for end in ends:
            tally.read += end.rows["read"]
            tally.outcomes.update({outcome: end.rows[outcome] for outcome in Outcome})
        last_read = None
        if plan.command == "sync":
            account = plan.settings.account
            last_read = await commits.ask(
                lambda ledger: find_rows_read(ledger.connection, account, plan.job, plan.command)
            )
        return None if plan.guard is None else find_trip(plan.guard, tally, last_read=last_read, may_be_empty=False)

    def _find_reason(self, ends: Sequence[PartEnd]) -> str | None:
        """Return what is wrong with the whole, where no part could see it."""
        if not all(_is_well(end) for end in ends):
            return None
        if sum(end.rows["read"] for end in ends) == 0 and _is_of_files(self._plan):
            return f"{self._plan.source.name} has a header and no rows: there is nothing to import"
        try:
            self._limits.check()
        except RunAborted as error:
            return str(error)
        return None

    async def _run_all(self, *, is_survey: bool) -> list[PartEnd]:
        parts, lead = self._engine.workers, self._report.run_id
        arguments = [(self._order, number, parts, lead, is_survey) for number in range(1, parts + 1)]
        standing = _Standing(self._engine, self._limits, self._stop, self._clock, is_survey=is_survey)
        self._progress.follow(standing.describe)
        ends = await self._engine.run(run_part, arguments, self._stop, standing.note)
        self._stop.is_recording = True
        for index, end in enumerate(ends):
            if end.value is not None:
                standing.note_last(index, end.value[1])
        self._stop.is_recording = not is_survey or self._stop.event.is_set()
        return [_build_end(index + 1, end) for index, end in enumerate(ends)]

    def _end(self, ledger: Ledger, key: int, ends: list[PartEnd], reason: str | None) -> None:
        """Count what attempts without a report have sent, and end report and run."""
        report, plan = self._report, self._plan
        ended = [end.report.run_id for end in ends if end.report is not None] + [*self._surveyed, report.run_id]
        with ledger.transaction():
            created, unresolved = count_created_before(ledger, ended), count_unresolved_before(ledger, ended)
        for end in ends:
            end.created_before, end.unresolved_before = created.get(end.number, 0), unresolved.get(end.number, 0)
        report.unmapped_columns = list(plan.unmapped_columns)
        status = merge_parts(report, ends, plan.settings.state_dir)
        end_run(report, self._stop, status if reason is None else "aborted", self._clock.now(), reason)
        is_whole = plan.command == "sync" and report.status in ("ok", "partial")
        with ledger.transaction() as connection:
            rows_read = report.rows["read"] if is_whole else None
            finish_run(connection, key, report.status, self._clock.now().timestamp(), rows_read)
            end_part(ledger, is_well=True)
        refused = next((end.error for end in ends if isinstance(end.error, ConfigurationError)), None)
        if refused is not None and not report.requests.get("create", {}).get("sent"):
            raise refused


def _is_of_files(plan: LoadPlan) -> bool:
    return plan.part is not None and bool(plan.part.source)


def _lead(plan: LoadPlan, number: int, parts: int, lead: str) -> Part:
    """Return which part of the joint run it is that the run `lead` leads."""
    source = "" if plan.part is None else plan.part.source
    return Part(number, parts, plan.settings.account, plan.job, source, lead)


def _is_well(end: PartEnd) -> bool:
    return end.report is not None and end.report.status in ("ok", "partial")


def _withdraw(end: PartEnd) -> PartEnd:
    """Count planned creates as not sent, since the run ended with its survey."""
    if end.report is not None:
        rows = dict(end.report.rows)
        rows[Outcome.UNSENT] += rows[Outcome.CREATED]
        rows[Outcome.CREATED] = 0
        end.report = replace(end.report, rows=rows)
    return end


def _build_end(number: int, end: TaskEnd[tuple[Report, dict[str, int]]]) -> PartEnd:
    report = None if end.value is None else end.value[0]
    return PartEnd(number, report, end.error, end.worker, end.deaths)


class _Standing:
    """How far the parts are, by what they say; ends them all where that trips a guard."""

    def __init__(self, engine: Engine, limits: Limits, stop: Stop, clock: Clock, *, is_survey: bool) -> None:
        self._engine, self._limits, self._stop, self._is_survey = engine, limits, stop, is_survey
        self._said: dict[int, Mapping[str, int]] = {}
        self._before: Counter[str] = Counter()  # of attempts that died
        self._begun: set[int] = set()
        self._progression = Progression(clock.monotonic)

    def note(self, index: int, worker: str, message: Message) -> None:
        """A part has begun (`{}`), or says its numbers."""
        if message:
            self.note_last(index, message)
            return
        again = ", again" if index in self._begun else ""
        values = {"part": index + 1, "worker": worker, "again": again}
        logger.info("part begins: %(part)d on the worker %(worker)s%(again)s", values)
        self._begun.add(index)
        self._before.update({name: self._said.get(index, {}).get(name, 0) for name in _SENT})
        self._said[index] = {}

    def note_last(self, index: int, message: Mapping[str, int]) -> None:
        """These are the numbers of the part by now."""
        self._said[index] = message
        begun, answered, refused = (
            self._before[name] + sum(each.get(name, 0) for each in self._said.values()) for name in _SENT
        )
        self._limits.begun, self._limits.answered, self._limits.rejected = begun, answered, refused
        if (reason := self._limits.find_trip()) is not None:
            self._stop.end(reason)

    def describe(self) -> str:
        """Return the sums of all parts, and where to see more."""
        summed: Counter[str] = Counter()
        for each in self._said.values():
            summed.update(each)
        expected = [each.get("expected", 0) for each in self._said.values()]
        outcomes = {str(outcome): summed[str(outcome)] for outcome in Outcome if summed[str(outcome)]}
        total = float(sum(expected)) if expected and all(expected) else None
        advance = self._progression.describe(sum(outcomes.values()), total, is_estimate=True)
        counts = ", ".join(f"{number:,} {name}" for name, number in outcomes.items())
        said = f"{summed['read']:,} {'surveyed' if self._is_survey else 'read'}"
        said += f": {counts}" if counts else ""
        return f"{said}{f'; {advance}' if advance else ''} ({self._engine.describe()})"


_SENT = ("begun", "answered", "refused")


# In the worker


async def run_part(
    context: TaskContext, order: JointOrder, number: int, parts: int, lead: str, is_survey: bool
) -> tuple[Report, dict[str, int]]:
    """Load part `number` of `parts`, or survey it, as a worker does; return its report, and its last numbers."""
    # as the command line does it for a run of its own (`pipelines/cli/output.py`)
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    plan = order.plan(os.environ, (number, parts))
    plan = replace(plan, part=_lead(plan, number, parts, lead), guard=None, is_survey=is_survey)
    progress = Progress()
    saying = asyncio.ensure_future(_say(context, progress))
    try:
        report = await run_load(plan, context.stop, progress)
    finally:
        saying.cancel()
    return report, dict(progress.count())


async def _say(context: TaskContext, progress: Progress) -> None:
    """Say the numbers once a second."""
    created = 0
    while True:
        await asyncio.sleep(_SAID_S)
        numbers = progress.count()
        before, created = created, numbers.get(Outcome.CREATED, 0)
        if numbers:
            context.say(numbers, has_advanced=created > before)
