"""The flow of `connector probe`: the service's habits are measured, kept in the ledger, and shown with their age."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from connector.clock import Clock
from connector.control import Stop, until_stopped
from connector.errors import ConfigurationError, ConnectorError, LedgerError, LockedError
from connector.ledger.entries import Ledger
from connector.ledger.opening import open_ledger
from connector.ledger.records import KeptHabit, read_habits, record_habit, record_lag
from connector.probe import Habit, ListProbe, probe_creates
from connector.report import EXIT_CODES, Status, count_requests
from connector.service.client import open_client
from connector.service.retry import Retrier
from connector.settings import Settings, build_service

_ATTEMPTS, _LONGEST_S = 3, 10.0  # a person waits for the answer


@dataclass(frozen=True, slots=True)
class ProbePlan:
    """Which service is probed; with `base_id` by a few creates in that base, too."""

    settings: Settings
    base_id: int | None = None
    wait_s: float = 0.0


@dataclass(slots=True)
class Probed:
    """How it ended, and what is known of the account by now: the habits by name, and when each was seen."""

    account: str
    status: Status = "ok"
    messages: list[str] = field(default_factory=list)
    habits: dict[str, Habit] = field(default_factory=dict)
    seen_at: dict[str, datetime] = field(default_factory=dict)
    requests: dict[str, dict[str, int]] = field(default_factory=dict)
    signal: int | None = None

    @property
    def exit_code(self) -> int:
        """The exit code of architecture 8."""
        return 128 + (self.signal or 0) if self.status == "stopped" else EXIT_CODES[self.status]

    def as_json(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        habits = [
            {**habit.as_json(), "seen_at": self.seen_at[name].isoformat() if name in self.seen_at else None}
            for name, habit in self.habits.items()
        ]
        keys = ("account", "status", "messages", "requests")
        return {**{key: getattr(self, key) for key in keys}, "habits": habits}


async def run_probe(plan: ProbePlan, stop: Stop, clock: Clock) -> Probed:
    """Measure the habits and keep them in the ledger, which is locked meanwhile: a run beside would be measured, too.

    Raises ConfigurationError, for a token that is refused, too.
    """
    settings, probed = plan.settings, Probed(plan.settings.account)
    try:
        with open_ledger(
            settings.ledger_url, wait_s=plan.wait_s, is_stopped=stop.event.is_set, may_make=settings.may_make_ledger
        ) as ledger:
            measured: list[Habit] = []
            ending = await until_stopped(_measure(plan, measured.extend, probed, clock), stop)
            _keep(ledger, probed.account, measured, clock.now())
            _show_kept(ledger, measured, probed, clock.now())
    except LockedError as error:
        probed.status, probed.messages = "locked", [str(error)]
        return probed
    except LedgerError as error:
        probed.status, probed.messages = "aborted", [str(error)]
        return probed
    if stop.signal is not None:
        probed.status, probed.signal = "stopped", stop.signal
        probed.messages = ["stopped by a signal before it had ended"]
    elif isinstance(ending, ConnectorError) and not isinstance(ending, ConfigurationError):
        probed.status, probed.messages = "aborted", [str(ending)]
    elif isinstance(ending, BaseException):
        raise ending
    return probed


async def _measure(plan: ProbePlan, on_habits: Callable[[Sequence[Habit]], None], probed: Probed, clock: Clock) -> None:
    async with open_client(build_service(plan.settings, 1)) as client:
        try:
            of_list = ListProbe(client, Retrier(_ATTEMPTS, _LONGEST_S))
            on_habits(await of_list.measure())
            if plan.base_id is not None:
                on_habits(await probe_creates(client, clock, plan.base_id, of_list.filters))
        finally:
            probed.requests = count_requests(client.counts)


def _keep(ledger: Ledger, account: str, measured: Sequence[Habit], at: datetime) -> None:
    """Keep what was seen; a lag is what a later run goes by until it has seen one of its own."""
    with ledger.transaction() as connection:
        for habit in measured:
            if habit.seen is not None:
                said = json.dumps([habit.seen, habit.words, habit.sureness])
                record_habit(connection, account, KeptHabit(habit.name, said, at.timestamp()))
            if habit.name == "visibility_lag" and isinstance(habit.seen, float):
                record_lag(connection, account, habit.seen)


def _show_kept(ledger: Ledger, measured: Sequence[Habit], probed: Probed, at: datetime) -> None:
    """What was measured now, and in place of what was not seen what an earlier probe has seen."""
    probed.habits = {habit.name: habit for habit in measured}
    probed.seen_at = {habit.name: at for habit in measured if habit.seen is not None}
    with ledger.transaction() as connection:
        kept = read_habits(connection, probed.account)
    for each in kept:
        if each.name not in probed.seen_at:
            seen, words, sureness = json.loads(each.seen)
            probed.habits[each.name] = Habit(each.name, seen, words, sureness)
            probed.seen_at[each.name] = datetime.fromtimestamp(each.seen_at, UTC)
