"""A load of rows by their headers: what each column means, and whether that can serve; all that is wrong is said
here."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from os import PathLike, fspath
from pathlib import Path

from connector.errors import ConfigurationError
from connector.fields import BaseRef
from connector.imports.flow import LoadPlan
from connector.load.session import LoadPolicy
from connector.row_files import own_columns
from connector.rows import Source
from connector.settings import Settings
from connector.sources.files import refuse_lacking
from connector.sources.inputs import STANDARD_INPUT
from connector.stores import is_pattern
from connector.subscribers.consent import build_consent_rule
from connector.subscribers.headers import guess_mapping, override_mapping
from connector.subscribers.preparation import check_mapping
from connector.subscribers.row_bases import BaseColumn
from connector.subscribers.rules import ColumnRule, FieldMapping, ValidationRules, explain_missing


@dataclass(frozen=True, slots=True)
class RowOptions:
    """The options for the rows of a file or a frame: their base, by id or by name; columns by field, above what the
    headers say; whether all are active; and the columns that say nothing about consent."""

    base_id: int | None = None
    base_name: str | None = None
    mapped: Mapping[str, str] = field(default_factory=dict)
    is_active: bool | None = None
    ignored: tuple[str, ...] = ()


def plan_rows(
    source: Source,
    options: RowOptions,
    rules: ValidationRules,
    policy: LoadPolicy,
    settings: Settings,
    *,
    job: str,
    limit: int | None = None,
    wait_s: float = 0.0,
) -> LoadPlan:
    """Return the load of an opened source by its headers; the source is closed where that raises.

    Raises ConfigurationError and SourceError.
    """
    with closed_on_error(source):
        base_name = _check_base(options)
        plan = LoadPlan(
            command="import",
            job=job,
            source=source,
            is_empty_refused=True,
            mapping=map_by_headers(source, options),
            rules=rules,
            base=BaseRef(options.base_id, base_name),
            policy=policy,
            settings=settings,
            limit=limit,
            wait_s=wait_s,
            ignored=options.ignored,
        )
        return check_load(plan)


def check_load(plan: LoadPlan) -> LoadPlan:
    """Return the plan, if its mapping can serve each file of its source. Raises ConfigurationError and SourceError."""
    refuse_unknown_columns(plan.source, plan.ignored)
    rules = check_rows(plan.source, plan.mapping, plan.rules, plan.columns, plan.base_column)
    return replace(plan, rules=rules)


def check_rows(
    source: Source,
    mapping: FieldMapping,
    rules: ValidationRules,
    columns: Sequence[str],
    base_column: BaseColumn | None,
) -> ValidationRules:
    """Return what is demanded of each row, if the mapping, which uses these columns, can serve each file of the source.

    Raises ConfigurationError and SourceError.
    """
    rule = mapping.rules.get("is_active")
    if rule is not None and rule.default is None:  # an empty cell says nothing either
        rules = replace(rules, required=rules.required | {"is_active"})
    check_mapping(mapping, rules, source.columns, where=source.name, base=base_column)
    refuse_lacking(source, columns)
    return rules


def refuse_unknown_columns(source: Source, ignored: Sequence[str]) -> None:
    """Raise ConfigurationError if the source lacks a column that is to be ignored: its name may be misspelt."""
    for column in ignored:
        if column not in source.columns:
            raise ConfigurationError(f"ignore: {explain_missing('column', column, source.columns)}")


def map_by_headers(source: Source, options: RowOptions) -> FieldMapping:
    """Return what the headers seem to mean, and what the options say above that. Raises ConfigurationError.

    A column that is mapped to is_active by an option is read as its header says: `unsubscribed` makes active who has
    not unsubscribed."""
    mapping = override_mapping(guess_mapping(own_columns(source.columns)), options.mapped, source.columns)
    if column := options.mapped.get("is_active"):
        mapping = replace(mapping, rules={**mapping.rules, "is_active": build_consent_rule(column)})
    return mapping if options.is_active is None else _set_active(mapping, is_active=options.is_active)


def name_load(path: str | PathLike[str]) -> str:
    """Return the name of a load that has no job: its file's, or of a pattern the folder's."""
    if fspath(path) == STANDARD_INPUT:
        return "stdin"
    named = Path(path)
    is_one = named.exists() or not is_pattern(named.name)
    return named.stem if is_one else named.parent.name or named.stem


@contextmanager
def closed_on_error(source: Source) -> Iterator[None]:
    """Let go of the source when what is done here raises."""
    try:
        yield
    except BaseException:
        source.close()
        raise


def _check_base(options: RowOptions) -> str | None:
    """The base's name, trimmed; a base is named by exactly one of id and name."""
    name = options.base_name.strip() if options.base_name is not None else None
    if (options.base_id is None) == (name is None):
        raise ConfigurationError(
            "name the base that the rows go to, by its id or by its name: either --base-id N or --base-name NAME"
        )
    if name is not None and (not name or not name.isprintable()):
        raise ConfigurationError("the base's name (--base-name) must be in printable characters")
    return name


def _set_active(mapping: FieldMapping, *, is_active: bool) -> FieldMapping:
    """One constant for all, in place of whatever column said it."""
    return replace(mapping, rules={**mapping.rules, "is_active": ColumnRule(value="true" if is_active else "false")})
