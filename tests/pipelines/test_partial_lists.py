"""Lists that leave out subscribers, identities or bases. No create and no certificate relies on such a list. Some lists
show a group of subscribers, such as a base or all inactive subscribers, only if a request asks for this group."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest

from tests.databases import Database
from tests.pipelines.conftest import CommandResult, Connector
from tests.pipelines.planned import write_job
from tests.pipelines.reconciled import create_in_service

FIRST_ID = 100_001  # the first id of the sandbox
OTHER_PEOPLE_COUNT = 1_500
"""With this many subscribers in another base, look-ups by filters take fewer requests than reading the whole list in
pages of 50."""

NEWS_BASE_OPTION = "--base-name News"
MIXED_ROWS = [
    f"p{index}@x.org,k{index},{'male' if index % 3 else ''},{str(index % 2 == 0).lower()}" for index in range(40)
]
"""Rows of `HEADER`: every second person is active, and two of three people are male."""
HEADER = "email,client_user_id,gender,is_active"


def build_rows(
    gender: str = "", is_active: bool = True, row_count: int = 5, name_prefix: str = "p", first_index: int = 0
) -> list[str]:
    """Return rows of people with this gender and this `is_active`."""
    indexes = range(first_index, first_index + row_count)
    return [f"{name_prefix}{index}@x.org,{index + 100},{gender},{str(is_active).lower()}" for index in indexes]


def import_people(
    connector: Connector,
    rows: Sequence[str],
    base_option: str = "--base-id 7",
    *options: str,
    state_folder_name: str = "state",
) -> CommandResult:
    """Import rows of `HEADER` with the ledger of this state folder."""
    people_path = connector.write_people(HEADER, *rows)
    environ = {"CONNECTOR_STATE_DIR": str(connector.folder / state_folder_name)}
    options = (*base_option.split(), "--quiet-period", "200ms", *options)
    return connector.run_json("import", people_path, *options, environ=environ)


def fill_base(connector: Connector, rows: Sequence[str], base_option: str = "--base-id 7", *options: str) -> None:
    """Create the people with a ledger that no other command uses."""
    result = import_people(connector, rows, base_option, *options, state_folder_name=mkdtemp(dir=connector.folder))
    result.expect_rows(read=len(rows), created=len(rows))


def add_other_people(connector: Connector, person_count: int) -> None:
    """Add subscribers to base 50, and set the largest page. A page has at most 50 subscribers if `person_count` is
    `OTHER_PEOPLE_COUNT`, and otherwise at most 1,000."""
    if person_count:
        connector.sandbox.seed(person_count, base_id=50)
    connector.sandbox.switch(filters="icase", max_limit=50 if person_count == OTHER_PEOPLE_COUNT else 1000)


def find_create_counts_per_email(connector: Connector) -> set[int]:
    """Return the set of the create counts of all emails: {1} if each email was created once."""
    return set(connector.count_creates_by_email().values())


# Existing subscribers that the list hides


@dataclass(frozen=True)
class Case:
    """The rows of the people in the base, the switches of the sandbox, and the number of people in another base."""

    rows: Sequence[str]
    switches: Mapping[str, Any]
    other_person_count: int = 0
    base_option: str = "--base-id 7"
    first_base_option: str = "--base-id 7"  # the option that names the base in the first import
    options: Sequence[str] = field(default_factory=tuple)
    message: str = ""


ID_OPTIONS = ("--identity", "client_user_id")
CASE_BY_NAME = {
    "inactive": Case(
        MIXED_ROWS,
        {"hide": "inactive"},
        message="asks for them. The hidden subscribers were read by separate requests.",
    ),
    "inactive, by filters": Case(build_rows("male", False), {"hide": "inactive"}, OTHER_PEOPLE_COUNT),
    "inactive and no gender": Case(build_rows("", False), {"hide": "inactive,unspecified"}, OTHER_PEOPLE_COUNT),
    "male in a base": Case(build_rows("male"), {"hide": "male", "hidden_bases": "7"}, OTHER_PEOPLE_COUNT),
    "all three": Case(build_rows("male", False), {"hide": "inactive,male", "hidden_bases": "7"}),
    "ids as numbers": Case(build_rows(), {"client_user_ids": "number"}, OTHER_PEOPLE_COUNT, options=ID_OPTIONS),
    "ids of bases": Case(
        build_rows(), {"base_in_rows": "id"}, base_option="--base-id 1", first_base_option=NEWS_BASE_OPTION
    ),
}


@pytest.mark.parametrize("case", CASE_BY_NAME.values(), ids=list(CASE_BY_NAME))
def test_a_subscriber_on_a_partial_list_is_not_created_twice(connector: Connector, case: Case) -> None:
    fill_base(connector, case.rows, case.first_base_option, *case.options)
    stored_count = connector.sandbox.stats()["subscribers"]
    add_other_people(connector, case.other_person_count)
    connector.sandbox.switch(**case.switches)
    result = import_people(connector, [*case.rows, "new@x.org,999,male,true"], case.base_option, *case.options)
    expected_rows = {"read": len(case.rows) + 1, "created": 1, "exists": len(case.rows)}
    assert (result.exit_code, result.rows) == (0, expected_rows), result.report["messages"]
    assert connector.sandbox.stats()["subscribers"] == stored_count + case.other_person_count + 1
    assert case.message in str(result.report["messages"])


def test_hidden_subscribers_without_an_email_are_found_and_prevent_a_certificate(connector: Connector) -> None:
    rows = [row[row.index(",") :] if index % 4 == 0 else row for index, row in enumerate(MIXED_ROWS)]
    fill_base(connector, rows, "--base-id 7", *ID_OPTIONS)
    connector.sandbox.switch(hide="no_email")
    import_people(connector, rows, "--base-id 7", *ID_OPTIONS).expect(0, read=40, exists=40)
    assert connector.run_json("export", "out.csv").report["certificate"]["reason"] == "cut_off"


def test_existing_subscribers_are_not_created_again_if_filters_return_only_the_first_match(
    connector: Connector,
) -> None:
    fill_base(connector, build_rows(), "--base-id 8")
    fill_base(connector, build_rows())
    add_other_people(connector, OTHER_PEOPLE_COUNT)
    connector.sandbox.switch(filters_return="first")
    import_people(connector, build_rows()).expect(0, read=5, exists=5)
    assert find_create_counts_per_email(connector) == {2}


@pytest.mark.parametrize(
    ("switches", "is_active", "other_base_id"),
    [({"hide": "inactive,male"}, False, 7), ({"hide": "male", "hidden_bases": "7"}, True, 50)],
)
def test_a_hidden_group_is_requested_if_all_listed_subscribers_have_the_same_group(
    connector: Connector, switches: Mapping[str, str], is_active: bool, other_base_id: int
) -> None:
    """The list shows a hidden group only to a request for this group, for example for inactive subscribers.

    The first import must find existing subscribers. The second import must find the subscribers that
    it created, because the answers to its creates are lost."""
    people = build_rows("male", is_active, 2)
    fill_base(connector, people)
    # With pages of 5, a look-up of each row by a filter takes fewer requests than reading the whole list.
    connector.sandbox.switch(**switches, max_limit=5, filters="icase")
    for index in range(60):
        create_in_service(connector.sandbox, f"other{index}@x.org", {"Id": other_base_id}, IsActive=True)
    import_people(connector, people).expect(0, read=2, exists=2)
    connector.sandbox.switch(drop_after=1)
    import_people(connector, build_rows("male", is_active, 2, "new")).expect(0, read=2, created=2)
    assert find_create_counts_per_email(connector) == {1}


@pytest.mark.parametrize(
    ("base_option", "other_person_count"), [("--base-id 7", 0), (NEWS_BASE_OPTION, OTHER_PEOPLE_COUNT)]
)
def test_a_subscriber_in_a_hidden_base_is_not_created_twice(
    connector: Connector, base_option: str, other_person_count: int
) -> None:
    add_other_people(connector, other_person_count)
    # Person 0 is not in the base yet: the answer to the create of person 0 will contain the id of the base.
    fill_base(connector, build_rows(row_count=3, first_index=1), base_option)
    connector.sandbox.switch(hidden_bases="7" if base_option == "--base-id 7" else "51")
    result = import_people(connector, build_rows(row_count=5), base_option).expect(0, read=5, created=2, exists=3)
    messages = str(result.report["messages"])
    assert "until a request had its BaseId" in messages or "shows no subscribers of the base 7 unless" in messages
    second_result = import_people(connector, build_rows(row_count=7), base_option)
    assert second_result.rows == {"read": 7, "created": 2, "exists": 5}, second_result.report["messages"]
    assert (second_result.exit_code, second_result.report["requests"]["list"]["sent"] < 60) == (0, True)
    assert find_create_counts_per_email(connector) == {1}


def test_a_duplicate_in_a_hidden_base_is_reported_with_both_ids(connector: Connector) -> None:
    """The list shows the subscribers of the base only to a request with the id of the base. The run learns this id from
    the answer to the first create."""
    add_other_people(connector, 30)
    emails = [f"person{index}@example.com" for index in range(5)]
    existing_ids = [create_in_service(connector.sandbox, email, IsActive=False) for email in emails]
    connector.sandbox.switch(hide="inactive", hidden_bases="51")
    result = connector.import_file(connector.write_addresses(5))
    assert (result.exit_code, connector.sandbox.stats()["subscribers"]) == (1, 36), result.stderr
    second_id = connector.sandbox.truth()["events"][-1]["id"]
    expected_texts = [f"in the service twice (ids {existing_id} and {second_id})" for existing_id in existing_ids]
    assert any(text in result.stderr for text in expected_texts), result.stderr
    assert "does not show the last new subscriber" not in result.stderr


# Loads that end because the list cannot show which subscribers exist


@pytest.mark.parametrize("hidden_count", [1, 40])
def test_a_load_ends_if_list_and_filters_hide_subscribers_with_old_ids(connector: Connector, hidden_count: int) -> None:
    fill_base(connector, build_rows(row_count=40))
    add_other_people(connector, OTHER_PEOPLE_COUNT if hidden_count == 1 else 1)
    connector.sandbox.switch(hide="old_ids", old_ids_below=FIRST_ID + hidden_count)
    import_people(connector, build_rows(row_count=2)).expect(3, read=2, unsent=2)
    assert find_create_counts_per_email(connector) == {1}


@pytest.mark.parametrize(
    ("switches", "base_option", "other_person_count", "expected_text"),
    [
        ({"base_in_rows": "id"}, NEWS_BASE_OPTION, 0, "does not show the name of a subscriber's base"),
        ({"base_in_rows": "id"}, NEWS_BASE_OPTION, OTHER_PEOPLE_COUNT, "Give the base by its id"),
        ({"base_in_rows": "name"}, "--base-id 1", OTHER_PEOPLE_COUNT, "does not show the Id of a subscriber's base"),
        ({"emails_in_rows": "masked"}, NEWS_BASE_OPTION, OTHER_PEOPLE_COUNT, "The list shows no email of its"),
    ],
)
def test_a_load_creates_nobody_if_rows_of_the_list_lack_their_base_or_email(
    connector: Connector, switches: Mapping[str, str], base_option: str, other_person_count: int, expected_text: str
) -> None:
    fill_base(connector, build_rows(), NEWS_BASE_OPTION)
    add_other_people(connector, other_person_count)
    connector.sandbox.switch(**switches)
    for options in ((), ("--dry-run",)):
        result = import_people(connector, build_rows(row_count=7), base_option, *options)
        assert (result.exit_code, expected_text in result.stderr) == (2, True), result.stderr
    assert connector.sandbox.stats()["subscribers"] == 5 + other_person_count


@pytest.mark.parametrize(
    ("identity_field", "wire_key", "existing_count"), [("email", "Email", 0), ("client_user_id", "ClientUserId", 5)]
)
def test_a_load_ends_after_one_create_if_rows_of_the_list_lack_the_identity(
    connector: Connector, identity_field: str, wire_key: str, existing_count: int
) -> None:
    rows, options = build_rows(row_count=30), ("--identity", identity_field)
    if identity_field == "client_user_id":
        rows = [row[row.index(",") :] for row in rows]
    if existing_count:
        fill_base(connector, rows[:existing_count], "--base-id 7", *ID_OPTIONS)
        add_other_people(connector, 30)
    stored_count = connector.sandbox.stats()["subscribers"]
    connector.sandbox.switch(rows_omit=wire_key)
    result = import_people(connector, rows, "--base-id 7", *options).expect(3, read=30, created=1, unsent=29)
    assert f"without the {identity_field} that was sent" in str(result.report["messages"])
    assert import_people(connector, rows, "--base-id 7", *options).exit_code == 2
    assert connector.sandbox.stats()["subscribers"] == stored_count + 1


# Lost creates


@pytest.mark.parametrize(
    ("switches", "other_person_count", "rows"),
    [
        ({"cached": 3600, "cache_ignores": True, "drop_after": 1.0}, 0, build_rows(row_count=1)),
        ({"cached": 3600, "cache_ignores": True, "drop_after": 1.0}, OTHER_PEOPLE_COUNT, build_rows(row_count=1)),
        ({"hide": "inactive", "drop_after": 0.3}, OTHER_PEOPLE_COUNT, MIXED_ROWS[:20]),
        ({"hidden_bases": "7", "drop_after": 1.0}, 30, build_rows(row_count=1)),
        ({"drop_before": 0.5, "seed": 2}, 0, MIXED_ROWS[:4]),
    ],
    ids=["a cached answer", "a cached answer to a filter", "a hidden group", "a hidden base", "an empty account"],
)
def test_each_lost_create_is_found_or_sent_again_but_never_twice(
    connector: Connector, switches: Mapping[str, Any], other_person_count: int, rows: Sequence[str]
) -> None:
    add_other_people(connector, other_person_count)
    connector.sandbox.switch(**switches)
    import_people(connector, rows).expect(0, read=len(rows), created=len(rows))
    assert sorted(connector.count_creates_by_email().values()) == [1] * len(rows)


def test_a_lost_create_is_held_if_the_list_has_never_shown_the_group_of_the_subscriber(connector: Connector) -> None:
    connector.sandbox.seed(30, base_id=50)
    connector.sandbox.switch(hide="inactive", filters="ignored", drop_after=1.0)
    result = import_people(connector, build_rows("", False, 1), NEWS_BASE_OPTION)
    assert connector.count_creates_by_email().total() == 1
    result.expect(1, read=1, unknown=1)
    rejects = Path(result.report["rejects_file"]).read_text()
    assert "the list has shown no inactive subscriber, so no look-up proves that the create had no effect" in rejects
    assert "connector retry --held resend" in rejects
    assert result.report["settled"]["absent"] == 0


def test_an_altered_identity_in_an_answer_is_not_reported_as_an_unexpected_subscriber(
    connector: Connector,
) -> None:
    connector.sandbox.seed(30, base_id=7)
    connector.sandbox.switch(alter_identity=True)
    rows = [f"p{index}{'+tag' if index % 2 else ''}@example.com,,,true" for index in range(10)]
    result = import_people(connector, rows)
    assert result.rows == {"read": 10, "created": 5, "unknown": 5}, result.report["messages"]
    assert "appeared in the base" not in str(result.report["messages"])


# Exports and reconciliations


def test_an_export_has_the_subscribers_of_two_hidden_groups(connector: Connector) -> None:
    fill_base(connector, build_rows("", False))
    create_in_service(connector.sandbox, "other@x.org", {"Id": 7}, IsActive=True, Gender="male")
    connector.sandbox.switch(hide="inactive,unspecified")
    result = connector.run_json("export", "out.csv")
    certificate = result.report["certificate"]
    assert (result.exit_code, certificate["verdict"], certificate["distinct"]) == (0, "complete", 6), certificate
    assert certificate["hidden"] == {"is_active": [False], "gender": [""]}


def test_an_export_and_a_reconciliation_read_hidden_bases_that_the_ledger_knows(connector: Connector) -> None:
    connector.sandbox.seed(300, base_id=50)
    connector.write_people("email,name", *(f"person{index}@x.org,Ann" for index in range(40)))
    write_job(connector)
    assert connector.sync().rows == {"read": 40, "created": 40}
    connector.sandbox.switch(hidden_bases="51")
    result = connector.run_json("export", "out.csv")
    assert result.report["certificate"]["hidden"] == {"base_id": [51]}
    assert (result.exit_code, result.report["rows"]["written"]) == (0, 340)
    reconcile_result = connector.run_json("reconcile", "job.yaml")
    certificate = reconcile_result.report["certificate"]
    assert (reconcile_result.exit_code, certificate["hidden"]) == (0, {"base_id": [51]}), reconcile_result.stdout


def test_an_export_reads_a_hidden_group_and_marks_nobody_as_deleted(connector: Connector) -> None:
    fill_base(connector, build_rows(row_count=40))
    arguments = "export", f"sqlite:///{connector.folder}/out.db", "--table", "people", "--mode", "upsert"
    assert connector.run_json(*arguments).exit_code == 0
    connector.sandbox.switch(duplicates="upsert")
    for index in range(8):
        create_in_service(connector.sandbox, f"p{index}@x.org", {"Id": 7}, IsActive=False)
    connector.sandbox.switch(duplicates="accept", hide="inactive")
    result = connector.run_json(*arguments)
    certificate = result.report["certificate"]
    assert (result.exit_code, certificate["verdict"], certificate["distinct"]) == (0, "complete", 40)
    assert certificate["hidden"] == {"is_active": [False]}
    (message,) = result.find_messages("The list shows no inactive subscribers unless a request asks for them.")
    assert message.endswith(". The hidden subscribers were read by separate requests.")
    counts_sql = "SELECT is_active, count(*) FROM people WHERE deleted_at IS NULL GROUP BY 1"
    assert Database("sqlite", f"sqlite:///{connector.folder}/out.db").fetch(counts_sql) == [(0, 8), (1, 32)]


# Result windows, which limit both TotalCount and pages

EXISTING_PEOPLE_COUNT = 1040


def import_with_new_ledger(connector: Connector, path: Path, *options: str) -> CommandResult:
    """Import with a new ledger, as a first-time user does."""
    environ = {"CONNECTOR_STATE_DIR": mkdtemp(dir=connector.folder)}
    return connector.import_file(path, *options, environ=environ)


@pytest.fixture
def people_path(connector: Connector) -> Path:
    """A file of subscribers that exist in the service. All these subscribers have the same base and the same
    `is_active`, so counts by base or by `is_active` prove nothing."""
    path = connector.write_people("email,name", *(f"person{index}@x.org,Ann" for index in range(EXISTING_PEOPLE_COUNT)))
    connector.sync(write_job(connector)).expect_rows(read=EXISTING_PEOPLE_COUNT, created=EXISTING_PEOPLE_COUNT)
    return path


def test_existing_subscribers_are_not_created_again_if_the_list_is_cut_off(
    connector: Connector, people_path: Path
) -> None:
    sandbox, expected_rows = connector.sandbox, {"read": EXISTING_PEOPLE_COUNT, "exists": EXISTING_PEOPLE_COUNT}
    sandbox.switch(result_window=1000)  # the list lacks the largest ids, so the run looks each row up with a filter
    result = import_with_new_ledger(connector, people_path)
    assert (result.exit_code, result.rows) == (0, expected_rows), result.stderr
    sandbox.switch(result_window=1013, order="email")  # the ids that are cut off lie between listed ids
    result = import_with_new_ledger(connector, people_path)
    assert (result.exit_code, result.rows) == (0, expected_rows), result.stderr
    result = connector.run_json("reconcile", "job.yaml")
    assert result.report["certificate"]["reason"] == "cut_off"
    new_rows = [f"new{index}@x.org,Ann" for index in range(30)]
    new_people_path = connector.write_csv("new.csv", "email,name", *new_rows)
    result = import_with_new_ledger(connector, new_people_path)  # the run looks up each row, and then creates it
    result.expect(0, read=30, created=30)
    sandbox.switch(result_window=1000, filters="ignored")  # nothing shows that the list is cut off
    result = import_with_new_ledger(connector, people_path).expect(
        3, read=EXISTING_PEOPLE_COUNT, unsent=EXISTING_PEOPLE_COUNT
    )
    assert "--allow-truncated" in result.stderr
    assert find_create_counts_per_email(connector) == {1}


def test_a_list_of_a_suspicious_size_is_accepted_with_the_option_allow_truncated(connector: Connector) -> None:
    connector.sandbox.seed(1000, base_name="News")
    connector.sandbox.switch(filters="ignored")
    result = import_with_new_ledger(connector, connector.write_addresses(2, name="new.csv"), "--allow-truncated")
    result.expect(0, read=2, created=2)


def make_runs_an_hour_old(connector: Connector) -> None:
    """Set the times of all runs in the ledger back by one hour. After an hour, the list must show all subscribers."""
    connector.ledger.run("UPDATE run SET started_at = started_at - 3600, finished_at = finished_at - 3600")


def test_an_export_is_not_certified_if_the_list_lacks_confirmed_subscribers(
    connector: Connector, people_path: Path
) -> None:
    connector.sandbox.switch(result_window=1013, order="email")
    arguments = "export", "out.csv", "--allow-incomplete"
    result = connector.run_json(*arguments)
    assert "ledger" not in result.report["certificate"]["evidence"]  # a missing new subscriber is not evidence yet
    make_runs_an_hour_old(connector)
    result = connector.run_json(*arguments)
    assert (result.exit_code, result.report["certificate"]["reason"]) == (1, "cut_off")
    assert result.report["certificate"]["evidence"]["ledger"].startswith("contradicts")
    for filters in (("--active",), ("--gender", "unspecified"), ("--first-name", "Ann", "--active")):
        result = connector.run_json(*arguments, *filters)
        assert (result.exit_code, result.report["certificate"]["reason"]) == (1, "cut_off"), filters


def test_an_export_is_not_written_if_the_list_lacks_subscribers_and_the_filter_id_fails(
    connector: Connector,
) -> None:
    connector.sandbox.switch(hide="inactive", filters="ignored")
    rows = [*build_rows(row_count=20), *build_rows("", False, 3, "inactive")]
    # The run may be `partial`, because the list may hide the last created subscriber.
    import_people(connector, rows).expect_rows(read=23, created=23)
    make_runs_an_hour_old(connector)
    result = connector.run_json("export", "out.csv")
    assert (result.exit_code, result.report["certificate"]["reason"]) == (1, "cut_off_possible")
    (message,) = result.find_messages("The list may hide subscribers")
    assert "lacks at least 3 subscribers that the ledger has confirmed, and the filter Id does not work" in message
    assert not (connector.folder / "out.csv").exists()
    result = connector.run_json("export", "out.csv", "--allow-truncated")
    assert (result.exit_code, result.report["certificate"]["cut_off"]) == (0, "accepted")
    connector.sandbox.switch(filters="exact")
    result = connector.run_json("export", "out.csv", "--overwrite")
    assert (result.exit_code, result.report["rows"]["written"]) == (0, 23)


def test_subscribers_outside_the_filter_do_not_contradict_the_list(connector: Connector, people_path: Path) -> None:
    rows = [f"bea{index}@x.org,Bea" for index in range(30)]
    bea_path = connector.write_csv("beas.csv", "email,name", *rows)
    assert connector.import_file(bea_path, "--map", "first_name=name").rows == {"read": 30, "created": 30}
    make_runs_an_hour_old(connector)
    result = connector.run_json("export", "out.csv", "--first-name", "Ann")
    assert (result.exit_code, result.report["rows"]["written"]) == (0, EXISTING_PEOPLE_COUNT)
    evidence = result.report["certificate"]["evidence"]["ledger"]
    assert evidence == "nothing: look-ups by Id find 0 of 14 subscribers that the list lacks"
