"""Exports of other programs: their headers and cells are read without an option."""

from collections.abc import Mapping
from datetime import date
from pathlib import Path

import pandas as pd
import pytest

from connector.jobs.draft import guess_fields
from connector.sources.files import open_file
from connector.subscribers.headers import guess_mapping
from connector.subscribers.mapping import apply_mapping
from connector.subscribers.rules import ValidationRules
from connector.subscribers.validation import validate_rows

SAMPLE_PATHS = sorted((Path(__file__).parents[1] / "subscribers" / "samples").glob("*.csv"))
TODAY = date(2026, 11, 21)

CITY_FIELDS = {"address_country": "NL", "address_city": "Utrecht", "address_zip": 3511}
STREET_FIELDS = CITY_FIELDS | {"address_line1": "Oudegracht 1"}
# The values of the first person of each file, except the names and the email.
EXPECTED_FIELDS_BY_FILE: dict[str, Mapping[str, object]] = {
    "brevo": {"phone": "31612345678", "client_user_id": "A-7", "birthday": "1990-02-28"},
    "google_contacts": STREET_FIELDS
    | {"phone": "+31 6 12345678", "tags": ["Friends", "* myContacts"], "birthday": "1990-02-28"},
    "google_contacts_old": {"phone": "+31 6 12345678", "tags": ["* myContacts", "Friends"], "address_country": "NL"}
    | {"birthday": "1990-02-28"},
    "hubspot": STREET_FIELDS
    | {"phone": "+31612345678", "client_user_id": "51", "address_state": "UT", "birthday": "1990-02-28"},
    "klaviyo": STREET_FIELDS
    | {"phone": "+31612345678", "client_user_id": "A-7", "address_state": "UT", "address_line2": "2nd floor"},
    "mailchimp": {"phone": "+31 6 12345678", "tags": ["VIP", "Paris, France"]}
    | {"address_line1": "Oudegracht 1  Utrecht 3511"},
    "salesforce_data_loader": STREET_FIELDS | {"phone": "(030) 123 4567", "birthday": "1990-02-28"},
    "salesforce_report": STREET_FIELDS | {"phone": "(030) 123 4567", "client_user_id": "0035g00000AbCdE"},
    "shopify": STREET_FIELDS
    | {"is_active": True, "phone": "+31612345678", "tags": ["vip", "newsletter"], "client_user_id": "6208"}
    | {"address_state": "UT"},
    "shopify_old": STREET_FIELDS
    | {"is_active": False, "phone": "+31612345678", "tags": ["vip"], "address_state": "Utrecht"},
    "woocommerce_analytics": CITY_FIELDS | {"address_state": "UT"},
    "woocommerce_export": STREET_FIELDS | {"phone": "0301234567", "client_user_id": "17", "address_state": "UT"},
}


def read_people(path: Path) -> list[dict[str, object]]:
    """Return the people of the file as an import without options sends them. All rows must be valid."""
    people: list[dict[str, object]] = []
    with open_file(path) as source:
        mapping = guess_mapping(source.columns)
        for chunk in source.read_chunks():
            mapped_chunk = apply_mapping(chunk.frame, mapping)
            validated_rows = validate_rows(
                mapped_chunk.frame, ValidationRules(), today=TODAY, known_faults=mapped_chunk.faults
            )
            assert (validated_rows.faults, chunk.malformed_rows) == ((), ())
            rows = validated_rows.subscribers.astype(object).where(validated_rows.subscribers.notna(), None)
            people += [
                {str(name): value for name, value in row.items() if value is not None}
                for row in rows.to_dict("records")
            ]
    return people


@pytest.mark.parametrize("path", SAMPLE_PATHS, ids=lambda path: path.stem)
def test_an_export_of_another_program_is_read_without_options(path: Path) -> None:
    zoe, bo = read_people(path)
    has_whole_name = path.stem == "woocommerce_analytics"
    names = {"first_name": "Zoë Vos"} if has_whole_name else {"first_name": "Zoë", "last_name": "Vos"}
    values = {name: list(value) if name == "tags" else value for name, value in zoe.items()}  # type: ignore[call-overload] # tags are a list
    assert values == {"email": "zoe@example.com", **names, **EXPECTED_FIELDS_BY_FILE[path.stem]}
    assert bo["email"] == "bo@example.com"


@pytest.mark.parametrize("path", SAMPLE_PATHS, ids=lambda path: path.stem)
def test_a_drafted_job_maps_the_columns_like_an_import_does(path: Path) -> None:
    with open_file(path) as source:
        rules_guessed_from_headers = guess_mapping(source.columns).rules
        frame = pd.concat([chunk.frame for chunk in source.read_chunks()])
    drafted_rules = {
        guessed_field.name: guessed_field.rule
        for guessed_field in guess_fields(frame, TODAY)
        if guessed_field.confidence != "unsure"
    }
    # Only the rule of the drafted job can map is_active, because an import guesses the mapping without the cells.
    activity_rule = {"is_active": drafted_rules["is_active"]} if "is_active" in drafted_rules else {}
    assert drafted_rules == {**rules_guessed_from_headers, **activity_rule}
