"""The parsed answer of the service: success, refusal or uncertainty, its message, its kind and its Retry-After."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import orjson
import pytest
from hypothesis import given, strategies as st

from connector.service.answers import (
    build_refusal_kind,
    extract_message,
    parse_create_answer,
    parse_list_answer,
    parse_retry_after,
    parse_send_answer,
)
from connector.service.wire import AmbiguousResult, CreatedAnswer, EmailAccepted, ListPage, Refused, is_rate_limit

NOW = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)

SAMPLES_FOLDER = Path(__file__).parent / "samples"

CREATED_ANSWER = (SAMPLES_FOLDER / "created.json").read_bytes()

LIST_ANSWER = (SAMPLES_FOLDER / "listed.json").read_bytes()

EMAIL_ANSWER = (SAMPLES_FOLDER / "sent.json").read_bytes()

PARSERS = (parse_create_answer, parse_list_answer, parse_send_answer)


def test_a_created_subscriber_has_its_id_and_its_fields() -> None:
    answer = parse_create_answer(201, {}, CREATED_ANSWER, NOW)
    assert isinstance(answer, CreatedAnswer)
    assert (answer.subscriber_id, answer.status) == (81231, 201)
    assert answer.read("id") == 81231
    assert (answer.read("base_id"), answer.read("base_name")) == (7, "News")
    assert answer.read("address_zip") == "1234"
    assert answer.read("tags") == ["new", "vip, gold"]


def test_a_page_has_its_counts_and_its_subscribers() -> None:
    answer = parse_list_answer(200, {}, LIST_ANSWER, NOW)
    assert isinstance(answer, ListPage)
    assert (answer.total_count, answer.offset, answer.limit) == (3, 1, 2)
    assert answer.subscribers == orjson.loads(LIST_ANSWER)["SubscribersList"]["Subscribers"]


def test_a_count_outside_64_bit_whole_numbers_is_read_as_none() -> None:
    for count_json in ["null", '"3 of 5"', "true", "2.5", "[]", "1180591620717411303424", "1e300"]:
        body = (
            f'{{"success": true, "SubscribersList": {{"TotalCount": {count_json}, "Limit": 50.0, "Subscribers": []}}}}'
        )
        assert parse_list_answer(200, {}, body.encode(), NOW) == ListPage([], None, None, 50)


def test_an_accepted_email_has_its_request_id_and_its_message_id() -> None:
    assert parse_send_answer(200, {}, EMAIL_ANSWER, NOW) == EmailAccepted(991, "<20261121.991@mail.example.com>")
    body_without_message_id = b'{"success": true, "SendEmail": {"SendMessageRequestId": 5}}'
    assert parse_send_answer(200, {}, body_without_message_id, NOW) == EmailAccepted(5, "")


def test_an_accepted_email_without_a_whole_request_id_is_ambiguous() -> None:
    for request_id in ["null", "true", "1.5", '"5a"', "9223372036854775808"]:
        body = f'{{"success": true, "SendEmail": {{"SendMessageRequestId": {request_id}, "MessageId": "<m>"}}}}'
        assert isinstance(parse_send_answer(200, {}, body.encode(), NOW), AmbiguousResult)


def test_an_id_with_decimal_zeros_is_accepted() -> None:
    answer = parse_create_answer(200, {}, b'\xef\xbb\xbf{"success": true, "Subscriber": {"Id": 12.0}}', NOW)
    assert isinstance(answer, CreatedAnswer)
    assert [repr(answer.subscriber_id), repr(answer.read("id"))] == ["12", "12"]


def test_a_number_or_a_text_is_accepted_as_a_boolean() -> None:
    for json_text, is_active in {
        "0": False,
        "1": True,
        '"0"': False,
        '" False "': False,
        '"true"': True,
        '"N"': "N",
    }.items():
        body = f'{{"success": true, "Subscriber": {{"Id": 12, "IsActive": {json_text}}}}}'
        answer = parse_create_answer(200, {}, body.encode(), NOW)
        assert isinstance(answer, CreatedAnswer)
        assert answer.subscriber["IsActive"] == is_active


def test_a_2xx_answer_without_the_fields_of_service_api_md_is_ambiguous() -> None:
    for body in [
        b"",
        b"null",
        b'{"success": true}',
        b'{"success": true, "Subscriber": [1]}',
        b'{"success": true, "Subscriber": {"Email": "a@b.c"}}',
        b'{"success": true, "Subscriber": {"Id": "12a"}}',
        b'{"success": true, "Subscriber": {"Id": true}}',
        b'{"success": true, "Subscriber": {"Id": 0}}',
        b'{"success": true, "Subscriber": {"Id": -4}}',
        b'{"success": true, "Subscriber": {"Id": 1.5}}',
        b'{"success": true, "Subscriber": {"Id": 9223372036854775808}}',
        b'{"success": 1, "Subscriber": {"Id": 12}}',
        b'{"success": "true", "Subscriber": {"Id": 12}}',
        b'{"Success": true, "Subscriber": {"Id": 12}}',
        b'{"success": true, "Subscriber": {"Id": 12}',
        b'{"success": true, "Subscriber": {"Id": 12}} trailing',
        b'\xff\xfe{"success": true, "Subscriber": {"Id": 12}}',
    ]:
        for parse_answer in PARSERS:
            for status in (200, 201, 202, 204):
                answer = parse_answer(status, {}, body, NOW)
                assert isinstance(answer, AmbiguousResult)
                assert answer.status == status


def test_a_uuid_or_a_fraction_is_recognised_as_an_id_of_another_type() -> None:
    for subscriber_id, has_unusable_id in ((None, False), ("0e1f-88", True), ("", False), (1.5, True)):
        body = orjson.dumps({"success": True, "Subscriber": {"Id": subscriber_id}})
        answer = parse_create_answer(200, {}, body, NOW)
        assert isinstance(answer, AmbiguousResult), subscriber_id
        assert answer.has_unusable_id is has_unusable_id, subscriber_id


def test_a_page_without_an_array_of_subscribers_is_ambiguous() -> None:
    for page_json in [
        "null",
        "{}",
        '{"Subscribers": null}',
        '{"Subscribers": {}}',
        '{"Subscribers": [{"Id": 1}, null]}',
    ]:
        body = b'{"success": true, "SubscribersList": ' + page_json.encode() + b"}"
        assert isinstance(parse_list_answer(200, {}, body, NOW), AmbiguousResult)


def test_a_4xx_status_other_than_408_and_409_is_a_refusal() -> None:
    for status in [400, 401, 402, 404, 405, 406, 410, 413, 415, 422, 429, 431, 451, 499]:
        for parse_answer in PARSERS:
            answer = parse_answer(status, {"retry-after": "3"}, b'{"success": false, "message": "no"}', NOW)
            assert answer == Refused(status, "no", 3.0)


def test_408_and_409_and_every_status_outside_2xx_and_4xx_are_ambiguous() -> None:
    for status in [100, 199, 300, 301, 302, 304, 307, 308, 408, 409, 500, 502, 503, 504, 520, 599, 999]:
        for parse_answer in PARSERS:
            answer = parse_answer(status, {"Retry-After": "3"}, b'{"message": "no"}', NOW)
            assert answer == AmbiguousResult(status, "no", 3.0)


@pytest.mark.parametrize("status", [200, 201, 299, 400, 408, 409])
@pytest.mark.parametrize("fields", [b'"message": "no"', b'"message": "no", "Subscriber": {"Id": 12}'])
def test_success_false_with_a_2xx_or_4xx_status_is_a_refusal(status: int, fields: bytes) -> None:
    for parse_answer in PARSERS:
        answer = parse_answer(status, {}, b'{"success": false, ' + fields + b"}", NOW)
        assert isinstance(answer, Refused)
        assert answer.status == status


@pytest.mark.parametrize("status", [307, 500, 503])
def test_a_redirect_or_a_server_error_is_ambiguous_with_any_body(status: int) -> None:
    for parse_answer in PARSERS:
        assert isinstance(parse_answer(status, {}, b'{"success": false, "message": "no"}', NOW), AmbiguousResult)


def test_a_status_of_failure_with_a_body_of_success_is_ambiguous() -> None:
    for status in [302, 400, 409, 422, 429, 500]:
        for parse_answer, body in zip(PARSERS, (CREATED_ANSWER, LIST_ANSWER, EMAIL_ANSWER), strict=True):
            answer = parse_answer(status, {}, body, NOW)
            assert isinstance(answer, AmbiguousResult)
            assert answer.status == status


def test_a_message_is_masked_before_it_is_cut() -> None:
    body = b"x" * 490 + b"s3cret-token" + b"y" * 100
    answer = parse_create_answer(
        401, {}, body, NOW, mask_message=lambda message: message.replace("s3cret-token", "****")
    )
    assert isinstance(answer, Refused)
    assert answer.message == "x" * 490 + "****" + "y" * 6
    assert len(answer.message) == 500


def test_a_page_with_null_rows_is_accepted_only_after_the_end_of_the_list() -> None:
    cases: list[tuple[bytes, bool]] = [
        (b'"TotalCount":12,"Offset":12', True),
        (b'"TotalCount":0', True),
        (b'"TotalCount":12,"Offset":11', False),
        (b'"TotalCount":12', False),
        (b'"Offset":12', False),
    ]
    for counts_json, is_page in cases:
        body = b'{"success":true,"SubscribersList":{%s,"Subscribers":null}}' % counts_json
        answer = parse_list_answer(200, {}, body, NOW)
        assert isinstance(answer, ListPage if is_page else AmbiguousResult)


@pytest.mark.parametrize("status", [403, 503])
def test_a_403_or_503_with_retry_after_counts_as_a_rate_limit(status: int) -> None:
    for parse_answer in PARSERS:
        answer = parse_answer(status, {"retry-after": "3"}, b'{"success": false, "message": "slow down"}', NOW)
        assert answer == AmbiguousResult(status, "slow down", 3.0)
        assert is_rate_limit(status, answer.retry_after_s)
    assert not is_rate_limit(status, None)


@given(st.integers(100, 999), st.binary(max_size=300), st.dictionaries(st.text(), st.text()))
def test_any_bytes_are_parsed_as_a_refusal_or_as_ambiguous(status: int, body: bytes, headers: dict[str, str]) -> None:
    for parse_answer in PARSERS:
        assert isinstance(parse_answer(status, headers, body, NOW), Refused | AmbiguousResult)


JSON_STRATEGY = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False) | st.text(),
    lambda value: st.lists(value, max_size=4) | st.dictionaries(st.text(), value, max_size=4),
    max_leaves=12,
)


@given(st.integers(100, 999), st.sampled_from(["Subscriber", "SubscribersList", "SendEmail"]), JSON_STRATEGY)
def test_the_message_of_any_json_answer_has_at_most_500_characters(status: int, key: str, value: object) -> None:
    body = orjson.dumps({"success": True, key: value, "message": value})
    for parse_answer in PARSERS:
        answer = parse_answer(status, {}, body, NOW)
        assert not isinstance(answer, Refused)
        assert len(getattr(answer, "message", "")) <= 500


def test_a_body_with_deep_nesting_is_ambiguous() -> None:
    for body in (b"[" * 100_000, b'{"a":' * 900 + b"1" + b"}" * 900, b"<" * 100_000, b"<script" * 10_000):
        assert isinstance(parse_create_answer(500, {"Content-Type": "text/html"}, body, NOW), AmbiguousResult)


def test_a_page_with_half_a_surrogate_pair_can_be_read() -> None:
    page = rb'{"TotalCount":1,"Offset":0,"Limit":50,"Subscribers":[{"Id":1,"FirstName":"\ud83d cut"}]}'
    body = b'{"success":true,"SubscribersList":' + page + b"}"
    answer = parse_list_answer(200, {}, body, NOW)
    assert isinstance(answer, ListPage)
    assert answer.subscribers == [{"Id": 1, "FirstName": "\ud83d cut"}]


# The message of an error in any format, and the kind of a refusal

HTML_HEADERS = {"Content-Type": "text/html; charset=utf-8"}


def test_an_error_in_a_known_format_is_shown_as_its_text() -> None:
    cases: list[tuple[str, str]] = [
        ("refused_plain.json", "Subscriber already exists"),
        ("refused_nested.json", "Subscriber already exists"),
        ("refused_by_field.json", "Validation failed; Email: is taken; Email: is odd; Zip: is no number"),
        ("refused.html", "403 Forbidden You don't have access."),
    ]
    for sample_name, expected_text in cases:
        assert extract_message(403, {}, (SAMPLES_FOLDER / sample_name).read_bytes()) == expected_text


def test_an_error_in_any_other_format_is_shown_as_text() -> None:
    cases: list[tuple[bytes, str]] = [
        (b"", ""),
        (b"null", ""),
        (b'{"success": false}', ""),
        (b'"just text"', "just text"),
        (b"Invalid address <a@b.c>, line\n 2\x00", "Invalid address <a@b.c>, line 2"),
        (b'["first", "second", "first"]', "first; second"),
        (b'{"error": "invalid_grant", "error_description": "Token is old"}', "invalid_grant; Token is old"),
        (b'{"errors": [{"field": "Email", "message": "is taken"}]}', "field: Email; is taken"),
        (b'{"code": "EMAIL_EXISTS", "success": false}', "code: EMAIL_EXISTS"),
        (b'{"a": {"b": [1, "two", null]}}', "a.b: 1; a.b: two"),
        (b'{"message": ""}', ""),
        ("{'message': 'née'}".encode("latin-1"), "{'message': 'n\ufffde'}"),
        (b"<h1>Bad gateway</h1>", "Bad gateway"),
        (b"<html><head><title>502 Bad Gateway</title></head><body></body></html>", "502 Bad Gateway"),
        (b"<?xml version='1.0'?><error><code>7</code><text>no &amp; no</text></error>", "7 no & no"),
    ]
    for body, expected_text in cases:
        assert extract_message(400, {}, body) == expected_text


def test_tags_are_removed_from_html_and_not_from_plain_text() -> None:
    assert extract_message(400, HTML_HEADERS, b"no <b>such</b> list") == "no such list"
    assert extract_message(400, {"Content-Type": "text/plain"}, b"no <b>such</b> list") == "no <b>such</b> list"


def test_a_redirect_is_shown_with_its_target() -> None:
    headers = {"location": " https://other.example/login "}
    assert extract_message(302, headers, b"") == "redirect to https://other.example/login"
    assert extract_message(302, headers, b"Moved") == "redirect to https://other.example/login; Moved"
    assert extract_message(201, headers, b"Moved") == "Moved"


def test_only_the_start_of_an_error_of_megabytes_is_read() -> None:
    message = extract_message(500, {}, b'{"message": "' + b"x" * 2_000_000 + b'"}')
    assert message.startswith('{"message": "xxx')
    assert len(message) < 25_000


def test_refusals_with_different_row_data_have_the_same_kind() -> None:
    cases: list[tuple[str, str]] = [
        ("a@example.com is taken", "Zoë.B+x@mail.example.org is taken"),
        ("email ann@example.com: taken", "email bob@b.org: taken"),
        ('"Ann" is no name', "\"Bob 'the' Builder\" is no name"),
        ("“Ann” is no name", "“Bob” is no name"),
        ("'Ann' is no name", "'Bob O'Neill' is no name"),
        ("limit of 10 in 60 s", "limit of 9000 in 1 s"),
        ("request 3fa85f64-5717-4562-b3fc-2c963f66afa6 failed", "request 11111111-2222-4562-b3fc-aaaaaaaaaaaa failed"),
        ("trace 7d3fa1c0b2 failed", "trace 00ffee1122334455 failed"),
        ("ref k3J9sLq0Zx81mNbVc2 lost", "ref 9ZZtopQ7aLmNoP1234x lost"),
        ('bad value "cut in the mid', 'bad value "another that was cut'),
        ("too  long\n", "too long"),
    ]
    for first_message, second_message in cases:
        assert build_refusal_kind(400, first_message) == build_refusal_kind(400, second_message)


def test_refusals_for_different_reasons_have_different_kinds() -> None:
    cases: list[tuple[str, str]] = [
        ("Email is taken", "Email is invalid"),
        ("code: EMAIL_EXISTS", "code: BAD_ZIP"),
        ("Phone can't be used, it isn't a number", "Zip can't be used, it isn't a number"),
        ("CustomField1 is too long", "Line1 is too long"),
        ("Address.Country is unknown", "Address.City is unknown"),
    ]
    for first_message, second_message in cases:
        assert build_refusal_kind(400, first_message) != build_refusal_kind(400, second_message)


# Retry-After in all known formats, and in invalid formats

UNIX_NOW = int(NOW.timestamp())


def test_retry_after_is_read_as_seconds_or_none() -> None:
    cases: list[tuple[str, float | None]] = [
        ("0", 0.0),
        ("7", 7.0),
        ("1.5", 1.5),
        ("86400", 86_400.0),
        ("86401", None),
        ("999999999999999999999", None),
        (f"{UNIX_NOW + 30}", 30.0),
        (f"{UNIX_NOW + 30}.5", 30.5),
        (f"{(UNIX_NOW + 30) * 1000}", 30.0),
        (f"{UNIX_NOW - 30}", 0.0),
        (f"{UNIX_NOW + 100 * 86_400}", None),
        ("Sat, 21 Nov 2026 12:00:30 GMT", 30.0),
        ("Saturday, 21-Nov-26 12:00:30 GMT", 30.0),
        ("Sat Nov 21 12:00:30 2026", 30.0),
        ("Sat, 21 Nov 2026 14:00:30 +0200", 30.0),
        ("Sat, 21 Nov 2026 11:59:00 GMT", 0.0),
        ("Sat, 21 Nov 2099 12:00:00 GMT", None),
        ("", None),
        ("-1", None),
        ("1e3", None),
        ("inf", None),
        ("soon", None),
        ("٧", None),
        ("2026-13-45T99:00:00Z", None),
    ]
    for header_value, seconds in cases:
        assert parse_retry_after({"Retry-After": header_value}, NOW) == seconds


def test_the_case_of_the_header_retry_after_is_ignored() -> None:
    assert parse_retry_after({"x": "y", "RETRY-after": "4"}, NOW) == 4.0
    assert parse_retry_after({}, NOW) is None


def test_a_date_in_retry_after_is_compared_with_the_date_of_the_answer() -> None:
    headers = {"Retry-After": "Sat, 21 Nov 2026 12:10:30 GMT", "Date": "Sat, 21 Nov 2026 12:10:00 GMT"}
    for clock_skew in (timedelta(0), timedelta(minutes=11), timedelta(minutes=-9)):
        assert parse_retry_after(headers, NOW + clock_skew) == 30.0
    assert parse_retry_after({**headers, "Date": "no date"}, NOW) == 630.0


@given(st.text())
def test_the_wait_is_at_most_one_day_for_any_value_of_the_retry_after_header(header_value: str) -> None:
    seconds = parse_retry_after({"Retry-After": header_value, "Date": header_value}, NOW)
    assert seconds is None or 0.0 <= seconds <= 86_400.0
