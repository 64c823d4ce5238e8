from .emails import (
    send_email as send_email,
)
from .lists import (
    IncompleteList as IncompleteList,
    KeptSweep as KeptSweep,
    build_frame as build_frame,
    read_batches as read_batches,
    read_subscribers as read_subscribers,
)
from .loads import (
    import_subscribers as import_subscribers,
    plan_subscribers as plan_subscribers,
)
from .threads import (
    run_flow as run_flow,
)
