"""All that one sandbox is at a moment: switches, subscribers, truth, outbox, counts, and its one source of chance."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random

from connector.sandbox.emails import EmailRules
from connector.sandbox.faults import FaultDraw
from connector.sandbox.journal import FileJournal, Journal, MemoryJournal
from connector.sandbox.limiter import Limiter, build_limiter
from connector.sandbox.outbox import Outbox
from connector.sandbox.replay import replay
from connector.sandbox.stats import Stats
from connector.sandbox.store import Store
from connector.sandbox.switches import Settings, change_settings
from connector.sandbox.truth import TruthLog

_PACE = ("limiter", "rate", "burst", "window_ms")


@dataclass(slots=True)
class State:
    """What the rooms of the sandbox share; `clock` and `wall` give seconds, the first without going back."""

    settings: Settings
    at_start: Settings
    token: str
    clock: Callable[[], float]
    wall: Callable[[], float]
    store: Store
    truth: TruthLog
    outbox: Outbox
    stats: Stats
    limiter: Limiter
    draw: FaultDraw
    random: Random
    authorization: bytes = b""
    email_rules: EmailRules | None = None
    epoch: int = 0
    """Raised by each reset: what was begun before one is not executed after it."""

    def change(self, given: Mapping[str, object]) -> None:
        """Sets switches while the sandbox runs; raises ValueError and changes nothing."""
        self._apply(change_settings(self.settings, given), is_reseeded="seed" in given)

    def reset(self) -> None:
        """Back to an empty sandbox with the switches it was started with."""
        self.epoch += 1
        self.store = Store()
        self.truth.clear()
        self.outbox.clear()
        in_flight = self.stats.in_flight
        self.stats = Stats()
        self.stats.in_flight = in_flight
        self.settings = self.at_start
        self.limiter = _build_limiter(self.settings)
        self._apply(self.at_start, is_reseeded=True)

    def close(self) -> None:
        """Lets go of files."""
        self.truth.close()

    def _apply(self, settings: Settings, *, is_reseeded: bool) -> None:
        if any(getattr(settings, name) != getattr(self.settings, name) for name in _PACE):
            self.limiter = _build_limiter(settings)
        if is_reseeded:
            self.random = Random(settings.seed)  # noqa: S311 - chances that must come again, not secrets
        self.settings = settings
        self.draw = FaultDraw(settings)
        self.authorization = settings.authorization.replace("{token}", self.token).encode()
        self.email_rules = EmailRules(
            frozenset(each.lower() for each in settings.verified_domains),
            frozenset(each.lower() for each in settings.protected_headers),
            settings.unknown_fields == "reject",
        )


def _build_limiter(settings: Settings) -> Limiter:
    return build_limiter(settings.limiter, settings.rate, settings.burst, settings.window_ms / 1000)


def open_state(
    settings: Settings, token: str, data: Path | None, clock: Callable[[], float], wall: Callable[[], float]
) -> State:
    """A sandbox with what `data` (a directory, made if need be) holds, or an empty one in memory.

    Raises ValueError when the directory is in use or its journal cannot be trusted.
    """
    if data is not None:
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
    journal: Journal = MemoryJournal() if data is None else FileJournal(data / "journal.jsonl")
    store, outbox = Store(), Outbox(None if data is None else data / "outbox")
    truth = TruthLog(journal, wall, replay(journal.read_lines(), store, outbox))
    random = Random(settings.seed)  # noqa: S311 - chances that must come again, not secrets
    limiter, draw = _build_limiter(settings), FaultDraw(settings)
    state = State(settings, settings, token, clock, wall, store, truth, outbox, Stats(), limiter, draw, random)
    state.change({})  # derives what depends on the switches
    return state
