from .listed import (
    BaseOf as BaseOf,
    ListedPeople as ListedPeople,
)
from .matching import (
    Integers as Integers,
    Matching as Matching,
)
