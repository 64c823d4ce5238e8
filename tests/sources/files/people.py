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
COLUMNS = tuple(PEOPLE[0])

SAMPLES = Path(__file__).parent / "samples"
"""Files that no library writes today. `people.xls` has PEOPLE and a row with #N/A, in the format of Excel 2003."""


def write_text(value: object) -> str:
    """Return the value as a person would write it in a CSV file."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value) if isinstance(value, list) else f"{value:.0f}" if value == 1e16 else str(value)


def write_csv(delimiter: str = ",") -> bytes:
    output = io.StringIO(newline="")
    rows = csv.writer(output, delimiter=delimiter)
    rows.writerow(COLUMNS)
    rows.writerows([write_text(person[name]) for name in COLUMNS] for person in PEOPLE)
    return output.getvalue().encode()


def pack_gzip(content: bytes) -> bytes:
    return gzip.compress(content, mtime=0)


def pack_zip(content: bytes, name: str = "people.csv", other_files: Mapping[str, bytes] | None = None) -> bytes:
    output = io.BytesIO()
    with zipfile.ZipFile(output, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, text in {name: content, **(other_files or {})}.items():
            archive.writestr(zipfile.ZipInfo(member), text, zipfile.ZIP_DEFLATED)
    return output.getvalue()


def pack_zstd(content: bytes) -> bytes:
    output = pa.BufferOutputStream()
    with pa.CompressedOutputStream(output, "zstd") as stream:
        stream.write(content)
    return bytes(output.getvalue())


def write_json_lines() -> bytes:
    return b"".join(json.dumps(dict(person), default=str).encode() + b"\n" for person in PEOPLE)


def write_parquet() -> bytes:
    output = io.BytesIO()
    columns = {name: [person[name] for person in PEOPLE] for name in COLUMNS}
    columns["custom_field1"] = [float(str(value)) for value in columns["custom_field1"]]
    pq.write_table(pa.table(columns), output)
    return output.getvalue()


def write_xlsx(
    rows: Sequence[Sequence[object]] | None = None, *, sheet: str = "People", top_row: int = 0, left_column: int = 0
) -> bytes:
    """Return a workbook. A text that begins with `=` becomes a formula with the value `#N/A`."""
    output = io.BytesIO()
    with xlsxwriter.Workbook(output, {"in_memory": True}) as workbook:
        day = workbook.add_format({"num_format": "yyyy-mm-dd"})
        worksheet = workbook.add_worksheet(sheet)
        for row_index, row in enumerate(rows or build_rows(), start=top_row):
            for column, value in enumerate(row, start=left_column):
                if isinstance(value, date):
                    worksheet.write_datetime(row_index, column, value, day)
                elif isinstance(value, str) and value.startswith("="):
                    worksheet.write_formula(row_index, column, value, None, "#N/A")
                elif isinstance(value, str):
                    worksheet.write_string(row_index, column, value)
                else:
                    worksheet.write(row_index, column, value)
    return output.getvalue()


def build_rows() -> list[list[object]]:
    """Return the header and the people as rows of a sheet. Tags are a JSON text, because a cell cannot contain a
    list."""
    people = [
        [json.dumps(value) if isinstance(value, list) else value for value in person.values()] for person in PEOPLE
    ]
    return [list(COLUMNS), *people]


FILES: dict[str, Callable[[], bytes]] = {
    "people.csv": write_csv,
    "people.tsv": lambda: write_csv("\t"),
    "people.txt": lambda: write_csv(";"),
    "utf-16.csv": lambda: b"\xff\xfe" + write_csv().decode().encode("utf-16-le"),
    "people.csv.gz": lambda: pack_gzip(write_csv()),
    "people.zip": lambda: pack_zip(write_csv()),
    "people.csv.zst": lambda: pack_zstd(write_csv()),
    "people.xlsx": write_xlsx,
    "people.xlsx.gz": lambda: pack_gzip(write_xlsx()),
    "people.parquet": write_parquet,
    "parquet.zip": lambda: pack_zip(write_parquet(), "people.parquet"),
    "people.jsonl": write_json_lines,
    "people.ndjson.gz": lambda: pack_gzip(write_json_lines()),
    "misnamed.csv": write_parquet,
    "no-suffix": write_json_lines,
}
"""Files with the same people. The names of the last two files do not fit: the source recognises both by their
contents."""

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
