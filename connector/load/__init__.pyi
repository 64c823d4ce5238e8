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
    PLANNING as PLANNING,
    SENDING as SENDING,
    Conduct as Conduct,
)
from .presence import (
    Knowledge as Knowledge,
)
from .retry import (
    Held as Held,
    RetryPlan as RetryPlan,
)
from .session import (
    Canaries as Canaries,
    Limits as Limits,
    LoadPolicy as LoadPolicy,
    Session as Session,
    is_excess as is_excess,
)
from .tally import (
    Change as Change,
    Problem as Problem,
    Tally as Tally,
    WaitingRows as WaitingRows,
)
