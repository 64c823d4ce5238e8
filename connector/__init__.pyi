from .errors import (
    ConfigurationError as ConfigurationError,
    ConnectorError as ConnectorError,
    LedgerError as LedgerError,
    LockedError as LockedError,
    RunAborted as RunAborted,
    SourceError as SourceError,
)
from .library import (
    IncompleteList as IncompleteList,
    import_subscribers as import_subscribers,
    plan_subscribers as plan_subscribers,
    read_batches as read_batches,
    read_subscribers as read_subscribers,
    send_email as send_email,
)
from .listing import (
    ListFailed as ListFailed,
)
from .report import (
    Report as Report,
)
from .service import (
    Token as Token,
)

__version__: str
