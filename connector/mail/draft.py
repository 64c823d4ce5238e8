"""An email as a person has said it so far, and the whole message that it makes with what holds where they said nothing.

The service decides on its own whatever setting is null or left out (api.md 2.2), so each is stated: by the draft, else
by the job, else by DEFAULT_SETTINGS. A null is sent only for a null that a person wrote; SendAt and UseDkimSelector
apart, whose null means at once, and no selector.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType

from connector.choices import TRACKING
from connector.mail.send_times import check_send_at
from connector.protocol.email import Attachment, EmailSettings, Header, Message, Recipient, TrackingSettings
from connector.protocol.email_rules import MessageError

Stated = Mapping[str, bool | str | None]
"""Settings by the names of TRACKING and SETTINGS; what is not in it was not said."""

DEFAULT_SETTINGS: Stated = MappingProxyType(
    {
        "track_links": False,
        "track_plain_text_links": False,
        "track_open": False,
        "track_unsubscribe": False,
        "inline_images": False,
        "use_dkim": True,
        "use_dkim_selector": None,
    }
)
"""Nobody is tracked, and nothing in the email altered, unless somebody asks for it; and it is signed."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Draft:
    """What was said of an email; None and empty where nothing was. `settings` as `Stated`, `send_at` aware."""

    sender: Recipient | None = None
    to: tuple[Recipient, ...] = ()
    cc: tuple[Recipient, ...] = ()
    bcc: tuple[Recipient, ...] = ()
    reply_to: tuple[Recipient, ...] = ()
    subject: str | None = None
    html: str | None = None
    plain_text: str | None = None
    headers: tuple[Header, ...] = ()
    attachments: tuple[Attachment, ...] = ()
    settings: Stated = field(default_factory=dict)
    send_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Composed:
    """A message that holds every rule of api.md 2.2, and what its sender should be told besides."""

    message: Message
    warnings: tuple[str, ...]


def compose(draft: Draft, defaults: Stated, now: datetime) -> Composed:
    """The message of a draft; `defaults` are the job's settings, `now` is aware.

    Raises MessageError, which names the first field that is missing or breaks a rule.
    """
    if draft.sender is None:
        raise MessageError("Email.From", "is missing: every email needs a sender's address")
    if draft.subject is None:
        raise MessageError("Email.Subject", "is missing; an empty one is written as an empty text")
    stated = {**DEFAULT_SETTINGS, **defaults, **draft.settings}
    message = Message(
        tracking=TrackingSettings(**{name: _read_flag(stated, name) for name in TRACKING}),
        settings=EmailSettings(
            inline_images=_read_flag(stated, "inline_images"),
            send_at=check_send_at(draft.send_at, now),
            use_dkim=_read_flag(stated, "use_dkim"),
            use_dkim_selector=_read_selector(stated),
        ),
        sender=draft.sender,
        to=draft.to,
        cc=draft.cc,
        bcc=draft.bcc,
        reply_to=draft.reply_to,
        subject=draft.subject,
        html=draft.html,
        plain_text=draft.plain_text,
        headers=draft.headers,
        attachments=draft.attachments,
    )
    return Composed(message, tuple(_find_oddities(message)))


def _read_flag(stated: Stated, name: str) -> bool | None:
    value = stated[name]
    if isinstance(value, str):
        raise MessageError(name, "must be true, false or null")
    return value


def _read_selector(stated: Stated) -> str | None:
    value = stated["use_dkim_selector"]
    if isinstance(value, bool):
        raise MessageError("EmailSettings.UseDkimSelector", "must be a text or null")
    return value or None


def _find_oddities(message: Message) -> list[str]:
    """What is allowed and may not be meant."""
    found = []
    if message.settings.use_dkim_selector and message.settings.use_dkim is False:
        found.append(
            "EmailSettings.UseDkimSelector is given and EmailSettings.UseDkim is false: the service signs all the same"
        )
    return found
