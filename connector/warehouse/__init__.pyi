from .columns import (
    EMPTY as EMPTY,
    PAGE_SCHEMA as PAGE_SCHEMA,
    SCHEMA as SCHEMA,
    TYPES as TYPES,
    build_null as build_null,
    narrow_table as narrow_table,
    select_columns as select_columns,
    stamp_columns as stamp_columns,
)
from .destination import (
    MAX_SHRINK as MAX_SHRINK,
    Destination as Destination,
    Format as Format,
    check_columns as check_columns,
    parse_destination as parse_destination,
)
from .opening import (
    open_part_writer as open_part_writer,
    open_parted_writer as open_parted_writer,
    open_writer as open_writer,
)
from .runs import (
    INVALID as INVALID,
    CommitUnknown as CommitUnknown,
    ExportRun as ExportRun,
    ExportStart as ExportStart,
    Mode as Mode,
    Parts as Parts,
    PartWriter as PartWriter,
    RowChanges as RowChanges,
    StagedPart as StagedPart,
    Writer as Writer,
)
from .stage import (
    Stage as Stage,
)
