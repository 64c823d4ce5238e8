"""What each answer means: the shapes of service-api.md, the ones it does not show, and bytes that are no shape at
all."""

from datetime import UTC, datetime
from pathlib import Path

import orjson
import pytest
from hypothesis import given, strategies as st

from connector.service import (
    Accepted,
    Ambiguous,
    Created,
    ListPage,
    Refused,
    parse_created,
    parse_listed,
    parse_sent,
    says_limit,
)

NOW = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)
SAMPLES = Path(__file__).parent / "samples"

CREATED = (SAMPLES / "created.json").read_bytes()
LISTED = (SAMPLES / "listed.json").read_bytes()
SENT = (SAMPLES / "sent.json").read_bytes()

PARSERS = (parse_created, parse_listed, parse_sent)


def test_a_created_subscriber_is_read_flat_with_its_id() -> None:
    answer = parse_created(201, {}, CREATED, NOW)
    assert isinstance(answer, Created)
    assert (answer.subscriber_id, answer.status) == (81231, 201)
    assert answer.read("id") == 81231
    assert (answer.read("base_id"), answer.read("base_name")) == (7, "News")
    assert answer.read("address_zip") == "1234"
    assert answer.read("tags") == ["new", "vip, gold"]


def test_a_page_is_read_with_its_echoes_and_its_subscribers_as_they_came() -> None:
    answer = parse_listed(200, {}, LISTED, NOW)
    assert isinstance(answer, ListPage)
    assert (answer.total_count, answer.offset, answer.limit) == (3, 1, 2)
    assert answer.subscribers == orjson.loads(LISTED)["SubscribersList"]["Subscribers"]


@pytest.mark.parametrize("count", ["null", '"3 of 5"', "true", "2.5", "[]", "1180591620717411303424", "1e300"])
def test_an_echo_that_is_no_whole_number_of_64_bits_is_none(count: str) -> None:
    body = f'{{"success": true, "SubscribersList": {{"TotalCount": {count}, "Limit": 50.0, "Subscribers": []}}}}'
    assert parse_listed(200, {}, body.encode(), NOW) == ListPage([], None, None, 50)


def test_an_accepted_email_is_read_with_both_its_ids() -> None:
    assert parse_sent(200, {}, SENT, NOW) == Accepted(991, "<20261121.991@mail.example.com>")
    untold = b'{"success": true, "SendEmail": {"SendMessageRequestId": 5}}'
    assert parse_sent(200, {}, untold, NOW) == Accepted(5, "")


def test_a_whole_number_may_be_written_as_a_decimal_and_a_body_may_begin_with_a_bom() -> None:
    answer = parse_created(200, {}, b'\xef\xbb\xbf{"success": true, "Subscriber": {"Id": 12.0}}', NOW)
    assert isinstance(answer, Created)
    assert [repr(answer.subscriber_id), repr(answer.read("id"))] == ["12", "12"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"OK",
        b"null",
        b"[]",
        b"true",
        b'{"success": true}',
        b'{"success": true, "Subscriber": null}',
        b'{"success": true, "Subscriber": [1]}',
        b'{"success": true, "Subscriber": {"Email": "a@b.c"}}',
        b'{"success": true, "Subscriber": {"Id": null}}',
        b'{"success": true, "Subscriber": {"Id": "12a"}}',
        b'{"success": true, "Subscriber": {"Id": true}}',
        b'{"success": true, "Subscriber": {"Id": 0}}',
        b'{"success": true, "Subscriber": {"Id": -4}}',
        b'{"success": true, "Subscriber": {"Id": 1.5}}',
        b'{"success": true, "Subscriber": {"Id": 9223372036854775808}}',
        b'{"success": 1, "Subscriber": {"Id": 12}}',
        b'{"success": "true", "Subscriber": {"Id": 12}}',
        b'{"Success": true, "Subscriber": {"Id": 12}}',
        b'{"success": true, "subscriber": {"Id": 12}}',
        b'{"success": true, "Subscriber": {"Id": 12}',
        b'{"success": true, "Subscriber": {"Id": 12}} trailing',
        b'\xff\xfe{"success": true, "Subscriber": {"Id": 12}}',
    ],
)
def test_a_2xx_that_is_not_the_success_of_the_document_is_ambiguous(body: bytes) -> None:
    for parse in PARSERS:
        for status in (200, 201, 202, 204):
            answer = parse(status, {}, body, NOW)
            assert isinstance(answer, Ambiguous)
            assert answer.status == status


@pytest.mark.parametrize(
    "page", ["null", "{}", '{"Subscribers": null}', '{"Subscribers": {}}', '{"Subscribers": [{"Id": 1}, null]}']
)
def test_a_page_without_a_whole_list_is_ambiguous(page: str) -> None:
    body = b'{"success": true, "SubscribersList": ' + page.encode() + b"}"
    assert isinstance(parse_listed(200, {}, body, NOW), Ambiguous)


@pytest.mark.parametrize("status", [400, 401, 402, 404, 405, 406, 410, 413, 415, 422, 429, 431, 451, 499])
def test_429_and_a_definite_4xx_are_refusals(status: int) -> None:
    for parse in PARSERS:
        answer = parse(status, {"retry-after": "3"}, b'{"success": false, "message": "no"}', NOW)
        assert answer == Refused(status, "no", 3.0)


@pytest.mark.parametrize(
    "status", [100, 199, 300, 301, 302, 304, 307, 308, 408, 409, 500, 502, 503, 504, 520, 599, 999]
)
def test_every_other_status_is_ambiguous(status: int) -> None:
    for parse in PARSERS:
        answer = parse(status, {"Retry-After": "3"}, b'{"message": "no"}', NOW)
        assert answer == Ambiguous(status, "no", 3.0)


