"""What a job says of its settings, laid between the defaults and the environment."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import connector.settings
from connector.settings import Settings

if TYPE_CHECKING:  # who has no job need not wait for pydantic
    from connector.jobs.models import Job
    from connector.service.settings import Token


def read_settings(
    environ: Mapping[str, str],
    job: Job | None,
    *,
    token: Token | None = None,
    time_limit_s: float | None = None,
    is_writing: bool = True,
    service: Mapping[str, Any] = MappingProxyType({}),
) -> Settings:
    """Return the settings of a run of this job, or of none. `time_limit_s` has priority over the job's, and so have the
    values of `service`, which are named as in the job's `service` section.

    Raises ConfigurationError as `connector.settings.read_settings` does.
    """
    values: dict[str, Any] = {}
    if job is not None:
        values = {**dict(job.service), "may_make_ledger": job.ledger == "may_be_new", "retention_s": job.retention_s}
        time_limit_s = job.time_limit_s if time_limit_s is None else time_limit_s
    values |= service
    return connector.settings.read_settings(
        environ, **values, token=token, time_limit_s=time_limit_s, is_writing=is_writing
    )
