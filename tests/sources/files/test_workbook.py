"""Excel files: the source reads the value of each cell as text, and rejects a row with a cell that cannot be read."""

import datetime as dt
import io
import re
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import xlsxwriter

from connector.errors import SourceError
from connector.sources.files import open_file
from tests.sources.files.people import EXPECTED_FRAME, SAMPLES_FOLDER, build_xlsx, pack_zip
from tests.sources.files.reading import read_chunks, read_frame, read_malformed, read_rows, write_file

CELLS_AND_TEXTS: list[tuple[object, str]] = [
    ("00123", "00123"), (5, "5"), (5.0, "5"), (12.5, "12.5"), (31612345678, "31612345678"),
    (1.5e22, "15000000000000000000000"), (1e-7, "0.0000001"), (-3, "-3"), (True, "true"), (False, "false"),
    (dt.date(1980, 2, 29), "1980-02-29"), ("", ""), (" x ", " x "), ("né", "né"),
]  # fmt: skip


def test_the_value_of_a_cell_is_read_as_plain_text(tmp_path: Path) -> None:
    path = write_file(
        tmp_path, "a.xlsx", build_xlsx([["key", "email"], *([cell, "a@x.org"] for cell, _ in CELLS_AND_TEXTS)])
    )
    assert read_rows(path) == [[text, "a@x.org"] for _, text in CELLS_AND_TEXTS]


def build_workbook(write: Callable[[xlsxwriter.Workbook, Any], object]) -> bytes:
    """Return a workbook of one sheet that `write` fills."""
    output = io.BytesIO()
    with xlsxwriter.Workbook(output) as workbook:
        write(workbook, workbook.add_worksheet())
    return output.getvalue()


def test_times_and_durations_are_read_with_their_seconds(tmp_path: Path) -> None:
    def write_times(workbook: xlsxwriter.Workbook, worksheet: Any) -> None:
        worksheet.write_row(0, 0, ["moment", "time", "duration"])
        time_format = workbook.add_format({"num_format": "yyyy-mm-dd hh:mm"})
        worksheet.write_datetime(1, 0, dt.datetime(2020, 2, 29, 13, 5), time_format)  # noqa: DTZ001 - a sheet has no time zones
        worksheet.write_datetime(1, 1, dt.time(13, 5), workbook.add_format({"num_format": "hh:mm"}))
        worksheet.write_datetime(1, 2, dt.timedelta(hours=30), workbook.add_format({"num_format": "[h]:mm"}))

    path = write_file(tmp_path, "a.xlsx", build_workbook(write_times))
    assert read_rows(path) == [["2020-02-29T13:05:00", "13:05:00", "30:00:00"]]


def test_a_row_with_an_error_is_rejected_with_its_number_in_the_sheet(tmp_path: Path) -> None:
    rows = [["email", "name"], ["a@x.org", "Ann"], [], ["b@x.org", "=NA()"], ["", "=NA()"], ["c@x.org", "Cem"]]
    (chunk,) = read_chunks(write_file(tmp_path, "a.xlsx", build_xlsx(rows)))
    assert chunk.frame["email"].tolist() == ["a@x.org", "c@x.org"]
    assert chunk.row_numbers.tolist() == [2, 6]
    assert [(row.number, row.line, row.code) for row in chunk.malformed_rows] == [
        (4, None, "error_cell"),
        (5, None, "error_cell"),
    ]
    assert chunk.malformed_rows[0].message.startswith("the cell B4 holds ")
    assert chunk.malformed_rows[0].raw_record == '{"email":"b@x.org","name":""}'


def test_an_xls_file_gives_the_same_rows_as_an_xlsx_file(tmp_path: Path) -> None:
    content = (SAMPLES_FOLDER / "people.xls").read_bytes()
    # Replace the only error value, #N/A, by the boolean FALSE.
    error_offset = content.index(b"\x05\x02\x08\x00\x05\x00\x02\x00")
    path = write_file(tmp_path, "people.xls", content[: error_offset + 10] + b"\x00\x00" + content[error_offset + 12 :])
    (chunk,) = read_chunks(path)
    assert chunk.frame.drop(columns="tags").head(3).equals(EXPECTED_FRAME)
    assert chunk.malformed_rows == ()


def protect_old_workbook() -> bytes:
    content = bytearray((SAMPLES_FOLDER / "people.xls").read_bytes())
    record_offset = content.index(b"\x09\x08\x10\x00") + 20
    content[record_offset : record_offset + 2] = b"\x2f\x00"  # FILEPASS: the records that follow are encrypted
    return bytes(content)


