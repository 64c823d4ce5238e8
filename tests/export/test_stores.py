"""Exports to a store: the rows of a local file, whole at any moment, and owned by the connector."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from connector.errors import ConfigurationError, RunAborted
from connector.paging.certificate import Verdict
from connector.warehouse import files
from connector.warehouse.destination import Destination, parse_destination
from connector.warehouse.opening import open_writer
from tests.export.nursery import Export, open_nursery
from tests.export.people import BARE, FULL, beginning_of, run_of
from tests.export.test_killed import KILLS
from tests.export.test_modes import Person, person, publish
from tests.stores import Bucket, set_environ

NAMES = ("people.parquet", "people.csv.gz", "people.csv", "people.jsonl")
MIXED: list[Person] = [FULL, BARE, person(5, "Eve", Base={"Id": 9, "Name": "Shop"}), person(6, "No base")]
STEP = 1 if KILLS >= 50 else 5
"""The distance of the steps at which an export is killed."""


@pytest.fixture
def s3(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    set_environ(monkeypatch, bucket.environ)
    return bucket


@pytest.fixture(scope="module")
def nursery() -> Iterator[Export]:
    with open_nursery() as run:
        yield run


@pytest.mark.parametrize("name", NAMES)
def test_an_object_is_byte_for_byte_the_file_on_a_disk(s3: Bucket, tmp_path: Path, name: str) -> None:
    for number in (1, 2):  # the second takes the place of the first
        publish(parse_destination(str(tmp_path / name)), MIXED[number:], number)
        publish(parse_destination(s3.url(f"deep/{name}")), MIXED[number:], number)
        assert s3.read() == {f"deep/{name}": (tmp_path / name).read_bytes()}
        publish(parse_destination(f"memory://trial/{name}"), MIXED[number:], number)
        assert fsspec.filesystem("memory").cat_file(f"trial/{name}") == (tmp_path / name).read_bytes()
    assert s3.list_uploads() == []


def test_targets_of_other_programs_and_complete_exports_are_left_unchanged(s3: Bucket) -> None:
    s3.put("own.parquet", "mine")
    target = parse_destination(s3.url("own.parquet"))
    with pytest.raises(ConfigurationError, match="and was left as it"):
        publish(target, MIXED, 1)
    assert s3.read() == {"own.parquet": b"mine"}
    s3.put("own.parquet", "")
    publish(target, MIXED, 1)
    writer = open_writer(target)
    writer.prepare(beginning_of(run_of(1)))
    assert writer.has_target
    assert writer.count_last({}) == len(MIXED)
    assert writer.count_last({"base_id": 7}) is None, "the last one was not filtered so"
    writer.discard()
    with pytest.raises(RunAborted, match="made by another program"):
        publish(target, MIXED[:1], 2, verdict=Verdict.INCOMPLETE)
    assert writer_count(target) == len(MIXED)


def writer_count(target: Destination) -> int | None:
    writer = open_writer(target)
    writer.prepare(beginning_of(run_of(1)))
    try:
        return writer.count_last({})
    finally:
        writer.discard()


def test_a_missing_or_forbidden_bucket_is_refused_before_the_list_is_read(
    s3: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    for url in (s3.url("a.csv"), s3.url("b/c.parquet")):
        writer = open_writer(parse_destination(url))
        writer.prepare(beginning_of(run_of(1)))
        writer.discard()
    assert s3.read() == {}
    assert s3.list_uploads() == []
    with pytest.raises(ConfigurationError, match="cannot be written: there is no bucket no-such-bucket"):
        open_writer(parse_destination("s3://no-such-bucket/a.csv")).prepare(beginning_of(run_of(1)))


def test_a_url_that_cannot_be_written_is_refused_without_its_password() -> None:
    cases: list[tuple[str, dict[str, Any], str]] = [
        ("s3://bucket/a.csv", {"group_readable": True}, "decide who may read"),
        ("s3://bucket/a.txt", {}, "Cannot write to a file ending in '.txt'"),
        ("s3://k:pass-word@bucket/a.csv", {}, "may hold no credentials"),
        ("s3://bucket/a.csv", {"mode": "upsert"}, "can only be replaced"),
        ("people.csv", {"file_format": "jsonl"}, "is written as csv"),
        ("sqlite:///w.db", {"file_format": "csv"}, "is for files"),
        ("sqlite:///w.db", {"group_readable": True}, "is a database, whose own settings decide who may read"),
        ("snowflake://u:pass-word@a/b", {}, "Snowflake is not written directly.*docs/how-to/warehouses.md"),
        ("bigquery://project", {}, "BigQuery"),
        ("redshift+psycopg2://u:pass-word@h/d", {}, "Redshift"),
        ("mssql+pyodbc://u:pass-word@h/d", {}, "SQL Server"),
        ("databricks://token:pass-word@h", {}, "Databricks"),
    ]
    for to, options, words in cases:
        with pytest.raises(ConfigurationError, match=words) as caught:
            parse_destination(to, **options)
        assert "pass-word" not in str(caught.value)


def test_a_stop_during_the_put_of_an_object_cannot_say_that_nothing_was_written(
    s3: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, seen = open_writer(parse_destination(s3.url("a.csv"))), list[bool]()
    writer.prepare(beginning_of(run_of(0)))
    monkeypatch.setattr(files, "put_file", lambda *_, **__: seen.append(writer.is_committing))
    seen.append(writer.is_committing)
    writer.publish(run_of(0))

    assert seen == [False, True]


BEFORE: list[list[Any]] = [[1, "Ann", 7], [2, "Ann", 7], [3, "Ann", 9]]
AFTER: list[list[Any]] = [[2, "Bo", 9], [3, "Bo", 9], [4, "Bo", 11]]


def look(table: pa.Table) -> list[list[Any]]:
    return [[row["id"], row["first_name"], row["base_id"]] for row in table.sort_by("id").to_pylist()]


def test_an_object_of_a_killed_export_is_as_before_or_as_after(s3: Bucket, nursery: Export, tmp_path: Path) -> None:
    def read() -> list[list[Any]]:
        shutil.rmtree(tmp_path / "bucket", ignore_errors=True)
        return look(pq.ParquetFile(s3.download(tmp_path / "bucket") / "people.parquet").read())

    task = {"url": s3.url("people.parquet"), "options": {}, "environ": s3.environ}
    assert not nursery(**task, people=BEFORE, number=1)
    seen, number, step, is_killed = [read()], 1, 0, True
    assert seen == [BEFORE]
    for step in range(1, 100, STEP):
        number += 1
        is_killed = nursery(**task, people=AFTER, number=number, step=step)
        seen.append(read())
        assert seen[-1] in (BEFORE, AFTER), step
        if not is_killed:
            break
        if seen[-1] == AFTER:
            number += 1
            assert not nursery(**task, people=BEFORE, number=number)
    assert not is_killed, "the last export was not killed"
    assert step > 3 * STEP, "the kills came at steps"
    assert {str(content) for content in seen} == {str(BEFORE), str(AFTER)}
    assert read() == AFTER
