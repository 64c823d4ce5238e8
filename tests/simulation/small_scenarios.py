"""Small scenarios in which a process can die at every commit and step. Each has few people and one difficulty."""

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
class SmallScenario:
    """A scenario in which the night `dying_index` (from 0) ends by death. Calm nights follow it."""

    name: str
    scenario: Scenario
    dying_index: int

    def build_death(self, ending: Ending, *, is_source_kept: bool) -> Scenario:
        """Return the scenario with this ending. Without the source, the next night is a retry (`connector retry`)."""
        nights = list(self.scenario.nights)
        nights[self.dying_index] = replace(nights[self.dying_index], ending=ending)
        if not is_source_kept:
            nights[self.dying_index + 1] = replace(nights[self.dying_index + 1], portions=(), retry=RetrySelection())
        return replace(self.scenario, nights=tuple(nights))


def build_small_scenarios() -> list[SmallScenario]:
    """Return the scenarios. Their seeds are fixed, so each run is the same."""
    lossy_storm = Storm({"drop_before": 0.25, "drop_after": 0.25, "late_ms": 8000.0})
    unstored_storm = Storm({"drop_before": 0.5})
    false_refusals = Storm({"created_422": 0.4, "drop_after": 0.2})
    false_refusals_storm = Storm({"created_422": 1.0})
    return [
        _build("losses", 3, (lossy_storm,)),
        _build("unknowns of an earlier night", 4, (lossy_storm, None)),
        _build("a base by its name", 5, (lossy_storm,), is_by_name=True, has_base=False),
        _build("a service that creates subscribers and answers with a refusal", 3, (false_refusals,), refused_count=2),
        _build(
            "refused and created, listed the next night",
            3,
            (false_refusals_storm, None),
            settings={"list_lag_ms": 15_000},
            calm_gap_s=40.0,
        ),
        _build("hold", 9, (unstored_storm, lossy_storm), on_unknown="hold"),
        _build(
            "look-ups by filter",
            8,
            (lossy_storm, lossy_storm),
            stranger_count=30,
            settings={"max_limit": 7, "filters": "icase"},
        ),
    ]


def _build(
    name: str,
    seed: int,
    storms: Sequence[Storm | None],
    *,
    is_by_name: bool = False,
    has_base: bool = True,
    refused_count: int = 0,
    stranger_count: int = 1,
    on_unknown: Literal["resend", "hold"] = "resend",
    settings: Mapping[str, object] | None = None,
    calm_gap_s: float = 1.0,
) -> SmallScenario:
    """Return a scenario with a night for each of `storms` and two calm nights. The process of the last night with a
    storm dies.

    Earlier nights are killed while their requests are under way. The first `refused_count` people have no last name, so
    that the service refuses them.
    """
    people, random = People("email"), Random(seed)
    for number in range(1, 8):
        people.add(random, accepted_from=99 if number <= refused_count else 0)
    rows = [
        Cells(person.number, random.choice(person.spellings), "", "Ann", "" if person.accepted_from else "Lee")
        for person in people.persons.values()
    ]
    endings = [*[Ending(die_at_s=0.45)] * (len(storms) - 1), *[Ending()] * 3]
    gaps_s = [*[1.0] * len(storms), calm_gap_s, calm_gap_s]
    prepared_nights = prepare_nights([Source([rows[:4], rows[4:]])] * len(endings), "email")
    scenario = Scenario(
        seed=seed,
        settings={"required": ["LastName"] if refused_count else [], "latency_ms": 5, **(settings or {})},
        people=people,
        policy=LoadPolicy(max_concurrency=3, on_unknown=on_unknown, quiet_period_s=10.0),
        nights=tuple(
            Night(portions, gap_s, is_by_name, storm, ending)
            for portions, storm, ending, gap_s in zip(
                prepared_nights, (*storms, None, None), endings, gaps_s, strict=True
            )
        ),
        has_base=has_base,
        strangers=tuple(_describe_stranger(number, is_by_name=is_by_name) for number in range(stranger_count)),
    )
    return SmallScenario(name, scenario, len(storms) - 1)


def _describe_stranger(number: int, *, is_by_name: bool) -> Mapping[str, object]:
    """Return a subscriber of the base, or of another base if the job must create its base."""
    letters = "".join(chr(ord("a") + int(digit)) for digit in str(number))
    return {"Base": {"Id": 9 if is_by_name else BASE_ID}, "Email": f"{letters}@y.org", "LastName": "Stranger"}