def change_unpacked_size(byte_count: int) -> bytes:
    """Return a workbook whose ZIP directory says that its texts unpack to `byte_count` bytes, which is wrong."""
    workbook = build_xlsx([["email"], *([f"person{index}@example.com"] for index in range(1000))])
    entry_offset = workbook.rindex(b"xl/sharedStrings.xml") - 46
    assert workbook[entry_offset : entry_offset + 4] == b"PK\x01\x02"
    return workbook[: entry_offset + 24] + byte_count.to_bytes(4, "little") + workbook[entry_offset + 28 :]


def write_two_far_cells(_: xlsxwriter.Workbook, worksheet: Any) -> None:
    worksheet.write(0, 0, "email")
    worksheet.write(1_048_575, 16_383, "x")  # loading the sheet would need 512 GiB and end the process


ODS_FILE = pack_zip(b"<office:document-content/>", "content.xml", {"mimetype": b"application/vnd.oasis.opendocument"})
OLD_WORKBOOK = (SAMPLES_FOLDER / "people.xls").read_bytes()
PASSWORD_PATTERN = "is protected by a password; save the file without the password"
REFUSED_WORKBOOKS: list[tuple[str, str, bytes, str]] = [
    ("an old workbook with an error", "a.xls", OLD_WORKBOOK,
     r"a cell has an error, such as #N/A\. .* Save the workbook as \.xlsx"),
    ("a password", "a.xlsx", (SAMPLES_FOLDER / "protected.xlsx").read_bytes(), PASSWORD_PATTERN),
    ("an old workbook with a password", "a.xls", protect_old_workbook(), PASSWORD_PATTERN),
    ("a sheet that is too large for the memory", "a.xlsx", build_workbook(write_two_far_cells),
     "spans 17,179,869,184 cells, down to XFD1048576, and at most 12,000,000 can be read"),
    ("an OpenDocument spreadsheet", "a.ods", ODS_FILE, r"is an OpenDocument file .* save it as \.xlsx or as CSV"),
    ("a ZIP directory that states more bytes than the connector unpacks", "a.xlsx", change_unpacked_size(3 << 30),
     "unpacks to more than 2 GiB; save the sheet as CSV instead"),
    ("a ZIP directory that states fewer bytes than the texts have", "a.xlsx", change_unpacked_size(100),
     "not a workbook that can be read"),
    ("no cell", "a.xlsx", build_xlsx([[""]]), "is empty"),
    ("an address in the first row", "a.xlsx", build_xlsx([["ann@example.com", "Ann"]]),
     "no header: its first row looks like a subscriber"),
    ("numbers in the first row", "a.xlsx", build_xlsx([[1, 2]]), "no header"),
    ("an error in the header", "a.xlsx", build_xlsx([["email", "=NA()"]]),
     "its header cannot be used: the cell B1 holds an error"),
    *[
        (f"an old workbook that is cut off after {length} bytes", "a.xls", OLD_WORKBOOK[:length],
         "is (not a workbook|a workbook that is damaged)")
        for length in range(8, 5632, 307)
    ],
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "content", "expected_text"),
    [case[1:] for case in REFUSED_WORKBOOKS],
    ids=[claim for claim, *_ in REFUSED_WORKBOOKS],
)
def test_a_workbook_that_cannot_be_read_is_refused_at_opening(
    tmp_path: Path, name: str, content: bytes, expected_text: str
) -> None:
    path = write_file(tmp_path, name, content)
    with pytest.raises(SourceError, match=f"{re.escape(str(path))}.*: .*{expected_text}"):
        open_file(path)


def test_an_old_workbook_is_refused_because_of_an_error_in_another_sheet() -> None:
    with pytest.raises(SourceError, match=r"a cell has an error, such as #N/A"):
        open_file(SAMPLES_FOLDER / "people.xls", sheet="Other")


def test_a_message_names_the_sheets_that_are_not_read(tmp_path: Path) -> None:
    sheets = {"Sheet1": [["email"], ["a@x.org"]], "Lists": [], "Lapsed": []}
    path = write_file(tmp_path, "a.xlsx", write_sheets(sheets, hidden_sheet="Lists"))
    (message,) = read_chunks(path)[0].messages
    assert "only this sheet is read" in message
    assert message.endswith("Other sheets: Lapsed")
    with open_file(path, sheet="Sheet1") as source:
        assert [chunk.messages for chunk in source.read_chunks()] == [()]


def test_rows_have_the_numbers_that_the_sheet_shows(tmp_path: Path) -> None:
    rows = [["email", "name"], ["a@x.org", "Ann"], ["", ""], ["b@x.org", "Bob"]]
    (chunk,) = read_chunks(write_file(tmp_path, "a.xlsx", build_xlsx(rows, top_row=4, left_column=2)))
    assert chunk.row_numbers.tolist() == [6, 8]
    assert list(chunk.frame.columns) == ["email", "name"]


