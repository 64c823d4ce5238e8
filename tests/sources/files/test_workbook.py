"""Excel files: the source reads the cells as a sheet shows them, and rejects a row with a cell that cannot be read."""

import datetime as dt
import io
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
import xlsxwriter

from connector.errors import SourceError
from connector.sources.files import open_file
from tests.sources.files.people import EXPECTED_FRAME, SAMPLES, build_xlsx, pack_zip
from tests.sources.files.reading import read_chunks, read_frame, read_malformed, read_rows, write_file

CELLS: list[tuple[object, str]] = [
    ("00123", "00123"), (5, "5"), (5.0, "5"), (12.5, "12.5"), (31612345678, "31612345678"),
    (1.5e22, "15000000000000000000000"), (1e-7, "0.0000001"), (-3, "-3"), (True, "true"), (False, "false"),
    (dt.date(1980, 2, 29), "1980-02-29"), ("", ""), (" x ", " x "), ("né", "né"),
]  # fmt: skip


def test_a_cell_is_read_as_the_sheet_shows_it(tmp_path: Path) -> None:
    path = write_file(tmp_path, "a.xlsx", build_xlsx([["key", "email"], *([cell, "a@x.org"] for cell, _ in CELLS)]))
    assert read_rows(path) == [[text, "a@x.org"] for _, text in CELLS]


def test_times_and_durations_are_read_as_the_sheet_shows_them(tmp_path: Path) -> None:
    output = io.BytesIO()
    with xlsxwriter.Workbook(output) as workbook:
        worksheet = workbook.add_worksheet()
        worksheet.write_row(0, 0, ["moment", "time", "duration"])
        time_format = workbook.add_format({"num_format": "yyyy-mm-dd hh:mm"})
        worksheet.write_datetime(1, 0, dt.datetime(2020, 2, 29, 13, 5), time_format)  # noqa: DTZ001 - a sheet has no time zones
        worksheet.write_datetime(1, 1, dt.time(13, 5), workbook.add_format({"num_format": "hh:mm"}))
        worksheet.write_datetime(1, 2, dt.timedelta(hours=30), workbook.add_format({"num_format": "[h]:mm"}))
    assert read_rows(write_file(tmp_path, "a.xlsx", output.getvalue())) == [
        ["2020-02-29T13:05:00", "13:05:00", "30:00:00"]
    ]


def test_a_row_with_an_error_is_rejected_with_its_number_in_the_sheet(tmp_path: Path) -> None:
    rows: list[list[object]] = [
        ["email", "name"],
        ["a@x.org", "Ann"],
        [],
        ["b@x.org", "=NA()"],
        ["", "=NA()"],
        ["c@x.org", "Cem"],
    ]
    (chunk,) = read_chunks(write_file(tmp_path, "a.xlsx", build_xlsx(rows)))
    assert chunk.frame["email"].tolist() == ["a@x.org", "c@x.org"]
    assert chunk.row_numbers.tolist() == [2, 6]
    assert [(row.number, row.line, row.code) for row in chunk.malformed_rows] == [
        (4, None, "error_cell"),
        (5, None, "error_cell"),
    ]
    assert chunk.malformed_rows[0].message.startswith("the cell B4 holds ")
    assert chunk.malformed_rows[0].raw_record == '{"email":"b@x.org","name":""}'


def test_an_old_workbook_is_read_with_the_same_people(tmp_path: Path) -> None:
    content = (SAMPLES / "people.xls").read_bytes()
    error_offset = content.index(
        b"\x05\x02\x08\x00\x05\x00\x02\x00"
    )  # replaces the only error value, #N/A, by the boolean FALSE
    path = write_file(tmp_path, "people.xls", content[: error_offset + 10] + b"\x00\x00" + content[error_offset + 12 :])
    (chunk,) = read_chunks(path)
    assert chunk.frame.drop(columns="tags").head(3).equals(EXPECTED_FRAME)
    assert chunk.malformed_rows == ()


@pytest.mark.parametrize("sheet", [None, "Other"])
def test_an_old_workbook_with_an_error_is_refused(sheet: str | None) -> None:
    with pytest.raises(SourceError, match=r"a cell has an error, such as #N/A\. .* Save the workbook as \.xlsx"):
        open_file(SAMPLES / "people.xls", sheet=sheet)


