"""`connector mail` that is broken off, or meets what was not foreseen: every row has its one outcome all the same."""

import json
import time
from pathlib import Path

import pytest

from tests.pipelines.conftest import Connector, wait_for, write_csv
from tests.pipelines.emails.outbox import interrupt_twice
from tests.pipelines.emails.test_mail_command import write_job


@pytest.fixture
def mailer(connector: Connector, tmp_path: Path) -> Connector:
    """With six hundred people and a job."""
    write_people(tmp_path, 600)
    write_job(tmp_path, {"html": {"content": "<p>Hello {{ first }}</p>"}}, load={"max_rate": 300})
    return connector


def write_people(folder: Path, number: int) -> None:
    write_csv(folder / "people.csv", "email,first", *(f"person{each}@example.net,P{each}" for each in range(number)))


def test_a_second_signal_ends_it_in_a_report_and_what_had_no_answer_is_unknown(mailer: Connector) -> None:
    assert mailer.run_json("mail", "mail.yaml", "--limit", "3").code == 0
    mailer.sandbox.switch(hang_after=1)
    with mailer.start("mail", "mail.yaml", "--output", "json") as process:
        wait_for(lambda: mailer.sandbox.stats()["emails"] == 4)
        stdout, stderr = interrupt_twice(process)

    assert process.returncode == 130
    assert "Traceback" not in stderr
    rows = {name: number for name, number in json.loads(stdout)["rows"].items() if number}
    assert rows == {"read": 600, "already_sent": 3, "unknown": 1, "unsent": 596}


def test_a_second_signal_while_the_last_answers_are_awaited_leaves_none_unsent_that_left(
    mailer: Connector, tmp_path: Path
) -> None:
    write_people(tmp_path, 20)
    write_job(tmp_path, {"html": {"content": "<p>Hello</p>"}}, load={"max_rate": 10})
    with mailer.start("mail", "mail.yaml", "--output", "json") as process:
        wait_for(lambda: mailer.sandbox.stats()["emails"] >= 5)
        mailer.sandbox.switch(hang_after=1)
        wait_for(lambda: mailer.sandbox.stats()["emails"] == 20)
        time.sleep(0.3)
        stdout, _ = interrupt_twice(process)
    rows = json.loads(stdout)["rows"]
    assert process.returncode == 130
    assert (rows["unsent"], rows["sent"] + rows["unknown"]) == (0, 20)
    assert rows["unknown"] > 5


def test_a_preview_names_an_invalid_row_by_its_number_alone(mailer: Connector, tmp_path: Path) -> None:
    write_csv(tmp_path / "people.csv", "email,first", 'ann@example.net,"Annabel\nX"')
    write_job(tmp_path, {"html": {"content": "<p>Hello</p>"}})
    ended = mailer.run_json("mail", "mail.yaml", "--preview", "1")
    assert (ended.code, ended.rows) == (1, {"read": 1, "invalid": 1})
    assert "row 1 is invalid: Email." in ended.stderr
    assert "Annabel" not in ended.stderr + ended.stdout
