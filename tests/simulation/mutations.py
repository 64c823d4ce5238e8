"""Ways to break the program, each of which the simulation must notice."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Edit:
    """In this file of `connector/` the text `old`, which stands there once, becomes `new`."""

    file: str
    old: str
    new: str

    def find(self, root: Path) -> tuple[Path, str]:
        """Return the file below `root` and its text. Raises ValueError where that does not hold `old` once."""
        path = root / "connector" / self.file
        text = path.read_text(encoding="utf-8")
        if (found := text.count(self.old)) != 1:
            raise ValueError(f"connector/{self.file} has {found} times what a mutation replaces: {self.old!r}")
        return path, text

    def apply(self, root: Path) -> None:
        """Change the copy of the program at `root`."""
        path, text = self.find(root)
        path.write_text(text.replace(self.old, self.new), encoding="utf-8")


@dataclass(frozen=True, slots=True)
class SeenByTest:
    """One way to break the program, in words, which no seed notices soon, and `test` does: its file and its name."""

    name: str
    edit: Edit
    test: str


@dataclass(frozen=True, slots=True)
class Mutation:
    """One way to break the program, in words, which one of `SEEDS` seeds from `first` on must notice."""

    name: str
    edits: tuple[Edit, ...]
    first: int = 0  # not 0 where the first to notice comes late: it saves the time until then


SEEDS = 200
"""Three times as many as any of them needed when they were written: the program's course changes with the program."""

