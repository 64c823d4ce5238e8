"""The fields that a job's mapping and rules fill, as the ledger keeps them beside what was sent (design 4.12)."""

from connector.fields import NAMES
from connector.mapping import FieldMapping
from connector.mapping.rule_digests import digest_rule
from connector.plan.field_digests import MappedFields
from connector.validation import Rules
from connector.validation.rules import ZIP_FIELDS


def build_mapped_fields(mapping: FieldMapping, rules: Rules) -> MappedFields:
    """Every field that a row may send but for its identity, with a word for all that decides of its value."""
    words = {name: digest_rule(rule, _find_beside(name, rules)) for name, rule in mapping.rules.items()}
    if "address_zip" in words and rules.zip in ZIP_FIELDS:
        words[rules.zip] = digest_rule(mapping.rules["address_zip"], rules.zip)
    return MappedFields(tuple((name, words[name]) for name in NAMES if name in words and name != rules.identity))


def _find_beside(name: str, rules: Rules) -> object:
    """What beside the mapping's rule decides of the field's values."""
    if name != "phone" or rules.e164 is None:
        return None
    return [rules.e164.region, rules.e164.otherwise]
