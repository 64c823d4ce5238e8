"""`sync --part I/N`: runs beside each other, each with a part of one source, over one ledger in PostgreSQL."""

import os
import random
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.pipelines.conftest import Connector, Ended, count_stored, write_csv
from tests.pipelines.forked import Forked

KILLS = int(os.environ.get("CONNECTOR_TEST_KILLS", "5"))
PARTS = 3
PEOPLE = 1_000 + 300 * KILLS
FAULTS = {"drop_before": 0.01, "drop_after": 0.02, "error_after": 0.01}
JOB = """
job: joint
source: {file: {path: people.csv}}
subscriber: {base: {id: 7}, fields: {email: email, first_name: first_name, is_active: {value: true}}}
load: {quiet_period: 500ms}
"""


def write_job(folder: Path, *more: str) -> None:
    people = [f"person{each}@example.com,Ann {each}" for each in range(PEOPLE)]
    repeated = ["PERSON5@example.com,Ann 5", "person6@example.com,Another"]  # of the first part, in the last one
    write_csv(folder / "people.csv", "email,first_name", *people, *repeated)
    (folder / "job.yaml").write_text("\n".join([JOB, *more]))


def start(connector: Connector, number: int) -> Forked:
    return connector.start("sync", "job.yaml", "--part", f"{number}/{PARTS}", "--wait", "120s", "--output", "json")


def end(process: Forked) -> Ended:
    with process:
        stdout, stderr = process.communicate()
    assert "Traceback" not in stderr, stderr
    return Ended(process.returncode, stdout, stderr)


def sum_rows(ended: list[Ended]) -> Counter[str]:
    return sum((Counter(each.rows) for each in ended), Counter())


def test_parts_send_each_row_once_and_find_repeats_across_parts(shared: Connector, tmp_path: Path) -> None:
    write_job(tmp_path)
    shared.sandbox.switch(latency_ms=5, list_lag_ms=100, **FAULTS)
    ended = [end(each) for each in [start(shared, number) for number in range(1, PARTS + 1)]]
    assert [each.code for each in ended] == [0] * PARTS, [each.stderr for each in ended]
    rows = sum_rows(ended)
    assert rows == Counter(read=PEOPLE + 2, duplicate=2, created=PEOPLE)
    assert count_stored(shared.sandbox) == Counter({f"person{each}@example.com": 1 for each in range(PEOPLE)})
    rejects = [Path(each.report["rejects_file"]).read_text() for each in ended if each.report["rejects_file"]]
    assert sum(text.count("differs") for text in rejects) == 1
    again = [end(each) for each in [start(shared, number) for number in range(1, PARTS + 1)]]
    assert sum_rows(again)["exists"] + sum_rows(again)["changed"] == PEOPLE  # of two that differ, any may be the first


def test_parts_of_a_pattern_are_of_the_same_files(shared: Connector, tmp_path: Path) -> None:
    write_job(tmp_path)
    job = (tmp_path / "job.yaml").read_text()
    (tmp_path / "job.yaml").write_text(job.replace("people.csv", "inbox/*.csv"))
    (tmp_path / "inbox").mkdir()
    for name in "abc":
        (tmp_path / "inbox" / f"{name}.csv").write_text(f"email,first_name\n{name}@example.com,Ann\n")
    for part, created in (("1/2", 2), ("2/2", 1)):  # the second one goes on with the joint run of the first
        ended = shared.run_json("sync", "job.yaml", "--part", part)
        assert (ended.code, ended.rows) == (0, {"read": created, "created": created}), ended.stderr


@pytest.mark.campaign
def test_parts_that_are_killed_are_run_again_and_no_subscriber_is_lost_or_there_twice(
    shared: Connector, tmp_path: Path
) -> None:
    write_job(tmp_path)
    shared.sandbox.switch(latency_ms=20, **FAULTS)
    rng = random.Random(3)
    processes = {number: start(shared, number) for number in range(1, PARTS + 1)}
    for _ in range(KILLS):
        time.sleep(rng.uniform(0.3, 2.0))
        number = rng.choice(list(processes))
        with processes[number] as process:
            process.kill()
            process.communicate()
        processes[number] = start(shared, number)
    ended = [end(each) for each in processes.values()]
    for index, each in enumerate(ended):
        if each.code not in (0, 1):  # it had ended well already when it was killed, and was begun once more
            assert each.code == 4, each.stdout
            assert "has ended well" in each.stdout, index
    assert count_stored(shared.sandbox) == Counter({f"person{each}@example.com": 1 for each in range(PEOPLE)})


def test_what_parts_cannot_do_is_said_before_anything_is_read(shared: Connector, tmp_path: Path) -> None:
    write_job(tmp_path)
    refused = {
        ("--part", "4/3"): "is no part such as 2/3",
        ("--part", "1/3", "--limit", "5"): "--part goes with none of --full, --since, --limit and --dry-run",
    }
    for options, words in refused.items():
        ended = shared.run("sync", "job.yaml", *options)
        assert ended.code == 2
        assert words in ended.stderr
    (tmp_path / "job.yaml").write_text(JOB.replace("{id: 7}", "{name: Newsletter}"))
    ended = shared.run("sync", "job.yaml", "--part", "1/2")
    assert (ended.code, "give the base by its id" in ended.stderr) == (2, True), ended.stderr
    ended = shared.run("sync", "job.yaml", "--part", "1/2", environ={"CONNECTOR_LEDGER": None})
    assert (ended.code, "a ledger in SQLite has one writer" in ended.stderr) == (2, True), ended.stderr
