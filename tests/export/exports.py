"""Functions that export or read the list of a sandbox."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from connector.clock import system_clock
from connector.control import Stop
from connector.export import ExportPlan, run_export
from connector.listing.reader import read_list
from connector.paging.certificate import Certificate
from connector.progress import Progress
from connector.runs.report import Report
from connector.sandbox import SandboxProcess
from connector.service.client import Client, open_client
from connector.service.retry import Retrier
from connector.service.settings import Service, Token
from connector.service.wire import CreatedAnswer, ListQuery, encode_subscriber
from connector.settings import Settings
from connector.warehouse.destination import Destination


def read_current_time() -> datetime:
    return datetime.now(UTC)


async def skip_sleep(_: float) -> None:
    """Return at once, so that retries do not wait."""


def build_retrier(attempt_count: int = 6) -> Retrier:
    return Retrier(attempt_count, clock=replace(system_clock(), sleep=skip_sleep))


def build_service(sandbox: SandboxProcess, token: str | None = None) -> Service:
    return Service(sandbox.base_url, Token(token or sandbox.token), timeout_s=10)


def run_export_of_list(
    sandbox: SandboxProcess,
    destination: Destination,
    *,
    query: ListQuery | None = None,
    token: str | None = None,
    stop: Stop | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Report:
    """Run an export without a ledger. `options` are fields of the plan."""

    async def run(folder: Path) -> Report:
        settings = Settings(build_service(sandbox, token), "account", folder, f"sqlite:///{folder}/ledger.db")
        plan = ExportPlan("", query or ListQuery(), destination, settings, **{"max_shrink": 1.0, **options})
        clock = replace(system_clock(), sleep=skip_sleep)
        return await run_export(plan, stop or Stop(clock), progress or Progress())

    with TemporaryDirectory() as folder:
        return asyncio.run(run(Path(folder)))


def create_people(sandbox: SandboxProcess, *people: dict[str, object]) -> None:
    """Create subscribers. Each person is a dict of values by field name."""

    async def create_person(client: Client, person: dict[str, object]) -> None:
        answer = await client.create_subscriber(encode_subscriber(person))
        assert isinstance(answer, CreatedAnswer), answer

    async def create_all() -> None:
        async with open_client(build_service(sandbox)) as client:
            for person in people:
                await create_person(client, person)

    asyncio.run(create_all())


@dataclass(slots=True)
class SweepCollector:
    """Stores the rows of each sweep. In a sweep, the reader reads the whole list once."""

    rows_by_sweep: dict[int, list[dict[str, Any]]] = field(default_factory=dict)  # the rows of each sweep
    current_sweep_number: int = 0

    def start_sweep(self, sweep_number: int) -> None:
        assert sweep_number not in self.rows_by_sweep, "each sweep must start only once"
        self.current_sweep_number = sweep_number
        self.rows_by_sweep[sweep_number] = []

    def receive_rows(self, subscriber_objects: Sequence[dict[str, Any]]) -> None:
        self.rows_by_sweep[self.current_sweep_number] += subscriber_objects

    @property
    def ids(self) -> list[int]:
        """The ids of the subscribers that the last sweep found."""
        return [subscriber["Id"] for subscriber in self.rows_by_sweep[self.current_sweep_number]]


def read_certified_list(
    sandbox: SandboxProcess, query: ListQuery | None = None, **options: Any
) -> tuple[Certificate, SweepCollector]:
    """Read the list of the sandbox, and return its certificate and the collected rows."""
    collector = SweepCollector()

    async def run() -> Certificate:
        async with open_client(build_service(sandbox)) as client:
            return await read_list(
                client, build_retrier(), query or ListQuery(), collector, now=read_current_time, **options
            )

    return asyncio.run(run()), collector
