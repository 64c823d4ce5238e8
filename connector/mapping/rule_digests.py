"""A word for each rule of a mapping: another rule, another word. So a changed rule can be told from a changed row."""

from collections.abc import Mapping
from dataclasses import fields
from hashlib import blake2b

import orjson

from connector.mapping.rules import ColumnRule, Join

_BYTES = 6  # a rule that changed is taken for the same one once in 10^14 times


def digest_rule(rule: ColumnRule, beside: object = None) -> str:
    """The word for a rule and what else decides of its field (JSON values). What a rule leaves at its default is not in
    it, so that a step that rules may have one day changes no word."""
    values = ((each.name, getattr(rule, each.name), each.default) for each in fields(rule))
    given = {name: _plain(value) for name, value, default in values if value != default}
    written = orjson.dumps([given, beside], option=orjson.OPT_SORT_KEYS)
    return blake2b(written, digest_size=_BYTES).hexdigest()


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    return [value.columns, value.separator] if isinstance(value, Join) else value
