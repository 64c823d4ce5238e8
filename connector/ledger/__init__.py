"""What is known of every identity in every base: the memory that survives the process (design, section 4)."""

from connector.ledger.bases import Base, count_doubts_elsewhere, find_or_add_base, learn_base
from connector.ledger.opening import open_ledger
from connector.ledger.runs import finish_run, start_run
from connector.ledger.store import Entry, Intent, Ledger, StaleMoveError, UnknownEntry

__all__ = [
    "Base",
    "Entry",
    "Intent",
    "Ledger",
    "StaleMoveError",
    "UnknownEntry",
    "count_doubts_elsewhere",
    "find_or_add_base",
    "finish_run",
    "learn_base",
    "open_ledger",
    "start_run",
]
