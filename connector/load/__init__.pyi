from .base_load import (
    Loader as Loader,
)
from .candidates import (
    take_row as take_row,
    take_rows as take_rows,
)
from .drift import (
    close_waiting as close_waiting,
    compare_waiting as compare_waiting,
)
from .finishing import (
    RunMode as RunMode,
    build_different as build_different,
)
from .presence import (
    PresenceCache as PresenceCache,
)
from .retry import (
    Held as Held,
    RetryPlan as RetryPlan,
    retry_entries as retry_entries,
)
from .session import (
    Canaries as Canaries,
    Change as Change,
    Limits as Limits,
    LoadGuard as LoadGuard,
    LoadPolicy as LoadPolicy,
    Problem as Problem,
    Session as Session,
    Tally as Tally,
    WaitingRows as WaitingRows,
    is_excess as is_excess,
)
