"""Helpers for tests of shards: a job with many people, commands that run together, and the people in the sandbox."""

import os
from collections import Counter

from tests.pipelines.conftest import CommandResult, Connector, wait_for_result
from tests.pipelines.forked import ForkedProcess

PEOPLE_COUNT = 600
KILL_TEST_PEOPLE_COUNT = int(os.environ.get("CONNECTOR_TEST_ENGINE_PEOPLE", "1500"))
"""The number of people in the tests that kill a process."""

IS_LONG_RUN = KILL_TEST_PEOPLE_COUNT >= 20_000
FAULTS = {"drop_before": 0.01, "drop_after": 0.02, "error_after": 0.01}
ENGINE_FAULTS = {
    **dict.fromkeys(("drop_before", "error_before", "drop_after", "error_after", "cut_answer", "garbage_after"), 0.004),
    **dict.fromkeys(("created_422", "executed_status"), 0.002),
    **dict.fromkeys(("wrong_answer", "hang_after", "refuse"), 0.0002),
    "late_ms": 200,
    "list_lag_ms": 400,
    "duplicates": "accept",
}
UNUSED_ROWS = ("PERSON5@example.com,Ann 5", "person6@example.com,Another", "no address,Ann", ",Ann", "a@x.org,Ann,more")
"""Rows without a create: two rows repeat an identity, two rows are invalid, and one row has too many cells."""
UNUSED_ROW_COUNTS = {"duplicate": 2, "invalid": 3}


def write_job(connector: Connector, *job_lines: str, **job_values: str) -> None:
    fields = "email: email, first_name: first_name, is_active: {value: true}"
    load = f"quiet_period: 500ms, {job_values.pop('load', '')}"
    connector.write_job(
        "service: {timeout: 5s}", *job_lines, **{"base": "id: 7", "fields": fields, "load": load, **job_values}
    )


def write_files(connector: Connector, *job_lines: str, person_count: int = PEOPLE_COUNT, **job_values: str) -> None:
    """Write a job and people.csv. The file contains valid people and `UNUSED_ROWS`."""
    write_job(connector, *job_lines, **job_values)
    people = [f"person{index}@example.com,Ann {index}" for index in range(person_count)]
    connector.write_people("email,first_name", *people, *UNUSED_ROWS)


def start_shard(connector: Connector, index: int, shard_count: int, *options: str) -> ForkedProcess:
    """Start the sync of one shard."""
    return connector.start("sync", "job.yaml", "--shard", f"{index}/{shard_count}", "--output", "json", *options)


def finish_process(process: ForkedProcess) -> CommandResult:
    """Wait for the end of a process, and return the result of its command."""
    with process:
        return wait_for_result(process)


def sync_shards(connector: Connector, shard_count: int, *options: str) -> list[CommandResult]:
    """Sync all shards at the same time, each in its own process."""
    return [
        finish_process(process)
        for process in [start_shard(connector, index, shard_count, *options) for index in range(1, shard_count + 1)]
    ]


def sum_rows(results: list[CommandResult]) -> dict[str, int]:
    """Return the sums of the row counts of several reports."""
    return dict(sum((Counter(result.rows) for result in results), Counter()))


def build_counts_of_one_create_each(person_count: int = PEOPLE_COUNT) -> Counter[str]:
    """Return the number of creates of each address if each person is created exactly once."""
    return Counter({f"person{index}@example.com": 1 for index in range(person_count)})


def has_each_person_once(connector: Connector, person_count: int = PEOPLE_COUNT) -> bool:
    """Return whether the sandbox has each of the people exactly once."""
    return connector.count_creates_by_email() == build_counts_of_one_create_each(person_count)
