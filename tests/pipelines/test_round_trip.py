"""Round trips: each field of service-api.md 2.1 comes back unchanged, except for normalisation."""

import csv
import json
import re
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pandas as pd
from hypothesis import HealthCheck, given, settings, strategies as st

from connector import read_subscribers
from connector.fields import SENT_FIELDS
from connector.sandbox import SandboxProcess
from tests.pipelines.conftest import Connector

SPOILED_TEXT_PATTERN = re.compile(r"['#=\[{(<\\]|null$|none$|nan$|nat$|n/a$|undefined$", re.IGNORECASE)
"""The beginnings of texts that an import may take for a missing value, an error or a formula."""

TEXT_STRATEGY = (
    # An import trims invisible characters (Cf). The letters indicate a wrong encoding, and U+FFFD a lost character.
    st.text(
        st.characters(exclude_categories=("Cs", "Cc", "Cf", "Zl", "Zp"), exclude_characters="ÂÃâÄÅÐÑ\ufffd"),
        min_size=1,
        max_size=20,
    )
    .map(str.strip)
    .filter(lambda text: text and not SPOILED_TEXT_PATTERN.match(text))
)
PERSON_STRATEGY = st.fixed_dictionaries(
    {
        "is_active": st.booleans(),
        "first_name": TEXT_STRATEGY,
        "last_name": TEXT_STRATEGY,
        "gender": st.sampled_from(["male", "female"]),
        "phone": st.from_regex(r"\+?0?[0-9 ()-]{3,15}[0-9]", fullmatch=True).map(str.strip),
        "tags": st.lists(TEXT_STRATEGY, min_size=1, max_size=4),
        "client_user_id": TEXT_STRATEGY,
        "custom_field1": TEXT_STRATEGY,
        "custom_field2": TEXT_STRATEGY,
        "custom_field3": TEXT_STRATEGY,
        "address_country": st.sampled_from(["NL", "DE", "JP", "BR"]),
        "address_city": TEXT_STRATEGY,
        "address_state": TEXT_STRATEGY,
        "address_zip": st.integers(1, 2**53 - 1),
        "address_line1": TEXT_STRATEGY,
        "address_line2": TEXT_STRATEGY,
        "address_line3": TEXT_STRATEGY,
        "birthday": st.dates(date(1900, 1, 1), date(2020, 1, 1)).map(date.isoformat),
    }
)
PEOPLE_STRATEGY = st.lists(PERSON_STRATEGY, min_size=1, max_size=8)
FIELD_NAMES = tuple(field.name for field in SENT_FIELDS)
SLOW_SETTINGS = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def add_addresses(people: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the people with different addresses."""
    hosts = ("example.com", "bücher.example", "παράδειγμα.gr")
    return [person | {"email": f"Person+{index}@{hosts[index % 3]}"} for index, person in enumerate(people)]


def convert_to_listed_values(people: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the expected values of the list: zips are texts."""
    return [
        {name: str(value) if name == "address_zip" else value for name, value in person.items()} for person in people
    ]


def read_listed_people(sandbox: SandboxProcess) -> list[dict[str, Any]]:
    frame = read_subscribers(base_url=sandbox.base_url, token=sandbox.token).sort_values("id")
    assert frame["_invalid"].isna().all()
    values = frame[list(FIELD_NAMES)].astype(object).where(frame[list(FIELD_NAMES)].notna(), None)
    return [{str(name): _convert_value(value) for name, value in row.items()} for row in values.to_dict("records")]


def _convert_value(value: Any) -> Any:
    if isinstance(value, pd.Timestamp):  # a date, at midnight
        return value.isoformat().removesuffix("T00:00:00")
    return list(value) if not isinstance(value, str | bool | type(None)) else value


def write_file(path: Path, people: Sequence[dict[str, Any]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, FIELD_NAMES)
        writer.writeheader()
        for person in people:
            writer.writerow(
                person | {"tags": json.dumps(person["tags"]), "is_active": str(person["is_active"]).lower()}
            )


def start_anew(connector: Connector) -> None:
    """Empty the service, and use a new ledger."""
    connector.sandbox.reset()
    connector.environ["CONNECTOR_STATE_DIR"] = mkdtemp(dir=connector.folder)


@settings(SLOW_SETTINGS, max_examples=settings().max_examples // 10)  # each example runs three commands
@given(PEOPLE_STRATEGY)
def test_an_import_and_an_import_of_its_export_keep_all_values(
    connector: Connector, tmp_path: Path, people: list[dict[str, Any]]
) -> None:
    start_anew(connector)
    people = add_addresses(people)
    write_file(tmp_path / "people.csv", people)
    assert connector.run_json("import", "people.csv", "--base-name", "News").rows["created"] == len(people)
    people_by_email = {person["email"]: person for person in read_listed_people(connector.sandbox)}
    assert people_by_email == {person["email"]: person for person in convert_to_listed_values(people)}
    # The guard would refuse to shrink the file of an earlier example.
    (connector.folder / "out.csv").unlink(missing_ok=True)
    assert connector.run_json("export", "out.csv").exit_code == 0
    start_anew(connector)
    second_result = connector.run_json("import", "out.csv", "--base-name", "Elsewhere")
    assert second_result.rows == {"read": len(people), "created": len(people)}
    assert {person["email"]: person for person in read_listed_people(connector.sandbox)} == people_by_email