def test_the_error_of_a_workbook_with_a_password_shows_the_reason(tmp_path: Path) -> None:
    new_workbook, old_workbook = (
        (SAMPLES / "protected.xlsx").read_bytes(),
        bytearray((SAMPLES / "people.xls").read_bytes()),
    )
    record_offset = old_workbook.index(b"\x09\x08\x10\x00") + 20
    old_workbook[record_offset : record_offset + 2] = b"\x2f\x00"  # FILEPASS: the records that follow are encrypted
    for name, content in (("a.xlsx", new_workbook), ("a.xls", bytes(old_workbook))):
        with pytest.raises(
            SourceError, match=f"{name}: is protected by a password; save the file without the password"
        ):
            open_file(write_file(tmp_path, name, content))


def test_an_old_workbook_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    for length in range(8, 5632, 307):
        with pytest.raises(SourceError, match=r"a\.xls: is (not a workbook|a workbook that is damaged)"):
            open_file(write_file(tmp_path, "a.xls", (SAMPLES / "people.xls").read_bytes()[:length]))


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
    output = io.BytesIO()
    with xlsxwriter.Workbook(output) as workbook:
        worksheet, bold_format = workbook.add_worksheet(), workbook.add_format({"bold": True})
        worksheet.write_row(0, 0, ["email", "city"])
        worksheet.write_string(1, 0, "a@x.org")
        worksheet.write_string(2, 0, "b@x.org")
        worksheet.merge_range(1, 1, 2, 1, "Utrecht")
        for row, column in ((500, 0), (3, 40)):
            worksheet.write_blank(row, column, None, bold_format)
    assert read_rows(write_file(tmp_path, "a.xlsx", output.getvalue())) == [["a@x.org", "Utrecht"], ["b@x.org", ""]]


def test_a_sheet_that_is_formatted_to_its_last_row_is_read(tmp_path: Path) -> None:
    output = io.BytesIO()
    with xlsxwriter.Workbook(output) as workbook:
        worksheet, bold_format = workbook.add_worksheet(), workbook.add_format({"bold": True})
        worksheet.write_row(0, 0, ["email", *(f"column{index}" for index in range(20))])
        worksheet.write_string(1, 0, "a@x.org")
        worksheet.write_blank(1_048_575, 0, None, bold_format)
    assert [row[0] for row in read_rows(write_file(tmp_path, "a.xlsx", output.getvalue()))] == ["a@x.org"]


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
        ["email", "phone", "id"],
        ["a@x.org", 31612345678, "007"],
        ["b@x.org", "0031", 8],
        ["c@x.org", 5, True],
    ]
    (chunk,) = read_chunks(write_file(tmp_path, "a.xlsx", build_xlsx(rows)))
    assert chunk.number_cell_counts == {"phone": 2, "id": 1}


def test_a_sheet_that_is_too_large_for_the_memory_is_refused_before_it_is_loaded(tmp_path: Path) -> None:
    output = io.BytesIO()
    with xlsxwriter.Workbook(output) as workbook:
        worksheet = workbook.add_worksheet()
        worksheet.write(0, 0, "email")
        worksheet.write(1_048_575, 16_383, "x")  # loading the sheet would need 512 GiB and end the process
    expected_text = "spans 17,179,869,184 cells, down to XFD1048576, and at most 12,000,000 can be read"
    with pytest.raises(SourceError, match=expected_text):
        open_file(write_file(tmp_path, "a.xlsx", output.getvalue()))


def test_the_error_of_an_opendocument_spreadsheet_shows_how_to_save_it(tmp_path: Path) -> None:
    content = pack_zip(
        b"<office:document-content/>", "content.xml", {"mimetype": b"application/vnd.oasis.opendocument"}
    )
    with pytest.raises(SourceError, match=r"people\.ods: is an OpenDocument file .* save it as \.xlsx or as CSV"):
        open_file(write_file(tmp_path, "people.ods", content))


def test_a_workbook_whose_zip_directory_shows_too_many_bytes_is_refused(tmp_path: Path) -> None:
    entry_offset = (workbook := build_xlsx()).rindex(b"xl/sharedStrings.xml") - 46
    large_workbook = workbook[: entry_offset + 24] + (3 << 30).to_bytes(4, "little") + workbook[entry_offset + 28 :]
    with pytest.raises(SourceError, match="unpacks to more than 2 GiB; save the sheet as CSV instead"):
        open_file(write_file(tmp_path, "a.xlsx", large_workbook))


@pytest.mark.parametrize(
    ("rows", "expected_text"),
    [
        ([], "is empty"),
        ([["ann@example.com", "Ann"]], "has no header: its first row looks like a subscriber's"),
        ([[1, 2]], "has no header"),
        ([["email", "=NA()"]], "its header cannot be used: the cell B1 holds an error"),
    ],
)
def test_a_sheet_without_a_header_is_refused(tmp_path: Path, rows: list[list[object]], expected_text: str) -> None:
    path = write_file(tmp_path, "a.xlsx", build_xlsx(rows or [[""]]))
    with pytest.raises(SourceError, match=expected_text):
        open_file(path)


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


