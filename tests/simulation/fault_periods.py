"""Draws the faults of a run: one to four faults, for the whole run or for a part of the run."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from random import Random

from tests.simulation.network import NetworkFaults
from tests.simulation.scenario import FaultPeriod

_OTHER_HOST_URL = "https://elsewhere.example"


@dataclass(frozen=True, slots=True)
class JobDurations:
    """Durations that a fault may use: the quiet period and the timeout of the job, and the lag of the list."""

    quiet_period_s: float
    timeout_s: float
    lag_s: float


@dataclass(frozen=True, slots=True)
class Fault:
    """One injected fault: the switches of the sandbox and the faults of the network that cause it."""

    switches: dict[str, object]
    network_faults: NetworkFaults = NetworkFaults()  # noqa: RUF009 - a frozen value


def _build_switch(name: str) -> Callable[[Random, float, JobDurations], Fault]:
    return lambda rng, fault_share, durations: Fault({name: fault_share})


def _build_error_status(status: int) -> Callable[[Random, float, JobDurations], Fault]:
    return lambda rng, fault_share, durations: Fault(
        {"error_before": fault_share / 2, "error_after": fault_share / 2}, NetworkFaults(error_status=status)
    )


def _build_late_execution(
    min_quiet_period_count: float, max_quiet_period_count: float
) -> Callable[[Random, float, JobDurations], Fault]:
    """Return a fault that cuts connections. The service executes the creates after a random number of quiet periods."""
    return lambda rng, fault_share, durations: Fault(
        {
            "drop_before": fault_share,
            "late_ms": 1000 * durations.quiet_period_s * rng.uniform(min_quiet_period_count, max_quiet_period_count),
        }
    )


def _build_delay(rng: Random, fault_share: float, durations: JobDurations) -> Fault:
    max_delay_s = durations.timeout_s + durations.quiet_period_s * rng.choice((0.5, 1.0, 1.0, 2.5))
    return Fault({}, NetworkFaults(delayed_share=fault_share, delay_s=max_delay_s))


# Each fault: name, group, function. All faults of a group set the same switch, so a run has at most one fault of a
# group.
FAULTS: tuple[tuple[str, str, Callable[[Random, float, JobDurations], Fault]], ...] = (
    ("drop_before", "drop", _build_switch("drop_before")),
    ("late inside", "drop", _build_late_execution(0.05, 0.95)),
    ("late outside", "drop", _build_late_execution(1.2, 4.0)),
    ("drop_after", "drop_after", _build_switch("drop_after")),
    ("cut_answer", "cut_answer", _build_switch("cut_answer")),
    ("error_before", "error", _build_switch("error_before")),
    ("error_after", "error", _build_switch("error_after")),
    ("408", "error", _build_error_status(408)),
    ("409", "error", _build_error_status(409)),
    ("hang_after", "hang_after", _build_switch("hang_after")),
    ("garbage_after", "garbage_after", _build_switch("garbage_after")),
    ("created_422", "created_422", _build_switch("created_422")),
    ("refuse", "refuse", _build_switch("refuse")),
    ("created_429", "created_429", _build_switch("created_429")),
    ("wrong_answer", "wrong_answer", _build_switch("wrong_answer")),
    ("refused", "refused", lambda rng, fault_share, durations: Fault({}, NetworkFaults(refused_share=fault_share))),
    ("delayed", "delayed", _build_delay),
    (
        "mixed_up",
        "mixed_up",
        lambda rng, fault_share, durations: Fault({}, NetworkFaults(mixed_up_share=fault_share)),
    ),
    ("list_error", "list_error", _build_switch("list_error")),
    ("redirect", "redirect", lambda rng, fault_share, durations: Fault({"redirect_to": _OTHER_HOST_URL})),
)
# The weight of each other fault is 1. Faults that end a run at once have smaller weights, and are drawn less often.
# Faults that test the rule of absence (architecture 4.5) have larger weights.
_FAULT_WEIGHTS = {
    "redirect": 0.3,
    "wrong_answer": 0.4,
    "late inside": 3.0,
    "delayed": 2.0,
    "created_422": 0.6,
}


def draw_fault_period(rng: Random, durations: JobDurations) -> FaultPeriod:
    """Return a period with one to four faults, which together affect 2 % to 40 % of the requests."""
    faults = _draw_faults(rng, durations)
    switches: dict[str, object] = {}
    network_faults = NetworkFaults()
    for fault in faults:
        switches |= fault.switches
        changed_values = {name: value for name, value in asdict(fault.network_faults).items() if value}
        network_faults = replace(network_faults, **changed_values)
    if rng.random() < 0.25:
        switches["fault_operations"] = ["create", "list"]
    if "refuse" in switches:
        switches["refuse_retry_after_s"] = rng.choice((0, 1, 1, 5, 100))
    starts_after_s = rng.choice((0.0, 0.0, 0.0, rng.uniform(0.0, 2.0)))
    duration_s = rng.choice((float("inf"), float("inf"), rng.uniform(0.5, 3.0), rng.uniform(1.0, 60.0)))
    if "redirect_to" in switches:
        starts_after_s, duration_s = rng.uniform(0.0, 1.5), rng.uniform(0.2, 2.0)
    return FaultPeriod(switches, network_faults, starts_after_s, starts_after_s + duration_s)


def _draw_faults(rng: Random, durations: JobDurations) -> list[Fault]:
    faults_in_random_order = sorted(
        FAULTS, key=lambda definition: rng.random() ** (1 / _FAULT_WEIGHTS.get(definition[0], 1.0)), reverse=True
    )
    fault_count = rng.choice((1, 2, 2, 3, 4))
    affected_share = rng.uniform(0.02, 0.4)
    fault_by_group: dict[str, Fault] = {}
    for _, fault_group, build_fault in faults_in_random_order:
        if len(fault_by_group) < fault_count and fault_group not in fault_by_group:
            fault_by_group[fault_group] = build_fault(rng, affected_share / fault_count, durations)
    return list(fault_by_group.values())
