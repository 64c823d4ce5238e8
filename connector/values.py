"""Values of which one is made for each row, or more: frozen dataclasses would be 3 % of a create's cost."""

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def hot_value(cls: type[T]) -> type[T]:
    """A dataclass with slots, frozen by the type checker alone: made in 0.3 µs, where `frozen=True` takes 0.9."""
    return dataclass(slots=True, unsafe_hash=True)(cls)
