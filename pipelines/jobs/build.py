"""The one place where a job becomes what the library works with: sources, mapping, rules, policy, an export's query."""

from collections.abc import Sequence
from datetime import date
from difflib import get_close_matches
from math import inf
from pathlib import Path

import pandas as pd

from connector.errors import ConfigurationError
from connector.load import LoadPolicy
from connector.rows import Source
from connector.service import ListQuery
from connector.sources import (
    IncrementalSource,
    open_file,
    open_files,
    open_incremental,
    open_sql,
)
from connector.subscribers import (
    BaseColumn,
    ColumnRule,
    FieldMapping,
    PhoneRule,
    ValidationRules,
    apply_mapping,
    validate_rows,
)
from pipelines.jobs.models import Filters, JobSubscriber, Load
from pipelines.jobs.source_models import Cursor, FileSource, JobSource, SqlRows, SqlSource, Suppress
from pipelines.jobs.subscriber_models import build_column_rule, find_mapping_faults


def open_source(source: JobSource | Suppress) -> Source:
    """Return the file, files or query as rows of text. Raises SourceError or ConfigurationError, as the opener does."""
    if source.file is not None:
        file = source.file
        return open_files(file.path, lambda path: open_as(path, file))
    if source.sql is None:  # the model lets no such source through
        raise ValueError("a source is a file or a query")
    if isinstance(source.sql, SqlSource) and source.sql.cursor is not None:
        return open_increment(source.sql, source.sql.cursor)
    return open_sql(source.sql.url, query=source.sql.query, table=source.sql.table)


def open_as(path: str | Path, file: FileSource) -> Source:
    """Return a file with the options of `file`. Raises SourceError and ConfigurationError."""
    return open_file(path, format=file.format, encoding=file.encoding, delimiter=file.delimiter, sheet=file.sheet)


def open_increment(sql: SqlRows, cursor: Cursor) -> IncrementalSource:
    """Return the query or table, to be read from the cursor's start on by default. Raises the same."""
    source = open_incremental(sql.url, query=sql.query, table=sql.table, column=cursor.column, kind=cursor.kind)
    source.begin_at(cursor.first)
    return source


def build_mapping(subscriber: JobSubscriber) -> FieldMapping | None:
    """Return the job's mapping by field name, or None if the job leaves it to the headers (`guess_mapping`)."""
    if subscriber.fields_ is None:
        return None
    return FieldMapping({name: build_column_rule(rule) for name, rule in subscriber.fields_.items()})


def build_rules(subscriber: JobSubscriber) -> ValidationRules:
    """Return what the job demands of each row."""
    phone = (subscriber.fields_ or {}).get("phone")
    form = None if phone is None else phone.e164
    return ValidationRules(
        identity=subscriber.identity,
        required=frozenset(subscriber.required),
        zip=subscriber.zip,
        e164=None if form is None else PhoneRule(form.region, form.otherwise),
    )


def build_policy(load: Load, rules: ValidationRules, suppress: Suppress | None = None) -> LoadPolicy:
    """Return how the rows that meet `rules` are sent, and which of them `suppress` keeps back."""
    return LoadPolicy(
        identity=rules.identity,
        max_concurrency=load.max_concurrency,
        max_rate=load.max_rate or inf,
        on_unknown=load.on_unknown,
        quiet_period_s=load.quiet_period_s,
        fresh_s=load.fresh_s,
        is_looking=load.look == "auto",
        is_suppressing_inactive=suppress is not None and suppress.inactive,
        accepts_cut_off_possible=load.accept_cut_off_possible,
    )


def build_query(filters: Filters) -> ListQuery:
    """Return the filters of an export as the list operation takes them (service-api.md 4.3); `unspecified` is the empty
    gender."""
    given = filters.model_dump()
    return ListQuery(**{**given, "gender": "" if filters.gender == "unspecified" else filters.gender})


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
