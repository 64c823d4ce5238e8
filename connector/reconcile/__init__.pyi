from .listed import (
    BaseOf as BaseOf,
    ListedRows as ListedRows,
)
from .matching import (
    Integers as Integers,
    Matching as Matching,
)
