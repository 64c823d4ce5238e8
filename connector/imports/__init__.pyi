from .base_loads import (
    BaseLoads as BaseLoads,
    choose_bases as choose_bases,
    describe_base as describe_base,
    describe_bases as describe_bases,
    refuse_too_many as refuse_too_many,
)
from .flow import (
    LoadPlan as LoadPlan,
    ReadingAhead as ReadingAhead,
    describe_load as describe_load,
    find_trip as find_trip,
    run_load as run_load,
)
from .increments import (
    Increment as Increment,
)
from .plan import (
    RowOptions as RowOptions,
    check_load as check_load,
    check_rows as check_rows,
    closed_on_error as closed_on_error,
    map_by_headers as map_by_headers,
    name_load as name_load,
    plan_rows as plan_rows,
)
from .remarks import (
    SILENT_ACTIVITY as SILENT_ACTIVITY,
    Remarks as Remarks,
    describe_leftovers as describe_leftovers,
    describe_reactivated as describe_reactivated,
    describe_unmapped as describe_unmapped,
)
from .suppression import (
    SuppressionPlan as SuppressionPlan,
    open_suppression as open_suppression,
    read_suppression as read_suppression,
)
