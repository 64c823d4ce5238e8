"""Opens one file of any format, or all files of a pattern. The content decides the format, then the suffix."""

import codecs
import glob
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from os import PathLike, fspath
from pathlib import Path
from typing import Literal, get_args

import pandas as pd

from connector.choices import FILE_FORMATS
from connector.errors import ConfigurationError, SourceError
from connector.rows import Chunk, CloseableResource, Source, closed_on_error
from connector.sources.cell_text import TEXT
from connector.sources.csv import open_csv
from connector.sources.inputs import Input, is_there, open_input
from connector.stores import StoreError, find_objects, is_url, parse_store_url

FileFormat = Literal["csv", "tsv", "excel", "parquet", "jsonl"]
AUTO = "auto"

_BEGINNINGS: tuple[tuple[bytes, FileFormat], ...] = (
    (b"PAR1", "parquet"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "excel"),  # .xls
    (b"PK\x03\x04", "excel"),  # .xlsx: another zip archive is unpacked before
)
_BOMS = (codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_OBJECT = re.compile(rb'\{\s*["}]')
_ARRAY = re.compile(rb"\[\s*[{\]]")
_MARKUP = re.compile(rb"<(!doctype|html|head|meta|style|table|\?xml)", re.IGNORECASE)

_WORDS = {"excel": "an Excel workbook", "parquet": "a Parquet file"}
_FORMATS_OF = {"delimiter": ("csv",), "encoding": ("csv", "tsv", "jsonl"), "sheet": ("excel",)}


def open_file(
    path: str | PathLike[str],
    *,
    format: str = AUTO,  # noqa: A002 - the name of the job key and the option
    encoding: str = AUTO,
    delimiter: str = AUTO,
    sheet: str | None = None,
) -> Source:
    """Open a file of rows, standard input (`-`), an object by its URL (`s3://bucket/people.csv`), or one file of a zip
    archive (`archive.zip#member.csv`).

    Files packed by gzip, zip and Zstandard are unpacked. `format` is csv, tsv, excel (.xlsx, .xls), parquet, jsonl, or
    auto: the content decides, then the suffix. `sheet` is the name of a sheet, or its number from 1; None: the first
    visible sheet.

    Raises SourceError if the file cannot be read in this format, and ConfigurationError if an option does not fit the
    format.
    """
    source_input = open_input(path)
    with closed_on_error(source_input):
        return CheckedFile(_open_format(source_input, format, encoding, delimiter, sheet), source_input)


class CheckedFile(CloseableResource):
    """A file as a source. The file is refused if it changes while rows are read."""

    def __init__(self, source: Source, source_input: Input) -> None:
        self.name, self.columns, self.state = source.name, source.columns, source_input.state
        self._source, self._input = source, source_input

    def chunks(self, used: Collection[str] | None = None) -> Iterator[Chunk]:
        """See `Source`. Raises SourceError also if the file has changed since it was opened."""
        chunks = self._source.chunks(used)
        while True:
            chunk = None
            try:
                chunk = next(chunks, None)
            finally:  # also after an error: a file that another program has cut off looks damaged
                if self._input.is_local or chunk is None:  # each check of an object is a request
                    self._input.refuse_changed()
            if chunk is None:
                return
            yield chunk

    def close(self) -> None:
        """Release the file; may be called more than once."""
        self._source.close()
        self._input.close()


def _open_format(source_input: Input, named: str, encoding: str, delimiter: str, sheet: str | None) -> Source:
    """Return the source of an input. `named` is its format, or auto. Raises the errors of `open_file`."""
    form = _decide_format(named, source_input)
    if form == "tsv" and named == AUTO and delimiter != AUTO:
        form = "csv"  # the suffix says tsv, and an option sets the delimiter
    options = {"delimiter": delimiter, "encoding": encoding, "sheet": sheet}
    misfit = next((key for key in _FORMATS_OF if options[key] not in (None, AUTO) and form not in _FORMATS_OF[key]), "")
    if misfit:
        raise ConfigurationError(
            f"{source_input.name}: is read as {form}, which has no {misfit}: leave {misfit} out, or name "
            "the right format"
        )
    if form == "excel":
        from connector.sources.workbook import open_workbook  # here: a CSV file needs no library of other formats

        return open_workbook(source_input, sheet)
    if form == "parquet":
        from connector.sources.columnar import ParquetSource

        return ParquetSource(source_input)
    if form == "jsonl":
        from connector.sources.json_lines import JsonLinesSource

        return JsonLinesSource(source_input, encoding)
    return open_csv(source_input, delimiter="\t" if form == "tsv" else delimiter, encoding=encoding)


def open_files(path: str | PathLike[str], opener: Callable[[str], Source]) -> Source:
    """Open the file of this path or URL. If no such file exists and the path is a pattern (`*`, `?`, `[…]`, `**`), open
    all matching files.

    Files are read in the order of their names. Hidden files match only a pattern that begins with a dot. Raises
    SourceError if no file matches, and the errors of `opener`.
    """
    name = fspath(path)
    if not glob.has_magic(name) or is_there(name) or is_there(name.partition("#")[0]):
        return opener(name)
    if is_url(name):
        try:
            paths: Sequence[str] = find_objects(parse_store_url(name))
        except StoreError as error:
            raise SourceError(f"{name}: the store cannot be searched: {error}") from None
    else:
        paths = [path for path in sorted(glob.glob(name, recursive=True)) if not Path(path).is_dir()]  # noqa: PTH207
    if not paths:
        raise SourceError(
            f"{name}: no file matches; check the pattern ([ in a folder's name is written [[]), and whether the "
            "files have arrived"
        )
    return MatchedFiles(name, paths, opener)


class MatchedFiles(CloseableResource):
    """Several files of rows, opened by `open_files`. `columns` are the columns of all files in the order of the files.

    If a file lacks a column, its rows have no value there. Record numbers begin again in each file.
    """

    def __init__(self, name: str, paths: Sequence[str], opener: Callable[[str], Source]) -> None:
        self.name = name
        self._opener = opener
        self.columns_by_file: dict[str, tuple[str, ...]] = {}
        self._states: dict[str, object] = {}
        for path in paths:
            with opener(path) as source:
                self.columns_by_file[path] = source.columns
                self._states[path] = getattr(source, "state", None)
        self.columns = tuple(dict.fromkeys(name for columns in self.columns_by_file.values() for name in columns))
        self._open: Source | None = None

    def chunks(self, used: Collection[str] | None = None) -> Iterator[Chunk]:
        """See `Source`. Raises SourceError also for a file that has changed."""
        for index, (path, columns) in enumerate(self.columns_by_file.items()):
            with self._opener(path) as source:
                self._open = source
                if source.columns != columns or getattr(source, "state", None) != self._states[path]:
                    raise SourceError(f"{path}: has changed since the run began. Wait until it is complete; run again")
                for chunk in source.chunks(used):
                    share = None if chunk.share is None else (index + chunk.share) / len(self.columns_by_file)
                    if tuple(chunk.frame.columns) != self.columns:
                        frame = chunk.frame.reindex(columns=pd.Index(self.columns)).astype(TEXT)
                        chunk = replace(chunk, frame=frame)
                    yield replace(chunk, share=share)

    def close(self) -> None:
        """Close the open file, if there is one. May be called more than once."""
        if self._open is not None:
            self._open.close()


def refuse_lacking(source: Source, columns: Sequence[str]) -> None:
    """Raise ConfigurationError if a file of the source lacks one of these columns."""
    by_file: dict[str, tuple[str, ...]] = getattr(source, "columns_by_file", {})
    lacking = [(path, name) for path, own in by_file.items() for name in columns if name not in own]
    if lacking:
        path, name = lacking[0]
        more = f" ({len(lacking) - 1} more are missing in these files)" if len(lacking) > 1 else ""
        raise ConfigurationError(
            f"{path}: has no column {name}, which other files of {source.name} have{more}; its columns: "
            f"{', '.join(by_file[path])}. Give every file the columns that are mapped, or narrow the pattern"
        )


def _decide_format(named: str, source_input: Input) -> FileFormat:
    """Return the `named` format of an input. For `auto`, the content decides, then the suffix.

    Raises ConfigurationError for an unknown format, and SourceError if the content has another format.
    """
    if named != AUTO and named not in FILE_FORMATS:
        raise ConfigurationError(f"format {named!r} is not known; use auto, {', '.join(FILE_FORMATS)}")
    head, name, suffix = source_input.head, source_input.name, Path(source_input.inner).suffix.lower()
    detected = next((form for magic, form in _BEGINNINGS if head.startswith(magic)), None)
    if named != AUTO:
        if detected is not None and detected != named:
            raise SourceError(f"{name}: is {_WORDS[detected]}, and not {named}; use format auto or {detected}")
        if detected is None and named in _WORDS:
            raise SourceError(f"{name}: is not {_WORDS[named]}; use format auto, or the right format")
        return next(form for form in get_args(FileFormat) if form == named)
    if detected is not None:
        return detected
    text = head.removeprefix(next((bom for bom in _BOMS if head.startswith(bom)), b"")).replace(b"\0", b"").lstrip()
    if _ARRAY.match(text):
        raise SourceError(
            f"{name}: is a JSON array, and not JSON Lines: write one object on each line, for example with `jq -c "
            "'.[]'`"
        )
    if _MARKUP.match(text):
        raise SourceError(
            f"{name}: is a web page or XML, whatever its name says; open it in a spreadsheet, save it as .xlsx or CSV"
        )
    if suffix in (".jsonl", ".ndjson") or _OBJECT.match(text):
        return "jsonl"
    return "tsv" if suffix in (".tsv", ".tab") and b"\t" in next(iter(text.splitlines()), b"") else "csv"
