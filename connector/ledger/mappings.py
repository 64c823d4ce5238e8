"""The mappings by which rows were read: what an entry keeps of its fields means nothing without its own."""

from dataclasses import dataclass

from sqlalchemy import Connection, text

from connector.plan.field_digests import MappedFields


@dataclass(frozen=True, slots=True)
class KeptMapping:
    """A mapping with the key (from 1 on) under which entries refer to it."""

    key: int
    fields: MappedFields


def keep_mapping(connection: Connection, fields: MappedFields) -> KeptMapping:
    """The mapping as the ledger has it, with a new line if it is new."""
    values = {"fields": fields.write()}
    connection.execute(_ADD, values)
    return KeptMapping(int(connection.execute(_FIND, values).scalar_one()), fields)


_ADD = text("INSERT INTO mapping (fields) VALUES (:fields) ON CONFLICT DO NOTHING")
_FIND = text("SELECT mapping_key FROM mapping WHERE fields = :fields")
