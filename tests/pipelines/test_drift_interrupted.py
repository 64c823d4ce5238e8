"""What a run knows of fields outlives its death, and what it cannot look up at its end costs nobody their outcome."""

import random
import signal
import time
from collections import Counter
from functools import partial

from tests.pipelines.conftest import Connector, Ended, count_stored, has_stored, wait_for, write_csv
from tests.pipelines.test_drift import JOB, read_drift, read_fields, sync
from tests.pipelines.test_sync_command import write_job


def write_people(connector: Connector, name: str, number: int) -> None:
    lines = (f"p{each}@x.org,{name} {each},," for each in range(number))
    write_csv(connector.folder / "people.csv", "email,name,segments,zip", *lines)


def count_received(connector: Connector, operation: str) -> int:
    received: int = connector.sandbox.stats()["requests"].get(operation, {}).get("received", 0)
    return received


def test_whoever_was_sent_by_runs_that_were_killed_is_told_with_the_field_that_changed(connector: Connector) -> None:
    sandbox, chance, people = connector.sandbox, random.Random(7), 150
    write_people(connector, "Ann", people)
    job = write_job(connector.folder, JOB.replace("load: {", "load: {max_concurrency: 4, "))
    sandbox.switch(latency_ms=30, drop_before=0.02, drop_after=0.02, error_after=0.02)
    for killed in range(3):
        until = 1 + killed * 40 + chance.randrange(20)
        with connector.start("sync", job) as process:
            wait_for(partial(has_stored, sandbox, until))
            process.kill()
    sandbox.switch(latency_ms=0, drop_before=0, drop_after=0, error_after=0)
    assert connector.run_json("sync", job).code == 0
    assert Counter(count_stored(sandbox).values()) == {1: people}
    write_people(connector, "Anna", people)
    changed = connector.run_json("sync", job)
    assert changed.rows == {"read": people, "changed": people}
    lines = read_fields(changed)
    assert {(identity, field, source) for identity, field, _, source in lines} == {
        (f"p{each}@x.org", "first_name", f"Anna {each}") for each in range(people)
    }
    assert len(lines) == people
    assert all(service == f"Ann {identity[1:-6]}" for identity, _, service, _ in lines)


def test_somebody_in_doubt_who_turns_out_to_be_there_otherwise_is_told_as_changed(connector: Connector) -> None:
    sandbox = connector.sandbox
    write_csv(connector.folder / "people.csv", "email,name,segments,zip", "ann@x.org,Ann,,", "bob@x.org,Bob,,")
    job = write_job(connector.folder, JOB)
    sandbox.switch(hang_after=1)
    with connector.start("sync", job) as process:
        wait_for(lambda: sandbox.stats()["subscribers"] >= 1)
        process.send_signal(signal.SIGINT)
        time.sleep(0.2)  # two signals at once would be one to the process
        process.send_signal(signal.SIGINT)
    sandbox.switch(hang_after=0)
    later = sync(connector, "ann@x.org,Anna,,", "bob@x.org,Bob,,")
    assert later.rows == {"read": 2, "changed": 1, "created": 1}
    assert read_fields(later) == [("ann@x.org", "first_name", "Ann", "Anna")]
    assert read_drift(later)[0]["_row"] == "1"


def test_a_look_up_that_fails_at_the_end_is_a_message_and_no_failure_of_the_run(connector: Connector) -> None:
    sandbox = connector.sandbox
    sync(connector, "ann@x.org,Ann,,")
    write_csv(connector.folder / "people.csv", "email,name,segments,zip", "ann@x.org,Anna,,")
    before = count_received(connector, "list")
    sandbox.switch(latency_ms=2000)
    arguments = ("sync", write_job(connector.folder, JOB), "--output", "json")
    with connector.start(*arguments) as process:
        wait_for(lambda: count_received(connector, "list") > before)  # the account is being looked at, and let in
        sandbox.switch(latency_ms=0, authorization="no longer {token}")
        stdout, stderr = process.communicate()
    ended = Ended(process.returncode, stdout, stderr)
    assert (ended.code, ended.rows) == (0, {"read": 1, "changed": 1}), stderr
    assert [(each["field"], each["_code"]) for each in read_drift(ended)] == [("", "not_compared")]
    assert any("the list could not be read" in each for each in ended.report["messages"])
    assert sandbox.stats()["requests"]["list"]["answers"].get("401", 0) >= 1


def test_a_zip_that_was_left_out_is_told_once_however_its_create_was_answered(connector: Connector) -> None:
    connector.sandbox.switch(error_after=0.3, drop_before=0.1)
    people = [f"p{each}@x.org,Ann,,SW{each}" for each in range(40)]
    created = sync(connector, *people)
    assert created.rows == {"read": 40, "created": 40}
    assert created.report["settled"]["found"] > 0
    assert read_fields(created) == sorted((f"p{each}@x.org", "address_zip", "", f"SW{each}") for each in range(40))
