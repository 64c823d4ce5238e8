from .job_runs import (
    run_job as run_job,
)
from .jobs import (
    Job as Job,
)
