"""What the survey of a job with guards leaves behind, and what it is not to: files, sums, who is in doubt."""

import csv
import shutil
import signal
from pathlib import Path

from tests.pipelines.conftest import Connector, Ended, count_stored, wait_for, write_csv
from tests.pipelines.planned import count_creates, count_requests, write_job

JOB = """
job: crm
source: {file: {path: people.csv}}
subscriber: {base: {name: News}, fields: {email: email, first_name: name, address_zip: zip, is_active: {value: true}}}
load: {quiet_period: 200ms}
"""
ZIPS = ("ann@x.org,Ann,SW1A 1AA", "bob@x.org,Bob,1012", "eve@x.org,Eve,02134")


def write_people(folder: Path, *lines: str) -> None:
    write_csv(folder / "people.csv", "email,name,zip", *lines)


def read_drift(ended: Ended) -> list[tuple[str, str]]:
    """Outcome and code of each line; of no file none."""
    if ended.report["drift_file"] is None:
        return []
    with Path(ended.report["drift_file"]).open(encoding="utf-8", newline="") as file:
        return [(line["_outcome"], line["_code"]) for line in csv.DictReader(file)]


def test_a_tripped_guard_tells_of_nobody_that_they_were_created_without_their_zip(
    connector: Connector, tmp_path: Path
) -> None:
    write_people(tmp_path, *ZIPS)
    ended = connector.run_json("sync", write_job(tmp_path, "guard: {max_creates: 2}", text=JOB))
    assert (ended.code, ended.rows) == (3, {"read": 3, "unsent": 3})
    assert read_drift(ended) == []
    assert list((tmp_path / "state").glob("drift/*")) == []
    passed = connector.run_json("sync", write_job(tmp_path, "guard: {max_creates: 3}", text=JOB))
    assert read_drift(passed) == [("created", "zip_omitted")] * 2


def test_a_signal_in_the_survey_ends_the_run_with_nobody_sent(connector: Connector, tmp_path: Path) -> None:
    sandbox, job = connector.sandbox, write_job(tmp_path, "guard: {max_creates: 9}", text=JOB)
    write_people(tmp_path, *ZIPS)
    sandbox.switch(latency_ms=1000)
    with connector.start("sync", job, "--output", "json") as process:
        wait_for(lambda: count_requests(sandbox, "list") > 0)
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate()
    ended = Ended(process.returncode, stdout, stderr)
    assert (ended.code, ended.report["status"], ended.rows) == (130, "stopped", {"read": 3, "unsent": 3}), stderr
    assert (read_drift(ended), count_creates(sandbox)) == ([], 0)
    sandbox.switch(latency_ms=0)
    assert connector.run_json("sync", job).rows == {"read": 3, "created": 3}
    assert set(count_stored(sandbox).values()) == {1}


def test_a_source_is_measured_by_what_was_read_for_the_same_account(connector: Connector, tmp_path: Path) -> None:
    """A job file serves several: what is tried with few people is no measure of the others, nor are they of it."""
    job = tmp_path / "job.yaml"

    def sync(account: str, number: int) -> Ended:
        text = JOB.replace("source:", f"service: {{account: {account}}}\nsource:")
        write_job(tmp_path, "guard: {}", text=text)
        write_people(tmp_path, *(f"{account}{each}@x.org,Ann,7" for each in range(number)))
        return connector.run_json("sync", job)

    assert sync("main", 100).rows == {"read": 100, "created": 100}
    assert sync("trial", 2).rows == {"read": 2, "created": 2}
    ended = sync("main", 2)
    assert (ended.code, ended.rows) == (3, {"read": 2, "exists": 2})
    assert "guard.max_shrink: 2 rows were read, 98 % fewer than by the last run (100)" in ended.report["messages"][0]


def test_who_was_created_although_refused_is_no_rejection(connector: Connector, tmp_path: Path) -> None:
    """They show a while after they were refused; max_rejected is judged when that is known."""
    connector.sandbox.switch(created_422=1, list_lag_ms=400, latency_ms=100)
    write_people(tmp_path, *(f"p{each}@x.org,Ann,7" for each in range(8)))
    ended = connector.run_json("sync", write_job(tmp_path, "guard: {max_rejected: 10%}", text=JOB))
    assert (ended.code, ended.rows) == (0, {"read": 8, "created": 8}), ended.stderr


def test_a_survey_whose_rejects_cannot_be_kept_is_followed_by_no_load(connector: Connector, tmp_path: Path) -> None:
    connector.sandbox.switch(required="FirstName")
    write_people(tmp_path, "ann@x.org,Ann,7", "bob@x.org,,7")
    job = write_job(tmp_path, "guard: {}", text=JOB)
    assert connector.run_json("sync", job).rows == {"read": 2, "created": 1, "rejected": 1}
    shutil.rmtree(tmp_path / "state" / "rejects")
    (tmp_path / "state" / "rejects").write_text("in its place")
    creates = count_creates(connector.sandbox)
    write_people(tmp_path, "ann@x.org,Ann,7", "bob@x.org,,7", "eve@x.org,Eve,7")
    ended = connector.run_json("sync", job)
    assert (ended.code, ended.rows) == (3, {"read": 3, "exists": 1, "rejected": 1, "unsent": 1})
    assert "rejects file" in ended.report["messages"][0]
    assert count_creates(connector.sandbox) == creates
