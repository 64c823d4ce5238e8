"""What a look-up may call absent: a lost create is sent again only if a look-up would have shown its subscriber."""

from pathlib import Path

import pytest

from tests.pipelines.conftest import Connector, count_stored, write_csv

OTHERS, MANY_OTHERS = 30, 15_000


def write_people(folder: Path, *flags: str) -> Path:
    lines = [f"person{number}@x.org,k{number},{flag}" for number, flag in enumerate(flags)]
    return write_csv(folder / "people.csv", "email,client_user_id,is_active", *lines)


@pytest.mark.parametrize("identity", ["email", "client_user_id"])
def test_an_active_subscriber_does_not_prove_that_an_inactive_one_is_absent(
    connector: Connector, tmp_path: Path, identity: str
) -> None:
    connector.sandbox.seed(MANY_OTHERS, base_id=50)
    connector.sandbox.switch(hide="inactive", filters="icase", drop_after=0.3, seed=4)
    people = write_people(tmp_path, *["true", "false"] * 20)

    options = "--base-name", "News", "--identity", identity, "--quiet-period", "200ms"
    ended = connector.run_json("import", people, *options)

    assert set(count_stored(connector.sandbox).values()) == {1}, ended.report["messages"]
    assert ended.rows == {"read": 40, "created": 40}, ended.report["messages"]


@pytest.mark.parametrize("is_lost", [True, False], ids=["it took effect", "it had no effect"])
def test_a_lost_create_of_a_class_that_the_list_never_shows_is_held(
    connector: Connector, tmp_path: Path, is_lost: bool
) -> None:
    connector.sandbox.seed(OTHERS, base_id=50)
    connector.sandbox.switch(hide="inactive", filters="ignored", **{"drop_after" if is_lost else "drop_before": 1.0})

    ended = connector.run_json(
        "import", write_people(tmp_path, "false"), "--base-name", "News", "--quiet-period", "200ms"
    )

    assert count_stored(connector.sandbox).total() == is_lost, ended.report["messages"]
    assert (ended.code, ended.rows) == (1, {"read": 1, "unknown": 1}), ended.report["messages"]
    rejects = Path(ended.report["rejects_file"]).read_text()
    assert "the list has shown no inactive subscriber, so no look-up proves that the create had no effect" in rejects
    assert "connector retry --held resend" in rejects
    assert ended.report["settled"]["absent"] == 0


@pytest.mark.parametrize("filters", ["icase", "ignored"])
def test_a_first_create_that_got_lost_in_an_empty_account_is_sent_again(
    connector: Connector, tmp_path: Path, filters: str
) -> None:
    connector.sandbox.switch(drop_before=0.5, filters=filters, seed=2)
    people = write_people(tmp_path, "false", "true", "true", "false")
    ended = connector.run_json("import", people, "--base-name", "News", "--quiet-period", "200ms")
    assert (ended.code, ended.rows) == (0, {"read": 4, "created": 4}), ended.report["messages"]
    assert sorted(count_stored(connector.sandbox).values()) == [1] * 4


def fill(connector: Connector, people: Path, base: str) -> None:
    """Create the people in a base, with a ledger that no test uses."""
    state = {"CONNECTOR_STATE_DIR": str(connector.folder / f"state {base}")}
    ended = connector.run_json("import", people, "--base-name", base, "--quiet-period", "200ms", environ=state)
    assert ended.rows["read"] == ended.rows["created"]


def fill_news(connector: Connector, folder: Path, others: int) -> tuple[Path, int]:
    """Create three people in the base News, and seed others in another base. Return the file and the Id of the base."""
    people = write_people(folder, "true", "true", "true")
    fill(connector, people, "News")
    if others:
        connector.sandbox.seed(others, base_id=50)
    return people, connector.sandbox.truth()["events"][0]["base_id"]


def test_a_filter_that_returns_the_first_match_only_proves_nobody_absent(connector: Connector, tmp_path: Path) -> None:
    people = write_people(tmp_path, "true", "true")
    fill(connector, people, "Customers")
    fill(connector, people, "News")
    base_id = connector.sandbox.truth()["events"][-1]["base_id"]
    connector.sandbox.seed(MANY_OTHERS, base_id=50)
    connector.sandbox.switch(filters="icase", filters_return="first")

    ended = connector.run_json("import", people, "--base-id", str(base_id), "--quiet-period", "200ms")

    assert (ended.code, ended.rows) == (0, {"read": 2, "exists": 2}), ended.report["messages"]
    assert set(count_stored(connector.sandbox).values()) == {2}


@pytest.mark.parametrize("others", [0, MANY_OTHERS], ids=["a sweep", "filters"])
def test_a_list_that_shows_bases_by_their_ids_alone_serves_a_job_that_gives_the_id(
    connector: Connector, tmp_path: Path, others: int
) -> None:
    people, base_id = fill_news(connector, tmp_path, others)
    connector.sandbox.switch(base_in_rows="id", filters="icase")

    by_name = connector.run_json("import", people, "--base-name", "News")
    assert by_name.code == 2
    assert "by its name and its Id, so nothing tells who is in the base News" in by_name.stderr
    assert "Give the base by its id" in by_name.stderr

    by_id = connector.run_json("import", people, "--base-id", str(base_id))
    assert (by_id.code, by_id.rows) == (0, {"read": 3, "exists": 3}), by_id.report["messages"]
    assert set(count_stored(connector.sandbox).values()) == {1}


@pytest.mark.parametrize("others", [0, MANY_OTHERS], ids=["a sweep", "filters"])
@pytest.mark.parametrize("option", ["--base-id", "--base-name"])
@pytest.mark.parametrize("shown", ["none", "name"])
def test_a_list_without_the_ids_of_bases_ends_a_load_before_its_first_create(
    connector: Connector, tmp_path: Path, others: int, option: str, shown: str
) -> None:
    people, base_id = fill_news(connector, tmp_path, others)
    connector.sandbox.switch(base_in_rows=shown, filters="icase")

    ended = connector.run_json("import", people, option, str(base_id) if option == "--base-id" else "News")

    assert ended.code == 2, ended.stdout
    assert "the list does not show the base of subscriber" in ended.stderr
    assert set(count_stored(connector.sandbox).values()) == {1}


@pytest.mark.parametrize("others", [0, MANY_OTHERS], ids=["a sweep", "filters"])
def test_people_whom_the_list_hides_as_unsubscribed_are_not_made_active_again(
    connector: Connector, tmp_path: Path, others: int
) -> None:
    fill(connector, write_people(tmp_path, *["false"] * 40), "News")
    if others:
        connector.sandbox.seed(others, base_id=50)
    connector.sandbox.switch(hide="inactive", filters="icase")
    write_people(tmp_path, *["true"] * 40)
    job = tmp_path / "job.yaml"
    job.write_text(
        "job: people\nsource: {file: {path: people.csv}}\n"
        "subscriber: {base: {name: Shop}, fields: {email: email, is_active: is_active}}\n"
        "load: {quiet_period: 200ms}\nsuppress: {inactive: true}\n"
    )

    ended = connector.run_json("sync", job)

    assert ended.rows == {"read": 40, "suppressed": 40}, ended.report["messages"]
    assert set(count_stored(connector.sandbox).values()) == {1}
