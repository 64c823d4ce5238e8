"""The arguments of the methods of `Connector`, by their names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Literal, TypedDict

from connector.library.threads import ServiceOptions

if TYPE_CHECKING:
    from datetime import datetime

    from connector.jobs.models import Job


class ConnectorOptions(ServiceOptions, total=False):
    """The service, the state folder and the ledger."""

    account: str | None
    state_dir: str | PathLike[str] | None
    ledger: str | None


class RowOptions(TypedDict, total=False):
    """The base of the rows, the meaning of their columns, and the format of a file."""

    base_id: int | None
    base_name: str | None
    active: bool | None
    mapping: Mapping[str, str] | None
    ignore: Sequence[str]
    identity: Literal["email", "client_user_id"]
    zip: Literal["omit", "reject", "custom_field1", "custom_field2", "custom_field3"]
    limit: int | None
    name: str
    job: str | PathLike[str] | Job | None
    format: Literal["auto", "csv", "tsv", "excel", "parquet", "jsonl"]
    encoding: str
    delimiter: str
    sheet: str | None
    time_limit_s: float | None


class ImportOptions(RowOptions, total=False):
    """The rows, and the settings of the load."""

    on_unknown: Literal["resend", "hold"]
    look: Literal["auto", "none"]
    allow_truncated: bool
    ignore_total_count: bool
    quiet_period_s: float
    max_concurrency: int
    max_rate: float | None
    receipts: str | PathLike[str] | None
    wait_s: float


class SyncOptions(TypedDict, total=False):
    """The rows of a job's source that are read, the destination of receipts, and the time limits of a run."""

    full: bool
    since: str | None
    limit: int | None
    receipts: str | PathLike[str] | None
    wait_s: float
    time_limit_s: float | None


class SendOptions(TypedDict, total=False):
    """The optional parts of an email, and the settings of sending."""

    html: str | None
    text: str | None
    cc: str | Sequence[str]
    bcc: str | Sequence[str]
    reply_to: str | Sequence[str]
    headers: Mapping[str, str] | None
    attachments: Sequence[str | PathLike[str]]
    inline: Mapping[str, str | PathLike[str]] | None
    max_attached_bytes: int
    send_at: datetime | None
    track_links: bool | None
    track_plain_text_links: bool | None
    track_open: bool | None
    track_unsubscribe: bool | None
    inline_images: bool | None
    use_dkim: bool | None
    use_dkim_selector: str | None
    time_limit_s: float | None