def test_a_cell_beyond_the_header_rejects_its_row(tmp_path: Path) -> None:
    rows = [["email", "name"], ["a@x.org", "Ann"], ["a@x.org", "Ann", ""], ["a@x.org", "Ann", "more"], ["a@x.org"]]
    path = write_file(tmp_path, "a.xlsx", build_xlsx([*rows, ["a@x.org", "Ann", "more"]]))
    assert [(row.number, row.code) for row in read_malformed(path)] == [(4, "ragged"), (6, "ragged")]
    assert len(read_frame(path)) == 3
    (message,) = {row.message for row in read_malformed(path)}  # a report counts rows with equal messages as one cause
    assert message == "has a cell outside the columns that the header names"


def test_merged_and_formatted_empty_cells_make_no_rows_and_no_columns(tmp_path: Path) -> None:
    def write_cells(workbook: xlsxwriter.Workbook, worksheet: Any) -> None:
        worksheet.write_row(0, 0, ["email", "city"])
        worksheet.write_string(1, 0, "a@x.org")
        worksheet.write_string(2, 0, "b@x.org")
        worksheet.merge_range(1, 1, 2, 1, "Utrecht")
        for row, column in ((500, 0), (3, 40)):
            worksheet.write_blank(row, column, None, workbook.add_format({"bold": True}))

    path = write_file(tmp_path, "a.xlsx", build_workbook(write_cells))
    assert read_rows(path) == [["a@x.org", "Utrecht"], ["b@x.org", ""]]


def test_a_sheet_that_is_formatted_to_its_last_row_is_read(tmp_path: Path) -> None:
    def write_cells(workbook: xlsxwriter.Workbook, worksheet: Any) -> None:
        worksheet.write_row(0, 0, ["email", *(f"column{index}" for index in range(20))])
        worksheet.write_string(1, 0, "a@x.org")
        worksheet.write_blank(1_048_575, 0, None, workbook.add_format({"bold": True}))

    path = write_file(tmp_path, "a.xlsx", build_workbook(write_cells))
    assert [row[0] for row in read_rows(path)] == ["a@x.org"]


def write_sheets(sheets: Mapping[str, Sequence[Sequence[str]]], hidden_sheet: str = "") -> bytes:
    output = io.BytesIO()
    with xlsxwriter.Workbook(output) as workbook:
        for name, rows in sheets.items():
            worksheet = workbook.add_worksheet(name)
            for row_index, row in enumerate(rows):
                worksheet.write_row(row_index, 0, row)
            if name == hidden_sheet:
                worksheet.hide()
            elif hidden_sheet:
                worksheet.activate()
                worksheet.set_first_sheet()
    return output.getvalue()


def test_a_sheet_is_chosen_by_name_or_number_and_the_first_visible_sheet_is_the_default(tmp_path: Path) -> None:
    sheets = {"Lookup": [["z"], ["1"]], "1st": [["a"], ["1"]], "Two": [["b"], ["1"]]}
    path = write_file(tmp_path, "a.xlsx", write_sheets(sheets, hidden_sheet="Lookup"))
    for sheet, column in ((None, "a"), ("Two", "b"), ("2", "a"), ("1", "z"), ("3", "b")):
        with open_file(path, sheet=sheet) as source:
            assert source.columns == (column,)
    for missing_sheet in ("none", "0", "4"):
        with pytest.raises(SourceError, match=f"has no sheet {missing_sheet}; its sheets: Lookup, 1st, Two"):
            open_file(path, sheet=missing_sheet)


def test_the_number_cells_of_a_column_are_counted(tmp_path: Path) -> None:
    rows: list[list[object]] = [
        ["email", "phone", "id"], ["a@x.org", 31612345678, "007"], ["b@x.org", "0031", 8], ["c@x.org", 5, True],
    ]  # fmt: skip
    (chunk,) = read_chunks(write_file(tmp_path, "a.xlsx", build_xlsx(rows)))
    assert chunk.number_cell_counts == {"phone": 2, "id": 1}


def test_titles_above_the_header_are_left_out_and_reported(tmp_path: Path) -> None:
    rows: list[list[object]] = [
        ["Newsletter"], [""], ["", "as of today"], ["email", "name"], ["a@x.org", "Ann"], ["b@x.org", ""],
        ["c@x.org", "Cem"], ["d@x.org", "Dan"],
    ]  # fmt: skip
    (chunk,) = read_chunks(write_file(tmp_path, "a", build_xlsx(rows)))
    assert chunk.frame.to_numpy().tolist() == rows[4:]
    assert chunk.row_numbers.tolist() == [5, 6, 7, 8]
    assert "titles above its header were left out (rows: 2)" in chunk.messages[0]


