"""CSV against Python's csv module: the source reads the same cells from the same bytes."""

import csv
import io
import unicodedata
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from hypothesis import assume, given, strategies as st

from connector.errors import SourceError
from connector.sources.csv import CsvDialect, find_refusal, parse_block
from connector.sources.csv_records import find_records
from tests.sources.csv.reading import open_csv

CODE_PAGES = ("cp1250", "cp1251", "cp1252", "iso8859-1", "iso8859-2", "iso8859-15", "koi8-r")
NAMED = ("utf-8", "utf-16-le", "gb18030", *CODE_PAGES)
TOLD = ("utf-8", "utf-8-sig", "utf-16")  # by themselves: no encoding is named
SIGNS = ",;\t| :\"'\\\r\n"

encodings = st.one_of(
    st.tuples(st.sampled_from(TOLD), st.just("auto")),
    st.sampled_from(NAMED).map(lambda name: (name, name)),
)
dialects = st.tuples(
    st.sampled_from([",", ";", "\t", "|", ":", " "]),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC]),
)


def draw_tables(encoding: str) -> st.SearchStrategy[list[list[str]]]:
    """Tables of text that the encoding has, with many of the signs that CSV is made of."""
    letters = st.characters(exclude_categories=("Cc", "Cs"))
    if encoding in CODE_PAGES:  # to have Hypothesis look for what a codec has costs seconds
        decoded = bytes(range(256)).decode(encoding, "ignore")
        letters = st.sampled_from([sign for sign in decoded if unicodedata.category(sign) != "Cc"])
    cells = st.text(st.one_of(st.sampled_from(SIGNS), letters), max_size=8)
    widths = st.integers(1, 4)
    return widths.flatmap(
        lambda width: st.lists(st.lists(cells, min_size=width, max_size=width), min_size=1, max_size=9)
    )


def write_as(rows: list[list[str]], delimiter: str, ending: str, quoting: Literal[0, 1, 2], encoding: str) -> bytes:
    written = io.StringIO(newline="")
    writer = csv.writer(written, delimiter=delimiter, lineterminator=ending, quoting=quoting)
    writer.writerow([f"c{place}" for place in range(len(rows[0]))])
    writer.writerows(rows)
    return written.getvalue().encode(encoding)


def is_record(row: list[str], delimiter: str) -> bool:
    """A line of blanks alone is none, which a quoted cell of blanks makes no more of."""
    return bool("".join(row).strip(" \t" if delimiter not in " \t" else " \t".replace(delimiter, "")))


@given(st.data(), encodings, dialects, st.one_of(st.none(), st.integers(1, 40)))
def test_a_table_that_the_csv_module_writes_is_read_back_unchanged(
    data: st.DataObject,
    encodings: tuple[str, str],
    dialect: tuple[str, str, Literal[0, 1, 2]],
    chunk_bytes: int | None,
) -> None:
    (encoding, named), (delimiter, ending, quoting) = encodings, dialect
    rows = data.draw(draw_tables(encoding))
    # Python 3.11 leaves a line break bare that is not its own; where that is both, it quotes enough.
    if quoting == csv.QUOTE_MINIMAL and ending != "\r\n":
        assume(not any(sign in cell for row in rows for cell in row for sign in "\r\n"))
    with TemporaryDirectory() as folder:
        path = Path(folder) / "people.csv"
        path.write_bytes(write_as(rows, delimiter, ending, quoting, encoding))
        with open_csv(path, delimiter=delimiter, encoding=named, chunk_bytes=chunk_bytes) as source:
            chunks = list(source.chunks())
    assert [row for chunk in chunks for row in chunk.malformed] == []
    read = [row for chunk in chunks for row in chunk.frame.to_numpy().tolist()]
    assert [row for row in read if is_record(row, delimiter)] == [row for row in rows if is_record(row, delimiter)]


@given(st.text(alphabet='ab",\n\r ', max_size=60), st.integers(1, 20))
def test_any_text_has_the_same_numbered_records_in_blocks_of_any_size(text: str, chunk_bytes: int) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "people.csv"
        path.write_text("x,y\n" + text, encoding="utf-8", newline="")
        whole, cut = read_all(path, None), read_all(path, chunk_bytes)
    assert whole == cut
    assert isinstance(whole, str) or sorted(number for number, _ in whole) == list(range(1, len(whole) + 1))


def read_all(path: Path, chunk_bytes: int | None) -> list[tuple[int, object]] | str:
    """Return each record's number with its cells, or with its line, text and code; or the refusal of the file."""
    try:
        with open_csv(path, delimiter=",", chunk_bytes=chunk_bytes) as source:
            chunks = list(source.chunks())
    except SourceError as error:
        return str(error)
    rows = [
        pair for chunk in chunks for pair in zip(chunk.numbers.tolist(), chunk.frame.to_numpy().tolist(), strict=True)
    ]
    return rows + [(row.number, (row.line, row.raw, row.code)) for chunk in chunks for row in chunk.malformed]


wild = st.text(alphabet='ab",\n\r ', max_size=40)


@given(wild, st.integers(1, 3))
def test_the_cells_of_a_record_are_the_cells_that_the_csv_module_finds(text: str, width: int) -> None:
    block = text.encode()
    records, dialect = find_records(block, ",", is_last=True), CsvDialect(",", width, "utf-8")
    assume(find_refusal(block, records, dialect) is None)
    parsed = parse_block(block, records, dialect, range(width))
    for row, place in zip(parsed.table.to_pylist(), parsed.indices.tolist(), strict=True):
        record = block[records.starts[place] : records.stops[place]].decode()
        found = next(csv.reader(io.StringIO(record, newline=""), strict=True))
        assert list(row.values()) == found
