"""`subscriber.base` of a job: the base that its people belong to, or the column that says it row by row."""

from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, Field, model_validator

from connector.errors import ConfigurationError
from connector.fields import BaseRef
from connector.subscribers import BaseColumn, parse_base
from pipelines.jobs.fields import STRICT, ColumnName


def check_name(value: str) -> str:
    """A name as people write one, trimmed; raises ValueError."""
    if not value.strip() or not value.isprintable():
        raise ValueError("must be a name in printable characters")
    return value.strip()


def _check_base(value: str) -> str:
    parse_base(value)
    return value


Name = Annotated[str, AfterValidator(check_name)]
NamedBase = Annotated[str, AfterValidator(_check_base)]


class Base(BaseModel):
    """The base that the job's subscribers belong to."""

    model_config = STRICT

    id: int | None = Field(default=None, ge=1, description="the base's number, or")
    name: Name | None = Field(default=None, description="its name, or")
    column: ColumnName | None = Field(default=None, description="the source's column that says each row's base")
    values: dict[str, NamedBase] | None = Field(
        default=None,
        description="the base of each cell of that column: a whole number is an id, a text a name; without it "
        "the cells are ids and names themselves",
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if sum(each is not None for each in (self.id, self.name, self.column)) != 1:
            raise ValueError("needs either id or name or column, and only one of them")
        if self.values is not None and self.column is None:
            raise ValueError("values says what the cells of a column mean: give column, too")
        try:
            build_base(self)
        except ConfigurationError as error:
            raise ValueError(str(error)) from None
        return self


def build_base(base: Base) -> BaseRef | BaseColumn:
    """The base as the library asks for it. Raises ConfigurationError for what makes no sense."""
    if base.column is None:
        return BaseRef(base.id, base.name)
    if base.values is None:
        return BaseColumn(base.column)
    return BaseColumn(base.column, {cell: parse_base(word) for cell, word in base.values.items()})
