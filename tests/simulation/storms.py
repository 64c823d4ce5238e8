"""Draws the faults of a night: one to four faults, for the whole night or for a part of it."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from random import Random

from tests.simulation.network import Weather
from tests.simulation.scenario import Storm

_OTHER_HOST_URL = "https://elsewhere.example"


@dataclass(frozen=True, slots=True)
class Setting:
    """The values that a fault may depend on: the quiet period and timeout of the job, and the lag of the list."""

    quiet_s: float
    timeout_s: float
    lag_s: float


@dataclass(frozen=True, slots=True)
class Part:
    """One fault of a storm: its switches of the sandbox, and its faults of the network."""

    switches: dict[str, object]
    weather: Weather = Weather()  # noqa: RUF009 - a frozen value


def _build_switch(name: str) -> Callable[[Random, float, Setting], Part]:
    return lambda random, share, setting: Part({name: share})


def _build_error_status(status: int) -> Callable[[Random, float, Setting], Part]:
    return lambda random, share, setting: Part(
        {"error_before": share / 2, "error_after": share / 2}, Weather(error_status=status)
    )


def _build_late_execution(min_periods: float, max_periods: float) -> Callable[[Random, float, Setting], Part]:
    """Return a fault that cuts connections. The service executes the creates after a random number of quiet periods."""
    return lambda random, share, setting: Part(
        {"drop_before": share, "late_ms": 1000 * setting.quiet_s * random.uniform(min_periods, max_periods)}
    )


def _build_delay(random: Random, share: float, setting: Setting) -> Part:
    longest_s = setting.timeout_s + setting.quiet_s * random.choice((0.5, 1.0, 1.0, 2.5))
    return Part({}, Weather(delayed_share=share, delay_s=longest_s))


# Each fault: name, group, function. A storm has at most one fault of a group, because a group is one switch.
FAULTS: tuple[tuple[str, str, Callable[[Random, float, Setting], Part]], ...] = (
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
    ("refused", "refused", lambda random, share, setting: Part({}, Weather(refused_share=share))),
    ("delayed", "delayed", _build_delay),
    ("mixed_up", "mixed_up", lambda random, share, setting: Part({}, Weather(mixed_up_share=share))),
    ("list_error", "list_error", _build_switch("list_error")),
    ("redirect", "redirect", lambda random, share, setting: Part({"redirect_to": _OTHER_HOST_URL})),
)
# The weights of faults that are drawn less or more often than others. Faults that end a run at once are drawn less.
# Faults that the rule of absence (architecture 4.5) is for are drawn more.
_WEIGHTS = {
    "redirect": 0.3,
    "wrong_answer": 0.4,
    "mixed_up": 1.0,
    "late inside": 3.0,
    "delayed": 2.0,
    "created_422": 0.6,
}


def build_storm(random: Random, setting: Setting) -> Storm:
    """Return a storm of one to four faults, which together affect 2 % to 40 % of the requests."""
    parts = _draw_parts(random, setting)
    switches: dict[str, object] = {}
    weather = Weather()
    for part in parts:
        switches |= part.switches
        changed_values = {name: value for name, value in asdict(part.weather).items() if value}
        weather = replace(weather, **changed_values)
    if random.random() < 0.25:
        switches["fault_operations"] = ["create", "list"]
    if "refuse" in switches:
        switches["refuse_retry_after_s"] = random.choice((0, 1, 1, 5, 100))
    after_s = random.choice((0.0, 0.0, 0.0, random.uniform(0.0, 2.0)))
    duration_s = random.choice((float("inf"), float("inf"), random.uniform(0.5, 3.0), random.uniform(1.0, 60.0)))
    if "redirect_to" in switches:
        after_s, duration_s = random.uniform(0.0, 1.5), random.uniform(0.2, 2.0)
    return Storm(switches, weather, after_s, after_s + duration_s)


def _draw_parts(random: Random, setting: Setting) -> list[Part]:
    shuffled_faults = sorted(
        FAULTS, key=lambda fault: random.random() ** (1 / _WEIGHTS.get(fault[0], 1.0)), reverse=True
    )
    count = random.choice((1, 2, 2, 3, 4))
    total_share = random.uniform(0.02, 0.4)
    parts_by_group: dict[str, Part] = {}
    for _, group, build in shuffled_faults:
        if len(parts_by_group) < count and group not in parts_by_group:
            parts_by_group[group] = build(random, total_share / count, setting)
    return list(parts_by_group.values())
