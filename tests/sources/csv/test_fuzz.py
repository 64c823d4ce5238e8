"""What Python's csv module writes of any text, in any dialect and encoding read here, is read back cell for cell."""

import csv
import io
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from hypothesis import assume, given, strategies as st

from tests.sources.csv.reading import open_csv

NAMED = (
    "utf-8",
    "utf-16-le",
    "cp1250",
    "cp1251",
    "cp1252",
    "iso8859-1",
    "iso8859-2",
    "iso8859-15",
    "koi8-r",
    "gb18030",
)
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
    letters = st.characters(exclude_categories=("Cc", "Cs"), codec=encoding)
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
def test_whatever_the_csv_module_writes_is_read_back_cell_for_cell(
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
def test_whatever_the_text_every_record_has_its_number_and_blocks_change_nothing(text: str, chunk_bytes: int) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "people.csv"
        path.write_text("x,y\n" + text, encoding="utf-8", newline="")
        whole, cut = read_all(path, None), read_all(path, chunk_bytes)
    assert whole == cut
    assert sorted(number for number, _ in whole) == list(range(1, len(whole) + 1))


def read_all(path: Path, chunk_bytes: int | None) -> list[tuple[int, object]]:
    """Each record's number with its cells, or with its line, text and code."""
    with open_csv(path, delimiter=",", chunk_bytes=chunk_bytes) as source:
        chunks = list(source.chunks())
    rows = [
        pair for chunk in chunks for pair in zip(chunk.numbers.tolist(), chunk.frame.to_numpy().tolist(), strict=True)
    ]
    return rows + [(row.number, (row.line, row.raw, row.code)) for chunk in chunks for row in chunk.malformed]
