"""Records that are no rows: each is told by number and line, and costs no other."""

from itertools import pairwise
from pathlib import Path

import pytest

from connector.errors import SourceError
from tests.sources.csv.reading import open_csv, read, write


def test_ragged_rows_are_told_by_number_and_line_and_never_shifted(tmp_path: Path) -> None:
    path = write(tmp_path, 'a,b\n1,"x\ny"\n\nshort\n3,4\n5,6,7\n8,9\n')
    (chunk,) = read(path)
    assert chunk.frame.to_numpy().tolist() == [["1", "x\ny"], ["3", "4"], ["8", "9"]]
    assert chunk.numbers.tolist() == [1, 3, 5]
    short, long = chunk.malformed
    assert (short.number, short.line, short.raw, short.code) == (2, 5, "short", "ragged")
    assert (long.number, long.line, long.raw, long.code) == (4, 7, "5,6,7", "ragged")
    assert "1 cells where the header has 2" in short.message


def test_an_undecodable_byte_costs_its_row_and_not_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, "a,b\nMüller,1\n".encode() + b"M\xfcller,2\nragged\xff,1,2\n" + "Ω,3\n".encode())
    (chunk,) = read(path)
    assert chunk.frame["a"].tolist() == ["Müller", "Ω"]
    assert chunk.numbers.tolist() == [1, 4]
    assert [(row.number, row.line, row.code) for row in chunk.malformed] == [(2, 3, "encoding"), (3, 4, "encoding")]
    assert chunk.malformed[0].raw == r"M\xfcller,2"
    assert "0xFC" in chunk.malformed[0].message
    assert "--encoding cp1252, or source.file.encoding in a job" in chunk.malformed[0].message


def test_utf8_that_only_looks_right_is_undecodable_too(tmp_path: Path) -> None:
    surrogate, overlong = b"\xed\xa0\x80", b"\xc0\xaf"
    (chunk,) = read(write(tmp_path, b"a,b\n" + surrogate + b",1\n" + overlong + b",2\nok,3\n"))
    assert chunk.numbers.tolist() == [3]
    assert [row.code for row in chunk.malformed] == ["encoding", "encoding"]


def test_what_is_shown_of_a_record_can_be_written_to_a_file_and_read_again(tmp_path: Path) -> None:
    controls = bytes(octet for octet in (*range(32), 127) if octet not in b"\r\n")
    (chunk,) = read(write(tmp_path, b"a,b\n" + controls + b"\xff," + b"x" * 400 + b"\n"))
    (row,) = chunk.malformed
    shown = "".join("\t" if octet == 9 else f"\\x{octet:02x}" for octet in (*controls, 0xFF))
    assert row.raw == f"{shown},{'x' * 400}"
    (ragged,) = read(write(tmp_path, b'a,b\n"\x1b\t\r\n",2,3\n'))[0].malformed
    assert ragged.raw == '"\\x1b\t\r\n",2,3'


@pytest.mark.parametrize("chunk_bytes", [None, 8])
@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("below", ["", '9,"Dan"', '9,"Dan, Jr."\n', '9,"a ""b"", c"'])
def test_a_quote_that_is_not_closed_costs_its_row_and_none_below(
    tmp_path: Path, below: str, ending: str, chunk_bytes: int | None
) -> None:
    content = f'a,b\n1,2\n3,"Ann\n5,6\n\n{below}'
    chunks = read(write(tmp_path, content.replace("\n", ending)), chunk_bytes=chunk_bytes)
    rows = [row for chunk in chunks for row in chunk.frame.to_numpy().tolist()]
    good = read(write(tmp_path, f"a,b\n1,2\n5,6\n{below}".replace("\n", ending)))
    assert rows == [row for chunk in good for row in chunk.frame.to_numpy().tolist()]
    malformed = [row for chunk in chunks for row in chunk.malformed]
    assert [(row.number, row.line, row.code, row.raw) for row in malformed] == [(2, 3, "unclosed_quote", '3,"Ann')]


