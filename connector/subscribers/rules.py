"""The rules of a job: which column becomes which field, how a cell is read, and which fields are required.

This module imports neither pandas nor Arrow, because a job file is checked before a source is read.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import lru_cache
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Literal

from connector.errors import ConfigurationError
from connector.fields import FIELD_BY_NAME, LARGEST_ID, SENT_FIELDS, BaseRef, FieldKind
from connector.outcomes import Fault
from connector.texts import choose_form

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pandas as pd

    from connector.templates import Template

    Indices = npt.NDArray[np.int64]


# From columns to fields

MAPPABLE_FIELDS: tuple[str, ...] = tuple(field.name for field in SENT_FIELDS)
"""The fields that a column can be mapped to: all fields of a person. The job names the base in another section."""

Case = Literal["lower", "upper", "title"]


@dataclass(frozen=True, slots=True)
class ColumnRule:
    """The source of a field's values, and the steps that read the values.

    Exactly one source is set: a `column`, a `template` over the columns of a row, or a constant `value` for all rows.
    Then these steps follow in this order, if they are set. (`mapping.py` also has steps that always run, for example a
    step that decodes HTML codes.)

    - `is_trimmed` (the default): remove white space at both ends.
    - `case`: write all letters small (`lower`), all letters capital (`upper`), or the first letter of each word capital
      (`title`).
    - `values`: replace whole texts. Other texts stay.
    - `format`: read dates in these formats (strptime's letters). The first format that fits is used.
    - `default`: replace an empty text.
    - `split`: cut the tags of a cell at this separator.

    Raises ConfigurationError if parts of the rule contradict each other.
    """

    column: str | None = None
    value: str | None = None
    template: str | None = None
    is_trimmed: bool = True
    case: Case | None = None
    values: Mapping[str, str] | None = None
    format: tuple[str, ...] = ()
    default: str | None = None
    split: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "format", tuple(self.format))
        if self.values is not None:
            object.__setattr__(self, "values", MappingProxyType(dict(self.values)))
        for fault in _find_faults(self):
            raise ConfigurationError(fault)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the rule reads, without duplicates. Raises ConfigurationError for an invalid template."""
        if self.template is not None:
            return _compile_template(self.template).columns
        return () if self.column is None else (self.column,)


@dataclass(frozen=True, slots=True)
class FieldMapping:
    """The rules of the fields, by field name, in the order of the field table. `whole_name_column` is a column whose
    header means whole names, and which is mapped to one field."""

    rules: Mapping[str, ColumnRule]
    whole_name_column: str | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        ordered_rules = {name: self.rules[name] for name in MAPPABLE_FIELDS if name in self.rules}
        object.__setattr__(self, "rules", MappingProxyType(ordered_rules))

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the rules read, without duplicates."""
        return tuple(dict.fromkeys(column for rule in self.rules.values() for column in rule.columns))


def find_mapping_faults(
    mapped_fields: Collection[str], identity_field: str, required: Collection[str], zip_policy: str
) -> list[str]:
    """Return the faults of a mapping to the fields `mapped_fields`. Each fault contains its remedy. The mapping has
    a fault if the identity field or a required field is not mapped, or if the zip policy would overwrite a mapped
    field."""
    faults = []
    if identity_field not in mapped_fields:
        faults.append(
            f"no column is mapped to the field {identity_field}, which identifies a subscriber; map a column "
            f"(--map {identity_field}=COLUMN; in a job: `fields`)"
        )
    missing_fields = [name for name in required if name not in mapped_fields and name != identity_field]
    if missing_fields:
        faults.append(
            f"no column is mapped to {choose_form(len(missing_fields), 'the field', 'the fields')} "
            f"{', '.join(missing_fields)}: map a column, or remove "
            f"{choose_form(len(missing_fields), 'the field', 'the fields')} from `required`"
        )
    if zip_policy in mapped_fields:
        faults.append(
            f"`zip: {zip_policy}` is not possible, because the field `{zip_policy}` is already mapped: "
            "choose another value for `zip`"
        )
    return faults


def find_kind_faults(name: str, rule: ColumnRule) -> Iterator[str]:
    """Yield messages that explain why a rule does not fit the field `name`."""
    kind = FIELD_BY_NAME[name].kind
    if rule.split is not None and kind is not FieldKind.TAGS:
        yield f"{name}: only the field `tags` can have `split`; to use a part of a cell, write a `template`"
    if rule.format and kind is not FieldKind.DATE:
        yield f"{name}: only the field `birthday` can have `format`; remove `format`"
    if not rule.is_trimmed and kind not in (FieldKind.TEXT, FieldKind.NULLABLE_TEXT):
        yield f"{name}: only a text field can have `trim: false`; remove `trim`"


def _find_faults(rule: ColumnRule) -> Iterator[str]:
    """Yield the faults that a rule has in every field, whatever the kind of the field."""
    if sum(part is not None for part in (rule.column, rule.value, rule.template)) != 1:
        yield "needs exactly one of the keys `column`, `value` and `template`"
        return
    step_keys = [key for key in ("values", "split", "case", "format", "default") if getattr(rule, key)]
    if rule.value is not None and (step_keys or not rule.is_trimmed):
        yield f"a rule with a constant reads no cell: remove the key `{'` and the key `'.join(step_keys) or 'trim'}`"
    if rule.default and rule.values and any(not key.strip() and value for key, value in rule.values.items()):
        yield "`default` and the empty key of `values` ('') both replace an empty cell; keep one of them"
    for key in rule.values or {}:
        cell = key.strip() if rule.is_trimmed else key
        if (rule.case == "lower" and cell != cell.lower()) or (rule.case == "upper" and cell != cell.upper()):
            yield (
                f"`values`: no cell can be {cell!r}, because `case: {rule.case}` is applied first; write the key in "
                f"{rule.case} case, too"
            )
    rule_texts = [rule.value, rule.default, rule.template, *(rule.values or {}).keys(), *(rule.values or {}).values()]
    if any(text != text.encode("utf-8", "replace").decode("utf-8") for text in rule_texts if text):  # YAML's "\ud800"
        yield "the texts of a rule must be valid Unicode: one text contains a lone surrogate (half of a character)"
    if rule.template is not None:
        _compile_template(rule.template)


def _compile_template(template: str) -> Template:
    """Compile a template. Raises ConfigurationError. Jinja is imported only for a mapping with a template."""
    from connector.templates import compile_template

    return compile_template(template)


def require_columns(mapping: FieldMapping, columns: Sequence[str]) -> None:
    """Raise ConfigurationError with all columns that the mapping uses and the source lacks."""
    missing_columns = [column for column in mapping.columns if column not in columns]
    if missing_columns:
        raise ConfigurationError("; ".join(explain_missing_column(column, columns) for column in missing_columns))


def explain_missing_column(name: str, columns: Sequence[str]) -> str:
    """Return the message for a column that does not exist, with similar columns."""
    column_by_folded_name = {column.casefold(): column for column in columns}
    similar_names = get_close_matches(name.strip().casefold(), list(column_by_folded_name), n=3)
    similar_columns = [column_by_folded_name[similar_name] for similar_name in similar_names]
    hint = f" Did you mean {' or '.join(similar_columns)}?" if similar_columns else ""
    return f"there is no column {name!r}.{hint} The columns are: {', '.join(columns)}"


def normalise_header(header: str) -> str:
    """Return the letters and digits of a header in lower case, without accents and other characters."""
    folded_header = unicodedata.normalize("NFKD", header).casefold().replace("ł", "l")
    return "".join(character for character in folded_header if character.isalnum())


def separate_words(header: str) -> str:
    """Return the words of a header in lower case and without accents, separated by one blank. A capital letter begins
    a word (`doNotEmail`)."""
    separated_words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", header)
    folded_header = unicodedata.normalize("NFKD", separated_words).casefold().replace("ł", "l")
    folded_header = "".join(character for character in folded_header if not unicodedata.combining(character))
    return " ".join(re.findall(r"[^\W_]+", folded_header))


# Requirements of a row


@dataclass(frozen=True, slots=True)
class PhoneRule:
    """The rule that phone numbers are sent in E.164 form (+49301234567). A number without a country code belongs to
    `region` (ISO 3166-1 alpha-2). `invalid_number_policy` says what to do with a text that has no E.164 form:
    `reject` the row, or `keep` the text.

    Raises ConfigurationError for an unknown region, and if the phone library is not installed.
    """

    region: str
    invalid_number_policy: str = "reject"

    def __post_init__(self) -> None:
        if self.region not in _load_phonenumbers().SUPPORTED_REGIONS:
            raise ConfigurationError(
                f"`e164`: no phone numbers are known for the region {self.region!r}; write a code of two letters, such "
                "as DE"
            )


@dataclass(frozen=True, slots=True)
class ValidationRules:
    """The requirements of a job: the `identity_field`, and the fields that are `required` in each row.

    `zip_policy` says what to do with a zip code that is not a number: `omit` the zip code, `reject` the row, or the
    name of the field that gets the text (custom_field1 to custom_field3). Without `e164`, a phone number can be any
    text.
    """

    identity_field: str = "email"
    required: frozenset[str] = field(default_factory=frozenset)
    zip_policy: str = "omit"
    e164: PhoneRule | None = None


# A check and a reader both format each number. The cache has room for the numbers of a chunk.
@lru_cache(maxsize=1 << 16)
def format_phone(text: str, region: str) -> str | None:
    """Return the number in E.164 form, or None for an invalid number or a number with an extension (E.164 has none).

    A number without a leading + belongs to `region`. A call takes about 25 µs.
    """
    phonenumbers = _load_phonenumbers()
    try:
        phone_number = phonenumbers.parse(text, region)
    except phonenumbers.NumberParseException:
        return None
    if phone_number.extension or not phonenumbers.is_valid_number(phone_number):
        return None
    return str(phonenumbers.format_number(phone_number, phonenumbers.PhoneNumberFormat.E164))


def _load_phonenumbers() -> ModuleType:
    try:
        import phonenumbers
    except ImportError:
        raise ConfigurationError(
            "`e164` needs a library that is not installed: run pip install 'subscriber-connector[phone]'"
        ) from None
    return phonenumbers


# The base of each row

_MAX_LISTED_TEXTS = 10  # a message lists at most this many of the texts that a cell may have


@dataclass(frozen=True, slots=True)
class BaseColumn:
    """The column that names the base of each row. `values` has the base of each allowed cell. If `values` is None, each
    cell is the id or the name of a base.

    Cells and the keys of `values` are trimmed. Raises ConfigurationError if `values` is empty, has an empty cell, or
    has a cell twice. Also raises ConfigurationError if `values` names some bases by id and others by name (architecture
    4.14).
    """

    column: str
    values: Mapping[str, BaseRef] | None = None

    def __post_init__(self) -> None:
        if self.values is None:
            return
        base_by_cell = {cell.strip(): base for cell, base in self.values.items()}
        if not base_by_cell:
            raise ConfigurationError("`values`: add at least one cell with its base")
        if "" in base_by_cell:
            raise ConfigurationError(
                "`values`: the empty key cannot have a base, because a row with an empty cell is always invalid; "
                "remove the empty key"
            )
        if len(base_by_cell) < len(self.values):
            raise ConfigurationError(
                "`values`: two keys are equal, because white space around a key is ignored; remove one key"
            )
        object.__setattr__(self, "values", MappingProxyType(base_by_cell))
        refuse_mixed_bases(self.column, base_by_cell.values())


@dataclass(frozen=True, slots=True)
class RowBases:
    """The bases of the rows of a frame. `base_indices` has, for each row, the index of its base in `bases`, or -1 for a
    row that has a fault."""

    base_indices: Indices
    bases: tuple[BaseRef, ...]

    def select(self, rows: slice | npt.NDArray[np.int64] | npt.NDArray[np.bool_]) -> RowBases:
        """Return the bases of the rows at these positions, or of the rows of a mask."""
        return RowBases(self.base_indices[rows], self.bases)

    def split_by_base(self) -> Iterator[tuple[BaseRef, Indices]]:
        """Yield each base with the positions of its rows. The bases are in the order of their first rows."""
        import numpy as np

        _, first_positions = np.unique(self.base_indices, return_index=True)
        for base_index in self.base_indices[np.sort(first_positions)].tolist():
            if base_index >= 0:
                yield self.bases[base_index], np.flatnonzero(self.base_indices == base_index)


def list_columns(mapped_columns: Iterable[str], base: BaseColumn | None) -> tuple[str, ...]:
    """Return the used columns of the source without duplicates: the columns of the mapping, and the column of the
    base."""
    return tuple(dict.fromkeys([*mapped_columns, *([] if base is None else [base.column])]))


def parse_base(text: str) -> BaseRef:
    """Return the base that a text names. Digits are an id, and any other text is a name. Raises ValueError if no base
    can have this id or name."""
    trimmed_text = text.strip()
    if trimmed_text.isascii() and trimmed_text.isdigit():
        base_id = int(trimmed_text) if len(trimmed_text) <= len(str(LARGEST_ID)) else 0
        if not 1 <= base_id <= LARGEST_ID:
            raise ValueError("no base has this id: an id is a whole number from 1 with at most 64 bits")
        return BaseRef(service_id=base_id)
    if not trimmed_text or not trimmed_text.isprintable():
        raise ValueError("must be an id, or a name in printable characters")
    return BaseRef(name=trimmed_text)


def refuse_mixed_bases(column: str, bases: Iterable[BaseRef]) -> None:
    """Raise ConfigurationError if some of these bases are named by id and others by name. An id and a name may mean the
    same base, and only the service knows which id belongs to a name (architecture 4.14)."""
    seen_bases = list(bases)
    example_id = next((base.service_id for base in seen_bases if base.service_id is not None), None)
    example_name = next((base.name for base in seen_bases if base.name is not None), None)
    if example_id is not None and example_name is not None:
        raise ConfigurationError(
            f"the column {column} names one base by its id ({example_id}) and another by its name ({example_name}): "
            "within a run all bases are named by ids or all by names. Correct the cells, or list the bases of the "
            "cells under subscriber.base.values"
        )


def read_bases(frame: pd.DataFrame, rule: BaseColumn) -> tuple[RowBases, tuple[Fault, ...]]:
    """Return the base of each row of a chunk's frame (text columns), and the faults of rows that name no base."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    fault_field = "base_name"  # an empty or unlisted cell is reported as a fault of this field
    if rule.values is None:
        allowed_values_message = "must be a base's id (a whole number from 1) or its name"
    else:
        if all(base.name is None for base in rule.values.values()):
            fault_field = "base_id"
        unlisted_text_count = len(rule.values) - _MAX_LISTED_TEXTS
        listed_texts = ", ".join(list(rule.values)[:_MAX_LISTED_TEXTS])
        allowed_values_message = (
            f"must be one of {listed_texts}{f' and {unlisted_text_count} more' if unlisted_text_count > 0 else ''}"
        )
    texts = pa.array(frame[rule.column].tolist(), pa.large_string(), from_pandas=True)
    cells = pc.utf8_trim_whitespace(texts).dictionary_encode()
    cell_texts = [*cells.dictionary.to_pylist(), ""]  # the distinct texts; the last text is for missing cells
    text_indices = cells.indices.fill_null(len(cell_texts) - 1).to_numpy(zero_copy_only=False)
    index_by_base: dict[BaseRef, int] = {}
    base_index_by_text = np.full(len(cell_texts), -1, dtype=np.int64)
    fault_by_text_index: dict[int, tuple[str, str, str]] = {}  # field, code and message of each text that names no base
    for text_index, text in enumerate(cell_texts):
        base, field = None, fault_field
        if rule.values is not None:
            base = rule.values.get(text)
        elif text:
            field = "base_id" if text.isdigit() else "base_name"
            with suppress(ValueError):
                base = parse_base(text)
        if base is not None:
            base_index_by_text[text_index] = index_by_base.setdefault(base, len(index_by_base))
        else:
            fault_code, problem_text = ("base", "is not known") if text else ("required", "is missing")
            message = f"{field} {problem_text}: a cell of the column {rule.column} {allowed_values_message}"
            fault_by_text_index[text_index] = (field, fault_code, message)
    base_indices = base_index_by_text[text_indices]
    invalid_positions = np.flatnonzero(base_indices < 0)
    return RowBases(base_indices, tuple(index_by_base)), tuple(
        Fault(int(invalid_position), *fault_by_text_index[int(text_indices[invalid_position])])
        for invalid_position in invalid_positions
    )
