"""Exports from the sandbox: rows, types, certificates and guards. A failed export does not change its target."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
import sqlalchemy as sa

from connector import read_subscribers
from connector.choices import EXPORT_FORMATS
from connector.control import Stop
from connector.library.lists import build_frame
from connector.paging.certificate import CertificateReason
from connector.progress import Progress
from connector.runs.report import Report
from connector.sandbox import SandboxProcess
from connector.service.wire import ListQuery
from connector.warehouse.destination import Destination, Format, parse_destination
from tests.export.exports import create_people, run_export_of_list
from tests.export.readers import read_exported_table
from tests.export.warehouses import connect, open_destination

PEOPLE: list[dict[str, object]] = [
    {
        "base_id": 7, "is_active": True, "email": "zoë@bücher.example", "first_name": 'Zoë "Zo"',
        "last_name": "O'Neil\nvan Dam", "gender": "female", "phone": "+31 20 123", "tags": ["a,b", 'say "hi"', "日本"],
        "client_user_id": "007", "custom_field1": "null", "custom_field2": "", "custom_field3": " spaced ",
        "address_country": "NL", "address_city": "Ἀθῆναι", "address_state": "NH", "address_zip": 2134,
        "address_line1": "שדרות רוטשילד", "address_line2": "a\r\nb", "address_line3": "x", "birthday": "1904-02-29",
    },
    {"base_id": 7, "email": "bare@example.com"},
    {"base_name": "Shop, online", "is_active": False, "email": "bo@example.com", "tags": [], "gender": "male"},
]  # fmt: skip
RUN_COLUMNS = ["_run_id", "_exported_at"]


@pytest.fixture(params=[Format.CSV, Format.POSTGRESQL])
def file_or_table(request: pytest.FixtureRequest, tmp_path: Path) -> Destination:
    """A file and a table. An export makes the same decisions for each destination, so other destinations need no test
    here. `test_writers` tests all writers."""
    return open_destination(request, tmp_path, request.param)


def read_certificate(report: Report) -> dict[str, Any]:
    assert report.certificate is not None, report.messages
    return report.certificate


def list_exported_names(destination: Destination) -> list[str]:
    """Return the names of all files in the folder of the destination, or of all exported tables in its schema."""
    if destination.url is not None:
        with connect(destination) as connection:
            table_names = sa.inspect(connection).get_table_names(schema=destination.schema)
        return [name for name in table_names if name != "_connector_runs"]
    return sorted(file.name for file in destination.path.parent.iterdir())


def test_an_export_has_the_rows_and_types_of_read_subscribers(
    sandbox: SandboxProcess, file_or_table: Destination
) -> None:
    create_people(sandbox, *PEOPLE)
    report = run_export_of_list(sandbox, file_or_table)
    frame = read_subscribers(base_url=sandbox.base_url, token=sandbox.token)
    exported_frame = build_frame(read_exported_table(file_or_table))
    pd.testing.assert_frame_equal(exported_frame.drop(columns=RUN_COLUMNS), frame.drop(columns=RUN_COLUMNS))
    assert exported_frame.dtypes.equals(frame.dtypes)
    assert (report.rows, report.status, report.messages) == ({"read": 3, "written": 3}, "ok", [])
    assert exported_frame["_run_id"].tolist() == [report.run_id] * 3
    assert exported_frame["_exported_at"].nunique() == 1


def test_an_incomplete_list_is_written_only_on_request_and_never_replaces_a_target(
    sandbox: SandboxProcess, file_or_table: Destination
) -> None:
    sandbox.seed(1500, base_name="News")
    sandbox.switch(order="shuffled", filters="ignored")
    report = run_export_of_list(sandbox, file_or_table)
    assert (report.rows["written"], read_certificate(report)["reason"]) == (0, CertificateReason.UNSTABLE_ORDER)
    assert "incomplete" in report.messages[0]
    assert list_exported_names(file_or_table) == []
    report = run_export_of_list(sandbox, file_or_table, allow_incomplete=True)
    table = read_exported_table(file_or_table)
    assert report.rows["written"] == report.rows["read"] == table.num_rows == len(set(table["id"].to_pylist()))
    assert (report.rows["written"] > 1000, report.status, report.messages) == (True, "partial", [])
    second_report = run_export_of_list(sandbox, file_or_table, allow_incomplete=True)
    assert second_report.rows["written"] == 0
    assert "replaces nothing" in second_report.messages[0]
    assert read_exported_table(file_or_table).equals(table)
    assert len(list_exported_names(file_or_table)) == 1


@pytest.mark.parametrize("file_or_table", [Format.CSV], indirect=True)
def test_a_list_that_fails_does_not_change_the_target(sandbox: SandboxProcess, file_or_table: Destination) -> None:
    create_people(sandbox, *PEOPLE)
    run_export_of_list(sandbox, file_or_table)
    table_before = read_exported_table(file_or_table)
    create_people(sandbox, {"base_id": 7, "email": "new@example.com"})
    sandbox.switch(list_error=1)
    assert run_export_of_list(sandbox, file_or_table).status == "aborted"
    assert read_exported_table(file_or_table).equals(table_before)
    assert len(list_exported_names(file_or_table)) == 1


@pytest.mark.parametrize("file_or_table", [Format.CSV], indirect=True)
def test_a_cancelled_export_does_not_change_the_target(sandbox: SandboxProcess, file_or_table: Destination) -> None:
    create_people(sandbox, *PEOPLE)
    run_export_of_list(sandbox, file_or_table)
    table_before = read_exported_table(file_or_table)
    sandbox.seed(9_000, base_name="News")
    stop = Stop()

    class StopAfterReading(Progress):
        def set_describe_function(self, describe: Callable[[], str]) -> None:
            row_count = describe().partition(": ")[2].partition(" read")[0]
            if int(row_count.replace(",", "")) > 4_000:
                stop.request_stop("the time is over")

    report = run_export_of_list(sandbox, file_or_table, stop=stop, progress=StopAfterReading())
    assert (report.status, report.messages) == ("aborted", ["the time is over"])
    assert read_exported_table(file_or_table).equals(table_before)
    assert len(list_exported_names(file_or_table)) == 1


def test_an_export_has_only_the_rows_of_the_last_reading_if_the_list_changes(
    sandbox: SandboxProcess, tmp_path: Path
) -> None:
    """The list is not in the order of ids and changes all the time. So the export reads the list several times, and
    finds other rows each time."""
    sandbox.seed(3000, base_name="News")
    sandbox.switch(order="email", churn_insert=1, churn_delete=1)
    destination = parse_destination(str(tmp_path / "out.parquet"))
    report = run_export_of_list(sandbox, destination, allow_incomplete=True)
    certificate = read_certificate(report)
    assert (certificate["reason"], certificate["sweeps"]) == (CertificateReason.CHANGING, 5)
    assert report.rows["written"] == certificate["distinct"] == read_exported_table(destination).num_rows
    assert certificate["appeared"] > 0
    assert certificate["vanished"] > 0


def test_a_frame_has_the_values_of_the_creates(sandbox: SandboxProcess) -> None:
    create_people(sandbox, *PEOPLE)
    table = pa.Table.from_pandas(read_subscribers(base_url=sandbox.base_url, token=sandbox.token))
    rows: list[dict[str, Any]] = table.to_pylist()
    full_row, bare_row = rows[0], rows[1]
    sent_values = PEOPLE[0] | {"address_zip": "2134"}
    exported_values = {
        name: str(full_row[name].date()) if name == "birthday" else full_row[name] for name in sent_values
    }
    assert exported_values == sent_values
    assert bare_row["is_active"] is False


@pytest.mark.parametrize("file_or_table", [Format.CSV], indirect=True)
def test_a_list_that_shrank_is_refused_until_max_shrink_allows_it(
    sandbox: SandboxProcess, file_or_table: Destination
) -> None:
    people: list[dict[str, object]] = [{"base_id": 7, "email": f"p{index}@example.com"} for index in range(90)]
    create_people(sandbox, *people)
    run_export_of_list(sandbox, file_or_table)
    table_before = read_exported_table(file_or_table)
    sandbox.reset()
    create_people(sandbox, *people[:27])  # 63 rows fewer; 0.7 * 90 is a little less than 63 in floating point
    refused_report = run_export_of_list(sandbox, file_or_table, max_shrink=0.5)
    assert (refused_report.rows["written"], refused_report.status) == (0, "aborted")
    assert "70% fewer than the 90" in refused_report.messages[0]
    assert "--max-shrink 70%" in refused_report.messages[0]
    assert read_exported_table(file_or_table).equals(table_before)
    assert run_export_of_list(sandbox, file_or_table, max_shrink=0.7).rows["written"] == 27
    assert read_exported_table(file_or_table).num_rows == 27


FILTER_RECORDING_FORMATS = set(EXPORT_FORMATS) - {"csv", "jsonl"}
FILE_TARGETS = [f"{{}}/people.{name}".replace("excel", "xlsx") for name in sorted(FILTER_RECORDING_FORMATS)]


@pytest.mark.parametrize("target", ["sqlite:///{}/w.db", *FILE_TARGETS])
def test_an_export_is_compared_with_the_last_export_of_the_same_filters(
    sandbox: SandboxProcess, tmp_path: Path, target: str
) -> None:
    create_people(sandbox, *({"base_id": 1 + index % 4, "email": f"p{index}@example.com"} for index in range(16)))
    destination = parse_destination(target.format(tmp_path))
    run_export_of_list(sandbox, destination, max_shrink=0.5)
    for base_id in (1, 2):
        filtered_report = run_export_of_list(sandbox, destination, query=ListQuery(base_id=base_id), max_shrink=0.5)
        assert (filtered_report.rows["written"], filtered_report.status) == (4, "ok")
    sandbox.reset()
    create_people(sandbox, {"base_id": 2, "email": "p1@example.com"})
    assert run_export_of_list(sandbox, destination, query=ListQuery(base_id=2), max_shrink=0.5).status == "aborted"
    assert read_exported_table(destination).num_rows == 4


@pytest.mark.parametrize("target", ["sqlite:///{}/w.db", *FILE_TARGETS])
def test_an_export_is_not_compared_with_an_incomplete_export(
    sandbox: SandboxProcess, tmp_path: Path, target: str
) -> None:
    sandbox.seed(1500, base_name="News")
    sandbox.switch(order="shuffled", filters="ignored")
    destination = parse_destination(target.format(tmp_path))
    assert run_export_of_list(sandbox, destination, allow_incomplete=True).status == "partial"
    sandbox.reset()
    create_people(sandbox, *PEOPLE)
    assert run_export_of_list(sandbox, destination, max_shrink=0.5).status == "ok"