def write_formulas(path: Path, *formulas: tuple[str, object]) -> Path:
    with xlsxwriter.Workbook(path) as workbook:
        worksheet = workbook.add_worksheet()
        worksheet.write_row(0, 0, ["email", "name"])
        for row, (formula, value) in enumerate(formulas, start=1):
            worksheet.write(row, 0, f"p{row}@example.com")
            worksheet.write_formula(row, 1, formula, None, value)
    return path


def test_a_formula_that_was_never_computed_has_no_value(tmp_path: Path) -> None:
    path = write_formulas(tmp_path / "a.xlsx", ("=PROPER(D2)", "Ann"), ("=PROPER(D3)", 0), ("=PROPER(D4)", ""))
    (chunk,) = read_chunks(path)
    assert chunk.frame["name"].tolist() == ["Ann"]
    messages = [row.message for row in chunk.malformed_rows]
    assert ["the cell B3 holds a formula that was never computed" in messages[0], "B4" in messages[1]] == [True, True]
    with open_file(path) as source:
        (chunk,) = source.read_chunks(["email"])
    assert (len(chunk.frame), chunk.malformed_rows) == (3, ())


def test_a_formula_without_any_value_was_never_computed(tmp_path: Path) -> None:
    """openpyxl writes formulas without values."""
    path = write_formulas(tmp_path / "a.xlsx", ("=PROPER(D2)", "Ann"), ("=1+1", 2))
    edit_sheet(path, lambda xml: xml.replace("<v>2</v>", "<v/>"))
    (chunk,) = read_chunks(path)
    assert (chunk.frame["name"].tolist(), [row.number for row in chunk.malformed_rows]) == (["Ann"], [3])


def test_a_computed_zero_and_a_computed_empty_text_are_values(tmp_path: Path) -> None:
    """Excel and LibreOffice save formulas with their results, and do not request another computation."""
    path = write_formulas(tmp_path / "a.xlsx", ("=1-1", 0), ('=""', ""), ("=D2", "x"))
    edit_sheet(path, lambda xml: xml.replace(' fullCalcOnLoad="1"', ""), "xl/workbook.xml")
    (chunk,) = read_chunks(path)
    assert (chunk.frame["name"].tolist(), chunk.malformed_rows) == (["0", "", "x"], ())


def edit_sheet(path: Path, edit_xml: Callable[[str], str], part_path: str = "xl/worksheets/sheet1.xml") -> None:
    with zipfile.ZipFile(path) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    edited_text = edit_xml(contents[part_path].decode())
    assert edited_text != contents[part_path].decode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in {**contents, part_path: edited_text.encode()}.items():
            archive.writestr(name, content)


def test_a_workbook_whose_zip_directory_has_wrong_sizes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.xlsx"
    with xlsxwriter.Workbook(path) as workbook:
        worksheet = workbook.add_worksheet()
        worksheet.write_column(0, 0, ["email", *(f"person{index}@example.com" for index in range(1000))])
    content = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        size = archive.getinfo("xl/sharedStrings.xml").file_size
    entry = (
        content.rindex(b"xl/sharedStrings.xml") - 46
    )  # the entry in the central directory, with the size 24 bytes after its start
    assert content[entry : entry + 4] == b"PK\x01\x02"
    assert int.from_bytes(content[entry + 24 : entry + 28], "little") == size
    path.write_bytes(content[: entry + 24] + (100).to_bytes(4, "little") + content[entry + 28 :])
    with pytest.raises(SourceError, match="not a workbook that can be read"):
        read_chunks(path)


def test_hidden_rows_are_read_and_reported(tmp_path: Path) -> None:
    workbook = xlsxwriter.Workbook(str(tmp_path / "people.xlsx"))
    sheet = workbook.add_worksheet()
    for row, cells in enumerate((["email", "city"], ["a@x.org", "Bonn"], ["b@x.org", "Ulm"], ["c@x.org", "Bonn"])):
        sheet.write_row(row, 0, cells)
    sheet.autofilter(0, 0, 3, 1)
    sheet.filter_column(1, "x == Bonn")
    sheet.set_row(2, options={"hidden": True})
    sheet.set_row(9, options={"hidden": True})
    workbook.close()
    with open_file(str(tmp_path / "people.xlsx")) as source:
        (chunk,) = source.read_chunks()
    assert chunk.frame["email"].tolist() == ["a@x.org", "b@x.org", "c@x.org"]
    (message,) = chunk.messages
    assert "1 hidden row is used like the others. To leave hidden rows out, copy" in message
