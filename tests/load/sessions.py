"""A session for look-ups: a real ledger, a real or fake client, and a clock that only the tests move."""

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar, cast

from connector.clock import Clock, system_clock
from connector.control import Stop
from connector.ledger.commits import LedgerQueue, LedgerWriter
from connector.ledger.entries import Ledger
from connector.ledger.opening import open_ledger
from connector.ledger.records import find_or_add_base, start_run
from connector.ledger.store import Base
from connector.listing.access import ConfirmedCreate, ListAccess, LookupKey, LookupResult, LookupState
from connector.load.session import LoadPolicy, Session
from connector.sandbox import SandboxProcess
from connector.service.client import Client, open_client
from connector.service.retry import Retrier
from connector.service.settings import Service, Token
from connector.subscribers.identity import digest_identity
from connector.tally import Tally
from tests.load.looks.fake_list import FakeList

T = TypeVar("T")

BASE_ID = 7


@dataclass
class VirtualTime:
    """A clock that moves only during a sleep, or when a test sets `now_s`."""

    now_s: float = 1000.0

    @property
    def clock(self) -> Clock:
        return Clock(lambda: self.now_s, lambda: datetime.fromtimestamp(self.now_s, UTC), self.sleep)

    async def sleep(self, seconds: float) -> None:
        self.now_s += seconds


def build_key(text: str, field: str = "email", *, ignores_case: bool = False) -> LookupKey:
    """Return the look-up key of an identity that was sent with this text."""
    return LookupKey(digest_identity(field, text), field, text, ignores_case)


def compute_identity(text: str, field: str = "email") -> bytes:
    return digest_identity(field, text)


def build_confirmed_create(confirmed_at: float, subscriber_id: int, email: str) -> ConfirmedCreate:
    return ConfirmedCreate(confirmed_at, subscriber_id, "email", email)


class InlineExecutor(Executor):
    """An executor that runs the function at once, in the thread of the caller."""

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        """Return a future that is done."""
        future: Future[Any] = Future()
        try:
            future.set_result(function(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - the caller that reads the result handles the error
            future.set_exception(error)
        return future


class ReadableLedgerWriter(LedgerWriter):
    """A LedgerWriter with the attribute `ledger`, so that a test can read the entries."""

    def __init__(self, ledger: Ledger, base: Base, run_key: int) -> None:
        super().__init__(LedgerQueue(ledger, InlineExecutor()), base, run_key)
        self.ledger = ledger


@contextmanager
def open_ledger_writer(
    folder: Path, base_id: int | None = BASE_ID, base_name: str | None = None
) -> Iterator[ReadableLedgerWriter]:
    """Create a ledger with one base, and yield its writer. The writer commits in the thread of the caller."""
    with open_ledger(f"sqlite:///{folder}/ledger.db") as ledger:
        with ledger.transaction() as connection:
            run_key = start_run(connection, "run", "job", "import", 0.0)
            base = find_or_add_base(connection, "account", base_id, base_name)
        yield ReadableLedgerWriter(ledger, base, run_key)


def build_session(
    client: object,
    ledger_writer: LedgerWriter,
    *,
    virtual_time: VirtualTime | None = None,
    name: str | None = None,
    state: LookupState | None = None,
    **policy: Any,
) -> Session:
    """Return a session on the given clock, or on the machine's clock. `state` is the look-up state of the run."""
    clock = virtual_time.clock if virtual_time is not None else system_clock()
    retrier = Retrier(2, clock=replace(clock, sleep=skip_sleep), rng=random.Random(1))
    load_policy = LoadPolicy(**policy)
    list_access = ListAccess(
        Stop(clock),
        cast("Client", client),
        retrier,
        ledger_writer,
        load_policy,
        name,
        draw_bytes=random.Random(5).randbytes,
        state=LookupState() if state is None else state,
    )
    return Session(list_access, load_policy, Tally())


def open_other_base(session: Session, base_id: int) -> Session:
    """Return a session of the same run in another base."""
    list_access = session.list_access
    ledger = cast("ReadableLedgerWriter", list_access.ledger_writer).ledger
    with ledger.transaction() as connection:
        base = find_or_add_base(connection, "account", base_id, None)
    ledger_writer = ReadableLedgerWriter(ledger, base, list_access.ledger_writer.run_key)
    return replace(session, list_access=replace(list_access, ledger_writer=ledger_writer))


async def skip_sleep(_: float) -> None:
    """Return at once, so that retries do not wait."""


def run_with_fake_list(
    fake_list: FakeList,
    folder: Path,
    function: Callable[[Session], Coroutine[Any, Any, T]],
    *,
    confirmed_creates: tuple[ConfirmedCreate, ...] = (),
    **options: Any,
) -> T:
    """Run a function with a session of the fake list, and return its result. The clock of the session starts at 1000.0.
    A function that hangs fails after a minute."""

    async def run() -> T:
        with open_ledger_writer(folder, options.pop("base_id", BASE_ID), options.get("name")) as ledger_writer:
            session = build_session(
                fake_list, ledger_writer, virtual_time=options.pop("virtual_time", VirtualTime()), **options
            )
            session.list_access.confirmed_creates.extend(confirmed_creates)
            return await asyncio.wait_for(function(session), 60)

    return asyncio.run(run())


def run_with_sandbox(
    sandbox: SandboxProcess, folder: Path, function: Callable[[Session], Coroutine[Any, Any, T]], **options: Any
) -> T:
    """Run a function with a session of a real client of the sandbox, and return its result."""

    async def run() -> T:
        service = Service(sandbox.base_url, Token(sandbox.token), timeout_s=10)
        with open_ledger_writer(folder, options.pop("base_id", BASE_ID), options.get("name")) as ledger_writer:
            async with open_client(service) as client:
                return await asyncio.wait_for(function(build_session(client, ledger_writer, **options)), 60)

    return asyncio.run(run())


def read_result(result: LookupResult) -> tuple[dict[bytes, tuple[int, ...]], set[bytes]]:
    """Return the found ids by identity, and the absent identities."""
    return dict(result.found_ids), set(result.absent_identities)


def read_recorded_ids(ledger_writer: LedgerWriter, *emails: str) -> list[int | None]:
    """Return the id that the ledger has for each of these emails, or None."""

    ledger = cast("ReadableLedgerWriter", ledger_writer).ledger
    with ledger.transaction():
        entries = ledger.find_entries(ledger_writer.base, [compute_identity(email) for email in emails])
    return [
        entries[compute_identity(email)].subscriber_id if compute_identity(email) in entries else None
        for email in emails
    ]
