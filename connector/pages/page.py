"""What a reading asks for, and how far it may go."""

from dataclasses import dataclass

Filters = tuple[tuple[str, object], ...]
"""Field names and the values asked for."""


@dataclass(frozen=True, slots=True)
class Measures:
    """What a reading may do beside its sweeps: split a list without an order by the filters `splits_by`, and leave
    TotalCount out of account."""

    splits_by: tuple[str, ...] = ()
    ignores_total_count: bool = False


@dataclass(frozen=True, slots=True)
class Page:
    """A page to ask for: `sweep` counts from 1, and a page of a new number begins the list anew.

    `filters` are to be asked for beside those of the reading; the rows of a `is_probe` page are not for the output.
    `ends_at` is set just past rows that agree with that TotalCount: a refusal there says no more than an empty page.
    """

    sweep: int
    offset: int
    limit: int
    filters: Filters = ()
    is_probe: bool = False
    ends_at: int | None = None
