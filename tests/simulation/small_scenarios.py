"""Small nights in which a process can die at every commit and step: few people, and one difficulty each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Literal

from connector.load.retry import RetrySelection
from connector.load.session import LoadPolicy
from tests.simulation.people import People
from tests.simulation.rows import Cells, Source, prepare_nights
from tests.simulation.scenario import BASE_ID, Ending, Night, Scenario, Storm


@dataclass(frozen=True, slots=True)
class Small:
    """A scenario with one night, the `dying` one (0-based), that is to end by death; calm nights follow it."""

    name: str
    scenario: Scenario
    dying: int

    def die(self, ending: Ending, *, is_source_kept: bool) -> Scenario:
        """The scenario in which that night ends so; the next one has its source, or only settles what was left
        (`connector retry`)."""
        nights = list(self.scenario.nights)
        nights[self.dying] = replace(nights[self.dying], ending=ending)
        if not is_source_kept:
            nights[self.dying + 1] = replace(nights[self.dying + 1], portions=(), retry=RetrySelection())
        return replace(self.scenario, nights=tuple(nights))


def build_small_scenarios() -> list[Small]:
    """Each with its difficulty; what the chances of its seed bring is the same each time."""
    losses = Storm({"drop_before": 0.25, "drop_after": 0.25, "late_ms": 8000.0})
    never = Storm({"drop_before": 0.5})
    lies = Storm({"created_422": 0.4, "drop_after": 0.2})
    all_lies = Storm({"created_422": 1.0})
    return [
        _build("losses", 3, (losses,)),
        _build("unknowns of an earlier night", 4, (losses, None)),
        _build("a base by its name", 5, (losses,), is_by_name=True, has_base=False),
        _build("a service that refuses and creates", 3, (lies,), refused=2),
        _build(
            "refused and created, listed the next night",
            3,
            (all_lies, None),
            settings={"list_lag_ms": 15_000},
            calm_gap_s=40.0,
        ),
        _build("hold", 9, (never, losses), on_unknown="hold"),
        _build("look-ups by filter", 8, (losses, losses), strangers=30, settings={"max_limit": 7, "filters": "icase"}),
    ]


def _build(
    name: str,
    seed: int,
    storms: Sequence[Storm | None],
    *,
    is_by_name: bool = False,
    has_base: bool = True,
    refused: int = 0,
    strangers: int = 1,
    on_unknown: Literal["resend", "hold"] = "resend",
    settings: Mapping[str, object] | None = None,
    calm_gap_s: float = 1.0,
) -> Small:
    """As many nights as `storms`, the last of which is to die, and two calm ones; the first `refused` lack a name.

    A night before the one that is to die is killed while its requests are under way.
    """
    people, random = People("email"), Random(seed)
    for number in range(1, 8):
        people.add(random, accepted_from=99 if number <= refused else 0)
    rows = [
        Cells(person.number, random.choice(person.spellings), "", "Ann", "" if person.accepted_from else "Lee")
        for person in people.persons.values()
    ]
    endings = [*[Ending(die_at_s=0.45)] * (len(storms) - 1), *[Ending()] * 3]
    gaps_s = [*[1.0] * len(storms), calm_gap_s, calm_gap_s]
    prepared = prepare_nights([Source([rows[:4], rows[4:]])] * len(endings), "email")
    scenario = Scenario(
        seed=seed,
        settings={"required": ["LastName"] if refused else [], "latency_ms": 5, **(settings or {})},
        people=people,
        policy=LoadPolicy(max_concurrency=3, on_unknown=on_unknown, quiet_period_s=10.0),
        nights=tuple(
            Night(portions, gap_s, is_by_name, storm, ending)
            for portions, storm, ending, gap_s in zip(prepared, (*storms, None, None), endings, gaps_s, strict=True)
        ),
        has_base=has_base,
        strangers=tuple(_describe_stranger(number, is_by_name=is_by_name) for number in range(strangers)),
    )
    return Small(name, scenario, len(storms) - 1)


def _describe_stranger(number: int, *, is_by_name: bool) -> Mapping[str, object]:
    """Somebody else of the base; of another one where the job is to be the first who names it."""
    letters = "".join(chr(ord("a") + int(digit)) for digit in str(number))
    return {"Base": {"Id": 9 if is_by_name else BASE_ID}, "Email": f"{letters}@y.org", "LastName": "Stranger"}
