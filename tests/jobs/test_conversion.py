"""The conversion of a job into the values that a run uses."""

import pytest

from connector.errors import ConfigurationError
from connector.jobs.build import build_policy, build_rules
from connector.jobs.export_planner import build_query
from connector.jobs.load_planner import build_mapping
from connector.jobs.models import Filters, JobSubscriber, Load
from connector.load.session import LoadPolicy
from connector.service.wire import ListQuery
from connector.subscribers.preparation import check_mapping
from connector.subscribers.rules import ColumnRule, FieldMapping, PhoneRule, ValidationRules


def make_subscriber(**keys: object) -> JobSubscriber:
    return JobSubscriber.model_validate({"base": {"id": "7"}, **keys})


def test_every_kind_of_field_rule_is_converted_to_a_column_rule() -> None:
    subscriber = make_subscriber(
        fields={
            "email": "mail",
            "is_active": {"value": "true"},
            "gender": {"column": "sex", "values": {"M": "male", "": None}},
            "tags": {"column": "segments", "split": "|"},
            "birthday": {"column": "dob", "format": "%d.%m.%Y"},
            "first_name": {"column": "name", "case": "title"},
            "last_name": {"template": "{{ name }}", "trim": "false"},
            "address_line1": {"template": "{{ street }}, {{ number }}", "default": "-"},
        }
    )
    assert build_mapping(subscriber) == FieldMapping(
        {
            "email": ColumnRule(column="mail"),
            "is_active": ColumnRule(value="true"),
            "gender": ColumnRule(column="sex", values={"M": "male", "": ""}),
            "tags": ColumnRule(column="segments", split="|"),
            "birthday": ColumnRule(column="dob", format=("%d.%m.%Y",)),
            "first_name": ColumnRule(column="name", case="title"),
            "last_name": ColumnRule(template="{{ name }}", is_trimmed=False),
            "address_line1": ColumnRule(template="{{ street }}, {{ number }}", default="-"),
        }
    )


@pytest.mark.parametrize(
    ("value", "rule"), [("de", PhoneRule("DE")), ({"region": "FR", "otherwise": "keep"}, PhoneRule("FR", "keep"))]
)
def test_the_format_of_phones_is_converted_to_a_rule(value: object, rule: PhoneRule) -> None:
    subscriber = make_subscriber(fields={"email": "mail", "phone": {"column": "tel", "e164": value}})
    assert build_rules(subscriber) == ValidationRules(e164=rule)
    wrong_subscriber = make_subscriber(fields={"email": "mail", "phone": {"column": "tel", "e164": "ZZ"}})
    with pytest.raises(ConfigurationError, match="no phone numbers are known for the region 'ZZ'"):
        build_rules(wrong_subscriber)


def test_the_section_load_is_converted_to_a_policy() -> None:
    load = Load.model_validate({"max_concurrency": "8", "on_unknown": "hold", "quiet_period": "1s", "look": "none"})
    assert build_policy(load, ValidationRules(identity_field="client_user_id"), None) == LoadPolicy(
        "client_user_id",
        max_concurrency=8,
        on_unknown="hold",
        quiet_period_s=1.0,
        max_lookup_age_s=900.0,
        looks_up_first=False,
    )
    assert build_policy(Load(), ValidationRules(), None).looks_up_first


@pytest.mark.parametrize(
    ("filters", "query"),
    [
        ({}, ListQuery()),
        ({"gender": "unspecified"}, ListQuery(gender="")),
        ({"gender": "female", "is_active": "false"}, ListQuery(gender="female", is_active=False)),
        ({"id": "3", "base_id": "7", "email": "a@example.com"}, ListQuery(id=3, base_id=7, email="a@example.com")),
        (
            {"client_user_id": "007", "first_name": "A", "last_name": "B"},
            ListQuery(client_user_id="007", first_name="A", last_name="B"),
        ),
    ],
)
def test_filters_are_converted_to_parameters_of_the_list(filters: dict[str, object], query: ListQuery) -> None:
    assert build_query(Filters.model_validate(filters)) == query
    assert "example.com" not in repr(Filters.model_validate(filters))


def test_all_faults_of_a_mapping_are_reported_together() -> None:
    mapping = FieldMapping({"first_name": ColumnRule(column="fnme"), "custom_field1": ColumnRule(column="c")})
    with pytest.raises(ConfigurationError) as error_info:
        check_mapping(
            mapping,
            ValidationRules(required=frozenset({"phone"}), zip_policy="custom_field1"),
            ["mail", "fname", "c"],
            source_name="a.csv",
        )
    message = str(error_info.value)
    assert message.startswith("a.csv: no column is mapped to the field email")
    assert "no column is mapped to the field phone" in message
    assert "`zip: custom_field1` is not possible" in message
    assert "first_name is mapped to the column fnme, which does not exist (did you mean fname?)" in message
    assert message.endswith("Its columns: mail, fname, c")


VALID_CONSTANTS = [("is_active", "true"), ("birthday", "1990-02-28"), ("tags", "a, b"), ("phone", "")]
INVALID_CONSTANTS = [("is_active", "ture"), ("birthday", "1990-02-30"), ("address_country", "Atlantis")]


@pytest.mark.parametrize(("name", "value"), VALID_CONSTANTS)
def test_a_valid_constant_is_accepted(name: str, value: str) -> None:
    mapping = FieldMapping({"email": ColumnRule(column="mail"), name: ColumnRule(value=value)})
    check_mapping(mapping, ValidationRules(), ["mail"], source_name="a.csv")


@pytest.mark.parametrize(("name", "value"), INVALID_CONSTANTS)
def test_an_invalid_constant_is_refused(name: str, value: str) -> None:
    mapping = FieldMapping({"email": ColumnRule(column="mail"), name: ColumnRule(value=value)})
    with pytest.raises(ConfigurationError, match=f"a.csv: the value for {name} cannot be sent: "):
        check_mapping(mapping, ValidationRules(), ["mail"], source_name="a.csv")


def test_an_invalid_default_is_refused() -> None:
    mapping = FieldMapping(
        {
            "email": ColumnRule(column="mail"),
            "birthday": ColumnRule(column="dob", format=("%d.%m.%Y",), default="1.2.90"),
        }
    )
    with pytest.raises(ConfigurationError, match="the default for birthday cannot be sent: "):
        check_mapping(mapping, ValidationRules(), ["mail", "dob"], source_name="a.csv")


def test_a_missing_column_of_a_template_is_refused() -> None:
    mapping = FieldMapping(
        {
            "email": ColumnRule(column="mail"),
            "first_name": ColumnRule(template="{{ fname }} {{ row['middle name'] }}"),
            "address_line1": ColumnRule(template="{{ [street, numer] | join }}"),
        }
    )
    with pytest.raises(ConfigurationError) as error_info:
        check_mapping(mapping, ValidationRules(), ["mail", "fnam", "street", "number"], source_name="a.csv")
    assert "first_name is mapped to the column fname, which does not exist (did you mean fnam?)" in str(
        error_info.value
    )
    assert "first_name is mapped to the column middle name, which does not exist" in str(error_info.value)
    assert "address_line1 is mapped to the column numer, which does not exist (did you mean number?)" in str(
        error_info.value
    )