@pytest.mark.parametrize("status", [200, 201, 299, 400, 408, 409])
@pytest.mark.parametrize("rest", [b'"message": "no"', b'"message": "no", "Subscriber": {"Id": 12}'])
def test_what_says_that_it_is_no_success_is_a_refusal_below_500(status: int, rest: bytes) -> None:
    for parse in PARSERS:
        answer = parse(status, {}, b'{"success": false, ' + rest + b"}", NOW)
        assert isinstance(answer, Refused)
        assert answer.status == status


@pytest.mark.parametrize("status", [307, 500, 503])
def test_a_redirect_or_a_server_error_is_no_refusal_whatever_it_says(status: int) -> None:
    for parse in PARSERS:
        assert isinstance(parse(status, {}, b'{"success": false, "message": "no"}', NOW), Ambiguous)


@pytest.mark.parametrize("status", [302, 400, 409, 422, 429, 500])
def test_a_failure_that_claims_success_contradicts_itself_and_is_ambiguous(status: int) -> None:
    for parse, body in zip(PARSERS, (CREATED, LISTED, SENT), strict=True):
        answer = parse(status, {}, body, NOW)
        assert isinstance(answer, Ambiguous)
        assert answer.status == status


def test_a_message_is_masked_before_it_is_cut_so_that_no_half_of_a_secret_stays() -> None:
    body = b"x" * 490 + b"s3cret-token" + b"y" * 100
    answer = parse_created(401, {}, body, NOW, mask=lambda words: words.replace("s3cret-token", "****"))
    assert isinstance(answer, Refused)
    assert answer.message == "x" * 490 + "****" + "y" * 6
    assert len(answer.message) == 500


def test_numbers_in_quotes_are_numbers() -> None:
    row = b'{"Id":"7","Base":{"Id":"3"}}'
    page = b'{"TotalCount":"12","Offset":"0","Limit":"5","Subscribers":[%s]}' % row
    listed = parse_listed(200, {}, b'{"success":true,"SubscribersList":%s}' % page, NOW)
    assert listed == ListPage([{"Id": 7, "Base": {"Id": 3}}], 12, 0, 5)

    created = parse_created(200, {}, b'{"success":true,"Subscriber":%s}' % row, NOW)
    assert isinstance(created, Created)
    assert (created.subscriber_id, created.read("base_id")) == (7, 3)


@pytest.mark.parametrize(
    ("echoes", "is_page"),
    [
        (b'"TotalCount":12,"Offset":12', True),
        (b'"TotalCount":"0"', True),
        (b'"TotalCount":12,"Offset":11', False),
        (b'"TotalCount":12', False),
        (b'"Offset":12', False),
    ],
)
def test_null_in_place_of_rows_is_a_page_only_past_the_rows_that_are_counted(echoes: bytes, is_page: bool) -> None:
    body = b'{"success":true,"SubscribersList":{%s,"Subscribers":null}}' % echoes
    answer = parse_listed(200, {}, body, NOW)
    assert isinstance(answer, ListPage if is_page else Ambiguous)


@pytest.mark.parametrize("status", [403, 503])
def test_a_limit_by_another_status_than_429_is_no_refusal_of_a_row(status: int) -> None:
    for parse in PARSERS:
        answer = parse(status, {"retry-after": "3"}, b'{"success": false, "message": "slow down"}', NOW)
        assert answer == Ambiguous(status, "slow down", 3.0)
        assert says_limit(status, answer.retry_after_s)
    assert not says_limit(status, None)


def test_no_answer_shows_a_persons_data_in_its_repr() -> None:
    shown = (
        parse_created(200, {}, CREATED, NOW),
        parse_listed(200, {}, LISTED, NOW),
        parse_created(400, {}, b"jose@example.com is taken", NOW),
        parse_created(500, {}, b"jose@example.com is taken", NOW),
    )
    assert not [answer for answer in shown if "example.com" in repr(answer)]


@given(st.integers(100, 999), st.binary(max_size=300), st.dictionaries(st.text(), st.text()))
def test_no_bytes_make_it_raise(status: int, body: bytes, headers: dict[str, str]) -> None:
    for parse in PARSERS:
        assert isinstance(parse(status, headers, body, NOW), Refused | Ambiguous)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(st.integers(100, 999), st.sampled_from(["Subscriber", "SubscribersList", "SendEmail"]), JSON)
def test_no_json_makes_it_raise_and_a_message_has_at_most_500_characters(status: int, key: str, inner: object) -> None:
    body = orjson.dumps({"success": True, key: inner, "message": inner})
    for parse in PARSERS:
        answer = parse(status, {}, body, NOW)
        assert not isinstance(answer, Refused)
        assert len(getattr(answer, "message", "")) <= 500


def test_nesting_without_end_is_no_trouble() -> None:
    for body in (b"[" * 100_000, b'{"a":' * 900 + b"1" + b"}" * 900, b"<" * 100_000, b"<script" * 10_000):
        assert isinstance(parse_created(500, {"Content-Type": "text/html"}, body, NOW), Ambiguous)


def test_half_a_character_does_not_make_a_page_unreadable() -> None:
    page = rb'{"TotalCount":1,"Offset":0,"Limit":50,"Subscribers":[{"Id":1,"FirstName":"\ud83d cut"}]}'
    body = b'{"success":true,"SubscribersList":' + page + b"}"
    answer = parse_listed(200, {}, body, NOW)
    assert isinstance(answer, ListPage)
    assert answer.subscribers == [{"Id": 1, "FirstName": "\ud83d cut"}]
