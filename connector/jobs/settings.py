"""Reads the settings of a run: the environment overrides the job, and the job overrides the defaults."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import connector.settings
from connector.settings import Settings

if TYPE_CHECKING:  # a run without a job does not import pydantic
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
    """Return the settings of a run, with or without a job. `time_limit_s` and `service` override the job; `service` has
    the keys of the job's `service` section.

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
