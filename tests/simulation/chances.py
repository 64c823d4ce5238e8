"""Draws a scenario from a seed: stances, faults and endings in any mixture, and repeatable."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Literal

from connector.load.retry import Held, RetrySelection
from connector.load.session import LoadPolicy
from connector.subscribers.identity import Suppression, digest_identity
from tests.simulation.people import People, Person
from tests.simulation.program import JOB
from tests.simulation.rows import Cells, Source, prepare_nights
from tests.simulation.scenario import BASE_ID, BASE_NAME, Ending, Newcomer, Night, Scenario, Storm
from tests.simulation.storms import Setting, build_storm

DUPLICATES = ("accept", "reject_409", "reject_400", "reject_200", "upsert")
FILTERS = ("exact", "icase", "partial", "ignored")
ORDERS = ("id", "id_desc", "email", "shuffled")
ERROR_SHAPES = ("plain", "nested", "html", "empty")

_CALM_NIGHTS = 2  # one that must settle and create all that is left, and one that must find nothing to do
_OTHER_BASE = 9
_LETTERS = "abcdefghijklm"


def build_scenarios(seeds: Iterable[int]) -> list[Scenario]:
    """The scenarios of these seeds, each the same on every machine and in any company.

    Together because their rows are validated together, which takes as long for a hundred seeds as for one.
    """
    drafts = [_Builder(seed).draft() for seed in seeds]
    finished: dict[int, Scenario] = {}
    for identity in ("email", "client_user_id"):
        alike = [draft for draft in drafts if draft.scenario.policy.identity == identity]
        sources = [
            Source(chunks, night.suppression)
            for draft in alike
            for chunks, night in zip(draft.chunks, draft.scenario.nights, strict=True)
        ]
        prepared = iter(prepare_nights(sources, identity))
        for draft in alike:
            nights = tuple(replace(night, portions=next(prepared)) for night in draft.scenario.nights)
            finished[draft.scenario.seed] = replace(draft.scenario, nights=nights)
    return [finished[draft.scenario.seed] for draft in drafts]


def _execute_and_refuse(night: Night, share: float, statuses: list[str]) -> Night:
    """The night's storm with creates that take effect and are answered as refused, besides."""
    if night.storm is None:
        return night
    switches = {**night.storm.switches, "executed_status": share, "executed_statuses": statuses}
    return replace(night, storm=replace(night.storm, switches=switches))


def _add_switches(storm: Storm, switches: Mapping[str, object]) -> Storm:
    return replace(storm, switches={**storm.switches, **switches})


@dataclass(frozen=True, slots=True)
class _Draft:
    """A scenario whose nights have no rows yet, and the rows of each night, chunk by chunk."""

    scenario: Scenario
    chunks: list[list[list[Cells]]]


