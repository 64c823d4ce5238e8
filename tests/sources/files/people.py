"""Files of each format with the same people. Common libraries write the files."""

import csv
import gzip
import io
import json
import zipfile
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import xlsxwriter

Person = Mapping[str, object]

PEOPLE: tuple[Person, ...] = (
    {
        "email": "ann@example.com", "first_name": "Ann", "phone": "0031612345678", "tags": ["VIP", "Paris, France"],
        "is_active": True, "birthday": date(1980, 2, 29), "address_zip": 1012, "custom_field1": 12.5,
    },
    {
        "email": "no address", "first_name": "Bob", "phone": "", "tags": [],
        "is_active": False, "birthday": date(1990, 1, 1), "address_zip": 1013, "custom_field1": 2,
    },
    {
        "email": "zoë@example.com", "first_name": "Zoë \"Z\", Jr.", "phone": "+44 20", "tags": ["a"],
        "is_active": False, "birthday": date(2001, 12, 31), "address_zip": 90210, "custom_field1": 1e16,
    },
)  # fmt: skip
COLUMN_NAMES = tuple(PEOPLE[0])

SAMPLES_FOLDER = Path(__file__).parent / "samples"
"""Files that no library writes today. `people.xls` has PEOPLE and a row with #N/A, in the format of Excel 2003."""


def format_value(value: object) -> str:
    """Return the value as a person would write it in a CSV file."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value) if isinstance(value, list) else f"{value:.0f}" if value == 1e16 else str(value)


def build_csv(delimiter: str = ",") -> bytes:
    output = io.StringIO(newline="")
    csv_writer = csv.writer(output, delimiter=delimiter)
    csv_writer.writerow(COLUMN_NAMES)
    csv_writer.writerows([format_value(person[name]) for name in COLUMN_NAMES] for person in PEOPLE)
    return output.getvalue().encode()


def pack_gzip(content: bytes) -> bytes:
    return gzip.compress(content, mtime=0)


def pack_zip(content: bytes, name: str = "people.csv", other_files: Mapping[str, bytes] | None = None) -> bytes:
    output = io.BytesIO()
    with zipfile.ZipFile(output, "w", zipfile.ZIP_DEFLATED) as archive:
        for member_name, member_content in {name: content, **(other_files or {})}.items():
            archive.writestr(zipfile.ZipInfo(member_name), member_content, zipfile.ZIP_DEFLATED)
    return output.getvalue()


def pack_zstd(content: bytes) -> bytes:
    output = pa.BufferOutputStream()
    with pa.CompressedOutputStream(output, "zstd") as stream:
        stream.write(content)
    return bytes(output.getvalue())


def build_json_lines() -> bytes:
    return b"".join(json.dumps(dict(person), default=str).encode() + b"\n" for person in PEOPLE)


def build_parquet() -> bytes:
    output = io.BytesIO()
    columns = {name: [person[name] for person in PEOPLE] for name in COLUMN_NAMES}
    columns["custom_field1"] = [float(str(value)) for value in columns["custom_field1"]]
    pq.write_table(pa.table(columns), output)
    return output.getvalue()


def build_xlsx(
    rows: Sequence[Sequence[object]] | None = None, *, sheet: str = "People", top_row: int = 0, left_column: int = 0
) -> bytes:
    """Return a workbook. A text that begins with `=` becomes a formula with the value `#N/A`."""
    output = io.BytesIO()
    with xlsxwriter.Workbook(output, {"in_memory": True}) as workbook:
        day_format = workbook.add_format({"num_format": "yyyy-mm-dd"})
        worksheet = workbook.add_worksheet(sheet)
        for row_index, row in enumerate(rows or build_rows(), start=top_row):
            for column_index, value in enumerate(row, start=left_column):
                if isinstance(value, date):
                    worksheet.write_datetime(row_index, column_index, value, day_format)
                elif isinstance(value, str) and value.startswith("="):
                    worksheet.write_formula(row_index, column_index, value, None, "#N/A")
                elif isinstance(value, str):
                    worksheet.write_string(row_index, column_index, value)
                else:
                    worksheet.write(row_index, column_index, value)
    return output.getvalue()


def build_rows() -> list[list[object]]:
    """Return the header and the people as rows of a sheet. Tags are a JSON text, because a cell cannot contain a
    list."""
    person_rows = [
        [json.dumps(value) if isinstance(value, list) else value for value in person.values()] for person in PEOPLE
    ]
    return [list(COLUMN_NAMES), *person_rows]


BUILD_FILE_BY_NAME: dict[str, Callable[[], bytes]] = {
    "people.csv": build_csv,
    "people.tsv": lambda: build_csv("\t"),
    "people.txt": lambda: build_csv(";"),
    "utf-16.csv": lambda: b"\xff\xfe" + build_csv().decode().encode("utf-16-le"),
    "people.csv.gz": lambda: pack_gzip(build_csv()),
    "people.zip": lambda: pack_zip(build_csv()),
    "people.csv.zst": lambda: pack_zstd(build_csv()),
    "people.xlsx": build_xlsx,
    "people.xlsx.gz": lambda: pack_gzip(build_xlsx()),
    "people.parquet": build_parquet,
    "parquet.zip": lambda: pack_zip(build_parquet(), "people.parquet"),
    "people.jsonl": build_json_lines,
    "people.ndjson.gz": lambda: pack_gzip(build_json_lines()),
    "misnamed.csv": build_parquet,
    "no-suffix": build_json_lines,
}
"""Files with the same people. The names of the last two files do not show their format, so the source recognises the
format by the content of the file."""

EXPECTED_FRAME = pd.DataFrame(
    {
        "email": ["ann@example.com", "no address", "zoë@example.com"],
        "first_name": ["Ann", "Bob", 'Zoë "Z", Jr.'],
        "phone": ["0031612345678", "", "+44 20"],
        "is_active": ["true", "false", "false"],
        "birthday": ["1980-02-29", "1990-01-01", "2001-12-31"],
        "address_zip": ["1012", "1013", "90210"],
        "custom_field1": ["12.5", "2", "10000000000000000"],
    },
    dtype="str",
)
