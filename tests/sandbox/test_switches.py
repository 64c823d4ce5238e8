from dataclasses import fields

import pytest

from connector.sandbox.subscriber import normalise_subscriber
from connector.sandbox.switches import FIELDS, SWITCHES, SandboxSettings, change_settings, parse_settings
from tests.sandbox.test_creates import EVERYTHING

DESIGN = """
duplicates error_shape filters order latency_ms rate burst limiter capacity retry_after drop_before drop_after
error_before error_after cut_answer hang_after garbage_after refuse created_422 late_ms list_lag_ms churn_insert
churn_delete churn_where list_error max_total redirect_to verified_domains protected_headers authorization seed
result_window base_names base_alias alter_identity executed_status error_status past_end numbers_as_text limit_status
burst window_ms retry_after_s max_in_flight replica_lags_ms blind_filters
"""


def test_every_switch_of_the_design_is_in_the_table() -> None:
    assert set(DESIGN.split()) <= {switch.name for switch in SWITCHES}


def test_the_table_and_the_settings_are_one() -> None:
    assert [switch.name for switch in SWITCHES] == [each.name for each in fields(SandboxSettings)]


def test_every_default_of_the_table_sets_the_default() -> None:
    assert parse_settings([f"{switch.name}={switch.default}" for switch in SWITCHES]) == SandboxSettings()


def test_every_switch_explains_itself_in_a_sentence() -> None:
    assert all(switch.help.endswith(".") and switch.values for switch in SWITCHES)


@pytest.mark.parametrize(
    ("setting", "name", "value"),
    [
        ("duplicates=reject_409", "duplicates", "reject_409"),
        ("drop_after=0.02", "drop_after", 0.02),
        (" rate = 2.5 ", "rate", 2.5),
        ("capacity=8", "capacity", 8),
        ("total_off=-3", "total_off", -3),
        ("align_offset=true", "align_offset", True),
        ("verified_domains=a.org, b.org", "verified_domains", ("a.org", "b.org")),
        ("required=", "required", ()),
        ("authorization=Bearer {token}", "authorization", "Bearer {token}"),
        ("replica_lags_ms=0, 1.5", "replica_lags_ms", (0.0, 1.5)),
        ("base_alias=Old = New,7=9", "base_alias", (("Old", "New"), ("7", "9"))),
        ("redirect_to=http://x/?a=b", "redirect_to", "http://x/?a=b"),
    ],
)
def test_a_setting_is_read(setting: str, name: str, value: object) -> None:
    assert getattr(parse_settings([setting]), name) == value


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("duplicates=maybe", ["'duplicates'", "reject_409"]),
        ("drop_after=1.5", ["'drop_after'", "0 to 1"]),
        ("drop_after=nan", ["'drop_after'"]),
        ("drop_after=often", ["'drop_after'"]),
        ("capacity=1.5", ["'capacity'", "whole"]),
        ("latency_ms=-1", ["'latency_ms'"]),
        ("align_offset=yes", ["'align_offset'", "true | false"]),
        ("required=Shoe", ["'required'", "Email"]),
        ("authorization=Bearer", ["'authorization'", "{token}"]),
        ("redirect_to=a\nb", ["'redirect_to'"]),
        ("replica_lags_ms=1,soon", ["'replica_lags_ms'", "numbers from 0"]),
        ("base_alias=Old", ["'base_alias'", "left=right"]),
        ("base_alias=Old=", ["'base_alias'"]),
        ("drop_afterr=1", ["'drop_afterr'", "did you mean 'drop_after'"]),
        ("xyzzy=1", ["'xyzzy'", "there are: "]),
        ("duplicates", ["name=value"]),
        ("min_limit=60", []),
    ],
)
def test_a_setting_that_cannot_be_is_named_with_what_it_takes(setting: str, words: list[str]) -> None:
    settings = ["max_limit=50", setting] if setting.startswith("min_limit") else [setting]
    with pytest.raises(ValueError, match=r"switch|setting") as caught:
        parse_settings(settings)
    assert all(word in str(caught.value) for word in words)


def test_json_values_are_taken_as_texts_are() -> None:
    given = {"rate": 5, "fault_operations": ["list"], "align_offset": True, "drop_after": "0.5"}
    changed = change_settings(SandboxSettings(), given)
    assert (changed.rate, changed.fault_operations, changed.align_offset, changed.drop_after) == (
        5.0,
        ("list",),
        True,
        0.5,
    )


@pytest.mark.parametrize(
    "given",
    [
        {"rate": True},
        {"duplicates": 1},
        {"required": [1]},
        {"align_offset": 1},
        {"replica_lags_ms": 1},
        {"base_alias": 1},
    ],
)
def test_a_json_value_of_the_wrong_type_is_refused(given: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="cannot be"):
        change_settings(SandboxSettings(), given)


def test_settings_that_were_read_back_can_be_set_again() -> None:
    settings = parse_settings(["base_alias=Old=New", "replica_lags_ms=0,500", "required=Email", "limit_status=503"])
    given = {each.name: getattr(settings, each.name) for each in fields(SandboxSettings)}
    assert change_settings(SandboxSettings(), given) == settings


def test_the_fields_that_switches_name_are_those_that_a_create_knows() -> None:
    known = {name for name in normalise_subscriber(EVERYTHING, is_strict=True) if name != "Address"}
    assert set(FIELDS) == known | {f"Address.{name}" for name in EVERYTHING["Address"]}
