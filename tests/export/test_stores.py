"""Exports to an object store. An object has the same bytes as a local file, is never incomplete, and never replaces an
object of another program."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from connector.errors import ConfigurationError, RunAborted
from connector.paging.certificate import CertificateVerdict
from connector.warehouse import files
from connector.warehouse.destination import parse_destination
from connector.warehouse.opening import open_writer
from tests.export.forked_exports import RunExport, open_killable_exports
from tests.export.people import BARE_SUBSCRIBER, FULL_SUBSCRIBER, build_run, build_start
from tests.export.test_killed import KILL_COUNT
from tests.export.test_modes import Person, build_person, publish_people
from tests.export.test_ownership import prepare_export
from tests.export.test_writers import read_last_row_count
from tests.stores import Bucket, set_environ

FILE_NAMES = ("people.parquet", "people.csv.gz")
PEOPLE: list[Person] = [
    FULL_SUBSCRIBER,
    BARE_SUBSCRIBER,
    build_person(5, "Eve", Base={"Id": 9, "Name": "Shop"}),
    build_person(6, "No base"),
]
KILL_INTERVAL = 1 if KILL_COUNT >= 50 else 5
"""Exports are killed at the kill points 1, 6, 11 and so on. With a KILL_COUNT of 50 or more, the interval is 1."""


@pytest.fixture
def s3_bucket(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    set_environ(monkeypatch, bucket.environ)
    return bucket


@pytest.fixture(scope="module")
def kill_export() -> Iterator[RunExport]:
    with open_killable_exports() as run:
        yield run


@pytest.mark.parametrize("name", FILE_NAMES)
def test_an_object_has_the_same_bytes_as_a_local_file(s3_bucket: Bucket, tmp_path: Path, name: str) -> None:
    for export_number in (1, 2):  # the second export replaces the first
        publish_people(parse_destination(str(tmp_path / name)), PEOPLE[export_number:], export_number)
        publish_people(parse_destination(s3_bucket.url(f"deep/{name}")), PEOPLE[export_number:], export_number)
        assert s3_bucket.read() == {f"deep/{name}": (tmp_path / name).read_bytes()}
        publish_people(parse_destination(f"memory://trial/{name}"), PEOPLE[export_number:], export_number)
        assert fsspec.filesystem("memory").cat_file(f"trial/{name}") == (tmp_path / name).read_bytes()
    assert s3_bucket.list_uploads() == []


def test_an_export_that_may_not_replace_an_object_leaves_the_object_unchanged(s3_bucket: Bucket) -> None:
    s3_bucket.put("own.parquet", "mine")
    target = parse_destination(s3_bucket.url("own.parquet"))
    with pytest.raises(ConfigurationError, match="and was not changed"):
        publish_people(target, PEOPLE, 1)
    assert s3_bucket.read() == {"own.parquet": b"mine"}
    s3_bucket.put("own.parquet", "")
    publish_people(target, PEOPLE, 1)
    assert read_last_row_count(target) == len(PEOPLE)
    assert read_last_row_count(target, {"base_id": 7}) is None, "the last export had other filters"
    with pytest.raises(RunAborted, match="Another program has created"):
        publish_people(target, PEOPLE[:1], 2, verdict=CertificateVerdict.INCOMPLETE)
    assert read_last_row_count(target) == len(PEOPLE)


def test_a_missing_or_forbidden_bucket_is_refused_before_the_list_is_read(s3_bucket: Bucket) -> None:
    for url in (s3_bucket.url("a.csv"), s3_bucket.url("b/c.parquet")):
        prepare_export(parse_destination(url))
    assert s3_bucket.read() == {}
    assert s3_bucket.list_uploads() == []
    with pytest.raises(ConfigurationError, match="cannot be written: there is no bucket no-such-bucket"):
        prepare_export(parse_destination("s3://no-such-bucket/a.csv"))


def test_a_store_that_cannot_be_reached_ends_the_run_before_the_list_is_read(
    s3_bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_environ(monkeypatch, s3_bucket.environ | {"AWS_ENDPOINT_URL": "http://127.0.0.1:1", "AWS_MAX_ATTEMPTS": "1"})
    fsspec.filesystem("s3").clear_instance_cache()
    with pytest.raises(RunAborted, match=r"cannot be reached: Could not connect to the endpoint .* Run again"):
        prepare_export(parse_destination(s3_bucket.url("a.csv")))
    fsspec.filesystem("s3").clear_instance_cache()


def test_a_writer_counts_as_committing_while_its_object_is_uploaded(
    s3_bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, committing_flags = open_writer(parse_destination(s3_bucket.url("a.csv"))), list[bool]()
    writer.prepare(build_start(build_run(0)))
    monkeypatch.setattr(files, "put_file", lambda *_, **__: committing_flags.append(writer.is_committing))
    committing_flags.append(writer.is_committing)
    writer.publish(build_run(0))
    assert committing_flags == [False, True]


OLD_PEOPLE: list[list[Any]] = [[1, "Ann", 7], [2, "Ann", 7], [3, "Ann", 9]]
NEW_PEOPLE: list[list[Any]] = [[2, "Bo", 9], [3, "Bo", 9], [4, "Bo", 11]]


def read_values_of_rows(table: pa.Table) -> list[list[Any]]:
    return [[row["id"], row["first_name"], row["base_id"]] for row in table.sort_by("id").to_pylist()]


def test_a_killed_export_leaves_the_old_object_or_the_new_object(
    s3_bucket: Bucket, kill_export: RunExport, tmp_path: Path
) -> None:
    def read_object() -> list[list[Any]]:
        shutil.rmtree(tmp_path / "bucket", ignore_errors=True)
        return read_values_of_rows(pq.ParquetFile(s3_bucket.download(tmp_path / "bucket") / "people.parquet").read())

    task = {"url": s3_bucket.url("people.parquet"), "options": {}, "environ": s3_bucket.environ}
    assert not kill_export(**task, people=OLD_PEOPLE, run_number=1)
    rows_after_exports, export_number, step_number, is_killed = [read_object()], 1, 0, True
    assert rows_after_exports == [OLD_PEOPLE]
    for step_number in range(1, 100, KILL_INTERVAL):
        export_number += 1
        is_killed = kill_export(**task, people=NEW_PEOPLE, run_number=export_number, step_number=step_number)
        rows_after_exports.append(read_object())
        assert rows_after_exports[-1] in (OLD_PEOPLE, NEW_PEOPLE), step_number
        if not is_killed:
            break
        if rows_after_exports[-1] == NEW_PEOPLE:
            export_number += 1
            assert not kill_export(**task, people=OLD_PEOPLE, run_number=export_number)
    assert not is_killed, "the last export was not killed"
    assert step_number > 3 * KILL_INTERVAL, "no export was killed"
    assert {str(rows) for rows in rows_after_exports} == {str(OLD_PEOPLE), str(NEW_PEOPLE)}
    assert read_object() == NEW_PEOPLE
