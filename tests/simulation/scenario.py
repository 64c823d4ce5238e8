"""The input of a simulation: the behaviour of the service, the people, and the nights of a job."""

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
    """Faults from `after_s` to `until_s` of a night: switches of the sandbox, and faults of the network."""

    switches: Mapping[str, object] = field(default_factory=dict)
    weather: Weather = field(default_factory=Weather)
    after_s: float = 0.0
    until_s: float = float("inf")


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of a night: by itself (all None), by the death of the process, or by one or two signals."""

    at_step: int | None = None
    at_commit: int | None = None
    is_after: bool = False  # die after the commit instead of before it
    die_at_s: float | None = None
    first_signal_at_s: float | None = None  # the time of the first signal
    second_signal_at_s: float | None = None  # the time of the second signal


@dataclass(frozen=True, slots=True)
class Newcomer:
    """A subscriber whom another program creates. `comes_at_s` is the time after the start of the
    night, and is negative before the start."""

    comes_at_s: float
    wire: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Night:
    """One run of the job, `gap_s` after the previous run. With `retry`, the run has no source and finishes old
    entries."""

    portions: tuple[Portion, ...]
    gap_s: float = 60.0
    is_by_name: bool = False  # the job gives the name of the base instead of its id
    storm: Storm | None = None
    ending: Ending = field(default_factory=Ending)
    newcomers: tuple[Newcomer, ...] = ()
    suppressed_persons: frozenset[int] = frozenset()  # the persons on the job's suppression list
    suppression: Suppression | None = None
    retry: RetrySelection | None = None
    ledger: Literal["kept", "lost", "restored"] = "kept"  # restored: as before the previous night
    is_by_row: bool = False  # each row names its base
    bases: tuple[int, ...] = ()  # the ids of the bases of the rows; each person has one of them
    shard: Shard = WHOLE  # the portions have only rows of this shard


@dataclass(frozen=True, slots=True)
class Scenario:
    """The whole input of a simulation. The random events during the simulation are drawn with `seed`."""

    seed: int
    settings: Mapping[str, object]  # switches of the sandbox that do not change
    people: People
    policy: LoadPolicy
    nights: tuple[Night, ...]
    timeout_s: float = 30.0
    latency_s: float = 0.05
    commit_s: float = 0.005
    has_base: bool = True
    base_name: str = BASE_NAME  # the spelling of the service
    strangers: tuple[Mapping[str, object], ...] = ()  # subscribers who exist before the first night

    @property
    def quiet_s(self) -> float:
        """The quiet period of the job in seconds."""
        return self.policy.quiet_period_s

    @property
    def lag_s(self) -> float:
        """The largest lag of the list in seconds."""
        value = self.settings.get("list_lag_ms", 0.0)
        lag_ms = float(value) if isinstance(value, int | float) else 0.0
        return (lag_ms + max(self.replica_lags_ms, default=0.0)) / 1000

    @property
    def replica_lags_ms(self) -> tuple[float, ...]:
        """The additional lag of each replica of the list in milliseconds."""
        value = self.settings.get("replica_lags_ms", ())
        return value if isinstance(value, tuple) else ()

    @property
    def is_misanswering(self) -> bool:
        """Whether the service answers creates with another base or identity than the create had, or merges
        subscribers."""
        return any(name in self.settings for name in ("base_alias", "alter_identity", "merge_by"))