MUTATIONS = (
    Mutation(
        "an intent's commit comes after its request has left",
        (
            Edit(
                "ledger/commits.py",
                "ledger.mark_absent(self.base, self.run_key, by_state[State.UNKNOWN])\n\n        await self.ask(write)",
                "ledger.mark_absent(self.base, self.run_key, by_state[State.UNKNOWN])\n\n"
                "        self.asked = asyncio.ensure_future(self.ask(write))\n        await asyncio.sleep(0)",
            ),
        ),
    ),
    Mutation(
        "no quiet period is waited for",
        (
            Edit(
                "load/resolution.py",
                "result.started_at >= unresolved.since + self._session.policy.quiet_period_s",
                "result.started_at >= unresolved.since",
            ),
            Edit(
                "load/resolution.py", "        quiet_s = self._session.policy.quiet_period_s", "        quiet_s = 0.0"
            ),
            Edit(
                "load/resolution.py",
                "unresolved.missed_at + self._session.policy.quiet_period_s",
                "unresolved.missed_at",
            ),
        ),
    ),
    Mutation(
        "one look proves absence",
        (
            Edit(
                "load/resolution.py",
                "result.started_at < unresolved.missed_at + self._session.policy.quiet_period_s",
                "result.started_at < unresolved.missed_at",
            ),
        ),
    ),
    Mutation(
        "absence needs no witness that came later",
        (
            Edit(
                "load/resolution.py",
                "return find_latest(of_class & result.seen if of_class else result.seen) > unresolved.since",
                "return True",
            ),
        ),
        first=400,
    ),
    Mutation(
        "nobody is looked for before they are created",
        (Edit("load/presence.py", "_NEVER if session.policy.is_looking else _ALWAYS", "_ALWAYS"),),
    ),
    Mutation(
        "a request that is cancelled counts as never sent",
        (Edit("sender.py", "give_up(item, Unanswered.CUT_OFF)", "give_up(item, Unanswered.STOPPED)"),),
        first=40,
    ),
    Mutation(
        "an answer that says neither yes nor no counts as a refusal",
        (
            Edit(
                "load/creates.py",
                "return Move(Event.LOST, status=answer.status, message=answer.message)",
                "return Move(Event.REFUSED, status=answer.status or 0, message=answer.message)",
            ),
        ),
    ),
    Mutation(
        "no answer within the time-out counts as never sent",
        (
            Edit(
                "load/creates.py",
                "return Move(Event.LOST, status=answer.status, message=answer.message)",
                "return Move(Event.LOST if answer.status else Event.NOT_SENT, status=answer.status)",
            ),
        ),
    ),
    Mutation(
        "what a dead run was sending is forgotten",
        (
            Edit(
                "ledger/entries.py",
                "return self.connection.execute(_SET_ALL, values | self._range).rowcount",
                "return len(values)",
            ),
        ),
    ),
    Mutation(
        "the answered identity is not compared with the one that was sent",
        (Edit("load/creates.py", "    if is_asked_for is False:", "    if False:"),),
    ),
    Mutation(
        "an incomplete certificate counts as a complete one",
        (Edit("paging/certificate.py", "return self.verdict is Verdict.COMPLETE", "return True"),),
        first=60,
    ),
    Mutation(
        "an answer with another base or identity counts as no answer",
        (
            Edit(
                "load/creates.py",
                "        return Move(Event.MISANSWERED, answer.subscriber_id, answer.status, words)",
                "        return Move(Event.LOST)",
            ),
        ),
    ),
    Mutation(
        "an answered subscriber who existed before counts as created",
        (
            Edit(
                "load/creates.py",
                "        if known is None or verdict.event is not Event.ANSWERED:",
                "        if True:",
            ),
        ),
        first=1000,
    ),
    Mutation(
        "that a base was answered as another is forgotten",
        (Edit("load/guards.py", "    if not base.is_misanswered:\n", "    if base:\n"),),
    ),
    Mutation(
        "a base's name is compared letter by letter",
        (
            Edit(
                "fields.py", 'return " ".join(unicodedata.normalize(', 'return name or " ".join(unicodedata.normalize('
            ),
        ),
    ),
    Mutation(
        "a first create refused with 401 counts as never sent",
        (
            Edit(
                "load/creates.py",
                "        return verdict\n\n    def finish(",
                "        is_said_no = verdict.status in ENDS_A_RUN and not self.is_proved\n"
                "        return Move(Event.NOT_SENT) if is_said_no else verdict\n\n    def end(",
            ),
        ),
    ),
    Mutation(
        "a refusal of the token, the address or the pace is final",
        (
            Edit(
                "ledger/entries.py",
                "NOT_FINAL = frozenset({401, 402, 403, 404, 405, 408, 409, 429})",
                "NOT_FINAL = frozenset[int]()",
            ),
        ),
    ),
    Mutation("hold is not heard", (Edit("load/resolution.py", "if self._is_to_be_held(entry):", "if False:"),)),
    Mutation(
        "a 429 is believed without a look-up",
        (Edit("load/creates.py", "if verdict.is_limited and self._session.policy.is_looking:", "if False:"),),
        first=120,
    ),
    Mutation(
        "refused rows are not looked up at the end of the run",
        (Edit("load/finishing.py", "            await self._look_up_refused()\n", "            pass\n"),),
    ),
    Mutation(
        "somebody who was found counts as there before",
        (Edit("load/finishing.py", "        if is_of_this_run:\n", "        if is_of_this_run and False:\n"),),
    ),
    Mutation(
        "people of other bases count",
        (Edit("listing/base_reader.py", "return bool(service_id == self.service_id)", "return True"),),
    ),
    Mutation(
        "the suppression list is not asked before somebody is sent again",
        (Edit("load/resolution.py", "session.is_suppressed(entry.identity, self._newest(entry))", "False"),),
        first=340,
    ),
    Mutation(
        "no list is suspected of being cut off",
        (
            Edit(
                "listing/reader.py",
                "    if not certificate.is_complete:\n        return certificate\n    sent",
                "    if str(certificate):\n        return certificate\n    sent",
            ),
        ),
    ),
    Mutation(
        "what contradicts a list's size counts for nothing",
        (Edit("paging/certificate.py", "    if Says.CONTRADICTS in says:", "    if False:"),),
        first=660,
    ),
    Mutation(
        "a size that result windows have is taken without evidence",
        (
            Edit(
                "paging/certificate.py",
                "    if not any(is_window_size(rows) for rows in (with_evidence.distinct, checked_total or 0)):",
                "    if checked_total or not checked_total:",
            ),
        ),
    ),
)

_OF_WINDOWS = "paging/test_windows.py::test_no_list_that_is_cut_off_is_complete_where_evidence_can_be_had"

