"""The input of a simulation: the stance of the service, the people, and the nights of a job."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from connector.load.retry import RetrySelection
from connector.load.session import LoadPolicy
from connector.shards import WHOLE, Shard
from connector.subscribers.identity import Suppression
from tests.simulation.network import Weather
from tests.simulation.people import People
from tests.simulation.rows import Portion

BASE_ID = 7
BASE_NAME = "News"


@dataclass(frozen=True, slots=True)
class Storm:
    """What befalls requests from `after_s` to `until_s` of a night: switches of the sandbox, and the way to it."""

    switches: Mapping[str, object] = field(default_factory=dict)
    weather: Weather = field(default_factory=Weather)
    after_s: float = 0.0
    until_s: float = float("inf")


@dataclass(frozen=True, slots=True)
class Ending:
    """How a night ends: by itself (all None), by death at a step, commit or second, or by a first signal at
    `stop_at_s` and a second one at `cut_at_s`."""

    at_step: int | None = None
    at_commit: int | None = None
    is_after: bool = False
    die_at_s: float | None = None
    stop_at_s: float | None = None
    cut_at_s: float | None = None


@dataclass(frozen=True, slots=True)
class Newcomer:
    """Somebody who comes into a base by another way, so long after the night's beginning (before it: negative)."""

    at_s: float
    wire: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Night:
    """One run of the job, `gap_s` after the one before; with `retry` it has no source, and takes up what was left."""

    portions: tuple[Portion, ...]
    gap_s: float = 60.0
    is_by_name: bool = False
    storm: Storm | None = None
    ending: Ending = field(default_factory=Ending)
    newcomers: tuple[Newcomer, ...] = ()
    suppressed: frozenset[int] = frozenset()  # the persons on the job's suppression list
    suppression: Suppression | None = None
    retry: RetrySelection | None = None
    ledger: Literal["kept", "lost", "restored"] = "kept"  # restored: as it was when the night before began
    is_by_row: bool = False  # each row says the base:
    bases: tuple[int, ...] = ()  # which of these (ids) is the person's
    shard: Shard = WHOLE  # the portions have rows of this shard alone


@dataclass(frozen=True, slots=True)
class Scenario:
    """Everything that is decided before it begins; `seed` is what the chances of its course are drawn from.

    `settings` are the sandbox's switches that stay, its stance; `strangers` are already in its bases.
    """

    seed: int
    settings: Mapping[str, object]
    people: People
    policy: LoadPolicy
    nights: tuple[Night, ...]
    timeout_s: float = 30.0
    latency_s: float = 0.05
    commit_s: float = 0.005
    has_base: bool = True
    base_name: str = BASE_NAME  # as the service spells it
    strangers: tuple[Mapping[str, object], ...] = ()

    @property
    def quiet_s(self) -> float:
        """The job's quiet period."""
        return self.policy.quiet_period_s

    @property
    def lag_s(self) -> float:
        """How late the list shows people."""
        value = self.settings.get("list_lag_ms", 0.0)
        lag_ms = float(value) if isinstance(value, int | float) else 0.0
        return (lag_ms + max(self.replica_lags_ms, default=0.0)) / 1000

    @property
    def replica_lags_ms(self) -> tuple[float, ...]:
        """How much later still each of the replicas that the list is read from shows them."""
        value = self.settings.get("replica_lags_ms", ())
        return value if isinstance(value, tuple) else ()

    @property
    def is_astray(self) -> bool:
        """Whether the service answers creates with another base or identity than was sent, or merges subscribers."""
        return any(name in self.settings for name in ("base_alias", "alter_identity", "merge_by"))
