"""One opener for a file of any format."""

from os import PathLike

from connector.extract.chunk import Source
from connector.extract.csv import open_csv
from connector.extract.files.content import Content, open_content
from connector.extract.files.formats import AUTO, decide_format, refuse_misfits
from connector.extract.files.json_lines import open_json_lines
from connector.extract.files.keeping import KeptInput
from connector.extract.files.parquet import open_parquet
from connector.extract.files.workbook import open_excel


def open_file(
    path: str | PathLike[str],
    *,
    format: str = AUTO,  # noqa: A002 - the word of the job file and the option
    encoding: str = AUTO,
    delimiter: str = AUTO,
    sheet: str | None = None,
) -> Source:
    """Open a file of rows, or standard input for the path `-`; gzip, zip (of one file) and Zstandard are undone.

    `format` is csv, tsv, excel (.xlsx, .xls, .ods), parquet, jsonl, or auto: what the file holds decides, then its
    suffix. `encoding` and `delimiter` are those of a text, `sheet` is a workbook's: a name, or a number from 1 (the
    first that is not hidden when not given).

    Raises SourceError for what cannot be read as such a file, ConfigurationError for what was said of it and cannot be.
    """
    return _open(open_content(path), format, encoding, delimiter, sheet)


def open_kept(
    path: str | PathLike[str],
    kept: KeptInput,
    *,
    format: str = AUTO,  # noqa: A002 - as above
    encoding: str = AUTO,
    delimiter: str = AUTO,
    sheet: str | None = None,
) -> Source:
    """The same of what was kept of the pipe at `path`, as often as is wanted."""
    return _open(open_content(path, kept.open()), format, encoding, delimiter, sheet)


def _open(content: Content, said: str, encoding: str, delimiter: str, sheet: str | None) -> Source:
    try:
        form = decide_format(said, content.head, content.name, content.inner)
        if form == "tsv" and said == AUTO and delimiter != AUTO:
            form = "csv"  # by its suffix alone, and the delimiter was said
        refuse_misfits(form, content.name, delimiter=delimiter, encoding=encoding, sheet=sheet)
        if form == "excel":
            return open_excel(content, sheet)
        if form == "parquet":
            return open_parquet(content)
        if form == "jsonl":
            return open_json_lines(content, encoding)
        return _open_text(content, "\t" if form == "tsv" else delimiter, encoding)
    except BaseException:
        content.close()
        raise


def _open_text(content: Content, delimiter: str, encoding: str) -> Source:
    return open_csv(content.name, delimiter=delimiter, encoding=encoding, stream=content)
