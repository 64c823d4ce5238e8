from .cursor import (
    CursorKind as CursorKind,
    CursorValue as CursorValue,
    find_kind as find_kind,
    is_larger as is_larger,
    look_back as look_back,
    parse_cursor as parse_cursor,
    uses_cursor as uses_cursor,
    write_cursor as write_cursor,
)
from .files import (
    cut_source as cut_source,
    digest_files as digest_files,
    open_file as open_file,
    open_files as open_files,
    refuse_lacking as refuse_lacking,
)
from .frames import (
    ArrowStream as ArrowStream,
    open_rows as open_rows,
)
from .inputs import (
    STANDARD_INPUT as STANDARD_INPUT,
)
from .sql import (
    IncrementalSource as IncrementalSource,
    cut_query as cut_query,
    describe_place as describe_place,
    open_incremental as open_incremental,
    open_sql as open_sql,
)
