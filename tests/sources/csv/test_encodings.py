"""The encoding of a file: the source guesses and reports the encoding, or obeys the job. If the encoding is not
certain, the source rejects rows."""

import re
from pathlib import Path

import pytest

from connector.sources.encoding import decide_encoding
from tests.sources.csv.reading import read_file, write_file

NAMES_BY_LANGUAGE = {
    "German": "Jörg Müller Jürgen Weiß Günther Schäfer Böhm Jäger Köhler Schröder",
    "French": "François Hélène Benoît Chloé Gérard Lefèvre Élodie Béranger Noémie Françoise Maël Aimé Cécile",
    "Polish": "Łukasz Małgorzata Wiśniewski Wójcik Kowalczyk Dąbrowski Łódź Gdańsk Poznań Świętosław",
    "Russian": "Иванов Петрова Сергей Анна Кузнецов Смирнова Дмитрий Екатерина Владимир",
}
LANGUAGES_AND_ENCODINGS = [
    ("German", "cp1252"), ("German", "utf-16-be"), ("French", "iso8859-15"), ("Polish", "iso8859-2"),
    ("Russian", "cp1251"), ("Russian", "utf-16-le"),
]  # fmt: skip


def write_people(folder: Path, names_text: str, encoding: str) -> tuple[Path, list[list[str]]]:
    rows = [[f"{index}@x.org", name, "Ann"] for index, name in enumerate(names_text.split())]
    text = "\n".join(",".join(row) for row in [["email", "name", "first"], *rows])
    return write_file(folder, text.encode(encoding)), rows


@pytest.mark.parametrize(("language", "encoding"), LANGUAGES_AND_ENCODINGS)
def test_an_encoding_is_guessed_and_reported(tmp_path: Path, language: str, encoding: str) -> None:
    path, rows = write_people(tmp_path, NAMES_BY_LANGUAGE[language], encoding)
    file = read_file(path)
    assert file.rows == rows
    (message,) = file.messages
    assert re.match(f"{re.escape(str(path))}: read as .*(found|recognised)", message)


def test_a_guess_is_reported_with_some_decoded_names(tmp_path: Path) -> None:
    path, _ = write_people(tmp_path, NAMES_BY_LANGUAGE["French"], "cp1252")
    (message,) = read_file(path).messages
    assert "read as cp1252, found by its words (François, Hélène, Benoît, Noémie" not in message
    assert "read as cp1252, found by its words (François, Hélène, Benoît" in message
    assert "--encoding NAME, or source.file.encoding in a job" in message


@pytest.mark.parametrize(
    ("names_text", "encoding", "reason"),
    [
        ("Zoë Noël", "cp1252", r"it may be cp1252 \(Zoë\) or cp1257 \(Zoė\)"),
        ("山田 太郎 佐藤 花子 鈴木 一郎 高橋 さくら 田中", "cp932",
         "its words are not possible words in any Windows or ISO encoding"),
    ],
)  # fmt: skip
def test_an_uncertain_encoding_is_not_guessed(tmp_path: Path, names_text: str, encoding: str, reason: str) -> None:
    path, rows = write_people(tmp_path, f"Ann {names_text} Bob", encoding)
    file = read_file(path)
    assert [row[1] for row in file.rows] == ["Ann", "Bob"]
    assert [row.code for row in file.malformed_rows] == ["encoding"] * (len(rows) - 2)
    (message,) = file.messages
    assert re.search(f"its encoding is not certain: {reason}", message)
    file_with_encoding = read_file(path, encoding=encoding)
    assert (file_with_encoding.rows, file_with_encoding.messages) == (rows, [])


@pytest.mark.parametrize(("utf8_row_count", "cp1252_row_count"), [(40, 1), (3, 1), (5, 10)])
def test_a_utf8_file_with_some_rows_in_another_encoding_is_read_as_utf8(
    tmp_path: Path, utf8_row_count: int, cp1252_row_count: int
) -> None:
    rows = b"1,M\xc3\xbcller\n" * utf8_row_count + b"2,M\xfcller\n" * cp1252_row_count
    file = read_file(write_file(tmp_path, b"id,name\n" + rows))
    assert file.rows == [["1", "Müller"]] * utf8_row_count
    assert [row.code for row in file.malformed_rows] == ["encoding"] * cp1252_row_count
    assert file.messages == []


