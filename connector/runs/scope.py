"""What a report says of a run's settings, as words: those that matter, and nothing that stands at no value."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from connector.fields import BaseRef
from connector.units import show_duration

if TYPE_CHECKING:  # an export does not pay for what a load needs
    from connector.load.session import LoadPolicy
    from connector.service.wire import ListQuery
    from connector.subscribers.row_bases import BaseColumn
    from connector.subscribers.rules import FieldMapping

_OPEN_FILTERS = ("id", "is_active", "gender")  # the others hold personal data
_HIDDEN_FILTERS = ("client_user_id", "email", "first_name", "last_name")


def describe_asked_base(base: BaseRef | BaseColumn) -> str:
    """Return the base of a load: its name and id as far as they are known, or the column that says it."""
    if not isinstance(base, BaseRef):
        return f"by the column {base.column}"
    shown_id = f"id {base.service_id}" if base.service_id is not None else ""
    return f"{base.name} ({shown_id})" if base.name and shown_id else base.name or shown_id


def describe_mapping(mapping: FieldMapping) -> str:
    """Return each field with what fills it: `email, first_name ← fname`."""
    parts = []
    for name, rule in mapping.rules.items():
        filled_by = " + ".join(rule.columns) or (f'"{rule.value}"' if rule.value is not None else "")
        parts.append(name if filled_by == name else f"{name} ← {filled_by}")
    return ", ".join(parts)


def describe_policy(policy: LoadPolicy) -> dict[str, str]:
    """Return a job's `load` section."""
    return {
        "on_unknown": policy.on_unknown,
        "quiet_period": show_duration(policy.quiet_period_s),
        "max_rate": describe_rate(policy.max_rate),
        "max_concurrency": f"{policy.max_concurrency}",
        "look": "" if policy.is_looking else "none",
        "allow_truncated": "yes" if policy.allow_truncated else "",
        "ignore_total_count": "yes" if policy.ignores_total_count else "",
    }


def describe_rate(rate: float) -> str:
    """Return a ceiling in requests/s; "" for none."""
    return "" if rate == inf else f"{rate:g}/s"


def describe_limit(limit: int | None) -> str:
    """Return how many rows of a source are read; "" for all."""
    return "" if limit is None else f"the first {limit:,} rows"


def describe_filters(query: ListQuery) -> str:
    """Return the filters of an export but for its base; those that may name a person without their values."""
    shown = [f"{name}={getattr(query, name)}" for name in _OPEN_FILTERS if getattr(query, name) is not None]
    return ", ".join([*shown, *(f"{name}=…" for name in _HIDDEN_FILTERS if getattr(query, name) is not None)])


def drop_empty(settings: dict[str, str]) -> dict[str, str]:
    """Return the settings that say something."""
    return {name: value for name, value in settings.items() if value}
