"""A source or list that a job names, opened; it knows nothing of what the rows are for."""

from connector.extract import Source, open_csv, open_sql
from pipelines.jobs.sources import JobSource, Suppress


def open_source(source: JobSource | Suppress) -> Source:
    """The file or query as rows of text. Raises SourceError or ConfigurationError, as the opener does."""
    if source.file is not None:
        return open_csv(source.file.path, delimiter=source.file.delimiter, encoding=source.file.encoding)
    if source.sql is None:  # the model lets no such source through
        raise ValueError("a source is a file or a query")
    return open_sql(source.sql.url, query=source.sql.query, table=source.sql.table)
