from .access import (
    ListAccess as ListAccess,
    ListLag as ListLag,
    ListPolicy as ListPolicy,
    LookupKey as LookupKey,
    LookupResult as LookupResult,
    Sentinel as Sentinel,
)
from .base_list import (
    EmptiedError as EmptiedError,
    ListEnd as ListEnd,
    give_time_to_show as give_time_to_show,
    list_base as list_base,
    list_on as list_on,
    sweep_for as sweep_for,
)
from .base_reader import (
    BaseReader as BaseReader,
    bears_identity as bears_identity,
)
from .columns import (
    Columns as Columns,
    build_columns as build_columns,
    decode_page as decode_page,
    open_columns as open_columns,
    parse_columns as parse_columns,
)
from .evidence import (
    FindLacking as FindLacking,
    Suspect as Suspect,
    gather_evidence as gather_evidence,
)
from .filters import (
    Ask as Ask,
    build_match as build_match,
)
from .lookup import (
    ASKED_TOGETHER as ASKED_TOGETHER,
    can_tell as can_tell,
    count_requests as count_requests,
    look_by_filter as look_by_filter,
)
from .pages import (
    WIRE as WIRE,
    ListFailed as ListFailed,
    PageSink as PageSink,
    fetch_page as fetch_page,
    try_page as try_page,
)
from .ranges import (
    Undivided as Undivided,
    certify_list as certify_list,
    read_range as read_range,
    survey_list as survey_list,
)
from .reader import (
    LIST_CONNECTIONS as LIST_CONNECTIONS,
    ListProgress as ListProgress,
    list_filters as list_filters,
    read_list as read_list,
)
from .requests import (
    ask as ask,
    find_shown as find_shown,
    look_up_together as look_up_together,
    take_stats as take_stats,
)
