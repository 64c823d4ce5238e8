"""No run creates a subscriber of the suppression list, and a run ends if it cannot read the list."""

import time
from pathlib import Path

import pytest

from connector.errors import ContentError
from connector.imports.suppression import SuppressionPlan, read_suppression
from connector.ledger.opening import open_ledger
from connector.sources.files import open_file
from connector.subscribers.identity import Suppression
from tests.pipelines.conftest import CommandResult, Connector, wait_for_result, write_csv


def write_active_people(connector: Connector, header: str, *rows: str) -> Path:
    return connector.write_people(f"{header},is_active", *(f"{row},true" for row in rows))


def write_job(connector: Connector, suppress_yaml: str = "{file: {path: gone.csv, column: address}}") -> Path:
    """Write a job that maps fields by their headers. `suppress_yaml` is the value of the key `suppress`."""
    return connector.write_job(f"suppress: {suppress_yaml}", fields="")


def test_a_subscriber_of_the_suppression_list_is_not_created(connector: Connector) -> None:
    rows = ("ann@x.org,Ann", "bob@x.org,Bob", "nobody,Cem", "BOB@x.org,Bob", "zoe@bücher.example,Zoe")
    write_active_people(connector, "email,first_name", *rows)
    suppression_lines = (" Bob@X.org,2020", "zoe@xn--bcher-kva.example,2021", "eve@x.org,", "\u200b,2020", ",2021")
    connector.write_csv("gone.csv", "address,since", *suppression_lines)
    result = connector.run_json("import", connector.folder / "people.csv", "--job", write_job(connector))
    assert "is empty in 2 rows (row numbers 5, 6), so they suppress nobody" in result.find_messages("gone.csv")[0]
    assert result.rows == {"read": 5, "invalid": 1, "duplicate": 1, "suppressed": 2, "created": 1}
    assert connector.count_creates_by_email() == {"ann@x.org": 1}
    assert result.report["requests"]["create"]["sent"] == 1


def test_the_suppression_list_is_read_after_the_run_gets_the_lock(connector: Connector) -> None:
    """A subscriber may unsubscribe while a run waits for the lock of another run."""
    connector.write_addresses(2)
    connector.write_csv("gone.csv", "address", "person1@example.com")
    (connector.folder / "state").mkdir()
    with open_ledger(connector.ledger.url):
        process = connector.start("sync", write_job(connector), "--wait", "60s", "--output", "json")
        time.sleep(3)  # after this time, the run waits for the lock
        assert process.poll() is None
        connector.write_csv("gone.csv", "address", "person0@example.com", "person1@example.com")
    with process:
        result = wait_for_result(process)
    assert result.rows == {"read": 2, "suppressed": 2}


def test_a_suppression_list_can_come_from_a_database(connector: Connector) -> None:
    connector.write_addresses(3)
    connector.crm.run("CREATE TABLE gone (mail, is_final)")
    connector.crm.insert_rows("gone", [("person0@example.com", 1), ("person1@example.com", 0)])
    query = "select mail from gone where is_final = 1"
    write_job(connector, f'{{sql: {{url: "sqlite:///crm.db", query: "{query}", column: mail}}}}')
    assert connector.sync().rows == {"read": 3, "suppressed": 1, "created": 2}


def test_a_suppression_list_can_use_another_field_than_the_identity_of_the_job(connector: Connector) -> None:
    write_active_people(connector, "email,client_user_id", "a@x.org,A1", "b@x.org,B1", "c@x.org,", "a@x.org,A2")
    connector.write_csv("gone.csv", "key", "A1", "b1", "A2")
    write_job(connector, "{file: {path: gone.csv, column: key}, field: client_user_id}")
    connector.sync().expect_rows(read=4, suppressed=1, duplicate=1, created=2)
    assert connector.count_creates_by_email() == {"b@x.org": 1, "c@x.org": 1}


def test_an_empty_suppression_list_is_refused_before_the_first_create(connector: Connector) -> None:
    connector.write_addresses(2)
    write_job(connector)
    for content in ("", "address,since\n"):
        (connector.folder / "gone.csv").write_text(content, encoding="utf-8")
        for command in ("plan", "sync", "reconcile"):
            assert connector.run_json(command, "job.yaml").is_refused, (command, content)
    assert connector.count_creates_by_email().total() == 0


