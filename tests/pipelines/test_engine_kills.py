"""A run by the engine whose workers are killed, with every fault, under every stance: no subscriber is lost or there
twice, and the report says what the service has.

`CONNECTOR_TEST_ENGINE_PEOPLE=200000 pytest tests/pipelines/test_engine_kills.py` is the campaign: all stances, one
worker of three killed every ten seconds.
"""

import os
import random
import re
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from connector.sandbox import SandboxProcess
from tests.pipelines.conftest import Connector, Ended, count_stored, wait_for, write_csv
from tests.pipelines.dask_processes import list_workers
from tests.pipelines.leftovers import read_rejects

PEOPLE = int(os.environ.get("CONNECTOR_TEST_ENGINE_PEOPLE", "2900"))
"""Enough for three parts: they take 1,000 rows in turn, so that the first worker that is killed has one under way."""

IS_CAMPAIGN = PEOPLE >= 20_000
JOB = """
job: joint
service: {timeout: 5s}
source: {file: {path: people.csv}}
subscriber: {base: {id: 7}, fields: {email: email, first_name: first_name, is_active: {value: true}}}
load: {quiet_period: 500ms}
"""
"""The list must not lag by more than the quiet period where no sentinel can be had: an idle worker takes a dead one's
part at once."""
FAULTS = {
    **dict.fromkeys(("drop_before", "error_before", "drop_after", "error_after", "cut_answer", "garbage_after"), 0.004),
    **dict.fromkeys(("created_422", "executed_status"), 0.002),
    **dict.fromkeys(("wrong_answer", "hang_after", "refuse"), 0.0002),
    "late_ms": 200,
}
_MOST_COMMANDS = 5
_EARLY_ENDS = ("one after another", "no whole answer within")  # a part is given up, the sandbox has too much to do
STANCES: dict[str, dict[str, object]] = {
    "duplicates are accepted, the list lags": {"duplicates": "accept", "list_lag_ms": 400},
    "a duplicate is a 409, replicas": {
        "duplicates": "reject_409",
        "replica_lags_ms": "0,300",
        "error_shape": "nested",
        "refuse": 0,
        "created_429": 0.0002,  # not beside others that created nothing: the first of a kind decides (architecture 4.8)
    },
    "a duplicate is a 200, filters are ignored": {
        "duplicates": "reject_200",
        "filters": "ignored",
        "order": "id_desc",
        "error_status": 200,
        "absent_fields": "null",
    },
    "duplicates are overwritten, ordered by email": {
        "duplicates": "upsert",
        "order": "email",
        "max_limit": 500,
        "past_end": "404",
        "numbers_as_text": "counts,ids",
    },
    "a duplicate is a 400, filters are partial": {
        "duplicates": "reject_400",
        "filters": "partial",
        "combine": "any",
        "past_end": "null",
        "align_offset": True,
        "error_shape": "html",
        "created_status": 201,
    },
    "no order, filters are blind": {
        "order": "shuffled",
        "blind_filters": "plus,non_ascii",
        "filters": "icase",
        "past_end": "repeat",
        "absent_fields": "empty",
        "cut_by": "reset",
    },
    "what is stored is altered, the list has a window": {
        "alter_fields": "FirstName",
        "result_window": 10_000,
        "id_step": 7,
        "retry_after": "date",
        "error_shape": "empty",
    },
}


@pytest.mark.parametrize("stance", STANCES if IS_CAMPAIGN else [next(iter(STANCES))])
def test_workers_that_are_killed_lose_no_subscriber_and_make_none_twice(
    shared: Connector, tmp_path: Path, stance: str
) -> None:
    write_csv(
        tmp_path / "people.csv",
        "email,first_name",
        *(f"person{each}@example.com,Ann {each}" for each in range(PEOPLE)),
        "PERSON5@example.com,Ann 5",  # of the first part, in the last one
    )
    (tmp_path / "job.yaml").write_text(JOB)
    shared.sandbox.switch(latency_ms=5, seed=len(stance), **(FAULTS | STANCES[stance]))
    rng, kills, died, commands = random.Random(5), 0, 0, 0
    while True:  # it may end early where workers live shorter than a listing of 200,000 takes: then run it again
        ended, killed = run_and_kill(shared, rng)
        kills, commands = kills + killed, commands + 1
        assert "Traceback" not in ended.stderr, ended.stderr
        said = re.search(r"(\d+) workers? died and", ended.stderr)
        died += int(said[1]) if said else 0  # an idle one takes no part along, and is not counted
        stored = count_stored(shared.sandbox)
        twice = {each: read_story(shared.sandbox, each) for each, number in stored.items() if number > 1}
        print(f"STANCE {stance}: {killed} kills, exit {ended.code}, {ended.rows}, {len(stored)} stored, twice {twice}")
        assert twice == {}
        if commands == _MOST_COMMANDS or not any(words in ended.stderr for words in _EARLY_ENDS):
            break
        assert (ended.code, ended.rows.get("created", 0) <= len(stored)) == (3, True)

    rejects = {row["email"]: row["_outcome"] for row in read_rejects(ended)} if ended.report["rejects_file"] else {}
    open_rows = Counter(rejects.values())
    assert {f"person{each}@example.com" for each in range(PEOPLE)} - set(stored) <= set(rejects), ended.stderr
    assert not {each for each, outcome in rejects.items() if outcome == "rejected" and each in stored}
    known = {each for each in stored if each not in rejects}
    # of several commands only the last one is counted: what was unknown to the others may be its "exists"
    created = len(known) if commands == 1 else ended.rows.get("created", 0)
    rows = {"read": PEOPLE + 1, "duplicate": 1, "created": created, "exists": len(known) - created, **open_rows}
    told = {outcome: number for outcome, number in rows.items() if number}
    assert (ended.code, ended.rows) == (1 if rejects else 0, told), ended.stderr
    assert 0 < died <= kills


def run_and_kill(shared: Connector, rng: random.Random) -> tuple[Ended, int]:
    """Run the command, and kill one of its workers again and again; how it ended, and how many were killed."""
    killed, begun = 0, shared.sandbox.stats()["subscribers"]
    command = ("sync", "job.yaml", "--engine", "dask", "--workers", "3", "--output", "json")
    with shared.start(*command) as process:
        wait_for(lambda: process.poll() is not None or begun or shared.sandbox.stats()["subscribers"] >= 300)
        while process.poll() is None:
            if workers := list_workers(process.pid):
                os.kill(rng.choice(workers), signal.SIGKILL)
                killed += 1
            until = time.monotonic() + (10.0 if IS_CAMPAIGN else 3.0)
            while process.poll() is None and time.monotonic() < until:
                time.sleep(0.1)
        stdout, stderr = process.communicate()
    return Ended(process.returncode, stdout, stderr), killed


def read_story(sandbox: SandboxProcess, address: str) -> list[tuple[object, ...]]:
    """When it was stored, and how that was answered."""
    events = [each for each in sandbox.truth()["events"] if each.get("email") == address]
    return [(each["at"], each["kind"], each.get("answered")) for each in events]
