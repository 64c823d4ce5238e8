from .library import (
    IncompleteList as IncompleteList,
    read_batches as read_batches,
    read_subscribers as read_subscribers,
)

__version__: str
