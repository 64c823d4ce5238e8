"""Opens one file of any format, or all files that match a pattern.

The content decides the format. If the content is not enough, the suffix decides."""

import codecs
import glob
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from os import PathLike, fspath
from pathlib import Path

import pandas as pd

from connector.choices import FILE_FORMATS, FileFormat
from connector.errors import ConfigurationError, SourceError
from connector.rows import Chunk, CloseableResource, Source, closed_on_error
from connector.sources.cell_text import TEXT
from connector.sources.csv import CsvSource
from connector.sources.inputs import Input, exists, open_input
from connector.stores import StoreError, find_objects, is_url, parse_store_url
from connector.texts import choose_form, count

AUTO = "auto"

_FORMAT_BY_BEGINNING: tuple[tuple[bytes, FileFormat], ...] = (
    (b"PAR1", "parquet"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "excel"),  # .xls
    (b"PK\x03\x04", "excel"),  # .xlsx; any other zip archive was unpacked before
)
_BOMS = (codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_JSON_BEGINNING_PATTERN = re.compile(rb'\{\s*["}]|\[\s*[{\]]')
_MARKUP_BEGINNING_PATTERN = re.compile(rb"<(!doctype|html|head|meta|style|table|\?xml)", re.IGNORECASE)

_NAME_BY_FORMAT = {"excel": "an Excel workbook", "parquet": "a Parquet file"}
_FORMATS_BY_OPTION = {"delimiter": ("csv",), "encoding": ("csv", "tsv", "jsonl"), "sheet": ("excel",)}


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
    auto. With auto, the content decides, and then the suffix. `sheet` is the name of a sheet, or its number from 1. If
    `sheet` is None, the first visible sheet is read.

    Raises SourceError if the file cannot be read in this format, and ConfigurationError if an option does not fit the
    format.
    """
    source_input = open_input(path)
    with closed_on_error(source_input):
        return CheckedFile(_open_format(source_input, format, encoding, delimiter, sheet), source_input)


class CheckedFile(CloseableResource):
    """A file as a source. The file is refused if it changes while rows are read."""

    def __init__(self, source: Source, source_input: Input) -> None:
        self.name, self.columns = source.name, source.columns
        self.origin_state = source_input.origin_state
        self._source, self._input = source, source_input

    def read_chunks(self, used_columns: Collection[str] | None = None) -> Iterator[Chunk]:
        """See `Source`. Raises SourceError also if the file has changed since it was opened."""
        chunks = self._source.read_chunks(used_columns)
        while True:
            chunk = None
            try:
                chunk = next(chunks, None)
            finally:
                # Check for a change after an error, too: a file that became shorter looks damaged to its reader.
                if self._input.is_local or chunk is None:
                    # An object is checked only at the end, because each check is a request.
                    self._input.refuse_changed_file()
            if chunk is None:
                return
            yield chunk

    def close(self) -> None:
        """Release the file. A second call does nothing."""
        self._source.close()
        self._input.close()


def _open_format(source_input: Input, format_option: str, encoding: str, delimiter: str, sheet: str | None) -> Source:
    """Return the source of an input. `format_option` is a format, or auto. Raises the errors of `open_file`."""
    file_format = _decide_format(format_option, source_input)
    if file_format == "tsv" and format_option == AUTO and delimiter != AUTO:
        file_format = "csv"  # the option `delimiter` overrules the suffix `.tsv`, which means a tab
    option_values = {"delimiter": delimiter, "encoding": encoding, "sheet": sheet}
    for key, formats in _FORMATS_BY_OPTION.items():
        if option_values[key] not in (None, AUTO) and file_format not in formats:
            raise ConfigurationError(
                f"{source_input.name}: is read as {file_format}, which has no `{key}`: leave `{key}` out, or name the "
                "right format"
            )
    if file_format == "excel":
        # Imported here, because a CSV file does not need the libraries of other formats.
        from connector.sources.workbook import open_workbook

        return open_workbook(source_input, sheet)
    if file_format == "parquet":
        from connector.sources.columnar import ParquetSource

        return ParquetSource(source_input)
    if file_format == "jsonl":
        from connector.sources.json_lines import JsonSource

        return JsonSource(source_input, encoding)
    return CsvSource(source_input, delimiter="\t" if file_format == "tsv" else delimiter, encoding=encoding)


def open_files(path: str | PathLike[str], open_source: Callable[[str], Source]) -> Source:
    """Open the file of this path or URL. If no such file exists and the path is a pattern (`*`, `?`, `[…]`, `**`), open
    all matching files.

    Files are read in the order of their names. Hidden files match only a pattern that begins with a dot. `open_source`
    opens one file. Raises SourceError if no file matches. Also raises the errors of `open_source`.
    """
    name = fspath(path)
    if not glob.has_magic(name) or exists(name) or exists(name.partition("#")[0]):
        return open_source(name)
    if is_url(name):
        try:
            paths: Sequence[str] = find_objects(parse_store_url(name))
        except StoreError as error:
            raise SourceError(f"{name}: the store cannot be searched: {error}") from None
    else:
        paths = [path for path in sorted(glob.glob(name, recursive=True)) if not Path(path).is_dir()]  # noqa: PTH207
    if not paths:
        raise SourceError(
            f"{name}: no file matches this pattern. Check whether the files have arrived. If the name of a "
            "file has the character [, write [[] in the pattern"
        )
    return MatchedFiles(name, paths, open_source)


def _find_origin_state(source: Source) -> tuple[int, object] | None:
    """Return the state of the file when the source was opened (`Input.origin_state`). Return None for a source that is
    not a file."""
    return source.origin_state if isinstance(source, CheckedFile) else None


class MatchedFiles(CloseableResource):
    """Several files of rows, opened by `open_files`. `columns` are the columns of all files, each once, in the order of
    the files.

    If a file lacks a column, its rows have no value in this column. Row numbers begin again in each file.
    """

    def __init__(self, name: str, paths: Sequence[str], open_source: Callable[[str], Source]) -> None:
        self.name = name
        self._opener = open_source
        self.columns_by_file: dict[str, tuple[str, ...]] = {}
        self._state_by_path: dict[str, object] = {}
        for path in paths:
            with open_source(path) as source:
                self.columns_by_file[path] = source.columns
                self._state_by_path[path] = _find_origin_state(source)
        self.columns = tuple(dict.fromkeys(name for columns in self.columns_by_file.values() for name in columns))
        self._open_source: Source | None = None

    def read_chunks(self, used_columns: Collection[str] | None = None) -> Iterator[Chunk]:
        """See `Source`. Raises SourceError also if a file has changed since the run began."""
        for index, (path, columns) in enumerate(self.columns_by_file.items()):
            with self._opener(path) as source:
                self._open_source = source
                if source.columns != columns or _find_origin_state(source) != self._state_by_path[path]:
                    raise SourceError(
                        f"{path}: has changed since the run began. Wait until the file is complete, and run again"
                    )
                for chunk in source.read_chunks(used_columns):
                    if chunk.read_share is not None:
                        chunk = replace(chunk, read_share=(index + chunk.read_share) / len(self.columns_by_file))
                    if tuple(chunk.frame.columns) != self.columns:
                        frame = chunk.frame.reindex(columns=pd.Index(self.columns)).astype(TEXT)
                        chunk = replace(chunk, frame=frame)
                    yield chunk

    def close(self) -> None:
        """Close the open file, if there is one. A second call does nothing."""
        if self._open_source is not None:
            self._open_source.close()


def refuse_missing_columns(source: Source, columns: Sequence[str]) -> None:
    """Raise ConfigurationError if a file of the source lacks one of these columns."""
    columns_by_file: dict[str, tuple[str, ...]] = getattr(source, "columns_by_file", {})
    missing_columns = [
        (path, name) for path, file_columns in columns_by_file.items() for name in columns if name not in file_columns
    ]
    if missing_columns:
        path, name = missing_columns[0]
        further_count = len(missing_columns) - 1
        further_columns_message = ""
        if further_count:
            verb = choose_form(further_count, "is", "are")
            further_columns_message = f" ({count(further_count, 'more column')} {verb} missing in these files)"
        raise ConfigurationError(
            f"{path}: has no column {name}, which other files of {source.name} have{further_columns_message}; its "
            f"columns: {', '.join(columns_by_file[path])}. Give every file the columns that are mapped, or narrow the "
            "pattern"
        )


def _decide_format(format_option: str, source_input: Input) -> FileFormat:
    """Return the format of an input: `format_option`, or for `auto` the format that the content or the suffix shows.

    Raises ConfigurationError for an unknown format, and SourceError if the content has another format.
    """
    if format_option != AUTO and format_option not in FILE_FORMATS:
        raise ConfigurationError(f"format {format_option!r} is not known; use `auto`, `{'`, `'.join(FILE_FORMATS)}`")
    first_bytes = source_input.first_bytes
    name = source_input.name
    suffix = Path(source_input.inner_name).suffix.lower()
    detected_format = next(
        (file_format for beginning, file_format in _FORMAT_BY_BEGINNING if first_bytes.startswith(beginning)), None
    )
    if format_option != AUTO:
        if detected_format is not None and detected_format != format_option:
            raise SourceError(
                f"{name}: is {_NAME_BY_FORMAT[detected_format]}, and not {format_option}; use the format `auto` or "
                f"{detected_format}"
            )
        if detected_format is None and format_option in _NAME_BY_FORMAT:
            raise SourceError(
                f"{name}: is not {_NAME_BY_FORMAT[format_option]}; use the format `auto`, or the right format"
            )
        return next(file_format for file_format in FILE_FORMATS if file_format == format_option)
    if detected_format is not None:
        return detected_format
    bom = next((bom for bom in _BOMS if first_bytes.startswith(bom)), b"")
    text = first_bytes.removeprefix(bom).replace(b"\0", b"").lstrip()
    if _MARKUP_BEGINNING_PATTERN.match(text):
        raise SourceError(
            f"{name}: is a web page or XML, whatever its name says; open it in a spreadsheet, save it as .xlsx or CSV"
        )
    if suffix in (".jsonl", ".ndjson") or _JSON_BEGINNING_PATTERN.match(text):
        return "jsonl"
    return "tsv" if suffix in (".tsv", ".tab") and b"\t" in next(iter(text.splitlines()), b"") else "csv"
