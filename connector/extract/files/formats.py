"""Which format a file is in: by what it holds first, by its name second, or as a person says. Pure."""

import codecs
import re
from collections.abc import Sequence
from typing import Literal, get_args

from connector.errors import ConfigurationError, SourceError

Format = Literal["csv", "tsv", "excel", "parquet", "jsonl"]
AUTO = "auto"
FORMATS: tuple[str, ...] = get_args(Format)

_BEGINNINGS: tuple[tuple[bytes, Format], ...] = (
    (b"PAR1", "parquet"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "excel"),  # .xls
    (b"PK\x03\x04", "excel"),  # .xlsx and .ods: any other zip archive was unpacked before
)
_SUFFIXES: tuple[tuple[tuple[str, ...], Format], ...] = (
    ((".jsonl", ".ndjson"), "jsonl"),
    ((".tsv", ".tab"), "tsv"),
)
_BOMS = (codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_OBJECT = re.compile(rb'\{\s*["}]')
_ARRAY = re.compile(rb"\[\s*[{\]]")

_MARKUP = re.compile(rb"<(!doctype|html|head|meta|style|table|\?xml)", re.IGNORECASE)

_WORDS = {"excel": "an Excel workbook or a spreadsheet", "parquet": "a Parquet file"}
_KEYS_OF = {"delimiter": ("csv",), "encoding": ("csv", "tsv", "jsonl"), "sheet": ("excel",)}


def decide_format(said: str, head: bytes, name: str, inner: str) -> Format:
    """The format of a file that begins with `head`; `said` is a format or `auto`, `inner` the name whose suffix counts.

    Raises ConfigurationError for a format that does not exist, SourceError where `said` cannot be what the file holds.
    """
    if said != AUTO and said not in FORMATS:
        raise ConfigurationError(f"format {said!r} is not known; use auto, {', '.join(FORMATS)}")
    held = next((form for magic, form in _BEGINNINGS if head.startswith(magic)), None)
    text = head.removeprefix(next((bom for bom in _BOMS if head.startswith(bom)), b"")).replace(b"\0", b"").lstrip()
    if said == AUTO:
        return held or _decide_text(text, name, inner)
    if held is not None and held != said:
        raise SourceError(f"{name}: is {_WORDS[held]}, and not {said}; say format auto or {held}")
    if held is None and said in _WORDS:
        raise SourceError(f"{name}: is not {_WORDS[said]}; say format auto, or the one that it is in")
    return next(form for form in get_args(Format) if form == said)


def refuse_misfits(form: Format, name: str, **said: str | None) -> None:
    """Raise ConfigurationError for what was said of a file (delimiter, encoding, sheet) that its format has not."""
    for key, value in said.items():
        if value not in (None, AUTO) and form not in _KEYS_OF[key]:
            raise ConfigurationError(
                f"{name}: is read as {form}, which has no {key}: leave {key} out, or say the format that is meant"
            )


def _decide_text(text: bytes, name: str, inner: str) -> Format:
    by_suffix = next((form for suffixes, form in _SUFFIXES if inner.lower().endswith(suffixes)), None)
    if _ARRAY.match(text):
        raise SourceError(
            f"{name}: is a JSON array, and not JSON Lines: write one object a line, as `jq -c '.[]'` does"
        )
    if _MARKUP.match(text):
        raise SourceError(
            f"{name}: is a web page or XML, whatever its name says; open it in a spreadsheet, save it as .xlsx or CSV"
        )
    if by_suffix == "jsonl" or _OBJECT.match(text):
        return "jsonl"
    return "tsv" if by_suffix == "tsv" and b"\t" in _first_line(text) else "csv"


def _first_line(text: bytes) -> bytes:
    lines: Sequence[bytes] = text.splitlines()
    return lines[0] if lines else b""
