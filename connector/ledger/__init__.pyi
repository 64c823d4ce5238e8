from .admin import (
    Backup as Backup,
    OpenEntries as OpenEntries,
    back_up_ledger as back_up_ledger,
    check_ledger_rights as check_ledger_rights,
    count_open_entries as count_open_entries,
    open_private_copy as open_private_copy,
)
from .beside import (
    keep_limit as keep_limit,
    open_pace as open_pace,
    read_limit as read_limit,
)
from .commits import (
    Commits as Commits,
    LedgerWriter as LedgerWriter,
    open_commits as open_commits,
)
from .emails import (
    Campaign as Campaign,
    EmailEntry as EmailEntry,
    EmailLog as EmailLog,
    OpenEmail as OpenEmail,
)
from .entries import (
    Entry as Entry,
    Intent as Intent,
    Known as Known,
    Ledger as Ledger,
    Move as Move,
    Unfinished as Unfinished,
    count_unsettled as count_unsettled,
    find_last_confirming as find_last_confirming,
    list_confirmed as list_confirmed,
)
from .opening import (
    open_emails as open_emails,
    open_existing_emails as open_existing_emails,
    open_ledger as open_ledger,
    wrap_connection as wrap_connection,
)
from .parts import (
    JointListing as JointListing,
    Part as Part,
    claim_identities as claim_identities,
    count_created_before as count_created_before,
    count_unresolved_before as count_unresolved_before,
    end_part as end_part,
    exchange_beats as exchange_beats,
    find_listing as find_listing,
    find_own_unknown as find_own_unknown,
    mark_read as mark_read,
    open_part as open_part,
    record_listing as record_listing,
    stop_listing as stop_listing,
    take_part as take_part,
    try_list_alone as try_list_alone,
)
from .records import (
    KeptCursor as KeptCursor,
    KeptHabit as KeptHabit,
    RefusalKind as RefusalKind,
    RunRecord as RunRecord,
    accept_rows as accept_rows,
    count_unsettled_elsewhere as count_unsettled_elsewhere,
    find_or_add_base as find_or_add_base,
    find_rows_read as find_rows_read,
    find_run as find_run,
    finish_run as finish_run,
    learn_base as learn_base,
    list_bases as list_bases,
    list_runs as list_runs,
    mark_misanswered_base as mark_misanswered_base,
    mark_refusal_checked as mark_refusal_checked,
    mark_refusal_created as mark_refusal_created,
    move_cursor as move_cursor,
    read_accepted_rows as read_accepted_rows,
    read_cursor as read_cursor,
    read_found_limit as read_found_limit,
    read_habits as read_habits,
    read_largest_lag as read_largest_lag,
    read_refusal_kinds as read_refusal_kinds,
    record_found_limit as record_found_limit,
    record_habit as record_habit,
    record_lag as record_lag,
    record_refusal as record_refusal,
    revoke_job as revoke_job,
    revoke_rows as revoke_rows,
    start_run as start_run,
)
from .restore import (
    restore_ledger as restore_ledger,
)
from .sqlite import (
    find_emails as find_emails,
)
from .store import (
    Base as Base,
    Lease as Lease,
    StaleMoveError as StaleMoveError,
    Store as Store,
)