@pytest.mark.parametrize("between", [0, 1, 30])
@pytest.mark.parametrize("end", ["", "\n", '\n9,"Eve, Jr."\n'])
@pytest.mark.parametrize("chunk_bytes", [None, 20])
def test_a_quote_that_is_not_closed_up_to_another_such_costs_only_the_two_rows(
    tmp_path: Path, between: int, end: str, chunk_bytes: int | None
) -> None:
    rows = [["5", "6"]] * between
    content = 'a,b\n1,2\n3,"Ann\n' + "5,6\n" * between + f'4,"Ben\n7,8{end}'
    chunks = read(write(tmp_path, content), chunk_bytes=chunk_bytes)
    read_rows = [row for chunk in chunks for row in chunk.frame.to_numpy().tolist()]
    assert read_rows == [["1", "2"], *rows, ["7", "8"], *([["9", "Eve, Jr."]] if "Eve" in end else [])]
    assert [(row.line, row.code, row.raw) for chunk in chunks for row in chunk.malformed] == [
        (3, "unclosed_quote", '3,"Ann'), (4 + between, "unclosed_quote", '4,"Ben'),
    ]  # fmt: skip


def test_rows_below_a_quote_that_is_not_closed_have_faults_of_their_own(tmp_path: Path) -> None:
    rows = [["5", "6"]] * 9
    (chunk,) = read(write(tmp_path, 'a,b\n3,"Ann\n' + "5,6\n" * 9 + '7\n\n8,"x,y"\n8,"Bob\n' + "5,6\n" * 9))
    assert chunk.frame.to_numpy().tolist() == [*rows, ["8", "x,y"], *rows]
    assert [(row.number, row.line, row.code) for row in chunk.malformed] == [
        (1, 2, "unclosed_quote"), (11, 12, "ragged"), (13, 15, "unclosed_quote"),
    ]  # fmt: skip


def test_a_quote_that_is_not_closed_costs_no_large_file(tmp_path: Path) -> None:
    line = "x" * 1000 + ",y\n"
    path = write(tmp_path, "a,b\n" + line * 50 + '-,"Ann\n' + line * 20_000)
    chunks = read(path)
    assert path.stat().st_size > 1 << 24  # so much is never held for one record
    assert sum(len(chunk.frame) for chunk in chunks) == 20_050
    assert [(row.line, row.code) for chunk in chunks for row in chunk.malformed] == [(52, "unclosed_quote")]


def test_a_quote_that_takes_in_what_are_no_rows_ends_the_reading_and_says_where(tmp_path: Path) -> None:
    path = write(tmp_path, 'a,b\n1,2\n3,"' + "no row\n" * 3_000_000)
    with open_csv(path) as source, pytest.raises(SourceError, match="begins on line 3 is longer than 16 MiB"):
        list(source.chunks())


@pytest.mark.parametrize(
    "cell",
    [
        '"he said\n5,6\n"hi" there"', '"dear all,\nas I said\nyesterday,"hello"',
        '"one\ntwo\n7,8,"three', '"5,6\n7,8"x', '"text\nmore text\nand more',
    ],
)  # fmt: skip
def test_lines_of_a_cell_are_not_taken_for_rows(tmp_path: Path, cell: str) -> None:
    (chunk,) = read(write(tmp_path, f"a,b\n1,2\n3,{cell}"))
    assert chunk.frame["a"].tolist() == ["1"]
    assert "".join(row.raw for row in chunk.malformed).replace("\n", "") == f"3,{cell}".replace("\n", "")


