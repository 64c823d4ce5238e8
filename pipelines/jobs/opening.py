"""A source or list that a job names, opened; it knows nothing of what the rows are for."""

from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from connector.rows import Source
from connector.sources import (
    IncrementalSource,
    open_file,
    open_files,
    open_incremental,
    open_repeatedly,
    open_sql,
    spool_pipe,
)
from pipelines.jobs.cursors import Cursor
from pipelines.jobs.sources import FileSource, JobSource, SqlRows, SqlSource, Suppress


def open_source(source: JobSource | Suppress) -> Source:
    """The file, files or query as rows of text. Raises SourceError or ConfigurationError, as the opener does."""
    if source.file is not None:
        file = source.file
        return open_files(file.path, lambda path: open_as(path, file))
    if source.sql is None:  # the model lets no such source through
        raise ValueError("a source is a file or a query")
    if isinstance(source.sql, SqlSource) and source.sql.cursor is not None:
        return open_increment(source.sql, source.sql.cursor)
    return open_sql(source.sql.url, query=source.sql.query, table=source.sql.table)


def open_source_repeatedly(source: JobSource) -> Source:
    """The same, to be read more than once; of an incremental one, as it is. Raises as `open_source` does."""
    if source.file is not None:
        file = source.file
        return open_path_repeatedly(
            file.path, lambda path, spool: open_files(path, lambda each: open_as(each, file, spool))
        )
    return open_repeatedly(lambda: open_source(source))


def open_path_repeatedly(path: Path, opener: Callable[[Path, BinaryIO | None], Source]) -> Source:
    """What `opener` opens of a path (and of the spool, if it is a pipe), to be read more than once."""
    spool = spool_pipe(path)
    return open_repeatedly(lambda: opener(path, spool), spool.close if spool is not None else lambda: None)


def open_as(path: str | Path, file: FileSource, spool: BinaryIO | None = None) -> Source:
    """A file, or the spool of a pipe, with the options of `file`. Raises SourceError, ConfigurationError."""
    return open_file(
        path, format=file.format, encoding=file.encoding, delimiter=file.delimiter, sheet=file.sheet, spool=spool
    )


def open_increment(sql: SqlRows, cursor: Cursor) -> IncrementalSource:
    """The query or table, to be read from the cursor's start on unless it is told otherwise. Raises the same."""
    source = open_incremental(sql.url, query=sql.query, table=sql.table, column=cursor.column, kind=cursor.kind)
    source.begin_at(cursor.first)
    return source
