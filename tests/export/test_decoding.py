"""Both decoders read the same values from a page. The fast decoder may also leave a page to the slow decoder."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import example, given, strategies as st

from connector.fields import FIELDS, Field, FieldKind
from connector.listing.columns import Columns, build_columns, decode_page, open_columns, parse_columns
from connector.listing.pages import WIRE_FORM
from connector.listing.trials import build_row_matcher
from connector.service.answers import parse_list_answer
from connector.service.wire import ListPage
from tests.export.people import BARE_SUBSCRIBER, BROKEN_SUBSCRIBER, FULL_SUBSCRIBER
from tests.field_values import VALUES_BY_KIND, write_as_service

NOW = datetime(2026, 11, 21, tzinfo=UTC)
FAST_FORM = Columns(ThreadPoolExecutor(1))  # the pool starts its thread only when it gets a page


def build_page(
    *subscribers: str | dict[str, Any], json_before_subscribers: str = '"TotalCount":3,"Offset":0,"Limit":50,'
) -> bytes:
    subscriber_texts = [
        subscriber if isinstance(subscriber, str) else orjson.dumps(subscriber).decode() for subscriber in subscribers
    ]
    page = f'{{{json_before_subscribers}"Subscribers":[{",".join(subscriber_texts)}]}}'
    return f'{{"success":true,"SubscribersList":{page}}}'.encode("utf-8", "surrogatepass")


def write_object(*members: str) -> str:
    return f"{{{','.join(members)}}}"


def read_with_slow_decoder(body: bytes) -> ListPage[pa.RecordBatch] | None:
    """Return the page as the slow decoder reads it, or None if the body is not a page."""
    answer = parse_list_answer(200, {}, body, NOW)
    if not isinstance(answer, ListPage):
        return None
    return ListPage(build_columns(answer.subscribers), answer.total_count, answer.offset, answer.limit)


def check_decoders(body: bytes, *, is_decoded_fast: bool | None = None) -> None:
    """Check that `parse_columns` reads the same values as the slow decoder. If the fast decoder reads the body, check
    its values, too."""
    expected_page, decoded_page = read_with_slow_decoder(body), decode_page(body)
    if decoded_page is not None:
        assert expected_page is not None, body
        assert decoded_page == expected_page, body
        decoded_page.subscribers.validate(full=True)
    if is_decoded_fast is not None:
        assert (decoded_page is not None) is is_decoded_fast, body
    parsed_page = parse_columns(200, {}, body, NOW)
    assert parsed_page == expected_page if expected_page is not None else not isinstance(parsed_page, ListPage)


# JSON is generated as text, because `orjson.dumps` cannot write unusual numbers (such as `01`), repeated keys or half
# of a surrogate pair.

UNUSUAL_JSON_NUMBERS = (
    "0", "-0", "1", "12.0", "-1.5", "1e3", "1E400", "-1e400", "01", "1.", ".5", "+1", "0x1", "NaN", "Infinity", "-Inf",
    *map(str, (2**53 + 1, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**64, 10**400)),
)  # fmt: skip
JSON_NUMBERS = st.sampled_from(UNUSUAL_JSON_NUMBERS) | st.integers(-10, 2**70).map(str)
UNUSUAL_JSON_STRINGS = (
    r'"\ud800"', r'"\udc00x"', r'"\ud83d\ude00"', r'"\u0000"', r'"\/\b\f\n\r\t\"\\"', '"\x00"', '"\n"', '"\x1f"',
    '"\x7f"', '"\ud800"', '"é日😀"', r'"\u00e9"', '"\ufeff"', r'"\x"', r'"\u12"', '"[{"', r'"\\\"[[{"', '""', '" "',
    '"x', "'x'",
    '"1990-05-04"', '"0000-01-01"', '"0001-01-01"', '"1990-02-30"', '"1990-05-04 "', '"19900504"', '"99999-01-01"',
    '"male"', '"5"', '"true"', '"null"', '"NaN"',
)  # fmt: skip
JSON_STRINGS = st.sampled_from(UNUSUAL_JSON_STRINGS) | st.text(
    st.characters(exclude_categories=["Cs"]), max_size=6
).map(lambda text: orjson.dumps(text).decode())
JSON_KEYS = st.sampled_from(
    [*{key: None for field in FIELDS for key in field.path}, "Other", "", r"\u0049d", "id", "Tags ", r"\ud800"]
)
SPACES = st.sampled_from(["", "", "", " ", "\n", "\r\n", "\t", "\x0b"])


@st.composite
def draw_objects(draw: st.DrawFn, values: st.SearchStrategy[str]) -> str:
    pairs = draw(st.lists(st.tuples(JSON_KEYS, values), max_size=4))
    return write_object(*(f'{draw(SPACES)}"{key}":{draw(SPACES)}{value}' for key, value in pairs))


JSON_VALUES: st.SearchStrategy[str] = st.recursive(
    st.sampled_from(["null", "true", "false"]) | JSON_NUMBERS | JSON_STRINGS,
    lambda values: st.lists(values, max_size=3).map(lambda items: f"[{','.join(items)}]") | draw_objects(values),
    max_leaves=5,
)


def choose_valid_values(kind: FieldKind) -> st.SearchStrategy[str]:
    match kind:
        case FieldKind.NUMBER:
            return st.integers(-(2**63), 2**63 - 1).map(str)
        case FieldKind.FLAG:
            return st.sampled_from(["true", "false"])
        case FieldKind.TAGS:
            return st.lists(JSON_STRINGS, max_size=3).map(lambda tags: f"[{','.join(tags)}]")
        case FieldKind.DATE:
            return st.dates().map(lambda day: f'"{day}"') | st.just('""')
        case (
            FieldKind.TEXT
            | FieldKind.NULLABLE_TEXT
            | FieldKind.EMAIL
            | FieldKind.GENDER
            | FieldKind.COUNTRY
            | FieldKind.ZIP
        ):
            return JSON_STRINGS


@st.composite
def draw_subscribers(draw: st.DrawFn) -> str:
    """Draw a subscriber as in service-api.md. A field may be absent or null, or have any JSON value."""

    def write_fields(fields: list[Field], depth: int) -> str:
        fields_by_key: dict[str, list[Field]] = {}
        for field in fields:
            fields_by_key.setdefault(field.path[depth], []).append(field)
        members = []
        for key, fields_of_key in fields_by_key.items():
            random_number = draw(st.integers(0, 19))
            if random_number < 4:
                continue
            if random_number == 4:
                members.append((key, "null"))
            elif random_number == 5:
                members.append((key, draw(JSON_VALUES)))
            elif len(fields_of_key[0].path) > depth + 1:
                members.append((key, write_fields(fields_of_key, depth + 1)))
            else:
                members.append((key, draw(choose_valid_values(fields_of_key[0].kind))))
        return write_object(*(f'"{key}":{value}' for key, value in members))

    return write_fields(list(FIELDS), 0)


JSON_BEFORE_SUBSCRIBERS = st.lists(
    st.tuples(st.sampled_from(["TotalCount", "Offset", "Limit", "More"]), JSON_NUMBERS | JSON_VALUES), max_size=4
).map(lambda pairs: "".join(f'"{key}":{value},' for key, value in pairs))


@given(st.lists(draw_subscribers() | draw_objects(JSON_VALUES) | JSON_VALUES, max_size=4), JSON_BEFORE_SUBSCRIBERS)
@example([r'{"Id":1,"Email":"\ud800"}'], "")
@example(['{"Id":1,"Id":2}'], "")
@example(['{"Id":1,"Tags":["a",null]}'], "")
@example(['{"Id":1},null'], "")
def test_both_decoders_read_the_same_rows_of_any_page(rows: list[str], json_before_subscribers: str) -> None:
    check_decoders(build_page(*rows, json_before_subscribers=json_before_subscribers))


@given(st.binary(max_size=4), st.sampled_from(["before", "after", "within"]), st.integers(0, 200))
def test_both_decoders_refuse_stray_bytes(stray_bytes: bytes, region: str, offset_within_body: int) -> None:
    body = build_page(FULL_SUBSCRIBER)
    offset_in_body = {"before": 0, "after": len(body), "within": min(offset_within_body, len(body))}[region]
    check_decoders(body[:offset_in_body] + stray_bytes + body[offset_in_body:])


def test_the_fast_decoder_reads_only_a_page_in_the_format_of_service_api_md() -> None:
    bodies: list[tuple[bytes, bool | None]] = [
        (build_page(), True),
        (build_page(FULL_SUBSCRIBER, BARE_SUBSCRIBER), True),
        (build_page({}, {"Id": None, "Base": None, "Address": {}}), True),
        (build_page(r'{"Id":1,"FirstName":"\ud83d\ude00 \u00e9"}'), True),
        (build_page('{"Id":1,"Birthday":""}', '{"Id":2,"Birthday":"1990-05-04"}'), True),
        (orjson.dumps(orjson.loads(build_page(FULL_SUBSCRIBER, BARE_SUBSCRIBER)), option=orjson.OPT_INDENT_2), True),
        (build_page(FULL_SUBSCRIBER) + b"\n", True),
        (build_page('{"Id":1,"Other":' + "[" * 800 + "]" * 800 + "}"), True),
        (
            build_page(
                *({"Id": index, "CustomField1": r'{"a": "\\", "b": [[[{"'} for index in range(400)), FULL_SUBSCRIBER
            ),
            True,
        ),
        (build_page('{"Id":1,"FirstName":"NaN","LastName":"Information of NaN"}'), True),
        # The NaN is at an odd offset and at an even offset.
        *((build_page(f'{{"Id":{subscriber_id},"Other":NaN}}'), False) for subscriber_id in (1, 12)),
        *((build_page(f'{{"Id":{subscriber_id},"Other":[1, -Infinity]}}'), False) for subscriber_id in (1, 12)),
        (build_page(FULL_SUBSCRIBER, BROKEN_SUBSCRIBER), False),
        (build_page('{"Id":1,"Id":2}'), False),
        (build_page('{"Id":12.0}'), False),
        (build_page('{"Id":1,"Tags":["a",null]}'), False),
        (build_page('{"Id":1,"Tags":[]}', '{"Id":2,"Tags":null}'), True),
        (build_page('{"Id":-9223372036854775809}'), False),
        (build_page('{"Id":1,"Address":{"Zip":12345}}'), False),
        (build_page('{"Id":1,"Base":"News"}'), False),
        (build_page('{"Id":1,"Address":[]}'), False),
        (build_page('{"Id":1,"Birthday":"0000-00-00"}'), False),
        (build_page('{"Id":1,"Birthday":"0000-01-01"}'), False),
        (build_page(r'{"Id":1,"FirstName":"\ud800"}'), False),
        (build_page(r'{"Id":1,"FirstName":"\udc00"}'), False),
        (build_page('{"Id":1,"FirstName":"\ud800"}'), False),
        (build_page(FULL_SUBSCRIBER).replace(b"true", b"1", 1), False),
        (build_page(FULL_SUBSCRIBER).replace(b"true", b"false", 1), False),
        (build_page(FULL_SUBSCRIBER)[:-1], False),
        (build_page(FULL_SUBSCRIBER) + b"{}", False),
        (build_page(FULL_SUBSCRIBER) + b"\n" + build_page(FULL_SUBSCRIBER), False),
        (build_page(FULL_SUBSCRIBER) + b"\0", False),
        (b"\xef\xbb\xbf" + build_page(FULL_SUBSCRIBER), None),
        (build_page(FULL_SUBSCRIBER).decode().encode("utf-16"), False),
        (b"", False),
        (b"null", False),
        (b"null" + build_page(FULL_SUBSCRIBER), False),
        (b" \n null", False),
        (build_page(FULL_SUBSCRIBER) + b"null", False),
        (build_page(FULL_SUBSCRIBER) + b"\nnull\n", False),
        (b" \r\n" + build_page(FULL_SUBSCRIBER), True),
        (b"[]", False),
        (b'{"success":true}', False),
        (b'{"success":true,"SubscribersList":null}', False),
        (b'{"success":true,"SubscribersList":{"Subscribers":null}}', False),
        (b'{"success":true,"SubscribersList":{"Subscribers":[null]}}', False),
        (b'{"success":true,"SubscribersList":{"Subscribers":[]},"success":true}', False),
    ]
    for body, is_decoded_fast in bodies:
        check_decoders(body, is_decoded_fast=is_decoded_fast)


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: field.name)
@given(st.data())
def test_both_decoders_read_every_valid_value_that_the_service_can_write(field: Field, data: st.DataObject) -> None:
    wire_value = write_as_service(field.kind, data.draw(VALUES_BY_KIND[field.kind]))
    for key in reversed(field.path):
        wire_value = {key: wire_value}
    body = build_page(orjson.dumps(wire_value).decode())
    check_decoders(body)
    page = read_with_slow_decoder(body)
    assert page is not None
    assert page.subscribers.column("_invalid").to_pylist() == [None]


FILTER_VALUES_BY_FIELD: dict[str, list[object]] = {
    "id": [1, -1, 2**70],
    "base_id": [7, 1, 2**70],
    "client_user_id": ["7", " 7 ", ""],
    "email": ["Ann@Example.com", "zoë@bücher.example", "x"],
    "is_active": [True, False],
    "first_name": ["Ann", "", "\U0001f600"],
    "last_name": ["Lee"],
    "gender": ["male", "female", ""],
}
CELL_VALUES = st.sampled_from(
    (
        '"Ann"', '"Lee"', '"male"', '""', '"7"', '" 7"', "7", "1", "true", "false", "null",
        '"ann@example.com"', "2e400",
        '"ZOË@xn--bcher-kva.example"', r'"\ud83d\ude00"', r'"\ud800"', str(2**70), "7.0", "[]", "{}",
    )
)  # fmt: skip
ROW_MEMBERS = st.dictionaries(
    st.sampled_from(["Id", "ClientUserId", "Email", "IsActive", "FirstName", "LastName", "Gender"]), CELL_VALUES
).map(lambda row: ",".join(f'"{key}":{value}' for key, value in row.items()))
BASE_MEMBERS = st.sampled_from(['"Base":{"Id":7}', '"Base":{"Id":1}', '"Base":7', '"Base":null', '"Base":{"Id":"7"}'])
QUERIES = st.dictionaries(st.sampled_from(sorted(FILTER_VALUES_BY_FIELD)), st.integers(0, 2), min_size=1, max_size=3)


@given(st.lists(st.tuples(BASE_MEMBERS, ROW_MEMBERS), max_size=4), QUERIES)
@example([('"Base":null', '"Gender":5')], {"gender": 2})
@example([('"Base":null', '"Gender":2e400')], {"gender": 2})
def test_a_filter_matches_the_same_rows_after_both_decoders(rows: list[tuple[str, str]], query: dict[str, int]) -> None:
    match_rows = build_row_matcher(
        {name: FILTER_VALUES_BY_FIELD[name][index % len(FILTER_VALUES_BY_FIELD[name])] for name, index in query.items()}
    )
    body = build_page(*(write_object(*filter(None, row)) for row in rows))
    wire_page, columns_page = parse_list_answer(200, {}, body, NOW), parse_columns(200, {}, body, NOW)
    assert isinstance(wire_page, ListPage)
    assert isinstance(columns_page, ListPage)
    assert match_rows is not None
    expected_mask = match_rows(lambda name: WIRE_FORM.read_values(wire_page.subscribers, name))
    assert (
        match_rows(lambda name: FAST_FORM.read_values(columns_page.subscribers, name)).tolist()
        == expected_mask.tolist()
    )


def test_both_decoders_read_the_same_ids() -> None:
    id_lists: list[list[str]] = [
        ["1", "2"],
        ["1", "null"],
        ["1", '"2"'],
        ["1", str(2**63 - 1)],
        [str(-(2**63))],
        [str(-(2**63) + 1)],
        [],
    ]
    for id_texts in id_lists:
        body = build_page(*(f'{{"Id":{subscriber_id}}}' for subscriber_id in id_texts))
        wire_page, columns_page = parse_list_answer(200, {}, body, NOW), parse_columns(200, {}, body, NOW)
        assert isinstance(wire_page, ListPage)
        assert isinstance(columns_page, ListPage)
        expected_ids, ids = WIRE_FORM.read_ids(wire_page.subscribers), FAST_FORM.read_ids(columns_page.subscribers)
        assert (None if ids is None else ids.tolist()) == (None if expected_ids is None else expected_ids.tolist())


def test_a_page_is_decoded_in_a_thread_that_ends_with_the_reader() -> None:
    threads_before = set(threading.enumerate())

    async def read_page() -> tuple[object, set[threading.Thread]]:
        with open_columns() as columns:
            page = await columns.parse(200, {}, build_page(FULL_SUBSCRIBER), NOW, mask_message=str)
            return page, set(threading.enumerate()) - threads_before

    page, new_threads = asyncio.run(read_page())
    assert page == read_with_slow_decoder(build_page(FULL_SUBSCRIBER))
    assert len(new_threads) == 1
    assert set(threading.enumerate()) == threads_before