@pytest.mark.parametrize(
    "stray",
    ['"q1@ex.com"garbage,A', 'q2@ex.com,"Jo "the man" Doe"', r'q3@ex.com,"A\"b\""', '"q4@ex.com" ,A', '"a""b"c,A',
     'q5@ex.com,"a"""b', '"a\nb"c,"d"', '"a"b,ragged,too'],
)  # fmt: skip
@pytest.mark.parametrize("chunk_bytes", [None, 20])
def test_a_cell_that_goes_on_after_its_quote_costs_its_row_and_no_other(
    tmp_path: Path, stray: str, chunk_bytes: int | None
) -> None:
    path = write(tmp_path, f'email,name\n"1@x.com","one\nline"\n{stray}\n2@x.com,"a ""b"""\n{stray}\n3@x.com,c')
    chunks = read(path, chunk_bytes=chunk_bytes)
    assert [row for chunk in chunks for row in chunk.frame.to_numpy().tolist()] == [
        ["1@x.com", "one\nline"], ["2@x.com", 'a "b"'], ["3@x.com", "c"],
    ]  # fmt: skip
    malformed = [row for chunk in chunks for row in chunk.malformed]
    later = 6 + stray.count("\n")
    assert [(row.number, row.line, row.code) for row in malformed] == [(2, 4, "stray_quote"), (4, later, "stray_quote")]
    assert {row.raw for row in malformed} == {stray}
    assert "twice" in malformed[0].message
    assert "@" not in malformed[0].message


def test_a_row_that_takes_in_others_says_so(tmp_path: Path) -> None:
    (chunk,) = read(write(tmp_path, 'a,b\n1,"Ann\n2,Ben,3\n3,"Cem"\n4,Dan\n'))
    (row,) = chunk.malformed
    assert (row.line, row.code, row.raw) == (2, "stray_quote", '1,"Ann\n2,Ben,3\n3,"Cem"')
    assert "takes in 2 more lines, which were not read as rows of their own" in row.message
    assert chunk.frame["a"].tolist() == ["4"]


def test_an_oversized_record_is_shown_by_its_beginning(tmp_path: Path) -> None:
    cell = "x" * (1 << 20)
    (chunk,) = read(write(tmp_path, f"a,b\n1,2\n3,{cell}\n5,6\n"))
    (row,) = chunk.malformed
    assert (row.number, row.line, row.code, row.raw) == (2, 3, "oversized", f"3,{cell[: (1 << 16) - 2]}…")
    assert "longer than 1024 KiB" in row.message
    largest = "y" * ((1 << 20) - 2)
    assert read(write(tmp_path, f"a,b\n1,{largest}\n"))[0].frame["b"].tolist() == [largest]


def test_malformed_rows_come_with_the_rows_around_them(tmp_path: Path) -> None:
    content = "a,b\n" + "".join("1,\n" if n % 10_000 else "ragged\n" for n in range(1, 120_001))
    chunks = read(write(tmp_path, content), chunk_bytes=1 << 20)
    assert max(len(chunk.frame) for chunk in chunks) == 50_000
    seen = [number for chunk in chunks for number in chunk.numbers.tolist()]
    assert sorted(seen + [row.number for chunk in chunks for row in chunk.malformed]) == list(range(1, 120_001))
    for before, after in pairwise(chunks):
        assert max(row.number for row in before.malformed) < min(after.numbers)


def test_a_file_of_malformed_rows_alone_gives_empty_frames(tmp_path: Path) -> None:
    (chunk,) = read(write(tmp_path, "a,b\n1\n2\n"))
    assert chunk.frame.shape == (0, 2)
    assert [str(dtype) for dtype in chunk.frame.dtypes] == ["str", "str"]
    assert [row.number for row in chunk.malformed] == [1, 2]


def test_a_file_that_is_not_in_the_named_encoding_is_told_row_by_row_in_good_time(tmp_path: Path) -> None:
    path = write(tmp_path, b"a,b\n" + b"M\xfcller,2\n" * 50_000)
    chunks = read(path, encoding="utf-8")
    assert sum(len(chunk.malformed) for chunk in chunks) == 50_000
    assert chunks[-1].malformed[-1].line == 50_001
