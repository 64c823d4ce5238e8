"""Job files: read, checked and turned into values. `pipelines.jobs.conversion` makes the library's own of them."""

from pipelines.jobs.bases import Base
from pipelines.jobs.loading import check_format, load_job, override_load
from pipelines.jobs.models import Export, Filters, Guard, Job, JobService, JobSubscriber, Load
from pipelines.jobs.sources import FileSource, JobSource, SqlSource, Suppress

__all__ = [
    "Base",
    "Export",
    "FileSource",
    "Filters",
    "Guard",
    "Job",
    "JobService",
    "JobSource",
    "JobSubscriber",
    "Load",
    "SqlSource",
    "Suppress",
    "check_format",
    "load_job",
    "override_load",
]
