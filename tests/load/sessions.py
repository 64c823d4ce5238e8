"""A session for looks: a real ledger, any client, and a clock that only tests move."""

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
from connector.ledger.commits import Commits, LedgerWriter
from connector.ledger.entries import Ledger
from connector.ledger.opening import open_ledger
from connector.ledger.records import find_or_add_base, start_run
from connector.ledger.store import Base
from connector.listing.access import ListAccess, LookupKey, LookupResult, LookupState, Sentinel
from connector.load.session import LoadPolicy, Session, Tally
from connector.sandbox import SandboxProcess
from connector.service.client import Client, open_client
from connector.service.retry import Retrier
from connector.service.settings import Service, Token
from connector.subscribers.identity import digest_identity
from tests.load.looks.fake_list import FakeList

T = TypeVar("T")

BASE = 7


@dataclass
class VirtualTime:
    """A clock that moves when somebody sleeps, or when it is told to."""

    now: float = 1000.0

    @property
    def clock(self) -> Clock:
        return Clock(lambda: self.now, lambda: datetime.fromtimestamp(self.now, UTC), self.sleep)

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


def want(text: str, field: str = "email", *, in_any_spelling: bool = False) -> LookupKey:
    """Somebody looked for by the text that was sent."""
    return LookupKey(digest_identity(field, text), field, text, in_any_spelling)


def identity(text: str, field: str = "email") -> bytes:
    return digest_identity(field, text)


def sentinel(at: float, subscriber_id: int, text: str, field: str = "email") -> Sentinel:
    return Sentinel(at, subscriber_id, field, text)


class OwnThread(Executor):
    """An executor that works at once, in the thread of the caller."""

    def submit(self, work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        """Return a future that is done."""
        result: Future[Any] = Future()
        try:
            result.set_result(work(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - the error belongs to the caller that reads the result
            result.set_exception(error)
        return result


class Journal(LedgerWriter):
    """A writer of a ledger that the test can read."""

    def __init__(self, ledger: Ledger, base: Base, run_key: int) -> None:
        super().__init__(Commits(ledger, OwnThread()), base, run_key)
        self.ledger = ledger


@contextmanager
def open_journal(folder: Path, base_id: int | None = BASE, base_name: str | None = None) -> Iterator[LedgerWriter]:
    """Create a ledger with one base. Its commits run in the thread of the caller."""
    with open_ledger(f"sqlite:///{folder}/ledger.db") as ledger:
        with ledger.transaction() as connection:
            run = start_run(connection, "run", "job", "import", 0.0)
            base = find_or_add_base(connection, "account", base_id, base_name)
        yield Journal(ledger, base, run)


def build_session(
    client: object,
    journal: LedgerWriter,
    *,
    time: VirtualTime | None = None,
    name: str | None = None,
    state: LookupState | None = None,
    **policy: Any,
) -> Session:
    """Return a session on the given clock, or on the machine's clock. `state` is the look-up state of the run."""
    clock = time.clock if time is not None else system_clock()
    retrier = Retrier(2, clock=replace(clock, sleep=no_sleep), rng=random.Random(1))
    load_policy = LoadPolicy(**policy)
    access = ListAccess(
        Stop(clock),
        cast("Client", client),
        retrier,
        journal,
        load_policy,
        name,
        draw=random.Random(5).randbytes,
        state=LookupState() if state is None else state,
    )
    return Session(access, load_policy, Tally(lambda problem: None))


def open_other_base(session: Session, base_id: int) -> Session:
    """Return a session of the same run in another base."""
    access = session.access
    ledger = cast("Journal", access.journal).ledger
    with ledger.transaction() as connection:
        base = find_or_add_base(connection, "account", base_id, None)
    writer = Journal(ledger, base, access.journal.run_key)
    return replace(session, access=replace(access, journal=writer))


async def no_sleep(_: float) -> None:
    """Retries without waiting."""


def look_at_fake(
    fake: FakeList,
    folder: Path,
    look: Callable[[Session], Coroutine[Any, Any, T]],
    *,
    sentinels: tuple[Sentinel, ...] = (),
    **options: Any,
) -> T:
    """One session with the fake, at 1000.0 by its clock; a look that hangs fails in a minute."""

    async def run() -> T:
        with open_journal(folder, options.pop("base_id", BASE), options.get("name")) as journal:
            session = build_session(fake, journal, time=options.pop("time", VirtualTime()), **options)
            session.access.sentinels.extend(sentinels)
            return await asyncio.wait_for(look(session), 60)

    return asyncio.run(run())


def look_at_sandbox(
    sandbox: SandboxProcess, folder: Path, look: Callable[[Session], Coroutine[Any, Any, T]], **options: Any
) -> T:
    """One session with a real client of the sandbox."""

    async def run() -> T:
        service = Service(sandbox.base_url, Token(sandbox.token), timeout_s=10)
        with open_journal(folder, options.pop("base_id", BASE), options.get("name")) as journal:
            async with open_client(service) as client:
                return await asyncio.wait_for(look(build_session(client, journal, **options)), 60)

    return asyncio.run(run())


def get_verdict(result: LookupResult) -> tuple[dict[bytes, tuple[int, ...]], set[bytes]]:
    """Whom it found, under which ids, and whom it missed."""
    return dict(result.found_ids), set(result.absent_identities)


def read_recorded(journal: LedgerWriter, *texts: str) -> list[int | None]:
    """The subscriber id that the ledger has for each of these emails."""

    ledger = cast("Journal", journal).ledger
    with ledger.transaction():
        entries = ledger.find_entries(journal.base, [identity(text) for text in texts])
    return [entries[identity(text)].subscriber_id if identity(text) in entries else None for text in texts]