def test_a_suppression_list_that_shrank_by_half_is_refused_until_the_guard_allows_it(connector: Connector) -> None:
    connector.write_addresses(200)
    job_path = write_job(connector)

    def sync(list_length: int, *options: str) -> CommandResult:
        addresses = [f"person{index}@example.com" for index in range(list_length)]
        connector.write_csv("gone.csv", "address", *addresses)
        return connector.sync("job.yaml", *options)

    assert sync(200).rows == {"read": 200, "suppressed": 200}
    for _ in range(2):  # the second run does not compare with the list that the first run refused
        refused_result = sync(100)
        assert refused_result.is_refused
        assert "gone.csv names 100 subscribers, 50.0% fewer than in the last run (200)" in refused_result.stderr
    assert connector.run_json("plan", "job.yaml").is_refused
    assert connector.sandbox.stats()["requests"] == {}
    assert sync(101).rows == {"read": 200, "suppressed": 101, "created": 99}
    job_text = job_path.read_text(encoding="utf-8")
    job_path.write_text(job_text + "guard: {max_shrink: 80%}", encoding="utf-8")
    assert sync(40).rows["suppressed"] == 40
    job_path.write_text(job_text, encoding="utf-8")
    assert sync(40).rows["suppressed"] == 40


EXPECTED_TEXT_BY_LIST = {
    "address,since\nperson1@example.com,2020\nperson0@example.com,2020,why\n": "row 3 (line 3) has 3 cells",
    "address,since\n7,2020\n8,2021\n": "suppresses no subscriber",
}


@pytest.mark.parametrize(("content", "expected_text"), EXPECTED_TEXT_BY_LIST.items())
def test_a_suppression_list_with_an_unreadable_entry_ends_the_run_before_the_first_create(
    connector: Connector, content: str, expected_text: str
) -> None:
    connector.write_addresses(2)
    (connector.folder / "gone.csv").write_text(content, encoding="utf-8")
    result = connector.sync(write_job(connector))
    assert result.is_refused
    assert expected_text in result.stderr
    assert "person0" not in result.stderr
    assert connector.sandbox.stats()["requests"] == {}


def read_suppression_list(folder: Path, cell: str) -> Suppression:
    """Read a suppression list whose two entries are zoe@x.org and this cell."""
    quoted_cell = cell.replace('"', '""')
    path = write_csv(folder / "gone.csv", "address", "zoe@x.org", f'"{quoted_cell}"')
    plan = SuppressionPlan("news", lambda: open_file(path), column="address", field="email")
    return read_suppression(plan, lambda: False)[0]


@pytest.mark.parametrize(
    "cell",
    [
        "Ann Lee <ann@x.org>", '"Lee, Ann" <ann@x.org>', "Lee, Ann <ann@x.org>", "mailto:ann@x.org",
        "MAILTO:ann@x.org?subject=bye", "\u200bann@x.org", "ann@x.org\ufeff", "ann\u00ad@x.org", "<ann@x.org>",
        "'ann@x.org'", "ann@x.org;eve@x.org", "eve@x.org, ann@x.org", "eve@x.org ann@x.org",
        "Eve <eve@x.org>; ANN@x.org", "ann@x.org.", "ann@x.org;", "=ann@x.org", '="ann@x.org"', '"ann@x.org"',
        "'ann@x.org", "+ann@x.org", "-ann@x.org", "ann@x.org,", "ann\uff20x.org", "\uff41nn@x.org", "#ann@x.org",
        "ann@x.org (unsubscribed)", "ann@x.org (moved)", "ann@x.org\u00a0", "ann@x.org:",
    ],
)  # fmt: skip
def test_a_suppression_list_accepts_an_address_in_the_spelling_of_another_program(tmp_path: Path, cell: str) -> None:
    suppression = read_suppression_list(tmp_path, cell)
    emails = [f"{name}@x.org" for name in ("ann", "zoe", "bob")]
    assert [suppression.has_subscriber({"email": email}) for email in emails] == [True, True, False]


@pytest.mark.parametrize(
    "cell",
    [
        "@x.org", "*@x.org", "x.org", "0bc83cb571cd1c50ba6f3e8a78ef1346", "b" * 64, "Ann Lee", "ann@x.org;Bob",
        "ann at x.org", "ann@x", "N/A", '=HYPERLINK("mailto:ann@x.org")', "ann@x.org (now eve@x.org)",
        "ann@x.org - gone", "ann @x.org", "ann@x,org", "@ann@x.org",
    ],
)  # fmt: skip
def test_a_suppression_list_with_an_entry_other_than_an_address_is_refused(tmp_path: Path, cell: str) -> None:
    with pytest.raises(ContentError, match="has a value that is not an email address") as error_info:
        read_suppression_list(tmp_path, cell)
    assert cell not in str(error_info.value)