_OF_ANSWERS = "pipelines/test_misanswered.py::"
_OF_MOVES = "pipelines/test_existing_subscribers.py::"

_OF_IDS = "pipelines/test_mistaken_ids.py::"
_OF_TWO_CLASSES = "pipelines/test_hidden_classes.py::test_nobody_of_two_classes_that_the_list_hides_"

SEEN_BY_TESTS = (
    SeenByTest(
        "filters need no controls",
        Edit(
            "listing/lookup.py",
            "return is_case_covered and not self.has_hidden_spellings",
            "return True or not self",
        ),
        "load/looks/test_filtering.py::test_without_a_control_of_its_class_somebody_may_be_found_and_not_missed",
    ),
    SeenByTest(
        "an id in another spelling is not compared with the known ids",
        Edit("load/mistaken_ids.py", "if not any(spellings.values()):", "if spellings:"),
        _OF_IDS + "test_ids_in_another_spelling_than_an_earlier_run_has_sent_are_refused[pandas]",
    ),
    SeenByTest(
        "an email that the base has under another id is not looked for",
        Edit(
            "load/base_load.py",
            '        if "email" in planned.subscribers:\n',
            '        if "Email" in planned.subscribers:\n',
        ),
        _OF_IDS + "test_a_new_id_of_an_email_that_is_in_the_base_is_refused[listing]",
    ),
    SeenByTest(
        "the plain spelling of an id is not looked up by a filter",
        Edit("load/mistaken_ids.py", "        if not is_listed:\n", "        if not found:\n"),
        _OF_IDS + "test_ids_in_an_unusual_spelling_are_looked_up_by_filters",
    ),
    SeenByTest(
        "an answered subscriber whom the list does not show counts as lost",
        Edit(
            "load/creates.py",
            "Move(Event.MISANSWERED, answer.subscriber_id, answer.status, words)\n\n    def _end_lasting",
            "Move(Event.LOST)\n\n    def _end_lasting",
        ),
        _OF_ANSWERS + "test_an_answered_subscriber_whom_the_list_does_not_show_is_held_and_never_sent_again",
    ),
    SeenByTest(
        "creates that may move subscribers leave all at once",
        Edit("load/creates.py", "if self._harmless < _CAREFUL and", "if self._harmless < 0 and"),
        _OF_MOVES + "test_few_are_moved_although_others_were_created_first",
    ),
    SeenByTest(
        "a subscriber who existed before and is found by a look-up counts as created",
        Edit(
            "load/resolution.py",
            "existing = await find_existing(self._session.access, is_of_this_run)",
            "existing = {0}",
        ),
        _OF_MOVES + "test_a_moved_subscriber_whose_answer_was_lost_does_not_count_as_created",
    ),
    SeenByTest(
        "a subscriber that the list has never shown tells that the account is another one",
        Edit(
            "load/guards.py",
            "    if not shown:\n        _report_unshown(session, known)\n        return ()\n",
            "    shown = shown or known\n",
        ),
        "pipelines/test_account_guard.py::test_a_base_whose_subscribers_are_all_hidden_is_loaded_with_a_message",
    ),
    SeenByTest(
        "only subscribers that the list has shown tell that the account is the same",
        Edit("load/guards.py", "known = list(dict.fromkeys([*shown, *more]))", "known = list(shown)"),
        _OF_MOVES + "test_a_base_does_not_count_as_emptied_because_one_subscriber_was_overwritten",
    ),
    SeenByTest(
        "subscribers count as gone before they are looked for by their identities",
        Edit(
            "listing/base_list.py", "    known = {each.identity for each in access.known}", "    known = set[bytes]()"
        ),
        "pipelines/test_account_guard.py::test_subscribers_with_new_ids_are_found_by_their_identities",
    ),
    SeenByTest(
        "an answer without the base is believed without a look-up",
        Edit("load/creates.py", "if verdict.is_bare and not session.canaries.is_bare_trusted:", "if not session:"),
        _OF_ANSWERS + "test_an_answer_without_the_base_is_held_if_the_list_shows_another_base",
    ),
    SeenByTest(
        "an answered id is not compared with the ledger",
        Edit("listing/answered.py", "if subscriber_id <= (known.largest_kept or 0):", "if subscriber_id < 0:"),
        _OF_MOVES + "test_the_ledger_knows_whom_another_base_has",
    ),
    SeenByTest(
        "a run goes on after three subscribers who existed before",
        Edit("load/creates.py", "if len(existing) >= _EXISTING or not self.is_proved:", "if not existing:"),
        _OF_MOVES + "test_a_service_that_moves_subscribers_between_bases_is_stopped_after_three[ignored]",
    ),
    SeenByTest(
        "a cancelled request gets no event",
        Edit("sender.py", "            delivery.give_up(item, Unanswered.CUT_OFF)\n", ""),
        "simulation/test_crash_points.py::test_a_run_that_is_cut_off_while_creates_are_under_way_reports_each_of_them",
    ),
    SeenByTest(
        "who came by another way in other capitals is not looked for before a re-send",
        Edit("load/resolution.py", "in_any_spelling=policy.is_looking and not is_fresh", "in_any_spelling=False"),
        "load/test_settling.py::test_who_was_left_by_an_earlier_run_may_have_come_by_another_way_in_any_spelling",
    ),
    SeenByTest(
        "the largest lag that was seen is forgotten",
        Edit("ledger/records.py", "return lag_s or 0.0", "return 0.0"),
        "load/test_settling.py::"
        "test_twice_the_largest_lag_that_earlier_runs_have_seen_must_pass_where_nobody_was_confirmed",
    ),
    SeenByTest(
        "what a look has shown is never old",
        Edit(
            "load/session.py",
            "until = self.expires_at(began_at)",
            "until = ended_at + 1e9 * self.fresh_s",
        ),
        "simulation/test_freshness.py::test_a_pause_that_the_service_asked_for_makes_knowledge_old",
    ),
    SeenByTest(
        "what a look has shown is as old as its end",
        Edit(
            "load/session.py",
            "until = self.expires_at(began_at)",
            "until = self.expires_at(ended_at)",
        ),
        "load/looks/test_presence.py::test_a_look_up_may_be_relied_on_from_its_beginning",
    ),
    SeenByTest(
        "a refusal that the body alone states is unknown",
        Edit(
            "service/answers.py",
            "is_stated = success is False and status < 500",
            "is_stated = success is False and status < 0",
        ),
        "pipelines/test_refusals.py::test_rows_that_the_service_refuses_by_its_words_alone_are_rejected_and_end_no_run",
    ),
    SeenByTest(
        "a row is not compared with what the service has",
        Edit(
            "load/drift.py",
            "        differing = differing_fields(names, values, listed)\n",
            "        differing = differing_fields(names, values, values)\n",
        ),
        "pipelines/test_drift.py::test_a_changed_row_is_compared_with_what_the_service_has_now[exact]",
    ),
    SeenByTest(
        "counts of the list's parts are no evidence",
        Edit(
            "listing/evidence.py",
            "    names = [name for name in PARTITIONS if name not in {*suspect.filters, *suspect.skipped}]\n",
            "    names: list[str] = []\n",
        ),
        _OF_WINDOWS,
    ),
    SeenByTest(
        "counts of bases are no evidence",
        Edit("listing/evidence.py", "    return chosen if len(chosen) > 1 or not largest else []\n", "    return []\n"),
        _OF_WINDOWS,
    ),
    SeenByTest(
        "entries of the ledger are no evidence",
        Edit("listing/findings.py", "CONTRADICTS if len(found) > is_by_filter", "CONTRADICTS if len(found) < 0"),
        _OF_WINDOWS,
    ),
    SeenByTest(
        "ids that no page showed are no evidence",
        Edit("listing/evidence.py", "    if suspect.filters or not len(ids):\n", "    if len(ids) >= 0:\n"),
        _OF_WINDOWS,
    ),
    SeenByTest(
        "a class that the list hides is not read",
        Edit("listing/reader.py", "    if suspect.hidden:\n", "    if not suspect.ids[:0]:\n"),
        "paging/test_windows.py::test_no_list_that_hides_loses_or_repeats_subscribers_is_complete_without_all_of_them",
    ),
    SeenByTest(
        "filters are relied on although the list hides a class",
        Edit("listing/classes.py", "        state.hidden = tuple(dict.fromkeys([*state.hidden, *found]))\n", ""),
        _OF_TWO_CLASSES + "is_created_twice[inactive,male-male-False-filters---base-id 7]",
    ),
    SeenByTest(
        "unresolved creates are looked up by filters that leave out their class",
        Edit(
            "load/lookups.py",
            "by_filter and await learn_hidden_classes(self._unasked[0].access, is_again=True):",
            "by_filter and learn_hidden_classes is None:",
        ),
        "pipelines/test_hidden_classes.py::"
        "test_lost_creates_are_found_if_they_are_the_first_of_a_class_that_the_list_hides[inactive]",
    ),
    SeenByTest(
        "filters need not find subscribers that the list leaves out",
        Edit("listing/requests.py", "in unlisted[:_TRIED]:", "in unlisted[:0]:"),
        "pipelines/test_hidden_classes.py::"
        "test_a_load_ends_if_neither_the_list_nor_its_filters_show_subscribers_with_old_ids",
    ),
    SeenByTest(
        "the filter of a hidden class may list others",
        Edit("listing/reader.py", "    if part.has_others:\n", "    if part.seen is None:\n"),
        "paging/test_windows.py::test_a_hidden_class_whose_filter_lists_others_as_well_is_not_certified",
    ),
    SeenByTest(
        "rows of other answers are no evidence",
        Edit(
            "listing/findings.py",
            "        if inside >= max(_LEAST_UNSEEN,",
            "        if inside < 0 * max(_LEAST_UNSEEN,",
        ),
        "paging/test_windows.py::test_no_list_that_hides_loses_or_repeats_subscribers_is_complete_without_all_of_them",
    ),
    SeenByTest(
        "entries of the ledger are evidence whatever a filter asks for",
        Edit("listing/findings.py", "return are_as_asked(suspect.filters, answer.page.subscribers)", "return True"),
        "pipelines/test_cut_off.py::test_entries_of_the_ledger_that_a_filter_leaves_out_speak_against_no_list",
    ),
    SeenByTest(
        "a base that the list hides counts as empty",
        Edit("load/presence.py", "await base.detect_hidden(is_swept=True)", "False"),
        "pipelines/test_hidden_base.py::"
        "test_nobody_in_a_base_that_the_list_hides_is_created_twice[a sweep---base-name News]",
    ),
    SeenByTest(
        "a list is not asked for two classes at once",
        Edit("listing/evidence.py", "    asked = [*((each,) for each in ours), *combinations]", "    asked = []"),
        _OF_TWO_CLASSES + "is_created_twice[inactive,male-male-False-an empty list---base-id 7]",
    ),
    SeenByTest(
        "a list is not asked for two classes at once before filters are relied on",
        Edit("listing/classes.py", "combine_classes(counts.unshown, fewest=2)", "()"),
        _OF_TWO_CLASSES + "is_created_twice_where_all_others_are_alike[inactive,male-male-False-7]",
    ),
    SeenByTest(
        "a base is not asked for together with a class that the list hides",
        Edit(
            "listing/hidden_base.py",
            "        others = await access.control.until_stopped(_ask_for_classes",
            "        _ = (_ask_for_classes",
        ),
        _OF_TWO_CLASSES + "is_created_twice_where_all_others_are_alike[inactive,base-male-False-50]",
    ),
    SeenByTest(
        "a class that is hidden within a hidden class is not read",
        Edit("listing/reader.py", "        hidden = find_hidden(part_suspect, answers)\n", ""),
        "pipelines/test_hidden_classes.py::"
        "test_nobody_of_a_class_that_the_list_hides_is_created_twice[False-inactive,male]",
    ),
    SeenByTest(
        "a list that shows no email of inactive subscribers lets everybody be mailed",
        Edit("mail/inactive.py", "if sink.has_rows and not sink.has_email:", "if False:"),
        "pipelines/emails/test_consent.py::test_nothing_is_sent_while_the_list_shows_no_email_of_inactive_subscribers",
    ),
    SeenByTest(
        "new subscribers whom the list never shows are not reported",
        Edit(
            "load/sightings.py",
            "            return None\n    return last\n",
            "            return None\n    return None\n",
        ),
        "pipelines/test_unseen.py::test_a_service_that_stores_nothing_makes_the_run_partial[0]",
    ),
    SeenByTest(
        "creates that are executed twice do not end the run",
        Edit("load/creates.py", "        if len(twins) > 1:\n", "        if not twins and twins:\n"),
        "pipelines/test_repeated_creates.py::test_creates_that_are_executed_twice_end_the_run_after_the_first[exact-0]",
    ),
    SeenByTest(
        "a refused row is looked up by its own run alone",
        Edit("load/refusals.py", "(run.has_finished and entry.reported is not None)", "run.has_finished"),
        "pipelines/test_refusals.py::test_a_refused_row_of_a_cursor_job_exists_once_it_is_read_again",
    ),
    SeenByTest(
        "a missing IsActive always means inactive",
        Edit("listing/controls.py", "    return is_filtered and all(row", "    return is_filtered or all(row"),
        "pipelines/test_inactive.py::"
        "test_a_job_that_suppresses_inactive_subscribers_ends_if_the_list_shows_nobody_s_activity[omit-exact]",
    ),
    SeenByTest(
        "a list without emails is believed to show nobody",
        Edit("listing/base_list.py", '"email" not in watching.stats.shown_fields', "False"),
        "pipelines/test_hidden_identities.py::test_a_list_that_shows_no_email_ends_a_load_before_its_first_create",
    ),
    SeenByTest(
        "the first created subscriber is not looked up where no row has shown the identity",
        Edit("load/creates.py", "stats is None or field in stats.shown_fields", "True"),
        "pipelines/test_hidden_identities.py::test_a_list_that_shows_no_client_user_id_costs_one_create_at_most",
    ),
    SeenByTest(
        "a listed base with the name of the job's and without an Id is another base",
        Edit(
            "listing/base_reader.py",
            'type(base.get("Id")) is not int and fold_base_name(name) == self._folded',
            "False",
        ),
        "pipelines/test_absence.py::test_a_list_without_the_ids_of_bases_ends_a_load_before_its_first_create",
    ),
    SeenByTest(
        "a base whose Id the first create teaches is not asked for",
        Edit("load/presence.py", "is_unasked and self.session.journal.base.service_id is not None", "False"),
        "pipelines/test_hidden_base.py::test_nobody_in_a_base_that_the_list_hides_is_created_twice",
    ),
    SeenByTest(
        "a lost create is looked for without the BaseId of a hidden base",
        Edit("load/lookups.py", "            await detect_hidden_base(group.access)\n", "            pass\n"),
        "pipelines/test_hidden_base.py::test_a_lost_create_in_an_empty_hidden_base_is_found",
    ),
    SeenByTest(
        "nothing is read on beyond the last known row",
        Edit("load/presence.py", "            await self._read_on(session)\n", "            pass\n"),
        "simulation/test_freshness.py::test_a_listing_that_takes_longer_than_it_may_be_relied_on_is_read_on",
    ),
    SeenByTest(
        "no sample of the subscribers to be forgotten is looked up",
        Edit("../pipelines/flows/reconciles.py", "        there += bool(shown)\n", ""),
        "reconcile/test_vanished.py::test_vanished_subscribers_that_the_service_shows_by_id_are_counted",
    ),
    SeenByTest(
        "a base is created though the list shows a similar name",
        Edit("load/base_load.py", "                refuse_similar_base(session)\n", "                pass\n"),
        "pipelines/test_base_names.py::test_nothing_is_sent_by_a_name_that_the_service_may_take_for_another",
    ),
    SeenByTest(
        "a row that was sent and has no outcome counts as unsent",
        Edit("load/session.py", "self.read - self.taken", "self.read - self.outcomes.total()"),
        "pipelines/test_last_resort.py::test_a_lost_outcome_of_a_run_that_ends_early_counts_as_unknown_and_is_reported",
    ),
    SeenByTest(
        "no row of refusals may pass",
        Edit(
            "pace/refusals.py",
            "if self._count >= LEAST_ALIKE or self._latest.count(kind) >= _MOST_OF_THEM:",
            "if kind is None:",
        ),
        "simulation/test_passing.py::test_refusals_that_last_end_the_run_within_two_minutes_and_the_next_one_finishes",
    ),
    SeenByTest(
        "refusals that last end no run",
        Edit("load/creates.py", "if session.passing.has_lasted(session.clock.monotonic()):", "if session is None:"),
        "simulation/test_passing.py::test_refusals_that_last_end_the_run_within_two_minutes_and_the_next_one_finishes",
    ),
    SeenByTest(
        "the next run sends all refused rows of a kind again",
        Edit("load/refusals.py", "is_shared = len(alike) >= LEAST_ALIKE and", "is_shared = not alike and"),
        "pipelines/test_passing_refusals.py::"
        "test_the_next_run_sends_one_refused_row_of_a_kind_and_the_others_only_if_it_is_accepted",
    ),
    SeenByTest(
        "a refused row that is not sent again stays unknown",
        Edit(
            "load/finishing.py",
            "            if self._mode is RunMode.LOAD:\n                await self._return_refused()\n",
            "",
        ),
        "pipelines/test_passing_refusals.py::"
        "test_the_next_run_sends_one_refused_row_of_a_kind_and_the_others_only_if_it_is_accepted",
    ),
    SeenByTest(
        "a rejected or held entry that the list shows keeps the fingerprint of what was not taken",
        Edit(
            "ledger/entries.py",
            "subscriber_id = excluded.subscriber_id, fingerprint = NULL, ",
            "subscriber_id = excluded.subscriber_id, ",
        ),
        "pipelines/test_drift.py::test_a_held_row_is_compared_with_a_subscriber_who_came_by_another_way",
    ),
    SeenByTest(
        "a page of the list that is asked for again has the same address",
        Edit("service/client.py", "while limit in used_limits and limit + step in _LIMITS:", "while False:"),
        "pipelines/test_cached_lists.py::test_a_cached_answer_does_not_prove_that_a_lost_create_had_no_effect",
    ),
    SeenByTest(
        "a sentinel of another class proves absence",
        Edit("load/session.py", "each.is_active is is_active and each.base_id", "each.base_id"),
        "load/test_settling.py::test_a_sentinel_of_another_class_proves_no_absence",
    ),
    SeenByTest(
        "a sentinel need not show after the look-ups by filters",
        Edit(
            "listing/lookup.py",
            "        if missed:\n            visibility = await",
            "        if False:\n            visibility = await",
        ),
        "load/looks/test_filtering.py::test_a_sentinel_that_stops_showing_in_the_middle_of_a_look_up_proves_nothing",
    ),
    SeenByTest(
        "a class that no look-up shows is proved absent",
        Edit("load/resolution.py", "        if unresolved.unprovable:\n", "        if False:\n"),
        "pipelines/test_absence.py::test_a_lost_create_of_a_class_that_the_list_never_shows_is_held",
    ),
    SeenByTest(
        "subscribers with old ids enter unseen",
        Edit("listing/renewal.py", "is_all = rows - end.rows <= newcomers", "is_all = True"),
        "load/looks/test_presence.py::test_a_list_that_has_grown_before_its_end_is_read_again_in_full",
    ),
    SeenByTest(
        "the first match of a filter counts as all that match",
        Edit("listing/lookup.py", "return len(answer.rows) != 1 or name in", "return True or name in"),
        "pipelines/test_absence.py::test_a_filter_that_returns_the_first_match_only_proves_nobody_absent",
    ),
    SeenByTest(
        "a row without its base counts as one of another base",
        Edit("load/presence.py", "if rows.unclear_id is None:", "if True:"),
        "pipelines/test_absence.py::test_a_list_without_the_ids_of_bases_ends_a_load_before_its_first_create",
    ),
)
