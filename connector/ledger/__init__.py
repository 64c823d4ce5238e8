"""What is known of every identity in every base: the memory that survives the process (design, section 4)."""

from connector.ledger.backup import Backup, back_up_ledger
from connector.ledger.bases import Base, count_doubts_elsewhere, find_or_add_base, learn_base, list_bases
from connector.ledger.cursors import KeptCursor, move_cursor, read_cursor
from connector.ledger.mappings import KeptMapping, keep_mapping
from connector.ledger.opening import open_ledger, wrap_connection
from connector.ledger.private import open_private_copy
from connector.ledger.refusals import (
    RefusalKind,
    mark_refusal_checked,
    mark_refusal_created,
    read_refusal_kinds,
    record_refusal,
)
from connector.ledger.runs import find_rows_read, finish_run, start_run
from connector.ledger.store import Entry, Intent, Known, Ledger, SentFields, StaleMoveError, Unfinished

__all__ = [
    "Backup",
    "Base",
    "Entry",
    "Intent",
    "KeptCursor",
    "KeptMapping",
    "Known",
    "Ledger",
    "RefusalKind",
    "SentFields",
    "StaleMoveError",
    "Unfinished",
    "back_up_ledger",
    "count_doubts_elsewhere",
    "find_or_add_base",
    "find_rows_read",
    "finish_run",
    "keep_mapping",
    "learn_base",
    "list_bases",
    "mark_refusal_checked",
    "mark_refusal_created",
    "move_cursor",
    "open_ledger",
    "open_private_copy",
    "read_cursor",
    "read_refusal_kinds",
    "record_refusal",
    "start_run",
    "wrap_connection",
]
