"""Names of people and towns in 29 languages, and the encodings in which their files usually are."""

from pathlib import Path

_WESTERN = "French German Spanish Portuguese Italian Catalan Dutch Danish Swedish Norwegian Finnish Icelandic"
_CENTRAL = "Polish Czech Slovak Hungarian Slovenian Croatian Albanian Romanian"
_CYRILLIC = "Russian Ukrainian Bulgarian Serbian Belarusian"
_OF = {
    "cp1252 iso8859-1 iso8859-15": _WESTERN,
    "cp1250 iso8859-2": _CENTRAL,
    "cp1251 iso8859-5": _CYRILLIC,
    "cp1253 iso8859-7": "Greek",
    "cp1254 iso8859-9": "Turkish",
    "cp1257 iso8859-15": "Estonian",
    "cp1257 iso8859-13": "Latvian Lithuanian",
    "cp1255 iso8859-8": "Hebrew",
    "cp1256 iso8859-6": "Arabic",
}
ENCODINGS = {language: tuple(encodings.split()) for encodings, names in _OF.items() for language in names.split()}
UTF = ("utf-8", "utf-8-sig", "utf-16", "utf-16-le")


def _read_names() -> dict[str, tuple[list[str], list[str], list[str]]]:
    blocks = (Path(__file__).parent / "names.txt").read_text(encoding="utf-8").strip().split("\n\n")
    lines = [block.splitlines() for block in blocks]
    return {language: (given.split(), family.split(), towns.split()) for language, given, family, towns in lines}


NAMES = _read_names()
"""Given names, family names and towns by language."""
