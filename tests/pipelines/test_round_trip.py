"""Each field of service-api.md 2.1 keeps its value in an import, an export and a second import."""

import json
from typing import Any

from connector.fields import SENT_FIELDS
from tests.pipelines.conftest import Connector

PERSON: dict[str, Any] = {
    "email": "Person+1@bücher.example", "is_active": False, "first_name": 'Łukasz "Lu"',
    "last_name": "van der Ray, 🎂", "gender": "female", "phone": "+49 (030) 123-4567",
    "tags": ["a|b", 'news, "vip"'], "client_user_id": "00042", "custom_field1": "null and void",
    "custom_field2": "-1", "custom_field3": "100%; \\ and '", "address_country": "NL", "address_city": "São Paulo",
    "address_state": "ＳＰ", "address_zip": "10115", "address_line1": "Straße 5", "address_line2": "c/o Ἀθηνᾶ",
    "address_line3": "3rd floor", "birthday": "1980-02-29",
}  # fmt: skip


def read_person(connector: Connector) -> dict[str, Any]:
    """Return the values of the only subscriber."""
    (subscriber,) = connector.list_created_subscribers().values()
    values: dict[str, Any] = {}
    for field in SENT_FIELDS:
        values[field.name] = subscriber
        for key in field.path:
            values[field.name] = values[field.name][key]
    return values


def test_each_field_keeps_its_value_in_an_import_an_export_and_a_second_import(connector: Connector) -> None:
    cells = [value if isinstance(value, str) else json.dumps(value) for value in PERSON.values()]
    quoted_cells = ('"' + cell.replace('"', '""') + '"' for cell in cells)
    connector.write_people(",".join(PERSON), ",".join(quoted_cells))
    result = connector.run_json("import", "people.csv", "--base-name", "News")
    assert (result.exit_code, read_person(connector)) == (0, PERSON), result.stderr
    assert connector.run_json("export", "out.csv").exit_code == 0
    connector.sandbox.reset()
    connector.environ["CONNECTOR_STATE_DIR"] = str(connector.folder / "other")
    result = connector.run_json("import", "out.csv", "--base-name", "Elsewhere")
    assert (result.exit_code, read_person(connector)) == (0, PERSON), result.stderr
