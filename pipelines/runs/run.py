"""A run in progress, and what it needs to know: what its parts share, and how their work is seen through.

Whence rows come and what is done with them, it does not know.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from connector.clock import Clock
from connector.control import RunControl
from connector.errors import ConfigurationError, ConnectorError, RunAborted
from connector.ledger import Base, Ledger
from connector.ledger.commits import Commits, LedgerWriter
from connector.listing import ListAccess, Sentinels
from connector.load import Limits, LoadPolicy, Tally
from connector.load.drift import close_waiting, compare_waiting
from connector.load.session import Canaries, Session
from connector.load.tally import WaitingRows
from connector.pace import Pace
from connector.service import Client, Retrier
from connector.subscribers import InactiveIdentities, Suppression
from pipelines.jobs import Settings
from pipelines.rows.load_files import RowListener
from pipelines.rows.suppressing import SuppressionPlan, read_suppression
from pipelines.runs.faults import describe_fault
from pipelines.runs.report import Report
from pipelines.runs.stopping import Stop, stay_alive
from pipelines.words import agree, count


class Closing(Protocol):
    """What counts, when it is closed, all that has no outcome yet."""

    async def close(self) -> None:
        """Be closed, however the run ends. Raises ConnectorError."""


@dataclass(frozen=True, slots=True)
class Frame:
    """What every run needs to know. `columns` are those of its rejects file; `find_bases` says where it is to work.

    `find_bases` is called in the transaction that records the run: what it raises leaves no trace. `by_job` is the name
    of the job file that the run follows ("": none): what that job left with its suppression list it may finish.
    """

    command: str
    job: str
    by_job: str
    columns: Sequence[str]
    find_bases: Callable[[Ledger], Sequence[Base]]
    policy: LoadPolicy
    settings: Settings
    suppression: SuppressionPlan | None
    wait_s: float
    may_make_ledger: bool = True
    is_full: bool = False  # what earlier runs have reported as changed is compared again
    is_planned: bool = False  # a private copy of the ledger is worked with, and no rejects are written
    rows_path: Path | None = None  # where a plan tells of each row
    are_rows_reported: bool = False  # whether the report does, too


@dataclass(slots=True)
class Run:
    """One run in progress: what it works with, and what it has read, counted and written."""

    frame: Frame
    report: Report
    stop: Stop
    clock: Clock
    rows: RowListener
    tally: Tally
    ledger: Ledger
    client: Client
    key: int
    bases: Sequence[Base]
    commits: Commits
    pace: Pace
    retrier: Retrier = field(default_factory=Retrier)
    canaries: Canaries = field(default_factory=Canaries)
    seeing: Sentinels = field(default_factory=Sentinels)
    inactive: InactiveIdentities = field(default_factory=InactiveIdentities)
    limits: Limits = field(default_factory=Limits)
    waiting: WaitingRows = field(default_factory=WaitingRows)  # rows to be compared with the service
    reason: str | None = None  # why it had to end early
    refusal: ConfigurationError | None = None  # that reason, where settings are at fault
    suppression: Suppression | None = None
    session: Session | None = None  # the one that it works in now
    at_end: Callable[[], Iterable[str]] = tuple  # done in the transaction that records the end; gives messages
    rows_read: int | None = None  # of the whole source, once all of it was read

    def open_session(self, base: Base, asked_name: str | None) -> Session:
        """What the load of one base shares, within itself and with those of the run's other bases; `asked_name` is the
        base's name, where that alone was given."""
        access = ListAccess(
            RunControl(self.clock, self.stop.event),
            self.client,
            self.retrier,
            LedgerWriter(self.commits, base, self.key),
            self.frame.policy.listing,
            asked_name,
            self.inactive,
            seeing=self.seeing,
        )
        self.session = Session(
            access,
            self.frame.policy,
            self.tally,
            self.frame.by_job,
            self.suppression,
            self.pace,
            self.canaries,
            self.limits,
            self.waiting,
        )
        return self.session

    @property
    def is_going_on(self) -> bool:
        """Whether neither a signal nor a reason has ended it."""
        return self.reason is None and not self.stop.event.is_set()

    async def see_through(self, load: Closing, work: Coroutine[Any, Any, None]) -> None:
        """Await what is to be done with this load, close it however that ends, and keep the reason if it ended early.

        Raises only what nobody may hold up: a cancellation that no signal has asked for.
        """
        self.stop.is_recording = False
        try:
            await work
        except ConfigurationError as error:
            self.reason, self.refusal = str(error), error
        except ConnectorError as error:
            self.reason = str(error)
        except Exception as error:  # noqa: BLE001 - a fault of ours: the run ends in a report all the same
            self.reason = describe_fault(error)
        except asyncio.CancelledError:
            if self.stop.signal is None:
                raise
            stay_alive()  # a second signal: what was under way is unknown, and that is still to be recorded
        self.stop.is_recording = True
        try:
            await load.close()
        except ConnectorError as error:
            self.reason = self.reason or str(error)
        close_waiting(self.waiting, self.tally, "the run ended before it was compared")

    async def compare(self, sessions: Sequence[Session]) -> None:
        """Compare the rows that differ from their entries with the service, now that all else is done. Raises as
        `compare_waiting` does."""
        if self.is_going_on:
            await compare_waiting(sessions, self.waiting, is_full=self.frame.is_full)

    def begin_anew(self) -> None:
        """All rows were surveyed, and are read again: nothing is counted or written of them yet."""
        self.tally.begin_anew()
        self.rows.begin_anew()

    def describe(self) -> str:
        """What a person should see of it now."""
        activity = self.session.control.activity if self.session else "starting"
        counts = ", ".join(f"{number:,} {outcome}" for outcome, number in self.tally.outcomes.items() if number)
        what = "planned" if self.frame.is_planned else "read"
        return f"{self.tally.read:,} {what}{': ' if counts else ''}{counts} ({activity})"


async def read_list(run: Run) -> Suppression | None:
    """The job's suppression list, read anew by each run, once, in a thread; None if it has none.

    Raises SourceError and RunAborted when it cannot be relied on.
    """
    plan = run.frame.suppression
    if plan is None or run.suppression is not None:
        return run.suppression
    try:
        run.suppression, messages = await asyncio.to_thread(read_suppression, plan, run.stop.event.is_set)
    except ConfigurationError as error:
        raise RunAborted(str(error)) from None
    run.report.messages += messages
    return run.suppression


def describe_reactivated(tally: Tally, *, is_planned: bool = False) -> Iterator[str]:
    """What a person should know of rows created as active whose identities the list shows as inactive."""
    if number := tally.reactivated:
        rows = f"{count(number, 'row')} {'would be' if is_planned else agree(number, 'was', 'were')} created as active"
        yield (
            f"{rows}, though the list shows {agree(number, 'its identity', 'their identities')} as inactive in a base "
            "of the account; to keep such rows back, set suppress: {inactive: true} in the job"
        )


def describe_leftovers(tally: Tally) -> Iterator[str]:
    """What became of those whom the run settled besides its rows."""
    for state, number in sorted(tally.leftovers.items()):
        creates = count(number, "unresolved create")
        yield f"{creates} from earlier runs, with no row in this one, {agree(number, 'is', 'are')} {state} now"
