"""A job's suppression list: nobody on it is sent, and no run goes on without it."""

import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from connector.ledger.opening import open_ledger
from tests.pipelines.conftest import Connector, Ended, count_stored, end, write_addresses, write_csv

JOB = """
job: news
source: {{file: {{path: people.csv}}}}
subscriber: {{base: {{name: News}}{subscriber}}}
suppress: {suppress}
load: {{quiet_period: 200ms{load}}}
"""
BY_FILE = "{file: {path: gone.csv, column: address}}"


def write_active(path: Path, header: str, *rows: str) -> Path:
    """A CSV whose every row says that it is active."""
    return write_csv(path, f"{header},is_active", *(f"{row},true" for row in rows))


def write_job(folder: Path, suppress: str = BY_FILE, subscriber: str = "", load: str = "") -> Path:
    path = folder / "job.yaml"
    path.write_text(JOB.format(suppress=suppress, subscriber=subscriber, load=load), encoding="utf-8")
    return path


def find_message(ended: Ended, words: str) -> str:
    return next(str(message) for message in ended.report["messages"] if words in message)


def test_who_is_on_the_list_is_suppressed_and_never_sent(connector: Connector, tmp_path: Path) -> None:
    rows = ("ann@x.org,Ann", "bob@x.org,Bob", "nobody,Cem", "BOB@x.org,Bob", "zoe@bücher.example,Zoe")
    write_active(tmp_path / "people.csv", "email,first_name", *rows)
    write_csv(tmp_path / "gone.csv", "address,since", " Bob@X.org,2020", "zoe@xn--bcher-kva.example,2021", "eve@x.org,")
    ended = connector.run_json("sync", write_job(tmp_path))
    assert ended.rows == {"read": 5, "invalid": 1, "duplicate": 1, "suppressed": 2, "created": 1}
    assert count_stored(connector.sandbox) == {"ann@x.org": 1}
    assert ended.report["requests"]["create"]["sent"] == 1


def test_the_list_is_read_once_the_ledger_is_ours(connector: Connector, tmp_path: Path) -> None:
    """Whoever unsubscribes while a run waits for another one is on the list by the time that it begins."""
    write_addresses(tmp_path / "people.csv", 2)
    write_csv(tmp_path / "gone.csv", "address", "person1@example.com")
    (tmp_path / "state").mkdir()
    with open_ledger(f"sqlite:///{tmp_path}/state/ledger.db"):
        waiting = connector.start("sync", write_job(tmp_path), "--wait", "60s", "--output", "json")
        time.sleep(3)  # its plan is made by then, and it waits
        assert waiting.poll() is None
        write_csv(tmp_path / "gone.csv", "address", "person0@example.com", "person1@example.com")
    with waiting:
        ended = end(waiting)
    assert ended.rows == {"read": 2, "suppressed": 2}


def test_a_list_can_come_from_a_database(connector: Connector, tmp_path: Path) -> None:
    write_addresses(tmp_path / "people.csv", 3)
    with closing(sqlite3.connect(tmp_path / "crm.db")) as database, database:
        database.execute("CREATE TABLE gone (mail, is_final)")
        database.executemany("INSERT INTO gone VALUES (?, ?)", [("person0@example.com", 1), ("person1@example.com", 0)])
    query = "select mail from gone where is_final = 1"
    job = write_job(tmp_path, f'{{sql: {{url: "sqlite:///crm.db", query: "{query}", column: mail}}}}')
    assert connector.run_json("sync", job).rows == {"read": 3, "suppressed": 1, "created": 2}


