"""What a job says of its settings, laid between the defaults and the environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import connector.settings
from connector.settings import JobSettings, SettingOptions, Settings

if TYPE_CHECKING:  # who has no job need not wait for pydantic
    from pipelines.jobs.models import Job


def read_settings(
    environ: Mapping[str, str], job: Job | None, options: SettingOptions, *, is_writing: bool = True
) -> Settings:
    """Return the settings of a run of this job, or of none; if it `is_writing`, makes the state folder (0700).

    Raises ConfigurationError as `connector.settings.read_settings` does.
    """
    return connector.settings.read_settings(environ, _describe(job), options, is_writing=is_writing)


def read_account(environ: Mapping[str, str], job: Job | None, options: SettingOptions) -> str:
    """Return the account that the ledger's entries are of. Raises ConfigurationError as
    `connector.settings.read_account` does."""
    return connector.settings.read_account(environ, _describe(job), options)


def _describe(job: Job | None) -> JobSettings:
    if job is None:
        return JobSettings()
    service = job.service
    return JobSettings(
        base_url=service.base_url,
        account=service.account,
        authorization=service.authorization,
        timeout_s=service.timeout_s,
        proxy=service.proxy,
        may_make_ledger=job.ledger == "may_be_new",
        retention_s=job.retention_s,
        time_limit_s=job.time_limit_s,
    )
