from .differences import (
    DIFFERENCE_COLUMNS as DIFFERENCE_COLUMNS,
    DifferenceFile as DifferenceFile,
    Differences as Differences,
    check_difference_path as check_difference_path,
    explain_missing as explain_missing,
    name_state as name_state,
)
from .health import (
    write_health as write_health,
)
from .notice import (
    write_plain as write_plain,
    write_title as write_title,
)
from .page import (
    is_report as is_report,
    write_notice as write_notice,
    write_page as write_page,
)
from .text import (
    show_progress as show_progress,
    show_report as show_report,
    show_value as show_value,
)