def test_a_list_may_name_people_by_another_field_than_the_jobs_identity(connector: Connector, tmp_path: Path) -> None:
    write_active(tmp_path / "people.csv", "email,client_user_id", "a@x.org,A1", "b@x.org,B1", "c@x.org,", "a@x.org,A2")
    write_csv(tmp_path / "gone.csv", "key", "A1", "b1", "A2")
    job = write_job(tmp_path, "{file: {path: gone.csv, column: key}, field: client_user_id}")
    ended = connector.run_json("sync", job)
    assert ended.rows == {"read": 4, "suppressed": 1, "duplicate": 1, "created": 2}
    assert count_stored(connector.sandbox) == {"b@x.org": 1, "c@x.org": 1}


def test_an_import_by_a_job_uses_its_list(connector: Connector, tmp_path: Path) -> None:
    write_addresses(tmp_path / "people.csv", 1)
    other = write_addresses(tmp_path / "other.csv", 3, first=5)
    write_csv(tmp_path / "gone.csv", "address", "person6@example.com")
    ended = connector.run_json("import", other, "--job", write_job(tmp_path))
    assert ended.rows == {"read": 3, "suppressed": 1, "created": 2}


def test_rows_of_the_list_without_an_identity_are_counted(connector: Connector, tmp_path: Path) -> None:
    write_addresses(tmp_path / "people.csv", 1)
    write_csv(tmp_path / "gone.csv", "address,since", "person0@example.com,2020", "\u200b,2020", ",2021")
    ended = connector.run_json("sync", write_job(tmp_path))
    assert (ended.code, ended.rows) == (0, {"read": 1, "suppressed": 1})
    assert "is empty in 2 rows (records 2, 3), so they suppress nobody" in find_message(ended, "gone.csv")


@pytest.mark.parametrize("content", ["", "\n\n", "address\n", "address,since\n", "\ufeffaddress\n\n", "address\n\n\n"])
@pytest.mark.parametrize("has_run", [False, True])
def test_an_empty_list_is_refused_before_anything_is_sent(
    connector: Connector, tmp_path: Path, content: str, *, has_run: bool
) -> None:
    write_addresses(tmp_path / "people.csv", 2)
    job = write_job(tmp_path)
    if has_run:
        write_csv(tmp_path / "gone.csv", "address", "person0@example.com", "person1@example.com")
        assert connector.run_json("sync", job).rows == {"read": 2, "suppressed": 2}
    (tmp_path / "gone.csv").write_text(content, encoding="utf-8")
    for command in ("plan", "sync"):
        assert connector.run_json(command, job).is_refused
    assert count_stored(connector.sandbox).total() == 0


def test_an_empty_list_of_a_database_is_refused(connector: Connector, tmp_path: Path) -> None:
    write_addresses(tmp_path / "people.csv", 2)
    with closing(sqlite3.connect(tmp_path / "crm.db")) as database, database:
        database.execute("CREATE TABLE gone (mail)")
    job = write_job(tmp_path, '{sql: {url: "sqlite:///crm.db", table: gone, column: mail}}')
    ended = connector.run("sync", job)
    assert (ended.code, "remove the list (suppress.file or suppress.sql) from the job" in ended.stderr) == (2, True)
    assert connector.sandbox.stats()["requests"] == {}


