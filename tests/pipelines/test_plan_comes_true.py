"""What a plan says is what the sync after it does, when nobody interferes: for seeded messy sources."""

import os
import random
from pathlib import Path

import pytest

from tests.pipelines.conftest import Connector, count_stored, write_csv
from tests.pipelines.leftovers import read_rejects
from tests.pipelines.planned import JOB, plan, read_rows, write_job

SEEDS = int(os.environ.get("CONNECTOR_TEST_SEEDS", "150")) // 75
SUPPRESS = "suppress: {file: {path: gone.csv, column: address}}"


def write_mess(path: Path, chance: random.Random, number: int) -> None:
    """People whom earlier rows know by now and new ones, some of them changed, twice, in other capitals, or none."""
    lines = []
    for _ in range(number):
        person = chance.randrange(number)
        email = f"p{person}@x.org"
        email = chance.choice([email, email, email, email.upper(), f" {email} ", "nobody", "", "p@bücher.example"])
        lines.append(f"{email},{chance.choice(['Ann', 'Ann', 'Ann', 'Bob'])}{chance.choice(['', '', '', ',ragged'])}")
    write_csv(path, "email,name", *lines)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_each_row_ends_as_it_was_planned(connector: Connector, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    sandbox, job = connector.sandbox, write_job(tmp_path, SUPPRESS, text=JOB)
    elsewhere = {"CONNECTOR_STATE_DIR": str(tmp_path / "another")}
    write_csv(tmp_path / "gone.csv", "address", *(f"p{chance.randrange(60)}@x.org" for _ in range(5)))
    write_mess(tmp_path / "people.csv", chance, 30)
    connector.run_json("sync", job, environ=elsewhere)
    for night in range(2):
        write_mess(tmp_path / "people.csv", chance, 60)
        before = count_stored(sandbox)
        planned = plan(connector, job, "--rows", tmp_path / f"rows{night}.csv")
        synced = connector.run_json("sync", job)
        assert (planned.code, planned.rows) == (synced.code, synced.rows)
        rows = read_rows(tmp_path / f"rows{night}.csv")
        told = {outcome: {row["_row"] for row in rows if row["_outcome"] == outcome} for outcome in planned.rows}
        assert {outcome: len(numbers) for outcome, numbers in told.items() if numbers} == {
            outcome: number for outcome, number in planned.rows.items() if outcome != "read"
        }
        assert told["invalid"] == {row["_row"] for row in read_rejects(synced) if row["_outcome"] == "invalid"}
        created = {row["identity"] for row in rows if row["_outcome"] == "created"}
        assert created == set(count_stored(sandbox) - before)
    assert set(count_stored(sandbox).values()) == {1}
