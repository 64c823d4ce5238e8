"""Files of names in 29 languages and their usual encodings: the source reads a file correctly, or refuses to guess.

`CONNECTOR_LANGUAGE_SEEDS` is the number of files for each language, encoding and number of rows.
"""

import os
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from connector.sources.encoding import decide_encoding

WESTERN_LANGUAGES = "French German Spanish Portuguese Italian Catalan Dutch Danish Swedish Norwegian Finnish Icelandic"
CENTRAL_EUROPEAN_LANGUAGES = "Polish Czech Slovak Hungarian Slovenian Croatian Albanian Romanian"
CYRILLIC_LANGUAGES = "Russian Ukrainian Bulgarian Serbian Belarusian"
LANGUAGES_BY_ENCODINGS = {  # the usual encodings of files in these languages
    "cp1252 iso8859-1 iso8859-15": WESTERN_LANGUAGES,
    "cp1250 iso8859-2": CENTRAL_EUROPEAN_LANGUAGES,
    "cp1251 iso8859-5": CYRILLIC_LANGUAGES,
    "cp1253 iso8859-7": "Greek",
    "cp1254 iso8859-9": "Turkish",
    "cp1257 iso8859-15": "Estonian",
    "cp1257 iso8859-13": "Latvian Lithuanian",
    "cp1255 iso8859-8": "Hebrew",
    "cp1256 iso8859-6": "Arabic",
}
ENCODINGS_BY_LANGUAGE = {
    language: tuple(encodings.split())
    for encodings, names in LANGUAGES_BY_ENCODINGS.items()
    for language in names.split()
}


def _read_names() -> dict[str, tuple[list[str], list[str], list[str]]]:
    blocks = (Path(__file__).parent / "names.txt").read_text(encoding="utf-8").strip().split("\n\n")
    lines = [block.splitlines() for block in blocks]
    return {
        language: (first_names.split(), last_names.split(), towns.split())
        for language, first_names, last_names, towns in lines
    }


NAMES_BY_LANGUAGE = _read_names()
"""The first names, last names and towns of each language."""


SEED_COUNT = int(os.environ.get("CONNECTOR_LANGUAGE_SEEDS", "3"))
LANGUAGES_BY_OLD_ENCODINGS = {  # the source uses these encodings of DOS and KOI8 only if a job names them
    "cp850 cp437": "French German Spanish Danish Swedish Portuguese Italian",
    "cp852": "Polish Czech Hungarian",
    "cp866 koi8-r": "Russian Bulgarian",
    "koi8-u": "Ukrainian",
    "cp857": "Turkish",
    "cp737": "Greek",
    "cp862": "Hebrew",
}


def build_text(language: str, row_count: int, seed: int) -> str:
    """Return the text of a CSV file with invented subscribers, whose addresses are ASCII."""
    choose_random = random.Random(f"{language} {row_count} {seed}").choice
    first_names, last_names, towns = NAMES_BY_LANGUAGE[language]
    lines = [
        f"s{n}@example.com,{choose_random(first_names)},{choose_random(last_names)},{choose_random(towns)}\r\n"
        for n in range(row_count)
    ]
    return "email,first_name,last_name,city\r\n" + "".join(lines)


def build_files(row_count: int) -> Iterator[tuple[str, str, str]]:
    """Yield language, encoding and text of each file that is not ASCII."""
    for language, encodings in ENCODINGS_BY_LANGUAGE.items():
        for seed in range(SEED_COUNT):
            text = build_text(language, row_count, seed)
            yield from ((language, encoding, text) for encoding in encodings if not text.isascii())


def count_results(row_count: int) -> Counter[str]:
    result_counts: Counter[str] = Counter()
    for _, encoding, text in build_files(row_count):
        content = text.encode(encoding)
        guessed_encoding = decide_encoding(content).encoding
        if guessed_encoding is None:
            result_counts["refused"] += 1
        else:
            result_counts["right" if content.decode(guessed_encoding, "replace") == text else "wrong"] += 1
    return result_counts


def test_at_least_95_percent_of_the_files_are_read_correctly_and_at_most_half_a_percent_wrongly() -> None:
    counts_by_row_count = {row_count: count_results(row_count) for row_count in (3, 10, 40)}
    total_counts = sum(counts_by_row_count.values(), Counter[str]())
    share_by_result = {result: total_counts[result] / total_counts.total() for result in ("right", "wrong")}
    assert share_by_result["right"] >= 0.95, counts_by_row_count
    assert share_by_result["wrong"] <= 0.005, counts_by_row_count
    assert counts_by_row_count[40]["right"] >= 0.98 * counts_by_row_count[40].total(), counts_by_row_count


def test_a_file_in_an_encoding_of_dos_or_koi8_is_not_read_as_another_encoding() -> None:
    for encodings, languages in LANGUAGES_BY_OLD_ENCODINGS.items():
        for encoding in encodings.split():
            for language in languages.split():
                for row_count in (3, 10, 40):
                    text = build_text(language, row_count, 0)
                    if text.isascii() or text.encode(encoding, "ignore").decode(encoding) != text:
                        continue  # the encoding does not have all letters of the text
                    guessed_encoding = decide_encoding(text.encode(encoding)).encoding
                    assert guessed_encoding is None, (encoding, language, row_count, guessed_encoding)
