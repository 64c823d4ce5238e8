"""A job's parts as the library's values."""

from pathlib import Path

import pytest

from connector.errors import ConfigurationError
from connector.jobs.build import build_mapping, build_policy, build_query, build_rules, open_source
from connector.jobs.models import Filters, JobSubscriber, Load
from connector.jobs.source_models import JobSource
from connector.load.session import LoadPolicy
from connector.service.wire import ListQuery
from connector.subscribers.preparation import check_mapping
from connector.subscribers.rules import ColumnRule, FieldMapping, PhoneRule, ValidationRules


def make_subscriber(**keys: object) -> JobSubscriber:
    return JobSubscriber.model_validate({"base": {"id": "7"}, **keys})


def test_every_kind_of_rule_becomes_a_column_rule() -> None:
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
    ("written", "rule"), [("de", PhoneRule("DE")), ({"region": "FR", "otherwise": "keep"}, PhoneRule("FR", "keep"))]
)
def test_the_form_of_phone_numbers_is_a_demand_of_the_job(written: object, rule: PhoneRule) -> None:
    subscriber = make_subscriber(fields={"email": "mail", "phone": {"column": "tel", "e164": written}})
    assert build_rules(subscriber) == ValidationRules(e164=rule)


def test_a_region_without_phone_numbers_is_refused() -> None:
    subscriber = make_subscriber(fields={"email": "mail", "phone": {"column": "tel", "e164": "ZZ"}})
    with pytest.raises(ConfigurationError, match="no phone numbers of a region 'ZZ'"):
        build_rules(subscriber)


def test_a_load_becomes_a_policy() -> None:
    load = Load.model_validate({"max_concurrency": "8", "on_unknown": "hold", "quiet_period": "1s", "look": "none"})
    assert build_policy(load, ValidationRules(identity="client_user_id")) == LoadPolicy(
        "client_user_id", max_concurrency=8, on_unknown="hold", quiet_period_s=1.0, fresh_s=900.0, is_looking=False
    )
    assert build_policy(Load(), ValidationRules()).is_looking


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
def test_filters_become_the_lists_parameters(filters: dict[str, object], query: ListQuery) -> None:
    assert build_query(Filters.model_validate(filters)) == query


def test_filters_show_no_person() -> None:
    assert "ann@" not in repr(Filters.model_validate({"email": "ann@example.com"}))


def test_all_that_is_wrong_with_a_mapping_is_said_at_once() -> None:
    mapping = FieldMapping({"first_name": ColumnRule(column="fnme"), "custom_field1": ColumnRule(column="c")})
    with pytest.raises(ConfigurationError) as caught:
        check_mapping(
            mapping,
            ValidationRules(required=frozenset({"phone"}), zip="custom_field1"),
            ["mail", "fname", "c"],
            where="a.csv",
        )
    message = str(caught.value)
    assert message.startswith("a.csv: no column is mapped to email")
    assert "no column is mapped to phone" in message
    assert "zip: custom_field1 would overwrite" in message
    assert "first_name is mapped to the column fnme, which is not there, did you mean fname?" in message
    assert message.endswith("Its columns: mail, fname, c")


GOOD_VALUES = [("is_active", "true"), ("gender", "Female"), ("birthday", "1990-02-28"), ("tags", "a, b"), ("phone", "")]
BAD_VALUES = [("is_active", "ture"), ("gender", "x"), ("birthday", "1990-02-30"), ("address_country", "Atlantis")]


@pytest.mark.parametrize(("name", "value"), GOOD_VALUES)
def test_a_value_that_every_row_may_have_passes(name: str, value: str) -> None:
    mapping = FieldMapping({"email": ColumnRule(column="mail"), name: ColumnRule(value=value)})
    check_mapping(mapping, ValidationRules(), ["mail"], where="a.csv")


@pytest.mark.parametrize(("name", "value"), BAD_VALUES)
def test_a_value_that_no_row_may_have_is_refused_before_the_first(name: str, value: str) -> None:
    mapping = FieldMapping({"email": ColumnRule(column="mail"), name: ColumnRule(value=value)})
    with pytest.raises(ConfigurationError, match=f"a.csv: the value for {name} cannot be sent: "):
        check_mapping(mapping, ValidationRules(), ["mail"], where="a.csv")


def test_a_default_that_no_row_may_have_is_refused_before_the_first() -> None:
    mapping = FieldMapping(
        {
            "email": ColumnRule(column="mail"),
            "birthday": ColumnRule(column="dob", format=("%d.%m.%Y",), default="1.2.90"),
        }
    )
    with pytest.raises(ConfigurationError, match="the default for birthday cannot be sent: "):
        check_mapping(mapping, ValidationRules(), ["mail", "dob"], where="a.csv")


def test_each_column_of_a_template_must_be_there() -> None:
    mapping = FieldMapping(
        {
            "email": ColumnRule(column="mail"),
            "first_name": ColumnRule(template="{{ fname }} {{ row['middle name'] }}"),
            "address_line1": ColumnRule(template="{{ [street, numer] | join }}"),
        }
    )
    with pytest.raises(ConfigurationError) as caught:
        check_mapping(mapping, ValidationRules(), ["mail", "fnam", "street", "number"], where="a.csv")
    assert "first_name is mapped to the column fname, which is not there, did you mean fnam?" in str(caught.value)
    assert "first_name is mapped to the column middle name, which is not there" in str(caught.value)
    assert "address_line1 is mapped to the column numer, which is not there, did you mean number?" in str(caught.value)


def test_a_file_source_opens_as_the_job_says(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes("mail;name\na@example.com;Zoë\n".encode("cp1252"))
    keys = {"file": {"path": str(tmp_path / "a.csv"), "delimiter": ";", "encoding": "cp1252"}}
    with open_source(JobSource.model_validate(keys)) as source:
        assert source.columns == ("mail", "name")
        assert [row for chunk in source.chunks() for row in chunk.frame["name"]] == ["Zoë"]