def test_a_file_that_is_half_in_utf8_is_not_read_as_another_encoding(tmp_path: Path) -> None:
    cp1252_rows = "\n".join(f"{n},{name}" for n, name in enumerate(NAMES_BY_LANGUAGE["German"].split())).encode(
        "cp1252"
    )
    file = read_file(write_file(tmp_path, b"id,name\n" + cp1252_rows + "\n99,Größe".encode()))
    assert "GrÃ¶ÃŸe" not in [row[1] for row in file.rows]
    assert any("not certain" in message for message in file.messages)


def test_an_encoding_is_guessed_by_characters_anywhere_in_the_file(tmp_path: Path) -> None:
    rows = [["10001", "Ann Lee"]] * 200_000 + [["10002", name] for name in NAMES_BY_LANGUAGE["Polish"].split() * 200]
    path = write_file(tmp_path, ("id,name\n" + "".join(f"{a},{b}\n" for a, b in rows)).encode("cp1250"))
    assert path.stat().st_size > 2 << 20
    file = read_file(path)
    assert file.rows == rows
    assert [len(chunk.messages) for chunk in file.chunks] == [1] + [0] * (len(file.chunks) - 1)


@pytest.mark.parametrize(
    ("name", "encoding", "byte_count_before"),
    [("Jürgen", "utf-8", 1), ("€uro", "utf-8", 1), ("€uro", "utf-8", 2), ("Müller", "cp1252", 0)],
)
def test_a_character_that_is_cut_at_the_end_of_the_sample_does_not_change_the_guess(
    tmp_path: Path, name: str, encoding: str, byte_count_before: int
) -> None:
    sample_size = 1 << 18  # the source examines this number of bytes first
    file_start = "id,name\n" + "1,Ann\n" * (sample_size // 6 - 5)
    file_start += "2," + "x" * (sample_size - len(file_start) - 2 - byte_count_before)
    assert len(file_start) == sample_size - byte_count_before
    names = [name, *NAMES_BY_LANGUAGE["German"].split()]
    file = read_file(write_file(tmp_path, (file_start + "\n3,".join(names)).encode(encoding)))
    assert [row[1].lstrip("x") for row in file.rows[-len(names) :]] == names
    assert file.malformed_rows == []


def test_a_late_row_is_rejected_if_it_has_too_few_letters_to_guess_the_encoding(tmp_path: Path) -> None:
    file = read_file(write_file(tmp_path, b"id,name\n" + b"1,Ann\n" * 300_000 + b"2,No\xebl Zo\xeb\n3,Ann\n"))
    assert [(row.line, row.code) for row in file.malformed_rows] == [(300_002, "encoding")]
    assert sum(len(chunk.frame) for chunk in file.chunks) == 300_001
    assert ["not certain" in message for message in file.messages] == [True]


def test_a_row_is_rejected_if_it_has_a_byte_that_the_guessed_encoding_lacks(tmp_path: Path) -> None:
    path, rows = write_people(tmp_path, NAMES_BY_LANGUAGE["German"] + " Ann" * 100_000, "cp1252")
    with path.open("ab") as people_file:
        people_file.write(b"\nlast@x.org,Jo\x81n,Ann")
    (row,) = read_file(path).malformed_rows
    assert (row.number, row.code) == (len(rows) + 2, "encoding")
    assert "not cp1252" in row.message


def test_a_byte_order_mark_decides_the_encoding(tmp_path: Path) -> None:
    file = read_file(write_file(tmp_path, b"\xef\xbb\xbfid,name\n1,M\xfcller\n2,Ann\n"))
    assert (file.rows, file.messages) == ([["2", "Ann"]], [])


@pytest.mark.parametrize("names", [["Niccolò", "Zoë"], ["René", "Jürgen", "Müller"], ["Andrè", "José", "Niccolò"]])
def test_names_in_mac_roman_are_not_read_as_another_encoding(names: list[str]) -> None:
    text = "\n".join(names)
    assert decide_encoding(text.encode("mac_roman")).encoding is None
    assert decide_encoding(text.encode("cp1252")).encoding == "cp1252"


def test_an_accent_in_place_of_an_apostrophe_does_not_cause_a_wrong_encoding() -> None:
    assert decide_encoding("O´Neil\nD´Angelo\nMüller\nZoë".encode("cp1252")).encoding in ("cp1252", None)
