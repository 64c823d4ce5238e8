"""The field table and what a value of each field is equal to: the ground that every layer stands on."""

from connector.fields.identity import (
    IDENTITY_RULE,
    fold_base_name,
    normalise_client_user_id,
    normalise_email,
    normalise_identity,
)
from connector.fields.table import BY_NAME, FIELDS, LARGEST_ID, NAMES, SENT, Field, Kind, wire_name

__all__ = [
    "BY_NAME",
    "FIELDS",
    "IDENTITY_RULE",
    "LARGEST_ID",
    "NAMES",
    "SENT",
    "Field",
    "Kind",
    "fold_base_name",
    "normalise_client_user_id",
    "normalise_email",
    "normalise_identity",
    "wire_name",
]
