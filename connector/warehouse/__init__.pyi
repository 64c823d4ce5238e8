from .columns import (
    EMPTY as EMPTY,
    INVALID as INVALID,
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
    Mode as Mode,
    parse_destination as parse_destination,
)
from .opening import (
    open_writer as open_writer,
)
from .stage import (
    Stage as Stage,
)
from .writer import (
    Beginning as Beginning,
    Changes as Changes,
    CommitUnknown as CommitUnknown,
    Run as Run,
    Writer as Writer,
)
