"""Helpers for tests of jobs whose column `list` names the base of each row."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from connector.fields import normalise_email
from connector.sandbox import SandboxProcess
from tests.pipelines.conftest import Connector


def write_job_with_bases(
    connector: Connector,
    *rows: str,
    base: str = "news: 7, shop: 9, club: 11",
    job_lines: Sequence[str] = (),
    **job_values: str,
) -> Path:
    """Write a job and people.csv with these rows of `email,list`. `base` maps the cells of the column `list` to ids of
    bases. If `base` is "", the cells are ids or names."""
    connector.write_people("email,list", *rows)
    return connector.write_job(
        *job_lines, base=f"column: list, values: {{{base}}}" if base else "column: list", **job_values
    )


def count_creates_by_base_and_email(sandbox: SandboxProcess) -> Counter[tuple[int, str]]:
    """Return how many subscribers the sandbox has created, by base id and email."""
    create_events = [event for event in sandbox.truth()["events"] if event["kind"] == "created"]
    return Counter((event["base_id"], normalise_email(event["subscriber"]["Email"])) for event in create_events)


def write_job_with_files(connector: Connector, *files: tuple[str, ...]) -> Path:
    """Write these files of rows, and a job that reads the files in turn. The rows of each file are one chunk."""
    for index, rows in enumerate(files):
        connector.write_csv(f"part{index}.csv", "email,list", *rows)
    return connector.write_job(base="column: list", source="file: {path: 'part*.csv'}")
