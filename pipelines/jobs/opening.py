"""The source that a job names, opened; it knows nothing of what the rows are for."""

from connector.extract import Source, open_csv, open_sql
from pipelines.jobs.models import JobSource


def open_source(source: JobSource) -> Source:
    """The job's file or query as rows of text. Raises SourceError or ConfigurationError, as the opener does."""
    if source.file is not None:
        return open_csv(source.file.path, delimiter=source.file.delimiter, encoding=source.file.encoding)
    if source.sql is None:  # the model lets no such source through
        raise ValueError("a source is a file or a query")
    return open_sql(source.sql.url, query=source.sql.query, table=source.sql.table)
