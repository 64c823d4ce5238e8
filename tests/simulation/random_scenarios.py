"""Draws a scenario from a seed: the behaviour of the service, the faults, and how each run ends. A seed always gives
the same scenario."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Literal

from connector.choices import HELD_DECISIONS, HeldDecision
from connector.load.retry import RetrySelection
from connector.load.session import LoadPolicy
from connector.subscribers.identity import IDENTITY_BYTES, Suppression, digest_identity, join_digests
from tests.simulation.fault_periods import JobDurations, draw_fault_period
from tests.simulation.people import People, Person
from tests.simulation.program import JOB
from tests.simulation.rows import Cells, Source, prepare_runs
from tests.simulation.scenario import BASE_ID, BASE_NAME, ForeignCreate, JobRun, RunEnding, Scenario

DUPLICATE_BEHAVIOURS = ("accept", "reject_409", "reject_400", "reject_200", "upsert")
FILTER_BEHAVIOURS = ("exact", "icase", "partial", "ignored")
ORDERS = ("id", "id_desc", "email", "shuffled")
ERROR_SHAPES = ("plain", "nested", "html", "empty")

_FINAL_RUN_COUNT = 2  # runs without faults: the first must finish the work, the second must find nothing to do
_OTHER_BASE_ID = 9
_LETTERS = "abcdefghijklm"


def build_scenarios(seeds: Iterable[int]) -> list[Scenario]:
    """Return the scenarios of these seeds. A scenario depends only on its seed.

    The rows of all seeds are validated together, because that takes as long for a hundred seeds as for one seed.
    """
    drafts = [_ScenarioBuilder(seed).build_draft() for seed in seeds]
    scenario_by_seed: dict[int, Scenario] = {}
    for identity_field in ("email", "client_user_id"):
        drafts_of_identity_field = [draft for draft in drafts if draft.scenario.policy.identity_field == identity_field]
        sources = [
            Source(chunks, job_run.suppression)
            for draft in drafts_of_identity_field
            for chunks, job_run in zip(draft.chunks, draft.scenario.job_runs, strict=True)
        ]
        prepared_job_runs = iter(prepare_runs(sources, identity_field))
        for draft in drafts_of_identity_field:
            job_runs = tuple(
                replace(job_run, prepared_chunks=next(prepared_job_runs)) for job_run in draft.scenario.job_runs
            )
            scenario_by_seed[draft.scenario.seed] = replace(draft.scenario, job_runs=job_runs)
    return [scenario_by_seed[draft.scenario.seed] for draft in drafts]


def _add_switches(job_run: JobRun, switches: Mapping[str, object]) -> JobRun:
    """Return the run with additional switches during its faults. A run without faults does not change."""
    fault_period = job_run.fault_period
    if fault_period is None:
        return job_run
    return replace(job_run, fault_period=replace(fault_period, switches={**fault_period.switches, **switches}))


@dataclass(frozen=True, slots=True)
class _ScenarioDraft:
    """A scenario whose runs have no rows yet, and the rows of the runs."""

    scenario: Scenario
    chunks: list[list[list[Cells]]]  # the rows of each chunk of each run


class _ScenarioBuilder:
    """Draws the parts of a scenario one after the other. Later parts depend on earlier parts."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._rng = rng = Random(f"{seed} scenario")
        identity_field = "email" if rng.random() < 0.7 else "client_user_id"
        self._people = People(identity_field)
        self._policy = self._draw_policy(identity_field)
        self._timeout_s = rng.choice((30.0, 30.0, 10.0))
        self._lag_s = self._draw_lag()
        self._has_refusals = rng.random() < 0.4
        self._settings = self._draw_settings(identity_field)
        self._base_naming = rng.choice(("id", "name", "name", "both"))
        self._has_base = self._base_naming != "name" or rng.random() < 0.5
        self._faulty_run_count = rng.choice((1, 1, 2, 3))
        self._refusal_rng = Random(f"{seed} refusals")
        self._is_refusing = self._refusal_rng.random() < 0.12
        self._draw_people()

    def build_draft(self) -> _ScenarioDraft:
        """Draw all parts and return the draft of the scenario."""
        job_runs = [self._draw_run() for _ in range(self._faulty_run_count)]
        chunks = [
            self._write_rows(self._choose_persons(run_number), run_number)
            for run_number in range(1, self._faulty_run_count + 1)
        ]
        if self._base_naming != "both" and self._rng.random() < 0.3:
            job_runs.append(replace(self._draw_run(), fault_period=None, foreign_creates=(), retry=self._draw_retry()))
            chunks.append([])
        for index in range(_FINAL_RUN_COUNT):
            # If the naming is "both", the first final run has the name of the base, and the second has the id.
            has_base_name = self._base_naming == "name" or (self._base_naming == "both" and index == 0)
            job_runs.append(JobRun((), max(self._draw_gap(), self._lag_s + 1.0), has_base_name))
            chunks.append(self._write_rows(list(self._people.person_by_number.values()), self._faulty_run_count + 1))
        scenario = Scenario(
            seed=self._seed,
            settings=self._settings,
            people=self._people,
            policy=self._policy,
            job_runs=tuple(self._suppress_persons(self._change_ledger(job_runs))),
            timeout_s=self._timeout_s,
            latency_s=self._rng.choice((0.01, 0.05, 0.2)),
            commit_s=Random(f"{self._seed} commit").choice((0.0, 0.003, 0.03, 0.3)),
            has_base=self._has_base,
            existing_subscribers=tuple(
                self._draw_existing_subscriber() for _ in range(self._rng.choice((0, 1, 1, 25, 45, 60, 200)))
            ),
        )
        return _ScenarioDraft(
            self._add_proxy(self._add_list_behaviour(self._add_lasting_refusals(self._add_rare_behaviour(scenario)))),
            chunks,
        )

    def _add_proxy(self, scenario: Scenario) -> Scenario:
        """In some seeds, let a proxy repeat creates, or let the service answer creates without storing them.

        The scenario changes only if its service stores duplicates. Other services refuse, update, merge or hide a
        second create.
        """
        rng, settings = Random(f"{self._seed} proxy"), scenario.settings
        random_value = rng.random()
        if (
            random_value >= 0.08
            or scenario.has_wrong_answers
            or settings["duplicates"] != "accept"
            or "hide" in settings
        ):
            return scenario
        switches = {"repeat" if random_value < 0.04 else "discard": rng.choice((0.1, 0.5, 1.0))}
        job_runs = tuple(_add_switches(job_run, switches) for job_run in scenario.job_runs)
        return replace(scenario, job_runs=job_runs)

    def _add_list_behaviour(self, scenario: Scenario) -> Scenario:
        """In some seeds, let the list behave in an unusual way. For example, filters return only the first match, or a
        cache answers.

        The cache obeys Cache-Control. Otherwise the cache would repeat answers of an earlier run, and the connector
        does not cover this case (architecture 2).
        """
        rng, settings = Random(f"{self._seed} habits"), dict(scenario.settings)
        random_value = rng.random()
        if random_value < 0.05:
            settings["filters_return"] = "first"
        elif random_value < 0.1:
            settings["cached"] = rng.choice((5.0, 60.0, 3600.0))
        elif random_value < 0.15 and self._base_naming == "id":
            settings["base_in_rows"] = "id"
        if scenario.has_wrong_answers or "hide" in settings or "result_window" in settings:
            return replace(scenario, settings=settings)
        has_filters, existing_subscriber_count = settings["filters"] != "ignored", len(scenario.existing_subscribers)
        random_value = rng.random()
        if random_value < 0.02:
            settings["provisional_ids"] = True
        elif random_value < 0.04 and all(job_run.ledger_accident == "none" for job_run in scenario.job_runs):
            settings["hide"] = ["unconfirmed"]  # then only the ledger shows who was created
        elif random_value < 0.06:
            settings["lost_shard"] = rng.choice((0.05, 0.2, 0.5))
        # Without filters, no request shows the hidden subscribers.
        elif random_value < 0.1 and has_filters and existing_subscriber_count >= 25:
            hidden_count = rng.randint(1, existing_subscriber_count - 10)
            settings |= {"hide": ["old_ids"], "old_ids_below": 100_001 + hidden_count * int(str(settings["id_step"]))}
        elif random_value < 0.12 and has_filters:
            settings["hide"] = ["inactive", rng.choice(("unspecified", "male"))]
        elif random_value < 0.17:  # without filters, a run cannot notice that a small window cuts the list off
            return self._add_result_window(scenario, rng, (100, 500, 999) if has_filters else (999,))
        return replace(scenario, settings=settings)

    def _add_lasting_refusals(self, scenario: Scenario) -> Scenario:
        """In some seeds, let the service refuse creates: all creates for a while, the creates beyond a limit or a
        quota, or single creates."""
        if not self._is_refusing or scenario.has_wrong_answers:
            return scenario
        switches, error_shape = self._draw_refusals(), scenario.settings["error_shape"]
        if error_shape not in ("plain", "nested"):  # without a JSON body, only the status shows a refusal
            switches |= {name: 400 for name in switches if name.endswith("_status") and switches[name] == 200}
        job_runs = tuple(_add_switches(job_run, switches) for job_run in scenario.job_runs)
        return replace(scenario, job_runs=job_runs)

    def _draw_refusals(self) -> dict[str, object]:
        rng = self._refusal_rng
        status, random_value = rng.choice((200, 400, 402, 403, 404)), rng.random()
        if random_value < 0.5:
            duration_switches: tuple[dict[str, object], ...] = (
                {"blocked_creates": rng.randint(1, 60)},
                {"blocked_ms": 1000 * rng.uniform(0.5, 50)},
                {},
            )
            return {"blocked_from": rng.randint(2, 30), "blocked_status": status, **rng.choice(duration_switches)}
        if random_value < 0.7:
            retry_after = rng.choice(("seconds", "none", "none"))
            return {"rate": 20, "burst": 10, "limit_status": rng.choice((200, 400)), "retry_after": retry_after}
        if random_value < 0.85:
            return {"quota": rng.randint(2, 60), "quota_status": rng.choice((200, 402))}
        return {"stray_refusal": rng.uniform(0.02, 0.2), "stray_statuses": rng.choice((["404"], ["402", "403"]))}

    def _add_rare_behaviour(self, scenario: Scenario) -> Scenario:
        """In some seeds, let the service behave in a rare way. A separate random generator draws this behaviour, so
        that other seeds do not change.

        If the service stores another base or identity than was sent, the runs have no faults and are not killed. After
        a lost answer, no client could find a subscriber that was stored with other values.
        """
        rng, settings = Random(f"{self._seed} astray"), dict(scenario.settings)
        random_value, job_runs = rng.random(), scenario.job_runs
        if random_value < 0.05:
            settings["base_alias"] = f"{BASE_NAME}=Other,{BASE_ID}={_OTHER_BASE_ID}"
            held_decisions: tuple[HeldDecision | None, ...] = (None, "drop")
            job_runs = tuple(
                self._remove_faults(job_run, rng.choice(held_decisions), job_runs[0]) for job_run in job_runs
            )
        elif random_value < 0.1 and self._people.identity_field == "email":
            # The service stores duplicates. Otherwise it would refuse a create if its altered email already exists.
            settings |= {"alter_identity": True, "duplicates": "accept"}
            job_runs = tuple(self._remove_faults(job_run, None, job_runs[0]) for job_run in job_runs)
        elif random_value < 0.2 and self._has_base:
            spellings = (("folded", "NEWS"), ("folded", " news"), ("escaped", "Ne&#119;s"), ("accent_blind", "NEWS"))
            settings["base_names"], base_name = rng.choice(spellings)
            return replace(scenario, settings=settings, base_name=base_name)
        elif random_value < 0.3 and not self._lag_s:
            largest_lag_ms = 1000 * self._policy.quiet_period_s * rng.uniform(0.05, 0.9)
            settings["replica_lags_ms"] = (0.0, largest_lag_ms)
        elif random_value < 0.5:
            statuses = rng.choice((["401"], ["403", "404"], ["405"], ["200"], ["401", "409"]))
            switches = {"executed_status": rng.uniform(0.02, 0.3), "executed_statuses": statuses}
            job_runs = tuple(_add_switches(job_run, switches) for job_run in job_runs)
        elif random_value < 0.54:
            window_sizes = (1000, 1023, 1024) if settings["filters"] == "ignored" else (1000, 1024, 1013, 1150)
            return self._add_result_window(scenario, rng, window_sizes)
        elif random_value < 0.6:
            return self._merge_bases(scenario, rng)
        elif random_value < 0.64 and settings["filters"] != "ignored":  # otherwise no request shows a hidden group
            settings["hide"] = [rng.choice(("inactive", "unspecified", "male"))]
        elif random_value > 0.97:
            settings["list_omits"] = ["TotalCount"]
            return replace(scenario, settings=settings, policy=replace(scenario.policy, ignores_total_count=True))
        return replace(scenario, settings=settings, job_runs=job_runs)

    def _merge_bases(self, scenario: Scenario, rng: Random) -> Scenario:
        """Let the service merge subscribers with the same address, in the account or in a base.

        Many persons exist in another base before the first run. Other programs create nobody later, because a later
        create could move a person out of the base of the job again."""
        merge_scope = "account" if self._people.identity_field == "email" else rng.choice(("base", "account"))
        settings = {**scenario.settings, "duplicates": "accept", "merge_by": ["Email"], "merge_within": merge_scope}
        first_run, *later_runs = (replace(job_run, foreign_creates=()) for job_run in scenario.job_runs)
        share, foreign_creates = rng.choice((0.1, 0.5, 0.9)), list[ForeignCreate]()
        for person in self._people.person_by_number.values():
            if rng.random() < share:
                subscriber_object = {
                    "Base": {"Id": _OTHER_BASE_ID},
                    "Email": person.spellings[0].strip(),
                    "LastName": "Customer",
                }
                foreign_creates.append(ForeignCreate(-self._lag_s - 0.1, subscriber_object))
        first_run = replace(
            first_run, foreign_creates=tuple(foreign_creates), gap_s=max(first_run.gap_s, self._lag_s + 0.2)
        )
        return replace(scenario, settings=settings, job_runs=(first_run, *later_runs))

    def _add_result_window(self, scenario: Scenario, rng: Random, window_sizes: Sequence[int]) -> Scenario:
        """Let a result window cut the list off (architecture 7, rule 7). The window applies from the first run on, or
        only after some creates.

        Many persons exist before the first run, some of them beyond the window. If no filter of the service works,
        `window_sizes` must have only typical sizes, because then only the size shows that the list may be cut off.
        """
        result_window, has_varied_groups = rng.choice(window_sizes), rng.random() >= 0.3
        additional_subscriber_count = (
            result_window + rng.choice((-20, -5, 0, 1, 20, 150)) - len(scenario.existing_subscribers)
        )
        additional_subscribers = tuple(
            self._draw_subscriber_of_base(rng, has_varied_groups) for _ in range(additional_subscriber_count)
        )
        settings = {**scenario.settings, "result_window": result_window, "max_limit": 1000}
        first_run, *later_runs = scenario.job_runs
        persons = list(self._people.person_by_number.values())
        first_run = replace(
            first_run,
            foreign_creates=(*first_run.foreign_creates, *self._draw_foreign_creates(persons, first_run.gap_s, 0.5)),
        )
        existing_subscribers = (*scenario.existing_subscribers, *additional_subscribers)
        return replace(
            scenario, settings=settings, existing_subscribers=existing_subscribers, job_runs=(first_run, *later_runs)
        )

    def _draw_subscriber_of_base(self, rng: Random, has_varied_groups: bool) -> Mapping[str, object]:
        """Return an existing subscriber in the base of the job. With `has_varied_groups`, its activity and gender are
        random. Otherwise the subscriber is active and has no gender."""
        local_part = "".join(rng.choices(_LETTERS, k=12))
        base = {"Id": BASE_ID} if self._has_base else {"Name": BASE_NAME}
        subscriber_object: dict[str, object] = {
            "Base": base,
            "Email": f"{local_part}@x.org",
            "ClientUserId": f"c-{local_part}",
        }
        subscriber_object |= {"LastName": "Stranger", "IsActive": True}
        if has_varied_groups:
            subscriber_object |= {"IsActive": rng.random() < 0.7, "Gender": rng.choice(("male", "female", ""))}
        return subscriber_object

    def _remove_faults(self, job_run: JobRun, held_decision: HeldDecision | None, first_run: JobRun) -> JobRun:
        retry = None if job_run.retry is None else RetrySelection(held_decision=held_decision)
        return replace(
            job_run,
            fault_period=None,
            ending=RunEnding(),
            foreign_creates=(),
            ledger_accident="none",
            retry=retry,
            has_base_name=first_run.has_base_name,
        )

    # the behaviour of the service

    def _draw_policy(self, identity_field: str) -> LoadPolicy:
        rng = self._rng
        return LoadPolicy(
            identity_field=identity_field,
            max_concurrency=rng.randint(1, 8),
            on_unknown="hold" if rng.random() < 0.25 else "resend",
            quiet_period_s=rng.choice((30.0, 30.0, 5.0)),
            max_lookup_age_s=rng.choice((900.0, 900.0, 40 * rng.uniform(0.5, 5.0))),
        )

    def _draw_lag(self) -> float:
        quiet_period_s = self._policy.quiet_period_s
        min_lag_per_quiet_period, max_lag_per_quiet_period = self._rng.choice(
            ((0, 0), (0, 0), (0, 0), (0.01, 0.9), (0.5, 1.0), (0.9, 1.9), (1.9, 5.0))
        )
        return self._rng.uniform(min_lag_per_quiet_period, max_lag_per_quiet_period) * quiet_period_s

    def _draw_settings(self, identity_field: str) -> dict[str, object]:
        rng = self._rng
        other_identity_field = "client_user_id" if identity_field == "email" else "email"
        error_shape = rng.choice(ERROR_SHAPES)
        return {
            # "accept" is drawn more often, because only "accept" stores a second create as a duplicate.
            "duplicates": rng.choice(("accept", "accept", *DUPLICATE_BEHAVIOURS)),
            "filters": rng.choice(FILTER_BEHAVIOURS),
            "order": rng.choice(ORDERS),
            "error_shape": error_shape,
            "identity": identity_field if rng.random() < 0.8 else other_identity_field,
            "required": ["LastName"] if self._has_refusals else [],
            "error_status": rng.choice((400, 400, 400, 400, 200)),
            "server_error": rng.choice((500, 502, 503)),
            "created_status": rng.choice((200, 201)),
            "absent_fields": rng.choice(("omit", "null", "empty")),
            "alter_fields": ["LastName"] if rng.random() < 0.1 else [],
            "id_step": rng.choice((1, 1, 7)),
            "max_limit": rng.choice((1000, 1000, 40, 7, 7)),
            "retry_after": rng.choice(("seconds", "date", "none")),
            "list_lag_ms": 1000 * self._lag_s,
            "latency_ms": rng.choice((0, 5, 5, 50, 1500)),
            **self._draw_rate_limit_switches(error_shape),
            "jitter_ms": rng.choice((0, 100)),
        }

    def _draw_rate_limit_switches(self, error_shape: str) -> dict[str, object]:
        """Return the switches of a rate limit in some seeds. If errors have no text, return no rate limit, because
        a 429 then looks like any other error."""
        has_rate_limit = self._rng.random() < 0.15 and error_shape != "empty"
        return {"rate": self._rng.choice((5, 40)), "burst": 10} if has_rate_limit else {}

    # the people

    def _draw_people(self) -> None:
        rng = self._rng
        # A refusal counts as temporary only if many creates get it.
        additional_person_count = 45 if self._is_refusing else 0
        for _ in range(rng.randint(10, 24) + 6 * (self._faulty_run_count - 1) + additional_person_count):
            first_run_number_with_required_fields = 0
            if self._has_refusals and rng.random() < 0.15:
                first_run_number_with_required_fields = rng.choice((99, 99, 2))  # 99: no run
            persons = list(self._people.person_by_number.values())
            has_similar_id = self._people.identity_field == "client_user_id" and persons and rng.random() < 0.08
            person_with_similar_id = rng.choice(persons) if has_similar_id else None
            self._people.add(
                rng,
                first_run_number_with_required_fields=first_run_number_with_required_fields,
                person_with_similar_id=person_with_similar_id,
            )

    def _draw_existing_subscriber(self) -> Mapping[str, object]:
        """Return a subscriber who is not a person of the scenario. The address has no digits."""
        local_part = "".join(self._rng.choices(_LETTERS, k=9))
        base = {"Id": _OTHER_BASE_ID} if self._rng.random() < 0.3 else self._build_base_reference()
        return {"Base": base, "Email": f"{local_part}@x.org", "ClientUserId": f"c-{local_part}", "LastName": "Stranger"}

    def _build_base_reference(self) -> dict[str, object]:
        return {"Id": BASE_ID} if self._has_base and self._rng.random() < 0.5 else {"Name": BASE_NAME}

    def _draw_foreign_creates(self, persons: list[Person], gap_s: float, share: float) -> list[ForeignCreate]:
        """Return creates of other programs for a share of the persons. The list shows most of these subscribers before
        the run starts."""
        rng, foreign_creates = self._rng, []
        for person in persons:
            if rng.random() >= share:
                continue
            created_at_s = rng.uniform(0.0, 3.0)
            if rng.random() < 0.8:
                created_at_s = -rng.uniform(self._lag_s + 0.1, max(gap_s, self._lag_s + 0.2))
            base = {"Id": _OTHER_BASE_ID} if rng.random() < 0.2 else self._build_base_reference()
            subscriber_object: dict[str, object] = {"Base": base, "FirstName": "Other", "LastName": "Way"}
            if self._people.identity_field == "email" or rng.random() < 0.5:
                subscriber_object["Email"] = rng.choice(person.spellings).strip()
            if self._people.identity_field == "client_user_id" or rng.random() < 0.5:
                subscriber_object["ClientUserId"] = person.client_user_id
            foreign_creates += [ForeignCreate(created_at_s, subscriber_object)] * (2 if rng.random() < 0.1 else 1)
        return foreign_creates

    # the runs

    def _draw_run(self) -> JobRun:
        rng = self._rng
        gap_s = max(self._draw_gap(), self._lag_s + 1.0 if rng.random() < 0.5 else 0.0)
        persons = list(self._people.person_by_number.values())
        durations = JobDurations(self._policy.quiet_period_s, self._timeout_s, self._lag_s)
        return JobRun(
            prepared_chunks=(),
            gap_s=gap_s,
            has_base_name=self._base_naming == "name" or (self._base_naming == "both" and rng.random() < 0.5),
            fault_period=draw_fault_period(rng, durations) if rng.random() < 0.9 else None,
            ending=self._draw_ending(),
            foreign_creates=tuple(self._draw_foreign_creates(persons, gap_s, rng.choice((0.0, 0.05, 0.3)))),
        )

    def _draw_retry(self) -> RetrySelection:
        """Draw a retry. In some seeds, a separate random generator draws the decision about held creates, so that other
        seeds do not change."""
        held_decision: HeldDecision | None = self._rng.choice((None, None, "resend", "drop"))
        decision_rng = Random(f"{self._seed} held decision")
        if decision_rng.random() < 0.2:
            held_decision = decision_rng.choice(HELD_DECISIONS)
        return RetrySelection(is_rejected=self._rng.random() < 0.4, held_decision=held_decision)

    def _draw_gap(self) -> float:
        return self._rng.choice((0.5, 5.0, 60.0, 3600.0))

    def _draw_ending(self) -> RunEnding:
        rng, random_value = self._rng, self._rng.random()
        if random_value < 0.12:
            return RunEnding(kill_at_step=int(10 ** rng.uniform(0.7, 2.7)))
        if random_value < 0.2:
            return RunEnding(kill_at_commit=rng.randint(1, 14), kills_after_commit=rng.random() < 0.5)
        # The kill or the signal comes 20 ms to 100 s after the start of the run. Early times are drawn more often,
        # because the run then sends creates or resolves unknown creates.
        ending_at_s = 0.02 * 5000 ** rng.random()
        if random_value < 0.28:
            return RunEnding(kill_at_s=ending_at_s)
        if random_value < 0.35:
            return RunEnding(first_signal_at_s=ending_at_s)
        if random_value < 0.42:
            return RunEnding(
                first_signal_at_s=ending_at_s, second_signal_at_s=ending_at_s + rng.choice((0.0, 0.01, 0.1, 3.0))
            )
        if random_value < 0.45:
            return RunEnding(first_signal_at_s=ending_at_s, kill_at_s=ending_at_s + rng.choice((0.01, 0.1, 3.0)))
        return RunEnding()

    def _choose_persons(self, run_number: int) -> list[Person]:
        """Return most of the persons that the source has in this run. In each run, the source has new persons."""
        share = self._rng.choice((0.6, 0.9, 1.0))
        persons = [
            person
            for person in self._people.person_by_number.values()
            if person.number % self._faulty_run_count < run_number
        ]
        return [person for person in persons if self._rng.random() < share]

    def _write_rows(self, persons: list[Person], run_number: int) -> list[list[Cells]]:
        """Return the rows in one or more chunks. Some persons have two rows, and some rows are invalid."""
        rng = self._rng
        rows = [self._write_row(person, run_number) for person in persons]
        rows += [self._write_row(rng.choice(persons), run_number) for _ in range(rng.choice((0, 0, 2))) if persons]
        rows += [Cells(0, "nobody", "", "No", "One") for _ in range(rng.choice((0, 0, 0, 1)))]
        rng.shuffle(rows)
        cut_indexes = sorted(rng.randint(0, len(rows)) for _ in range(rng.choice((0, 0, 1, 2, 6))))
        return [rows[start:end] for start, end in zip([0, *cut_indexes], [*cut_indexes, len(rows)], strict=True)]

    def _write_row(self, person: Person, run_number: int) -> Cells:
        rng = self._rng
        first_name = "Ann" if run_number < 2 or person.number % 3 else f"Ann {run_number}"
        last_name = "Lee" if run_number >= person.first_run_number_with_required_fields else ""
        email = rng.choice(person.spellings)
        if self._people.identity_field == "client_user_id" and person.number % 4 == 0:
            email = ""
        client_user_id = person.client_user_id
        if self._people.identity_field == "email" and person.number % 4 == 0:
            client_user_id = ""
        return Cells(person.number, email, client_user_id, first_name, last_name)

    def _change_ledger(self, job_runs: list[JobRun]) -> list[JobRun]:
        """In some seeds, lose the ledger or restore an older copy before a run.

        The gap before this run is so long that the list shows all earlier creates. Without the ledger, no client could
        know of a create that the list does not show.
        """
        if self._lag_s or len(job_runs) < 2 or self._rng.random() >= 0.2:
            return job_runs
        run_index = self._rng.randrange(1, len(job_runs))
        ledger_accident: Literal["lost", "restored"] = self._rng.choice(("lost", "restored"))
        job_runs[run_index] = replace(
            job_runs[run_index], ledger_accident=ledger_accident, gap_s=max(job_runs[run_index].gap_s, 1000.0)
        )
        return job_runs

    def _suppress_persons(self, job_runs: list[JobRun]) -> list[JobRun]:
        """Add a suppression list to the job in some seeds. The list grows from run to run."""
        if self._rng.random() >= 0.4:
            return job_runs
        identity_field, suppressed_person_numbers = self._people.identity_field, set[int]()
        for run_index, job_run in enumerate(job_runs):
            suppressed_person_numbers |= {
                person_number for person_number in self._people.person_by_number if self._rng.random() < 0.15
            }
            persons = [
                self._people.person_by_number[person_number] for person_number in sorted(suppressed_person_numbers)
            ]
            texts = [person.spellings[0] if identity_field == "email" else person.client_user_id for person in persons]
            digests = join_digests([digest_identity(identity_field, text) for text in texts], IDENTITY_BYTES)
            suppression = Suppression(JOB, identity_field, digests)
            job_runs[run_index] = replace(
                job_run, suppressed_person_numbers=frozenset(suppressed_person_numbers), suppression=suppression
            )
        return job_runs
