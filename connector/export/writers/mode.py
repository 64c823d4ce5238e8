"""What an export does with the rows that are there already."""

from enum import StrEnum


class Mode(StrEnum):
    """`replace`: the list in place of what was there. `upsert`: one row a subscriber, those that have gone marked by
    `deleted_at`. `append`: a dated snapshot beside the earlier ones. `history`: one row for each version of a
    subscriber, from `valid_from` to `valid_to`."""

    REPLACE = "replace"
    UPSERT = "upsert"
    APPEND = "append"
    HISTORY = "history"

    @property
    def is_by_id(self) -> bool:
        """Whether rows of the list are laid beside those of the table by their id."""
        return self in (Mode.UPSERT, Mode.HISTORY)
