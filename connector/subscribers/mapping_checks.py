"""Whether a mapping can serve a source, said before anything is read."""

from collections.abc import Sequence
from datetime import date
from difflib import get_close_matches

import pandas as pd

from connector.errors import ConfigurationError
from connector.subscribers.mapping import apply_mapping
from connector.subscribers.row_bases import BaseColumn
from connector.subscribers.rules import ColumnRule, FieldMapping, ValidationRules, find_mapping_faults
from connector.subscribers.validation import validate_rows


def check_mapping(
    mapping: FieldMapping, rules: ValidationRules, columns: Sequence[str], *, where: str, base: BaseColumn | None = None
) -> None:
    """Refuse a mapping that cannot serve, before anything is read: raises ConfigurationError with all that is wrong.

    `columns` are the source's, `where` names it, `base` is the column that says each row's base, if one does. Wrong
    are an identity or required field that nothing fills, a column that the source lacks, a zip that would overwrite a
    mapped field, a value for every row that no row may have.
    """
    faults = find_mapping_faults(mapping.rules, rules.identity, sorted(rules.required), rules.zip)
    faults += [
        _describe_missing(name, column, columns)
        for name, rule in mapping.rules.items()
        for column in rule.columns
        if column not in columns
    ]
    if base is not None and base.column not in columns:
        faults.append(_describe_missing("the base", base.column, columns))
    faults += _find_value_faults(mapping)
    if faults:
        raise ConfigurationError(f"{where}: {'; '.join(faults)}. Its columns: {', '.join(columns)}")


def _describe_missing(name: str, column: str, columns: Sequence[str]) -> str:
    meant = get_close_matches(column, columns, n=1)
    hint = f", did you mean {meant[0]}?" if meant else ""
    return f"{name} is mapped to the column {column}, which is not there{hint}"


def _find_value_faults(mapping: FieldMapping) -> list[str]:
    """A wrong `value` or `default` would make rows invalid: validation judges it here, on a row with nothing else."""
    constants = {
        name: ColumnRule(value=constant)
        for name, rule in mapping.rules.items()
        if (constant := rule.value or rule.default)
    }
    if not constants:
        return []
    identity = {"email": ColumnRule(value="nobody@example.com")}
    row = apply_mapping(pd.DataFrame(index=pd.RangeIndex(1)), FieldMapping(identity | constants)).frame
    faults = validate_rows(row, ValidationRules(), today=date.max).faults
    return [
        f"the {'value' if mapping.rules[fault.field].value else 'default'} for {fault.field} cannot be sent: "
        f"{fault.message}"
        for fault in faults
    ]
