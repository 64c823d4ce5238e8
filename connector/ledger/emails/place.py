"""Where the emails of a ledger are kept: beside its file, so that a load, which locks that, keeps nobody from mailing.

In PostgreSQL they are in tables of their own, in the ledger's schema.
"""

from hashlib import blake2b
from pathlib import Path


def find_emails(ledger: Path) -> Path:
    """The file of a ledger's emails: `ledger-emails.db` for `ledger.db`, whose symbolic links are resolved."""
    return ledger.with_name(f"{ledger.stem}-emails{ledger.suffix}")


def digest_campaign(account: str, name: str) -> bytes:
    """What a campaign's lock is known by: 16 bytes."""
    told = f"{len(account)}:{account}:{name}".encode(errors="surrogatepass")
    return blake2b(told, digest_size=16, person=b"campaign").digest()


def find_campaign_lock(emails: Path, account: str, name: str) -> Path:
    """The file whose lock a campaign's run holds; `emails` is the emails' own, symbolic links resolved."""
    return emails.with_name(f"{emails.name}.{digest_campaign(account, name).hex()}.lock")
