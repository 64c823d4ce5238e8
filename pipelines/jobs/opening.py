"""A source or list that a job names, opened; it knows nothing of what the rows are for."""

from pathlib import Path

from connector.extract import Source, open_file, open_files, open_sql
from pipelines.jobs.sources import FileSource, JobSource, Suppress


def open_source(source: JobSource | Suppress) -> Source:
    """The file, files or query as rows of text. Raises SourceError or ConfigurationError, as the opener does."""
    if source.file is not None:
        file = source.file
        return open_files(file.path, lambda path: open_as(path, file))
    if source.sql is None:  # the model lets no such source through
        raise ValueError("a source is a file or a query")
    return open_sql(source.sql.url, query=source.sql.query, table=source.sql.table)


def open_as(path: str | Path, file: FileSource) -> Source:
    """A file as another is said to be written. Raises SourceError or ConfigurationError."""
    return open_file(path, format=file.format, encoding=file.encoding, delimiter=file.delimiter, sheet=file.sheet)
