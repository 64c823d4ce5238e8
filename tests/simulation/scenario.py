"""The input of a simulation: the behaviour of the service, the people, and the runs of one job."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from connector.load.retry import RetrySelection
from connector.load.session import LoadPolicy
from connector.shards import SINGLE_SHARD, Shard
from connector.subscribers.identity import Suppression
from tests.simulation.network import NetworkFaults
from tests.simulation.people import People
from tests.simulation.rows import PreparedChunk

BASE_ID = 7
BASE_NAME = "News"


@dataclass(frozen=True, slots=True)
class FaultPeriod:
    """Faults from `starts_after_s` to `ends_after_s` seconds of a run: switches of the sandbox, and faults of the
    network."""

    switches: Mapping[str, object] = field(default_factory=dict)
    network_faults: NetworkFaults = field(default_factory=NetworkFaults)
    starts_after_s: float = 0.0
    ends_after_s: float = float("inf")


@dataclass(frozen=True, slots=True)
class RunEnding:
    """How a run ends: by itself (all values are None), because its process is killed, or after one or two signals."""

    kill_at_step: int | None = None
    kill_at_commit: int | None = None
    kills_after_commit: bool = False  # kill the process after the commit instead of before the commit
    kill_at_s: float | None = None
    first_signal_at_s: float | None = None  # the time of the first signal
    second_signal_at_s: float | None = None  # the time of the second signal


@dataclass(frozen=True, slots=True)
class ForeignCreate:
    """A subscriber whom another program creates. `created_at_s` counts from the start of the run, and is negative
    before the start."""

    created_at_s: float
    subscriber_object: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class JobRun:
    """One run of the job, `gap_s` after the previous run. With `retry`, the run has no source and finishes
    entries of earlier runs."""

    prepared_chunks: tuple[PreparedChunk, ...]
    gap_s: float = 60.0
    has_base_name: bool = False  # the job gives the name of the base instead of its id
    fault_period: FaultPeriod | None = None
    ending: RunEnding = field(default_factory=RunEnding)
    foreign_creates: tuple[ForeignCreate, ...] = ()
    suppressed_person_numbers: frozenset[int] = frozenset()  # the persons on the job's suppression list
    suppression: Suppression | None = None
    retry: RetrySelection | None = None
    ledger_accident: Literal["none", "lost", "restored"] = "none"  # restored: a copy from before the previous run
    has_base_column: bool = False  # each row names its base
    base_ids: tuple[int, ...] = ()  # the ids of the bases of the rows; each person has one base
    shard: Shard = SINGLE_SHARD  # the prepared chunks have only rows of this shard


@dataclass(frozen=True, slots=True)
class Scenario:
    """The whole input of a simulation. The random events during the simulation are drawn with `seed`."""

    seed: int
    settings: Mapping[str, object]  # switches of the sandbox that do not change
    people: People
    policy: LoadPolicy
    job_runs: tuple[JobRun, ...]
    timeout_s: float = 30.0
    latency_s: float = 0.05
    commit_s: float = 0.005
    has_base: bool = True
    base_name: str = BASE_NAME  # as the service spells the name
    existing_subscribers: tuple[Mapping[str, object], ...] = ()  # subscribers who exist before the first run

    @property
    def quiet_period_s(self) -> float:
        """The quiet period of the job in seconds."""
        return self.policy.quiet_period_s

    @property
    def lag_s(self) -> float:
        """The largest lag of the list in seconds."""
        list_lag_ms = self.settings.get("list_lag_ms", 0.0)
        lag_ms = float(list_lag_ms) if isinstance(list_lag_ms, int | float) else 0.0
        return (lag_ms + max(self.replica_lags_ms, default=0.0)) / 1000

    @property
    def replica_lags_ms(self) -> tuple[float, ...]:
        """The additional lag of each replica of the list in milliseconds."""
        lags_ms = self.settings.get("replica_lags_ms", ())
        return lags_ms if isinstance(lags_ms, tuple) else ()

    @property
    def has_wrong_answers(self) -> bool:
        """Whether the service answers a create with another base or identity than the create had, or merges
        subscribers."""
        return any(name in self.settings for name in ("base_alias", "alter_identity", "merge_by"))
