"""The faults of a night: one or several, for the whole night or a part, each with a share of the requests."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from random import Random

from tests.simulation.network import Weather
from tests.simulation.scenario import Storm

_ELSEWHERE = "https://elsewhere.example"


@dataclass(frozen=True, slots=True)
class Setting:
    """What a fault may depend on: the job's quiet period and time-out, and how late the list shows people."""

    quiet_s: float
    timeout_s: float
    lag_s: float


@dataclass(frozen=True, slots=True)
class Part:
    """One fault of a storm: what it changes of the sandbox's switches and of the weather."""

    switches: dict[str, object]
    weather: Weather = Weather()  # noqa: RUF009 - a frozen value


def _switch(name: str) -> Callable[[Random, float, Setting], Part]:
    return lambda random, share, setting: Part({name: share})


def _error_as(status: int) -> Callable[[Random, float, Setting], Part]:
    return lambda random, share, setting: Part(
        {"error_before": share / 2, "error_after": share / 2}, Weather(error_as=status)
    )


def _late(least: float, most: float) -> Callable[[Random, float, Setting], Part]:
    """Executed between `least` and `most` quiet periods after the connection was cut."""
    return lambda random, share, setting: Part(
        {"drop_before": share, "late_ms": 1000 * setting.quiet_s * random.uniform(least, most)}
    )


def _delayed(random: Random, share: float, setting: Setting) -> Part:
    longest_s = setting.timeout_s + setting.quiet_s * random.choice((0.5, 1.0, 1.0, 2.5))
    return Part({}, Weather(delayed=share, delay_s=longest_s))


# Of two in one group a storm has one, because they are one switch of the sandbox.
FAULTS: tuple[tuple[str, str, Callable[[Random, float, Setting], Part]], ...] = (
    ("drop_before", "drop", _switch("drop_before")),
    ("late inside", "drop", _late(0.05, 0.95)),
    ("late outside", "drop", _late(1.2, 4.0)),
    ("drop_after", "drop_after", _switch("drop_after")),
    ("cut_answer", "cut_answer", _switch("cut_answer")),
    ("error_before", "error", _switch("error_before")),
    ("error_after", "error", _switch("error_after")),
    ("408", "error", _error_as(408)),
    ("409", "error", _error_as(409)),
    ("hang_after", "hang_after", _switch("hang_after")),
    ("garbage_after", "garbage_after", _switch("garbage_after")),
    ("created_422", "created_422", _switch("created_422")),
    ("refuse", "refuse", _switch("refuse")),
    ("created_429", "created_429", _switch("created_429")),
    ("wrong_answer", "wrong_answer", _switch("wrong_answer")),
    ("refused", "refused", lambda random, share, setting: Part({}, Weather(refused=share))),
    ("delayed", "delayed", _delayed),
    ("mixed_up", "mixed_up", lambda random, share, setting: Part({}, Weather(mixed_up=share))),
    ("list_error", "list_error", _switch("list_error")),
    ("redirect", "redirect", lambda random, share, setting: Part({"redirect_to": _ELSEWHERE})),
)
# How often a fault is drawn against others: seldom, what ends a run at once and would leave little else to be met;
# often, what the rule of absence (architecture 4.5) is there for.
_WEIGHTS = {
    "redirect": 0.3,
    "wrong_answer": 0.4,
    "mixed_up": 1.0,
    "late inside": 3.0,
    "delayed": 2.0,
    "created_422": 0.6,
}


def build_storm(random: Random, setting: Setting) -> Storm:
    """One to four faults, which together befall 2 % to 40 % of the requests."""
    parts = _draw_parts(random, setting)
    switches: dict[str, object] = {}
    weather = Weather()
    for part in parts:
        switches |= part.switches
        changed = {name: value for name, value in asdict(part.weather).items() if value}
        weather = replace(weather, **changed)
    if random.random() < 0.25:
        switches["fault_operations"] = ["create", "list"]
    if "refuse" in switches:
        switches["refuse_retry_after_s"] = random.choice((0, 1, 1, 5, 100))
    after_s = random.choice((0.0, 0.0, 0.0, random.uniform(0.0, 2.0)))
    lasts_s = random.choice((float("inf"), float("inf"), random.uniform(0.5, 3.0), random.uniform(1.0, 60.0)))
    if "redirect_to" in switches:
        after_s, lasts_s = random.uniform(0.0, 1.5), random.uniform(0.2, 2.0)
    return Storm(switches, weather, after_s, after_s + lasts_s)


def _draw_parts(random: Random, setting: Setting) -> list[Part]:
    possible = sorted(FAULTS, key=lambda fault: random.random() ** (1 / _WEIGHTS.get(fault[0], 1.0)), reverse=True)
    number = random.choice((1, 2, 2, 3, 4))
    total = random.uniform(0.02, 0.4)
    chosen: dict[str, Part] = {}
    for _, group, build in possible:
        if len(chosen) < number and group not in chosen:
            chosen[group] = build(random, total / number, setting)
    return list(chosen.values())
