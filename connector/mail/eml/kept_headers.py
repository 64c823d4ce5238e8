"""Which headers of an .eml file are the writer's, to be sent again, and which belong to that one email and its way."""

import re

_NOT_KEPT = {
    "fields of their own": "from to cc bcc reply-to subject",
    "how that file was put together; the new email is put together anew": "mime-* content-*",
    "of that sending; the service gives the new one its own": "date message-id sender resent-*",
    "the way it went, as servers and mailboxes wrote it down": """
        received received-* x-received return-path delivered-to x-delivered-to envelope-to x-envelope-* x-original-*
        x-forwarded-* x-originating-* x-sender* x-source* x-get-message-sender-via x-antiabuse x-authenticated-*
        x-rcpt-to x-google-* x-gm-* x-ms-* x-microsoft-* x-forefront-* x-exchange-* x-tm-* x-ses-* x-sg-* x-mailgun-*
        x-mandrill-*""",
    "what proves that email and no other; on an altered one it proves a forgery": """
        dkim-* x-dkim* domainkey-* arc-* authentication-* x-authentication-* bimi-* autocrypt* openpgp x-pgp-*""",
    "what filters thought of that email": """
        x-spam* x-virus* x-rspamd* x-ham* x-barracuda* x-proofpoint* x-mimecast* x-ironport* x-amavis* x-scanned*
        x-bogosity spamdiagnostic*""",
    "a mail program's notes to itself, of drafts, folders, labels and threads": """
        x-mozilla-* x-account-key x-identity-key x-uid x-uidl x-evolution-* x-apple-* x-uniform-type-identifier
        x-universally-unique-identifier x-gmail-* x-unsent x-enigmail-* x-kmail-* fcc status x-status x-keywords lines
        thread-* user-agent x-mailer x-mimeole""",
}
_PATTERN = re.compile(
    "|".join(re.escape(name).replace(r"\*", ".*") for names in _NOT_KEPT.values() for name in names.split())
)


def is_kept(name: str) -> bool:
    """Whether a header goes with the email when it is sent again: List-Unsubscribe does, In-Reply-To and X-Campaign."""
    return not _PATTERN.fullmatch(name.lower())
