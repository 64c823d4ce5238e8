"""DuckDB in little memory: what is laid beside each other in parts comes out the same, and what needs more gets it."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest

from connector.errors import RunAborted
from connector.export import Destination, parse_destination
from connector.export.writers import duckdb_place, duckdb_publishing
from connector.export.writers.duckdb_place import DUCKDB, DuckdbPlace, DuckdbSession
from tests.export.test_modes import Person, person, publish
from tests.export.warehouses import run_sql

_TABLES = ("subscribers", "labels")


def draw_lists() -> list[list[Person]]:
    """What the service lists on four days, with ids of every kind."""
    drawn = random.Random(7)
    ids = [*range(-7, 8), 2**62, -(2**63) + 1, 2**63 - 1]
    return [
        [person(each, drawn.choice("abc"), Tags=drawn.sample("xyz", 2)) for each in ids if drawn.random() < 0.7]
        for _ in range(4)
    ]


def export_all(table: Destination, lists: list[list[Person]]) -> list[Any]:
    changes = [publish(table, people, number) for number, people in enumerate(lists)]
    rows = [sorted(run_sql(table, f"select columns(*)::varchar from {name}"), key=str) for name in _TABLES]
    return [changes, *rows]


@pytest.mark.parametrize("mode", ["upsert", "history"])
def test_in_parts_comes_out_what_comes_out_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    came = []
    for most in (None, 1, 5):
        monkeypatch.setattr(DuckdbPlace, "dialect", replace(DUCKDB, most_joined=most))
        table = parse_destination(f"duckdb:///{tmp_path}/{most}.duckdb", mode=mode, tags_table="labels")
        came.append(export_all(table, draw_lists()))

    assert came[1] == came[0]
    assert came[2] == came[0]


@pytest.mark.parametrize("mode", ["upsert", "history"])
def test_who_needs_more_memory_gets_it_and_has_written_everything_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    table = parse_destination(f"duckdb:///{tmp_path}/w.duckdb", mode=mode, tags_table="labels")
    monkeypatch.setattr(duckdb_publishing, "MORE_MEMORY_MB", (21, 320))
    monkeypatch.setattr(duckdb_place.DuckdbPlace.__init__, "__defaults__", (20,))
    monkeypatch.setattr(DuckdbPlace, "dialect", replace(DUCKDB, most_joined=None))
    allowed: list[int] = []
    monkeypatch.setattr(DuckdbPlace, "allow", _noting(allowed, DuckdbPlace.allow))
    rows = 60_000
    publish(table, [person(number, f"Ann {number}" * 9) for number in range(rows)], 1)
    publish(table, [person(number, f"Bo {number}" * 9) for number in range(1, rows + 1)], 2)

    assert 21 in allowed, "it ran out of memory"  # twice, as a rule: how much two threads need is not always the same
    is_current = "is_current" if mode == "history" else "deleted_at is null"
    found = run_sql(table, f"select count(*), count(distinct id), min(id) from subscribers where {is_current}")
    assert found == [(rows, rows, 1)]
    assert run_sql(
        table, "select rows_inserted, rows_updated, rows_closed from _connector_runs order by started_at"
    ) == [
        (rows, 0, 0),
        (rows, 0, rows) if mode == "history" else (1, rows - 1, 1),
    ]


def test_who_needs_more_than_there_is_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with duckdb.connect(str(tmp_path / "w.duckdb")) as made:
        made.execute("create table kept as select 1 as a")
    monkeypatch.setattr(duckdb_place.DuckdbPlace.__init__, "__defaults__", (5,))
    monkeypatch.setattr(duckdb_publishing, "MORE_MEMORY_MB", (6, 7))
    table = parse_destination(f"duckdb:///{tmp_path}/w.duckdb")
    with pytest.raises(RunAborted, match="Out of Memory"):
        publish(table, [person(number, f"Ann {number}" * 9) for number in range(60_000)], 1)
    assert run_sql(table, "select * from kept") == [(1,)]


def test_a_commit_that_ran_out_of_memory_is_done_again_unless_it_was_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = DuckdbSession.commit
    for number, is_done in ((1, False), (2, True)):
        table = parse_destination(f"duckdb:///{tmp_path}/w.duckdb", mode="append")
        failures = iter([duckdb.OutOfMemoryException("Out of Memory Error")])

        def fail(session: DuckdbSession, is_done: bool = is_done, failures: Any = failures) -> None:
            failure = next(failures, None)
            if failure is None or is_done:
                commit(session)
            if failure is not None:
                raise failure

        monkeypatch.setattr(DuckdbSession, "commit", fail)
        assert publish(table, [person(number)], number).inserted == 1
        assert next(failures, None) is None
        monkeypatch.setattr(DuckdbSession, "commit", commit)
        assert run_sql(table, "select count(*) from subscribers") == [(number,)]


def _noting(allowed: list[int], allow: Any) -> Any:
    def note(place: DuckdbPlace, memory_mb: int) -> DuckdbPlace:
        allowed.append(memory_mb)
        more: DuckdbPlace = allow(place, memory_mb)
        return more

    return note
