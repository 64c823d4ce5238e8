"""`source.sql.cursor` of a job: the column that says how new a row is, and where the first run begins."""

from typing import TYPE_CHECKING, Annotated, Self

from pydantic import BaseModel, BeforeValidator, Field, field_validator, model_validator

from pipelines.durations import parse_duration
from pipelines.jobs.fields import STRICT

if TYPE_CHECKING:
    from connector.sources import CursorKind, CursorValue

_WITHOUT_LOOKBACK = {"integer": "a whole number", "text": "text"}


class Cursor(BaseModel):
    """What makes a source incremental: each run reads on from the largest value that was read."""

    model_config = STRICT

    column: str = Field(min_length=1, description="the result's column that says how new a row is")
    start: str = Field(description="where the first run begins: a timestamp, a date, a whole number or text")
    lookback_s: Annotated[float, BeforeValidator(parse_duration)] = Field(
        default=0.0, ge=0, alias="lookback", description="begin so much earlier, for rows that are committed late"
    )

    @property
    def kind(self) -> "CursorKind":
        """What the cursor's values are: what `start` is."""
        from connector.sources import find_kind

        return find_kind(self.start)

    @property
    def first(self) -> "CursorValue":
        """The value that the first run begins at."""
        from connector.sources import parse_cursor

        return parse_cursor(self.start, self.kind)

    @field_validator("start")
    @classmethod
    def _check_start(cls, value: str) -> str:
        from connector.sources import find_kind, parse_cursor

        parse_cursor(value, find_kind(value))
        return value

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.lookback_s and self.kind in _WITHOUT_LOOKBACK:
            raise ValueError(f"lookback is for timestamps and dates, and start is {_WITHOUT_LOOKBACK[self.kind]}")
        return self