def test_half_of_the_last_list_is_refused_until_the_guard_allows_it(connector: Connector, tmp_path: Path) -> None:
    write_addresses(tmp_path / "people.csv", 200)
    job = write_job(tmp_path)

    def sync(listed: int, *options: str) -> Ended:
        write_csv(tmp_path / "gone.csv", "address", *(f"person{number}@example.com" for number in range(listed)))
        return connector.run_json("sync", job, *options)

    assert sync(200).rows == {"read": 200, "suppressed": 200}
    for _ in range(2):  # a refused list is not the measure of the next one
        refused = sync(100)
        assert refused.is_refused
        assert "gone.csv names 100 subscribers, 50.0% fewer than in the last run (200)" in refused.stderr
    assert connector.run_json("plan", job).is_refused
    assert connector.sandbox.stats()["requests"] == {}
    assert sync(101).rows == {"read": 200, "suppressed": 101, "created": 99}
    text = job.read_text(encoding="utf-8")
    job.write_text(text + "guard: {max_shrink: 80%}", encoding="utf-8")
    assert sync(40).rows["suppressed"] == 40
    job.write_text(text, encoding="utf-8")
    assert sync(40).rows["suppressed"] == 40


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("address,since\nperson1@example.com,2020\nperson0@example.com,2020,why\n", "record 2 (line 3) has 3 cells"),
        ("address,since\n7,2020\n8,2021\n", "suppresses no subscriber"),
    ],
)
def test_a_list_that_turns_out_to_be_no_good_ends_the_run_before_anything_is_sent(
    connector: Connector, tmp_path: Path, content: str, words: str
) -> None:
    write_addresses(tmp_path / "people.csv", 2)
    (tmp_path / "gone.csv").write_text(content, encoding="utf-8")
    ended = connector.run_json("sync", write_job(tmp_path))
    assert ended.is_refused
    assert words in ended.stderr
    assert "person0" not in ended.stderr
    assert connector.sandbox.stats()["requests"] == {}


def test_an_unknown_that_is_on_the_list_by_now_is_not_sent_again(connector: Connector, tmp_path: Path) -> None:
    sandbox, job = connector.sandbox, write_job(tmp_path)
    write_addresses(tmp_path / "people.csv", 3)
    write_csv(tmp_path / "gone.csv", "address", "somebody@example.com")
    sandbox.switch(drop_before=1)
    assert connector.run_json("sync", job).rows == {"read": 3, "unknown": 3}
    sandbox.switch(drop_before=0)
    write_csv(tmp_path / "gone.csv", "address", "person1@example.com")
    ended = connector.run_json("sync", job)
    assert (ended.code, ended.rows) == (0, {"read": 3, "suppressed": 1, "created": 2})
    assert "given up" in find_message(ended, "1 unresolved create from earlier runs")
    assert count_stored(sandbox) == {"person0@example.com": 1, "person2@example.com": 1}
    write_csv(tmp_path / "gone.csv", "address", "somebody@example.com")
    assert connector.run_json("sync", job).rows == {"read": 3, "exists": 2, "created": 1}  # nothing was left of it


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
def test_an_address_is_read_as_other_programs_write_it(connector: Connector, tmp_path: Path, cell: str) -> None:
    write_active(tmp_path / "people.csv", "email", "ann@x.org", "bob@x.org")
    quoted = cell.replace('"', '""')
    write_csv(tmp_path / "gone.csv", "address", "zoe@x.org", f'"{quoted}"')
    assert connector.run_json("sync", write_job(tmp_path)).rows == {"read": 2, "suppressed": 1, "created": 1}
    assert count_stored(connector.sandbox) == {"bob@x.org": 1}


@pytest.mark.parametrize(
    "cell",
    [
        "@x.org", "*@x.org", "x.org", "0bc83cb571cd1c50ba6f3e8a78ef1346", "b" * 64, "Ann Lee", "ann@x.org;Bob",
        "ann at x.org", "ann@x", "N/A", '=HYPERLINK("mailto:ann@x.org")', "ann@x.org (now eve@x.org)",
        "ann@x.org - gone", "ann @x.org", "ann@x,org", "@ann@x.org",
    ],
)  # fmt: skip
def test_a_list_with_an_entry_that_cannot_be_read_is_refused(connector: Connector, tmp_path: Path, cell: str) -> None:
    write_active(tmp_path / "people.csv", "email", "ann@x.org", "bob@x.org")
    quoted = cell.replace('"', '""')
    write_csv(tmp_path / "gone.csv", "address", "zoe@x.org", f'"{quoted}"', "")
    ended = connector.run_json("sync", write_job(tmp_path))
    assert (ended.is_refused, count_stored(connector.sandbox)) == (True, {})
    assert "gone.csv: 1 row (record 2) holds something else than an email address in the column address" in ended.stderr
    assert cell not in ended.stderr