class _Builder:
    """Draws one thing after another; what is drawn first is known to what is drawn later."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._random = random = Random(f"{seed} scenario")
        identity = "email" if random.random() < 0.7 else "client_user_id"
        self._people = People(identity)
        self._policy = self._draw_policy(identity)
        self._timeout_s = random.choice((30.0, 30.0, 10.0))
        self._lag_s = self._draw_lag()
        self._has_refusals = random.random() < 0.4
        self._settings = self._draw_stance(identity)
        self._naming = random.choice(("id", "name", "name", "both"))
        self._has_base = self._naming != "name" or random.random() < 0.5
        self._storms = random.choice((1, 1, 2, 3))
        self._refusals = Random(f"{seed} refusals")
        self._is_refusing = self._refusals.random() < 0.12
        self._draw_people()

    def draft(self) -> _Draft:
        """Everything put together."""
        nights = [self._draw_night() for _ in range(self._storms)]
        chunks = [self._write_rows(self._choose_told(number), number) for number in range(1, self._storms + 1)]
        if self._naming != "both" and self._random.random() < 0.3:
            nights.append(replace(self._draw_night(), storm=None, newcomers=(), retry=self._draw_retry()))
            chunks.append([])
        for place in range(_CALM_NIGHTS):
            # One name and then the other: where somebody is in doubt, the program asks for the one that came first.
            is_by_name = self._naming == "name" or (self._naming == "both" and place == 0)
            nights.append(Night((), max(self._draw_gap(), self._lag_s + 1.0), is_by_name))
            chunks.append(self._write_rows(list(self._people.persons.values()), self._storms + 1))
        scenario = Scenario(
            seed=self._seed,
            settings=self._settings,
            people=self._people,
            policy=self._policy,
            nights=tuple(self._suppress(self._change_ledger(nights))),
            timeout_s=self._timeout_s,
            latency_s=self._random.choice((0.01, 0.05, 0.2)),
            commit_s=Random(f"{self._seed} commit").choice((0.0, 0.003, 0.03, 0.3)),
            has_base=self._has_base,
            strangers=tuple(self._draw_stranger() for _ in range(self._random.choice((0, 1, 1, 25, 45, 60, 200)))),
        )
        return _Draft(self._add_proxy(self._add_habits(self._refuse_all(self._lead_astray(scenario)))), chunks)

    def _add_proxy(self, scenario: Scenario) -> Scenario:
        """In some seeds a proxy repeats creates, or the service answers creates that it does not store. Left out are
        stances under which a second create is another deed: the service refuses it, updates, merges or hides it."""
        random, settings = Random(f"{self._seed} proxy"), scenario.settings
        chance = random.random()
        if chance >= 0.08 or scenario.is_astray or settings["duplicates"] != "accept" or "hide" in settings:
            return scenario
        switches = {"repeat" if chance < 0.04 else "discard": random.choice((0.1, 0.5, 1.0))}
        nights = tuple(
            night if night.storm is None else replace(night, storm=_add_switches(night.storm, switches))
            for night in scenario.nights
        )
        return replace(scenario, nights=nights)

    def _add_habits(self, scenario: Scenario) -> Scenario:
        """Habits of the list, by chances of their own: filters that return the first match only, a cache, and rows that
        show their base by its Id. A cache that ignores Cache-Control would repeat answers to an earlier night."""
        random, settings = Random(f"{self._seed} habits"), dict(scenario.settings)
        chance = random.random()
        if chance < 0.05:
            settings["filters_return"] = "first"
        elif chance < 0.1:
            settings["cached"] = random.choice((5.0, 60.0, 3600.0))
        elif chance < 0.15 and self._naming == "id":
            settings["base_in_rows"] = "id"
        if scenario.is_astray or "hide" in settings or "result_window" in settings:
            return replace(scenario, settings=settings)
        has_filters, strangers = settings["filters"] != "ignored", len(scenario.strangers)
        chance = random.random()
        if chance < 0.02:
            settings["provisional_ids"] = True
        elif chance < 0.04:
            settings["hide"] = ["unconfirmed"]
        elif chance < 0.06:
            settings["lost_shard"] = random.choice((0.05, 0.2, 0.5))
        elif chance < 0.1 and has_filters and strangers >= 25:  # else no request shows anybody
            hidden = random.randint(1, strangers - 10)
            settings |= {"hide": ["old_ids"], "old_ids_below": 100_001 + hidden * int(str(settings["id_step"]))}
        elif chance < 0.12 and has_filters:
            settings["hide"] = ["inactive", random.choice(("unspecified", "male"))]
        elif chance < 0.17:  # without filters, nothing tells a small window
            return self._cut_off(scenario, random, (100, 500, 999) if has_filters else (999,))
        return replace(scenario, settings=settings)

    def _refuse_all(self, scenario: Scenario) -> Scenario:
        """In some seeds the service refuses all creates for a while, beyond a limit or a quota, or one now and then."""
        if not self._is_refusing or scenario.is_astray:
            return scenario
        switches, shape = self._draw_refusals(), scenario.settings["error_shape"]
        if shape not in ("plain", "nested"):  # without a JSON body a refusal needs a status of its own
            switches |= {name: 400 for name in switches if name.endswith("_status") and switches[name] == 200}
        nights = tuple(
            night if night.storm is None else replace(night, storm=_add_switches(night.storm, switches))
            for night in scenario.nights
        )
        return replace(scenario, nights=nights)

    def _draw_refusals(self) -> dict[str, object]:
        random = self._refusals
        status, chance = random.choice((200, 400, 402, 403, 404)), random.random()
        if chance < 0.5:
            lasting: tuple[dict[str, object], ...] = (
                {"blocked_creates": random.randint(1, 60)},
                {"blocked_ms": 1000 * random.uniform(0.5, 50)},
                {},
            )
            return {"blocked_from": random.randint(2, 30), "blocked_status": status, **random.choice(lasting)}
        if chance < 0.7:
            retry_after = random.choice(("seconds", "none", "none"))
            return {"rate": 20, "burst": 10, "limit_status": random.choice((200, 400)), "retry_after": retry_after}
        if chance < 0.85:
            return {"quota": random.randint(2, 60), "quota_status": random.choice((200, 402))}
        return {"stray_refusal": random.uniform(0.02, 0.2), "stray_statuses": random.choice((["404"], ["402", "403"]))}

    def _lead_astray(self, scenario: Scenario) -> Scenario:
        """What is seldom, by chances of its own, so that one more of them does not change the others' seeds.

        Where the service answers with another base or identity than was sent, no answer is lost besides: no client can
        look for what was stored as something else.
        """
        random, settings = Random(f"{self._seed} astray"), dict(scenario.settings)
        chance, nights = random.random(), scenario.nights
        if chance < 0.05:
            settings["base_alias"] = f"{BASE_NAME}=Other,{BASE_ID}={_OTHER_BASE}"
            held: tuple[Held, ...] = ("leave", "drop")
            nights = tuple(self._calm(night, random.choice(held), nights[0]) for night in nights)
        elif chance < 0.1 and self._people.identity == "email":
            settings |= {"alter_identity": True, "duplicates": "accept"}  # else what is altered alike is refused
            nights = tuple(self._calm(night, "leave", nights[0]) for night in nights)
        elif chance < 0.2 and self._has_base:
            spellings = (("folded", "NEWS"), ("folded", " news"), ("escaped", "Ne&#119;s"), ("accent_blind", "NEWS"))
            settings["base_names"], base_name = random.choice(spellings)
            return replace(scenario, settings=settings, base_name=base_name)
        elif chance < 0.3 and not self._lag_s:
            most_ms = 1000 * self._policy.quiet_period_s * random.uniform(0.05, 0.9)
            settings["replica_lags_ms"] = (0.0, most_ms)
        elif chance < 0.5:
            statuses = random.choice((["401"], ["403", "404"], ["405"], ["200"], ["401", "409"]))
            share = random.uniform(0.02, 0.3)
            nights = tuple(_execute_and_refuse(night, share, statuses) for night in nights)
        elif chance < 0.54:
            sizes = (1000, 1023, 1024) if settings["filters"] == "ignored" else (1000, 1024, 1013, 1150)
            return self._cut_off(scenario, random, sizes)
        elif chance < 0.6:
            return self._merge(scenario, random)
        elif chance < 0.64 and settings["filters"] != "ignored":  # else no request shows a hidden class
            settings["hide"] = [random.choice(("inactive", "unspecified", "male"))]
        elif chance > 0.97:
            settings["list_omits"] = ["TotalCount"]
            return replace(scenario, settings=settings, policy=replace(scenario.policy, ignores_total_count=True))
        return replace(scenario, settings=settings, nights=nights)

    def _merge(self, scenario: Scenario, random: Random) -> Scenario:
        """One address is one subscriber, of the account or of a base. Many of those whom the rows are of are in another
        base already. Nobody comes by another way besides, who could move them out of our base again."""
        within = "account" if self._people.identity == "email" else random.choice(("base", "account"))
        settings = {**scenario.settings, "duplicates": "accept", "merge_by": ["Email"], "merge_within": within}
        first, *others = (replace(night, newcomers=()) for night in scenario.nights)
        share, newcomers = random.choice((0.1, 0.5, 0.9)), list[Newcomer]()
        for person in self._people.persons.values():
            if random.random() < share:
                wire = {"Base": {"Id": _OTHER_BASE}, "Email": person.spellings[0].strip(), "LastName": "Customer"}
                newcomers.append(Newcomer(-self._lag_s - 0.1, wire))
        first = replace(first, newcomers=tuple(newcomers), gap_s=max(first.gap_s, self._lag_s + 0.2))
        return replace(scenario, settings=settings, nights=(first, *others))

    def _cut_off(self, scenario: Scenario, random: Random, sizes: Sequence[int]) -> Scenario:
        """A list that a result window cuts off (architecture 7, rule 7), or will once some have come: of a size that
        windows have, or of another where the service shows more when it is asked by a filter. Many of those whom the
        rows are of are there already, some of them beyond the window."""
        window, is_homogeneous = random.choice(sizes), random.random() < 0.3
        number = window + random.choice((-20, -5, 0, 1, 20, 150)) - len(scenario.strangers)
        more = tuple(self._draw_one_of_many(random, is_homogeneous) for _ in range(number))
        settings = {**scenario.settings, "result_window": window, "max_limit": 1000}
        first, *others = scenario.nights
        persons = list(self._people.persons.values())
        first = replace(first, newcomers=(*first.newcomers, *self._draw_newcomers(persons, first.gap_s, 0.5)))
        strangers = (*scenario.strangers, *more)
        return replace(scenario, settings=settings, strangers=strangers, nights=(first, *others))

    def _draw_one_of_many(self, random: Random, is_homogeneous: bool) -> Mapping[str, object]:
        """A stranger in our base; the lists of homogeneous ones have no parts to be counted."""
        local = "".join(random.choices(_LETTERS, k=12))
        base = {"Id": BASE_ID} if self._has_base else {"Name": BASE_NAME}
        wire: dict[str, object] = {"Base": base, "Email": f"{local}@x.org", "ClientUserId": f"c-{local}"}
        wire |= {"LastName": "Stranger", "IsActive": True}
        if not is_homogeneous:
            wire |= {"IsActive": random.random() < 0.7, "Gender": random.choice(("male", "female", ""))}
        return wire

    def _calm(self, night: Night, held: Held, first: Night) -> Night:
        retry = None if night.retry is None else RetrySelection(held=held)
        return replace(
            night, storm=None, ending=Ending(), newcomers=(), ledger="kept", retry=retry, is_by_name=first.is_by_name
        )

    # the stance

    def _draw_policy(self, identity: str) -> LoadPolicy:
        random = self._random
        return LoadPolicy(
            identity=identity,
            max_concurrency=random.randint(1, 8),
            on_unknown="hold" if random.random() < 0.25 else "resend",
            quiet_period_s=random.choice((30.0, 30.0, 5.0)),
            fresh_s=random.choice((900.0, 900.0, 40 * random.uniform(0.5, 5.0))),
        )

    def _draw_lag(self) -> float:
        quiet_s = self._policy.quiet_period_s
        least, most = self._random.choice(((0, 0), (0, 0), (0, 0), (0.01, 0.9), (0.5, 1.0), (0.9, 1.9), (1.9, 5.0)))
        return self._random.uniform(least, most) * quiet_s

    def _draw_stance(self, identity: str) -> dict[str, object]:
        random = self._random
        other = "client_user_id" if identity == "email" else "email"
        error_shape = random.choice(ERROR_SHAPES)
        return {
            "duplicates": random.choice(("accept", "accept", *DUPLICATES)),  # elsewhere a second create shows as none
            "filters": random.choice(FILTERS),
            "order": random.choice(ORDERS),
            "error_shape": error_shape,
            "identity": identity if random.random() < 0.8 else other,
            "required": ["LastName"] if self._has_refusals else [],
            "error_status": random.choice((400, 400, 400, 400, 200)),
            "server_error": random.choice((500, 502, 503)),
            "created_status": random.choice((200, 201)),
            "absent_fields": random.choice(("omit", "null", "empty")),
            "alter_fields": ["LastName"] if random.random() < 0.1 else [],
            "id_step": random.choice((1, 1, 7)),
            "max_limit": random.choice((1000, 1000, 40, 7, 7)),
            "retry_after": random.choice(("seconds", "date", "none")),
            "list_lag_ms": 1000 * self._lag_s,
            "latency_ms": random.choice((0, 5, 5, 50, 1500)),
            **self._draw_rate(error_shape),
            "jitter_ms": random.choice((0, 100)),
        }

    def _draw_rate(self, error_shape: str) -> dict[str, object]:
        """A rate limit, in some seeds; not where errors have no words, since its 429 would look like any other then."""
        is_limited = self._random.random() < 0.15 and error_shape != "empty"
        return {"rate": self._random.choice((5, 40)), "burst": 10} if is_limited else {}

    # the people

    def _draw_people(self) -> None:
        random = self._random
        more = 45 if self._is_refusing else 0  # a kind of refusal may pass if many creates are refused so
        for _ in range(random.randint(10, 24) + 6 * (self._storms - 1) + more):
            accepted_from = 0
            if self._has_refusals and random.random() < 0.15:
                accepted_from = random.choice((99, 99, 2))
            persons = list(self._people.persons.values())
            is_twin = self._people.identity == "client_user_id" and persons and random.random() < 0.08
            twin = random.choice(persons) if is_twin else None
            self._people.add(random, accepted_from=accepted_from, twin=twin)

    def _draw_stranger(self) -> Mapping[str, object]:
        """Nobody of ours: their addresses have no digits."""
        local = "".join(self._random.choices(_LETTERS, k=9))
        base = {"Id": _OTHER_BASE} if self._random.random() < 0.3 else self._name_base()
        return {"Base": base, "Email": f"{local}@x.org", "ClientUserId": f"c-{local}", "LastName": "Stranger"}

    def _name_base(self) -> dict[str, object]:
        return {"Id": BASE_ID} if self._has_base and self._random.random() < 0.5 else {"Name": BASE_NAME}

    def _draw_newcomers(self, persons: list[Person], gap_s: float, share: float) -> list[Newcomer]:
        """By another way, into our base or another one: before the night, so that the list shows them, or during it."""
        random, newcomers = self._random, []
        for person in persons:
            if random.random() >= share:
                continue
            at_s = random.uniform(0.0, 3.0)
            if random.random() < 0.8:
                at_s = -random.uniform(self._lag_s + 0.1, max(gap_s, self._lag_s + 0.2))
            base = {"Id": _OTHER_BASE} if random.random() < 0.2 else self._name_base()
            wire: dict[str, object] = {"Base": base, "FirstName": "Other", "LastName": "Way"}
            if self._people.identity == "email" or random.random() < 0.5:
                wire["Email"] = random.choice(person.spellings).strip()
            if self._people.identity == "client_user_id" or random.random() < 0.5:
                wire["ClientUserId"] = person.client_user_id
            newcomers += [Newcomer(at_s, wire)] * (2 if random.random() < 0.1 else 1)
        return newcomers

    # the nights

    def _draw_night(self) -> Night:
        random = self._random
        gap_s = max(self._draw_gap(), self._lag_s + 1.0 if random.random() < 0.5 else 0.0)
        persons = list(self._people.persons.values())
        setting = Setting(self._policy.quiet_period_s, self._timeout_s, self._lag_s)
        return Night(
            portions=(),
            gap_s=gap_s,
            is_by_name=self._naming == "name" or (self._naming == "both" and random.random() < 0.5),
            storm=build_storm(random, setting) if random.random() < 0.9 else None,
            ending=self._draw_ending(),
            newcomers=tuple(self._draw_newcomers(persons, gap_s, random.choice((0.0, 0.05, 0.3)))),
        )

    def _draw_retry(self) -> RetrySelection:
        held: Literal["leave", "resend", "drop"] = self._random.choice(("leave", "leave", "resend", "drop"))
        return RetrySelection(is_rejected=self._random.random() < 0.4, held=held)

    def _draw_gap(self) -> float:
        return self._random.choice((0.5, 5.0, 60.0, 3600.0))

    def _draw_ending(self) -> Ending:
        random, chance = self._random, self._random.random()
        if chance < 0.12:
            return Ending(at_step=int(10 ** random.uniform(0.7, 2.7)))
        if chance < 0.2:
            return Ending(at_commit=random.randint(1, 14), is_after=random.random() < 0.5)
        at_s = 0.02 * 5000 ** random.random()  # 20 ms to 100 s: while creating as often as while settling
        if chance < 0.28:
            return Ending(die_at_s=at_s)
        if chance < 0.35:
            return Ending(stop_at_s=at_s)
        if chance < 0.42:
            return Ending(stop_at_s=at_s, cut_at_s=at_s + random.choice((0.0, 0.01, 0.1, 3.0)))
        if chance < 0.45:
            return Ending(stop_at_s=at_s, die_at_s=at_s + random.choice((0.01, 0.1, 3.0)))
        return Ending()

    def _choose_told(self, number: int) -> list[Person]:
        """Most of those whom the source has by that night: each night brings new ones."""
        share = self._random.choice((0.6, 0.9, 1.0))
        by_then = [
            subscriber for subscriber in self._people.persons.values() if subscriber.number % self._storms < number
        ]
        return [person for person in by_then if self._random.random() < share]

    def _write_rows(self, persons: list[Person], number: int) -> list[list[Cells]]:
        """One to three chunks; some people twice, some rows invalid, some whose data have changed since."""
        random = self._random
        rows = [self._write_row(person, number) for person in persons]
        rows += [self._write_row(random.choice(persons), number) for _ in range(random.choice((0, 0, 2))) if persons]
        rows += [Cells(0, "nobody", "", "No", "One") for _ in range(random.choice((0, 0, 0, 1)))]
        random.shuffle(rows)
        cuts = sorted(random.randint(0, len(rows)) for _ in range(random.choice((0, 0, 1, 2, 6))))
        return [rows[start:end] for start, end in zip([0, *cuts], [*cuts, len(rows)], strict=True)]

    def _write_row(self, person: Person, number: int) -> Cells:
        random = self._random
        first_name = "Ann" if number < 2 or person.number % 3 else f"Ann {number}"
        last_name = "Lee" if number >= person.accepted_from else ""
        email = random.choice(person.spellings)
        if self._people.identity == "client_user_id" and person.number % 4 == 0:
            email = ""
        client_user_id = person.client_user_id
        if self._people.identity == "email" and person.number % 4 == 0:
            client_user_id = ""
        return Cells(person.number, email, client_user_id, first_name, last_name)

    def _change_ledger(self, nights: list[Night]) -> list[Night]:
        """In some seeds the ledger is lost, or an older copy put in its place: never while the service may yet show or
        execute what was sent before, since then no client could know of it."""
        if self._lag_s or len(nights) < 2 or self._random.random() >= 0.2:
            return nights
        place = self._random.randrange(1, len(nights))
        ledger: Literal["lost", "restored"] = self._random.choice(("lost", "restored"))
        nights[place] = replace(nights[place], ledger=ledger, gap_s=max(nights[place].gap_s, 1000.0))
        return nights

    def _suppress(self, nights: list[Night]) -> list[Night]:
        """In some seeds the job has a suppression list, which grows from night to night."""
        if self._random.random() >= 0.4:
            return nights
        field, suppressed = self._people.identity, set[int]()
        for place, night in enumerate(nights):
            suppressed |= {number for number in self._people.persons if self._random.random() < 0.15}
            persons = [self._people.persons[number] for number in sorted(suppressed)]
            texts = [person.spellings[0] if field == "email" else person.client_user_id for person in persons]
            suppression = Suppression(JOB, field, [digest_identity(field, text) for text in texts])
            nights[place] = replace(night, suppressed=frozenset(suppressed), suppression=suppression)
        return nights