@pytest.mark.parametrize(
    "rows",
    [
        [["name"], ["Ann"], ["Ben", "x"], ["Cem"]],
        [["email"], ["a@x.org"], ["b@x.org", "x"], ["c@x.org", "x"], ["d@x.org", "x"]],
    ],
    ids=["hardly any row has two cells", "the row below is a subscriber"],
)
def test_a_header_with_one_cell_is_not_read_as_a_title(tmp_path: Path, rows: list[list[object]]) -> None:
    with open_file(write_file(tmp_path, "a.xlsx", build_xlsx(rows))) as source:
        assert source.columns == (rows[0][0],)


# Excel and LibreOffice save a formula with its result, and openpyxl saves a formula without a result. A library that
# does not compute saves 0 or an empty text, and requests a computation of all formulas.
FORMULA_CASES: dict[str, tuple[list[tuple[str, object]], tuple[str, str, str], list[str], list[int]]] = {
    # Each case: the formulas with their results, a replacement of a text in a part of the workbook, the names that are
    # read, and the numbers of the rejected rows.
    "formulas that were never computed": (
        [("=PROPER(D2)", "Ann"), ("=PROPER(D3)", 0), ("=PROPER(D4)", "")], ("", "", ""), ["Ann"], [3, 4],
    ),
    "a formula without any value": (
        [("=PROPER(D2)", "Ann"), ("=1+1", 2)], ("xl/worksheets/sheet1.xml", "<v>2</v>", "<v/>"), ["Ann"], [3],
    ),
    "a computed zero and a computed empty text": (
        [("=1-1", 0), ('=""', ""), ("=D2", "x")], ("xl/workbook.xml", ' fullCalcOnLoad="1"', ""), ["0", "", "x"], [],
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("formulas", "replacement", "names", "rejected_row_numbers"), FORMULA_CASES.values(), ids=list(FORMULA_CASES)
)
def test_a_formula_has_a_value_only_if_it_was_computed(
    tmp_path: Path,
    formulas: list[tuple[str, object]],
    replacement: tuple[str, str, str],
    names: list[str],
    rejected_row_numbers: list[int],
) -> None:
    def write_formulas(_: xlsxwriter.Workbook, worksheet: Any) -> None:
        worksheet.write_row(0, 0, ["email", "name"])
        for row, (formula, result) in enumerate(formulas, start=1):
            worksheet.write(row, 0, f"p{row}@example.com")
            worksheet.write_formula(row, 1, formula, None, result)

    path = write_file(tmp_path, "a.xlsx", build_workbook(write_formulas))
    if replacement[0]:
        replace_in_workbook(path, *replacement)
    with open_file(path) as source:
        (chunk,) = source.read_chunks()
        assert chunk.frame["name"].tolist() == names
        assert [row.number for row in chunk.malformed_rows] == rejected_row_numbers
        for row in chunk.malformed_rows:
            assert f"the cell B{row.number} holds a formula that was never computed" in row.message
        (chunk,) = source.read_chunks(["email"])
        assert (len(chunk.frame), chunk.malformed_rows) == (len(formulas), ())


def replace_in_workbook(path: Path, part_path: str, old_text: str, new_text: str) -> None:
    with zipfile.ZipFile(path) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    assert old_text in contents[part_path].decode()
    contents[part_path] = contents[part_path].decode().replace(old_text, new_text).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in contents.items():
            archive.writestr(name, content)


def test_hidden_rows_are_read_and_reported(tmp_path: Path) -> None:
    def write_filtered_rows(_: xlsxwriter.Workbook, worksheet: Any) -> None:
        for row, cells in enumerate((["email", "city"], ["a@x.org", "Bonn"], ["b@x.org", "Ulm"], ["c@x.org", "Bonn"])):
            worksheet.write_row(row, 0, cells)
        worksheet.autofilter(0, 0, 3, 1)
        worksheet.filter_column(1, "x == Bonn")
        worksheet.set_row(2, options={"hidden": True})
        worksheet.set_row(9, options={"hidden": True})

    (chunk,) = read_chunks(write_file(tmp_path, "people.xlsx", build_workbook(write_filtered_rows)))
    assert chunk.frame["email"].tolist() == ["a@x.org", "b@x.org", "c@x.org"]
    (message,) = chunk.messages
    assert "1 hidden row is used like visible rows. To leave hidden rows out, copy" in message
