"""Types that keys of job files and of message files share, and a function that finds the model of a key."""

from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo

from connector.errors import ConfigurationError
from connector.stores import is_url, parse_store_url
from connector.units import resolve_path

Identity = Literal["email", "client_user_id"]


class JobModel(BaseModel):
    """A group of keys: unknown keys are refused, values cannot change, and errors show no values."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


def check_name(name: str) -> str:
    """Return the trimmed name. Raises ValueError for an empty name, and for a name with unprintable characters."""
    if not name.strip() or not name.isprintable():
        raise ValueError("must be a name in printable characters")
    return name.strip()


def accept_short_form(key: str) -> BeforeValidator:
    """Return a validator that replaces a text by an object with this key: `COLUMN` by `{column: COLUMN}`."""
    return BeforeValidator(lambda value: {key: value} if isinstance(value, str) else value)


def find_job_folder(validation_info: ValidationInfo) -> Path:
    """Return the folder at which relative paths start: the folder of the job file (from the validation context), or the
    current folder."""
    return Path(validation_info.context["folder"]) if validation_info.context else Path.cwd()


def _resolve_path(path_value: Any, validation_info: ValidationInfo) -> Any:
    return resolve_path(path_value, find_job_folder(validation_info)) if isinstance(path_value, str) else path_value


def _resolve_path_or_url(location: Any, validation_info: ValidationInfo) -> Any:
    if isinstance(location, Path):
        return location
    if not isinstance(location, str):
        raise ValueError("must be a path or a URL")  # noqa: TRY004 - pydantic reports no TypeError
    if not is_url(location):
        return resolve_path(location, find_job_folder(validation_info))
    try:
        return parse_store_url(location)
    except ConfigurationError as error:
        raise ValueError(str(error)) from None


ColumnName = Annotated[str, Field(min_length=1)]
Name = Annotated[str, AfterValidator(check_name)]
FilePath = Annotated[Path, BeforeValidator(_resolve_path)]
FileLocation = Annotated[Path | str, BeforeValidator(_resolve_path_or_url)]
"""The path of a file, or the URL (a str) of an object in a store."""


def find_model(annotation: Any) -> type[BaseModel] | None:
    """Return the model inside `Model | None`, `Annotated[Model, …]` or `dict[str, Model]`. Return None if the
    annotation has no model."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((model for part in get_args(annotation) if (model := find_model(part))), None)
