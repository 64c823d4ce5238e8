"""Proofs of absence: a run sends a lost create again only if a look-up proves that the create had no effect."""

from pathlib import Path

import pytest

from tests.pipelines.conftest import Connector, count_stored_emails, write_csv
from tests.pipelines.test_hidden_classes import LARGE_OTHER_PERSON_COUNT, add_other_people, fill_base, import_people

NEWS_OPTION = "--base-name News"


def write_people(folder: Path, *activities: str) -> Path:
    lines = [f"person{index}@x.org,k{index},{activity}" for index, activity in enumerate(activities)]
    return write_csv(folder / "people.csv", "email,client_user_id,is_active", *lines)


def build_base_option(connector: Connector) -> str:
    """Return the option that names the base of the last create by its id."""
    return f"--base-id {connector.sandbox.truth()['events'][-1]['base_id']}"


@pytest.mark.parametrize("fault", ["drop_after", "drop_before"])
def test_a_lost_create_of_a_class_that_the_list_never_shows_is_held(
    connector: Connector, tmp_path: Path, fault: str
) -> None:
    connector.sandbox.seed(30, base_id=50)
    connector.sandbox.switch(hide="inactive", filters="ignored", **{fault: 1.0})
    result = import_people(connector, write_people(tmp_path, "false"), NEWS_OPTION)
    assert count_stored_emails(connector.sandbox).total() == (fault == "drop_after"), result.report["messages"]
    assert (result.exit_code, result.rows) == (1, {"read": 1, "unknown": 1}), result.report["messages"]
    rejects_text = Path(result.report["rejects_file"]).read_text()
    assert (
        "the list has shown no inactive subscriber, so no look-up proves that the create had no effect" in rejects_text
    )
    assert "connector retry --held resend" in rejects_text
    assert result.report["settled"]["absent"] == 0


@pytest.mark.parametrize("filters", ["icase", "ignored"])
def test_a_lost_first_create_in_an_empty_account_is_sent_again(
    connector: Connector, tmp_path: Path, filters: str
) -> None:
    connector.sandbox.switch(drop_before=0.5, filters=filters, seed=2)
    result = import_people(connector, write_people(tmp_path, "false", "true", "true", "false"), NEWS_OPTION)
    assert (result.exit_code, result.rows) == (0, {"read": 4, "created": 4}), result.report["messages"]
    assert sorted(count_stored_emails(connector.sandbox).values()) == [1] * 4


@pytest.mark.parametrize(
    ("other_person_count", "cache_ignores"), [(0, True), (30, False), (LARGE_OTHER_PERSON_COUNT, True)]
)
def test_a_cached_answer_of_the_list_does_not_prove_a_lost_create_absent(
    connector: Connector, tmp_path: Path, other_person_count: int, cache_ignores: bool
) -> None:
    """`cache_ignores`: the cache ignores the Cache-Control header of the requests."""
    add_other_people(connector, other_person_count)
    connector.sandbox.switch(cached=3600, cache_ignores=cache_ignores, drop_after=1.0)
    result = import_people(connector, write_people(tmp_path, "true"), NEWS_OPTION)
    assert set(count_stored_emails(connector.sandbox).values()) == {1}, result.report["messages"]
    assert (result.exit_code, result.rows) == (0, {"read": 1, "created": 1}), result.report["messages"]


def test_a_filter_that_returns_only_the_first_match_proves_nobody_absent(connector: Connector, tmp_path: Path) -> None:
    people_path = write_people(tmp_path, "true", "true")
    fill_base(connector, people_path, "--base-name Customers")
    fill_base(connector, people_path, NEWS_OPTION, state_name="second state")
    base_option = build_base_option(connector)
    add_other_people(connector, LARGE_OTHER_PERSON_COUNT)
    connector.sandbox.switch(filters_return="first")
    result = import_people(connector, people_path, base_option)
    assert (result.exit_code, result.rows) == (0, {"read": 2, "exists": 2}), result.report["messages"]
    assert set(count_stored_emails(connector.sandbox).values()) == {2}


@pytest.mark.parametrize("other_person_count", [0, LARGE_OTHER_PERSON_COUNT], ids=["sweep", "filters"])
def test_an_import_needs_the_id_of_its_base_if_the_list_shows_only_ids_of_bases(
    connector: Connector, tmp_path: Path, other_person_count: int
) -> None:
    people_path = write_people(tmp_path, "true", "true", "true")
    fill_base(connector, people_path, NEWS_OPTION)
    base_option = build_base_option(connector)
    add_other_people(connector, other_person_count)
    connector.sandbox.switch(base_in_rows="id")

    result_of_base_name = import_people(connector, people_path, NEWS_OPTION)
    assert result_of_base_name.exit_code == 2
    assert (
        "with its Id and name, so the connector cannot find out which subscribers are in the base News"
        in result_of_base_name.stderr
    )
    assert "Give the base by its id" in result_of_base_name.stderr

    result_with_base_id = import_people(connector, people_path, base_option)
    assert (result_with_base_id.exit_code, result_with_base_id.rows) == (0, {"read": 3, "exists": 3}), (
        result_with_base_id.report["messages"]
    )
    assert set(count_stored_emails(connector.sandbox).values()) == {1}


@pytest.mark.parametrize(
    ("other_person_count", "option", "base_form"),
    [(0, "--base-id", "none"), (0, "--base-name", "name"), (LARGE_OTHER_PERSON_COUNT, "--base-id", "name")],
)
def test_a_list_without_the_ids_of_bases_ends_a_load_before_its_first_create(
    connector: Connector, tmp_path: Path, other_person_count: int, option: str, base_form: str
) -> None:
    people_path = write_people(tmp_path, "true", "true", "true")
    fill_base(connector, people_path, NEWS_OPTION)
    base_option = build_base_option(connector)
    add_other_people(connector, other_person_count)
    connector.sandbox.switch(base_in_rows=base_form)
    result = import_people(connector, people_path, base_option if option == "--base-id" else NEWS_OPTION)
    assert result.exit_code == 2, result.stdout
    assert "the list does not show the base of a subscriber" in result.stderr
    assert set(count_stored_emails(connector.sandbox).values()) == {1}
