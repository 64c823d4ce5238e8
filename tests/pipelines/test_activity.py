"""Who is created active: the service's default is inactive for good, so something has to say it (architecture 2)."""

from pathlib import Path

import pytest

from tests.pipelines.conftest import Connector, write_csv
from tests.pipelines.leftovers import read_rejects

JOB = """
job: news
source: {{file: {{path: people.csv}}}}
subscriber: {{base: {{name: News}}, fields: {{email: email{active}}}}}
load: {{quiet_period: 200ms}}
"""


def write_job(folder: Path, active: str = "") -> Path:
    job = folder / "job.yaml"
    job.write_text(JOB.format(active=active), encoding="utf-8")
    return job


def test_a_load_in_which_nothing_says_is_active_is_refused(connector: Connector, tmp_path: Path) -> None:
    write_csv(tmp_path / "people.csv", "email,active", "a@x.org,yes")
    ended = connector.run("sync", write_job(tmp_path))
    assert (ended.code, connector.sandbox.stats()["subscribers"]) == (2, 0)
    assert "--active or --inactive (in a job: is_active: {value: true}; in Python: active=True)" in ended.stderr


@pytest.mark.parametrize("command", ["plan", "validate"])
def test_what_only_looks_warns_of_it(connector: Connector, tmp_path: Path, command: str) -> None:
    path = write_csv(tmp_path / "people.csv", "email", "a@x.org")
    options = ("--base-name", "News") if command == "plan" else ()
    ended = connector.run_json(command, path, *options)
    assert ended.code == 0, ended.stderr
    assert any(
        "an import of these rows is refused: nothing says is_active" in each for each in ended.report["messages"]
    )


@pytest.mark.parametrize(
    ("rule", "rows"),
    [
        ("active", {"read": 2, "invalid": 1, "created": 1}),
        ('{column: active, default: "no"}', {"read": 2, "created": 2}),
    ],
)
def test_an_empty_cell_says_nothing_unless_the_mapping_has_a_default(
    connector: Connector, tmp_path: Path, rule: str, rows: dict[str, int]
) -> None:
    write_csv(tmp_path / "people.csv", "email,active", "a@x.org,yes", "b@x.org,")
    ended = connector.run_json("sync", write_job(tmp_path, f", is_active: {rule}"))
    assert ended.rows == rows, ended.stderr
    told = [(row["_outcome"], row["_field"], row["_code"]) for row in read_rejects(ended)] if ended.code else []
    assert told == ([("invalid", "is_active", "required")] if "invalid" in rows else [])
