"""One email from Python, as `connector send` sends it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from connector.clock import system_clock
from connector.library.threads import RunOptions, collect_settings, refuse_unknown, run_flow
from connector.mail.draft import MOST_ATTACHED, Draft, compose_draft, parse_recipient, read_attachment
from connector.mail.message import SETTINGS, TRACKING, Header, Recipient
from connector.mail.single import run_send

if TYPE_CHECKING:
    from datetime import datetime

    from connector.report import Report


class SendOptions(RunOptions, total=False):
    """How the service sends an email."""

    track_links: bool | None
    track_plain_text_links: bool | None
    track_open: bool | None
    track_unsubscribe: bool | None
    inline_images: bool | None
    use_dkim: bool | None
    use_dkim_selector: str | None


def send_email(
    *,
    to: str | Sequence[str],
    sender: str,
    subject: str,
    html: str | None = None,
    text: str | None = None,
    cc: str | Sequence[str] = (),
    bcc: str | Sequence[str] = (),
    reply_to: str | Sequence[str] = (),
    headers: Mapping[str, str] | None = None,
    attachments: Sequence[str | PathLike[str]] = (),
    inline: Mapping[str, str | PathLike[str]] | None = None,
    max_attached_bytes: int = MOST_ATTACHED,
    send_at: datetime | None = None,
    **options: Unpack[SendOptions],
) -> Report:
    """Send one email, at most once, as `connector send` does; `report.email` has the ids that the service answered.

    Addresses are `ann@example.com` or `Ann Lee <ann@example.com>`, one or several. `html` and `text` are the bodies
    themselves; the text is made from the HTML if it is not given. `attachments` are paths; `inline` are files that the
    HTML shows as `cid:ID`, by id; none has more than `max_attached_bytes`. `send_at` is an aware time. Of the settings
    from `track_links` on, None means what `connector send` does: nothing is tracked, and DKIM signs.

    The email is on record before it leaves and is never sent again: `report.email["state"]` is sent, rejected, unknown
    or unsent. Settings are those of `import_subscribers`. Raises ConfigurationError for a message that breaks a rule,
    and for a token that is refused.

    >>> from connector import send_email
    >>> report = send_email(to="Ann Lee <ann@example.com>", sender="hello@example.com", subject="Hi", text="Hello Ann")
    >>> report.email["state"], report.rows["sent"]
    ('sent', 1)
    """
    refuse_unknown(options, SendOptions)
    attached = [read_attachment(Path(path), most_bytes=max_attached_bytes) for path in attachments]
    shown = [
        read_attachment(Path(path), most_bytes=max_attached_bytes, disposition="inline", content_id=content_id)
        for content_id, path in (inline or {}).items()
    ]
    stated: Mapping[str, Any] = {**options}
    draft = Draft(
        sender=parse_recipient(sender, "Email.From"),
        to=_parse(to, "Email.To"),
        cc=_parse(cc, "Email.Cc"),
        bcc=_parse(bcc, "Email.Bcc"),
        reply_to=_parse(reply_to, "Email.ReplyTo"),
        subject=subject,
        html=html,
        plain_text=text,
        headers=tuple(Header(name, value) for name, value in (headers or {}).items()),
        attachments=(*shown, *attached),
        settings={name: value for name in (*TRACKING, *SETTINGS) if (value := stated.get(name)) is not None},
        send_at=send_at,
    )
    settings = collect_settings(options)
    message = compose_draft(draft, system_clock().now())
    return run_flow(lambda stop, progress: run_send(message, settings, stop, progress), settings.time_limit_s)


def _parse(given: str | Sequence[str], field: str) -> tuple[Recipient, ...]:
    return tuple(parse_recipient(each, field) for each in ([given] if isinstance(given, str) else given))
