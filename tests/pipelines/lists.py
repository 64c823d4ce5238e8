"""A job whose rows go to several bases, as a column says."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path

from connector.clock import Clock, system_clock
from connector.control import Stop
from connector.fields import normalise_email
from connector.imports.base_loads import BaseLoads
from connector.load.base_load import Loader
from connector.load.finishing import RunMode
from connector.load.presence import BasePresence
from connector.load.session import Session
from connector.progress import Progress
from connector.report import Report
from connector.run import Frame, Run, carry_out
from connector.sandbox import SandboxProcess
from connector.settings import build_service
from connector.subscribers.preparation import prepare_chunks
from pipelines.flows.load_plan import plan_sync
from pipelines.jobs.reader import load_job
from pipelines.jobs.settings import read_settings
from tests.pipelines.conftest import Connector, write_csv

VALUES = "{column: list, values: {news: 7, shop: 9, club: 11}}"


def write_lists(folder: Path, *rows: str, base: str = VALUES, more: str = "", path: str = "people.csv") -> Path:
    """A job for people.csv, whose rows (`email,list` each) are written unless there are none; returns the job."""
    if rows:
        write_csv(folder / "people.csv", "email,list", *rows)
    job = folder / "job.yaml"
    job.write_text(
        f"job: lists\nsource: {{file: {{path: '{path}'}}}}\nsubscriber:\n  base: {base}\n"
        f"  fields: {{email: email, is_active: {{value: true}}}}\nload: {{quiet_period: 200ms}}\n{more}",
        encoding="utf-8",
    )
    return job


def count_by_base(sandbox: SandboxProcess) -> Counter[tuple[int, str]]:
    """How often each address was stored in each base (its id), by the sandbox's own truth log."""
    events = [event for event in sandbox.truth()["events"] if event["kind"] == "created"]
    return Counter((event["base_id"], normalise_email(event["subscriber"]["Email"])) for event in events)


def write_parts(folder: Path, *files: tuple[str, ...]) -> Path:
    """Write a job that reads these files in turn. The rows of each file are a chunk of their own."""
    for number, rows in enumerate(files):
        write_csv(folder / f"part{number}.csv", "email,list", *rows)
    return write_lists(folder, base="{column: list}", path="part*.csv")


def load_here(
    connector: Connector,
    job: Path,
    *,
    make: Callable[[Session, RunMode, BasePresence], Loader] = Loader,
    before_chunk: Callable[[int], None] = lambda _number: None,
    clock: Clock | None = None,
) -> Report:
    """Run such a job in this process: its loads as `make` makes them, and `before_chunk` (from 0) called first."""
    settings = read_settings(connector.environ, None)
    plan = plan_sync(load_job(job, {}), settings, limit=None, wait_s=0.0)
    columns, policy = plan.source.columns, plan.policy

    async def load(run: Run, loads: BaseLoads) -> None:
        today, base = run.clock.now().date(), plan.base_column
        chunks = prepare_chunks(plan.source, plan.mapping, plan.rules, today=today, limit=None, base=base)
        for number, prepared in enumerate(chunks):
            before_chunk(number)
            run.tally.read += prepared.read
            await loads.take(prepared.planned, prepared.bases)
        await loads.settle()

    async def work(run: Run) -> None:
        loads = BaseLoads(run, plan.base, make=make)
        await run.see_through(loads, load(run, loads))

    service = build_service(settings, policy.max_concurrency)
    place = settings.account, settings.ledger_url, settings.state_dir
    frame = Frame("sync", "lists", "lists", columns, lambda _ledger: [], policy, service, *place, None, wait_s=0.0)
    with plan.source:
        return asyncio.run(_start(frame, work, clock or system_clock()))


async def _start(frame: Frame, work: Callable[[Run], Coroutine[object, object, None]], clock: Clock) -> Report:
    return await carry_out(frame, work, Stop(clock), Progress().follow)
