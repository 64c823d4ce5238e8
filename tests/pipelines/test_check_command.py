"""`connector check` tries each part of a job, and creates, sends and publishes nothing."""

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.pipelines.conftest import Connector, write_csv
from tests.pipelines.forked import Forked
from tests.pipelines.leftovers import put_lag_on_record

LOADING = """
job: crm
source: {file: {path: people.csv}}
subscriber: {base: {name: News}, fields: {email: email, is_active: {value: true}}}
"""
TRAITS = ("page size", "order", "filters", "cut off")
EXACT = "email: exact; client_user_id: exact"
PARTIAL = EXACT.replace("exact", "partial, a part of a value found the subscriber")
PLAIN = {
    "page size": "a page held 40 of 40 subscribers; the limit of a page is 1,000",
    "order": "by id, ascending",
    "filters": EXACT,
    "cut off": "no: the counts of active and inactive subscribers add up to the TotalCount, 40",
}
EXPORTING = "job: warehouse\nexport: {to: 'sqlite:///w.db'}\n"


def check(connector: Connector, job: str, **environ: str) -> tuple[int, dict[str, bool], str]:
    (connector.folder / "job.yaml").write_text(job)
    result = connector.run_json("check", "job.yaml", environ=environ)
    verdicts = {each["check"]: each["ok"] for each in result.report["checks"]}
    failed = " ".join(each["message"] for each in result.report["checks"] if not each["ok"])
    return result.code, verdicts, failed


def test_a_job_that_can_run_passes_each_check_and_changes_nothing(connector: Connector, tmp_path: Path) -> None:
    write_csv(tmp_path / "people.csv", "email", "ann@x.org", "bob@x.org")
    loads = dict.fromkeys(("configuration", "source", "service", *TRAITS, "ledger"), True)
    assert check(connector, LOADING) == (0, loads, "")
    exports = dict.fromkeys(("configuration", "service", *TRAITS, "ledger", "destination"), True)
    assert check(connector, EXPORTING) == (0, exports, "")
    stats = connector.sandbox.stats()
    assert stats["subscribers"] == 0
    with closing(sqlite3.connect(tmp_path / "w.db")) as database:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        assert all(database.execute(f'SELECT count(*) FROM "{name}"').fetchone() == (0,) for name in tables)
    assert connector.run_json("check").report["status"] == "ok"


@pytest.mark.parametrize(
    ("job", "environ", "code", "failing", "words"),
    [
        ("job: crm\nsorce: x\n", {}, 2, "configuration", "did you mean source"),
        (LOADING.replace("people.csv", "gone.csv"), {}, 2, "source", "there is no such file"),
        (LOADING.replace("{email: email,", "{email: mail,"), {}, 2, "source", "mail"),
        (LOADING.replace("people.csv", "bad.csv"), {}, 2, "source", "connector validate"),
        (LOADING, {"CONNECTOR_TOKEN": "wrong"}, 2, "service", "Check the token"),
        (LOADING, {"CONNECTOR_BASE_URL": "http://127.0.0.1:1"}, 3, "service", "Check the base URL"),
        (LOADING + "ledger: must_exist\n", {}, 3, "ledger", "there is no ledger at"),
        (LOADING, {"CONNECTOR_LEDGER": "sqlite:///people.csv"}, 3, "ledger", "people.csv"),
        (EXPORTING.replace("w.db", "taken.db"), {}, 2, "destination", "--overwrite"),
    ],
)  # fmt: skip
def test_a_failed_check_names_the_next_step(
    connector: Connector, job: str, environ: dict[str, str], code: int, failing: str, words: str
) -> None:
    write_csv(connector.folder / "people.csv", "email", "ann@x.org")
    write_csv(connector.folder / "bad.csv", "email", "no address")
    with closing(sqlite3.connect(connector.folder / "taken.db")) as database:
        database.execute("CREATE TABLE subscribers (name TEXT)")
        database.execute("INSERT INTO subscribers VALUES ('kept')")
        database.commit()
    result, verdicts, failed = check(connector, job, **environ)
    assert (result, [name for name, is_ok in verdicts.items() if not is_ok]) == (code, [failing])
    assert words in failed


def test_a_ledger_without_write_permission_fails_the_check(connector: Connector, tmp_path: Path) -> None:
    write_csv(tmp_path / "people.csv", "email", "ann@x.org")
    (tmp_path / "job.yaml").write_text(LOADING)
    assert connector.run("sync", "job.yaml").code == 0
    (tmp_path / "state" / "ledger.db").chmod(0o400)
    with Forked(
        ["check", "job.yaml", "--output", "json"], os.environ | connector.environ, tmp_path, is_bound=True
    ) as checking:
        said, _ = checking.communicate()
    failed = [each for each in json.loads(said)["checks"] if not each["ok"]]
    assert (checking.returncode, [each["check"] for each in failed]) == (3, ["ledger"])
    assert "ledger.db cannot be written by this user: allow it" in failed[0]["message"]


@pytest.mark.parametrize(
    ("switches", "different"),
    [
        ({}, {}),
        ({"max_limit": 20}, {"page size": "a page held 20 of 40 subscribers; the limit of a page is 20"}),
        ({"order": "id_desc"}, {"order": "by id, descending"}),
        ({"order": "email"}, {"order": "not by id; the same page, requested twice, came in the same order"}),
        ({"order": "shuffled"}, {"order": "the same page, requested twice, came in two orders"}),
        (
            {"filters": "partial"},
            {"filters": PARTIAL},
        ),
        (
            {"filters": "ignored"},
            {
                "filters": EXACT.replace("exact", "ignored, the service answered a made-up value with subscribers"),
                "cut off": "nothing suggests it: TotalCount is 40",
            },
        ),
        ({"result_window": 25}, {"page size": "a page held 25 of 25", "cut off": "the list may be cut off, or it may"}),
        (
            {"hide": "female"},
            {"page size": "a page held ", "cut off": "the list may be cut off, or it may hide subscribers: its Total"},
        ),
    ],
    ids=str,
)
def test_check_shows_the_page_size_order_and_filters_of_the_list(
    connector: Connector, switches: dict[str, Any], different: dict[str, str]
) -> None:
    connector.sandbox.seed(40, base_name="News")
    connector.sandbox.switch(**switches)
    found = {each["check"]: each["message"] for each in connector.run_json("check").report["checks"]}
    assert {name: found[name][: len(words)] for name, words in (PLAIN | different).items()} == PLAIN | different
    assert "no lag of the list is on record" in found["ledger"]


def test_check_shows_the_order_of_a_list_of_several_pages(connector: Connector) -> None:
    connector.sandbox.seed(1500, base_name="News")
    checks = connector.run_json("check").report["checks"]
    assert [each["message"] for each in checks if each["check"] == "order"] == ["by id, ascending"]


def test_check_shows_the_lag_on_record(connector: Connector, tmp_path: Path) -> None:
    people = write_csv(tmp_path / "people.csv", "email", "ann@x.org")
    assert connector.import_file(people).code == 0
    put_lag_on_record(connector, 7.25)
    assert "the largest lag of the list on record is 7.2 s" in connector.run("check").stdout
