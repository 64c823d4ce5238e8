"""Values that a person may choose on the command line or in a job.

The values have their own module, so that the help of a command imports no large library.
"""

from collections.abc import Sequence
from typing import Literal, get_args

IDENTITY_FIELDS = ("email", "client_user_id")

CUSTOM_FIELDS_FOR_ZIPS = ("custom_field1", "custom_field2", "custom_field3")
ZIP_POLICIES = ("omit", "reject", *CUSTOM_FIELDS_FOR_ZIPS)

FileFormat = Literal["csv", "tsv", "excel", "parquet", "jsonl"]
FILE_FORMATS: tuple[FileFormat, ...] = get_args(FileFormat)
"""The formats of a source file."""

ExportFormat = Literal["csv", "jsonl", "parquet", "excel"]
EXPORT_FORMATS: tuple[ExportFormat, ...] = get_args(ExportFormat)
"""The formats of an exported file."""

Gender = Literal["male", "female", "unspecified"]
GENDERS: tuple[Gender, ...] = get_args(Gender)
"""The genders by which an export selects subscribers."""

CsvDialect = Literal["standard", "excel"]
CSV_DIALECTS: tuple[CsvDialect, ...] = get_args(CsvDialect)
CsvDelimiter = Literal[",", ";", "|", "tab"]
CSV_DELIMITERS: tuple[CsvDelimiter, ...] = get_args(CsvDelimiter)
"""The delimiters of an exported CSV file."""

HeldDecision = Literal["resend", "accept", "drop"]
HELD_DECISIONS: tuple[HeldDecision, ...] = get_args(HeldDecision)
"""The decisions of a person about held entries (`retry --held`)."""

EFFECT_BY_HELD_DECISION: dict[HeldDecision, str] = {
    "resend": "send the creates again if their subscribers are proved absent",
    "accept": "accept the subscribers in the answers of the service",
    "drop": "send nothing until the rows change",
}
"""The effect of each decision, as the end of a sentence that begins with "To"."""


def format_choices(choices: Sequence[str]) -> str:
    """Return the choices as a text, such as `csv, jsonl or parquet`. At least two choices are needed."""
    return f"{', '.join(choices[:-1])} or {choices[-1]}"
