from .differences import (
    DIFFERENCE_COLUMNS as DIFFERENCE_COLUMNS,
    DifferenceFile as DifferenceFile,
    Differences as Differences,
    check_difference_path as check_difference_path,
    explain_missing as explain_missing,
    name_state as name_state,
)
from .model import (
    EXIT_CODES as EXIT_CODES,
    Report as Report,
    Status as Status,
    UncountedError as UncountedError,
    count_mail_rows as count_mail_rows,
    count_requests as count_requests,
    count_rows as count_rows,
    describe_fault as describe_fault,
    end_report as end_report,
    pick_worst as pick_worst,
    start_report as start_report,
)
from .page import (
    is_report as is_report,
    write_page as write_page,
    write_plain as write_plain,
    write_title as write_title,
)
from .planned_rows import (
    PlannedRows as PlannedRows,
    check_rows_path as check_rows_path,
)
from .row_files import (
    COLUMNS as COLUMNS,
    LoadFiles as LoadFiles,
    RejectsFile as RejectsFile,
    RowListener as RowListener,
    build_different as build_different,
    build_invalid as build_invalid,
    build_malformed as build_malformed,
    is_rejects as is_rejects,
    own_columns as own_columns,
    read_corrections as read_corrections,
)
from .text import (
    Progress as Progress,
    show_progress as show_progress,
    show_report as show_report,
    show_value as show_value,
)
