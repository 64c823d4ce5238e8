"""A page that is decoded at once equals the page that is read value by value. Other pages are not decoded at once."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import orjson
import pyarrow as pa
from hypothesis import example, given, strategies as st

from connector.fields import FIELDS, Field, Kind
from connector.listing.columns import Columns, build_columns, decode_page, open_columns, parse_columns
from connector.listing.controls import build_match
from connector.listing.pages import WIRE
from connector.service.answers import parse_listed
from connector.service.wire import ListPage
from tests.export.people import BARE, BROKEN, FULL

NOW = datetime(2026, 11, 21, tzinfo=UTC)
COLUMNS = Columns(ThreadPoolExecutor(1))  # which begins no thread before it is asked to decode


def page_of(*subscribers: str | dict[str, Any], head: str = '"TotalCount":3,"Offset":0,"Limit":50,') -> bytes:
    texts = [
        subscriber if isinstance(subscriber, str) else orjson.dumps(subscriber).decode() for subscriber in subscribers
    ]
    page = f'{{{head}"Subscribers":[{",".join(texts)}]}}'
    return f'{{"success":true,"SubscribersList":{page}}}'.encode("utf-8", "surrogatepass")


def write_object(*pairs: str) -> str:
    return f"{{{','.join(pairs)}}}"


def read_slowly(body: bytes) -> ListPage[pa.RecordBatch] | None:
    """The oracle: None where it is no page."""
    answer = parse_listed(200, {}, body, NOW)
    if not isinstance(answer, ListPage):
        return None
    return ListPage(build_columns(answer.subscribers), answer.total_count, answer.offset, answer.limit)


def assert_same(body: bytes, *, is_fast: bool | None = None) -> None:
    """What is decoded at once, if it is, is what the oracle reads; and so is what an export reads, in any case."""
    expected, fast = read_slowly(body), decode_page(body)
    if fast is not None:
        assert expected is not None, body
        assert fast == expected, body
        fast.subscribers.validate(full=True)
    if is_fast is not None:
        assert (fast is not None) is is_fast, body
    read = parse_columns(200, {}, body, NOW)
    assert read == expected if expected is not None else not isinstance(read, ListPage)


# JSON as text, so that it may say what no Python value can: numbers of any form, a key twice, half a character.

ODD_NUMBERS = (
    "0", "-0", "1", "12.0", "-1.5", "1e3", "1E400", "-1e400", "01", "1.", ".5", "+1", "0x1", "NaN", "Infinity", "-Inf",
    *map(str, (2**53 + 1, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**64, 10**400)),
)  # fmt: skip
NUMBERS = st.sampled_from(ODD_NUMBERS) | st.integers(-10, 2**70).map(str)
ODD_TEXTS = (
    r'"\ud800"', r'"\udc00x"', r'"\ud83d\ude00"', r'"\u0000"', r'"\/\b\f\n\r\t\"\\"', '"\x00"', '"\n"', '"\x1f"',
    '"\x7f"', '"\ud800"', '"é日😀"', r'"\u00e9"', '"\ufeff"', r'"\x"', r'"\u12"', '"[{"', r'"\\\"[[{"', '""', '" "',
    '"x', "'x'",
    '"1990-05-04"', '"0000-01-01"', '"0001-01-01"', '"1990-02-30"', '"1990-05-04 "', '"19900504"', '"99999-01-01"',
    '"male"', '"5"', '"true"', '"null"', '"NaN"',
)  # fmt: skip
STRINGS = st.sampled_from(ODD_TEXTS) | st.text(st.characters(exclude_categories=["Cs"]), max_size=6).map(
    lambda text: orjson.dumps(text).decode()
)
KEYS = st.sampled_from(
    [*{key: None for field in FIELDS for key in field.path}, "Other", "", r"\u0049d", "id", "Tags ", r"\ud800"]
)
SPACE = st.sampled_from(["", "", "", " ", "\n", "\r\n", "\t", "\x0b"])


@st.composite
def objects(draw: st.DrawFn, values: st.SearchStrategy[str]) -> str:
    pairs = draw(st.lists(st.tuples(KEYS, values), max_size=4))
    return write_object(*(f'{draw(SPACE)}"{key}":{draw(SPACE)}{value}' for key, value in pairs))


ANYTHING: st.SearchStrategy[str] = st.recursive(
    st.sampled_from(["null", "true", "false"]) | NUMBERS | STRINGS,
    lambda inner: st.lists(inner, max_size=3).map(lambda items: f"[{','.join(items)}]") | objects(inner),
    max_leaves=5,
)


def _usual(kind: Kind) -> st.SearchStrategy[str]:
    match kind:
        case Kind.NUMBER:
            return st.integers(-(2**63), 2**63 - 1).map(str)
        case Kind.FLAG:
            return st.sampled_from(["true", "false"])
        case Kind.TAGS:
            return st.lists(STRINGS, max_size=3).map(lambda tags: f"[{','.join(tags)}]")
        case Kind.DATE:
            return st.dates().map(lambda day: f'"{day}"') | st.just('""')
        case _:
            return STRINGS


@st.composite
def subscribers(draw: st.DrawFn) -> str:
    """Mostly as service-api.md has them: any field may be absent, null, or, now and then, anything."""

    def write(fields: list[Field], level: int) -> str:
        parts: dict[str, list[Field]] = {}
        for field in fields:
            parts.setdefault(field.path[level], []).append(field)
        pairs = []
        for key, inner in parts.items():
            odds = draw(st.integers(0, 19))
            if odds < 4:
                continue
            if odds == 4:
                pairs.append((key, "null"))
            elif odds == 5:
                pairs.append((key, draw(ANYTHING)))
            elif len(inner[0].path) > level + 1:
                pairs.append((key, write(inner, level + 1)))
            else:
                pairs.append((key, draw(_usual(inner[0].kind))))
        return write_object(*(f'"{key}":{value}' for key, value in pairs))

    return write(list(FIELDS), 0)


HEADS = st.lists(
    st.tuples(st.sampled_from(["TotalCount", "Offset", "Limit", "More"]), NUMBERS | ANYTHING), max_size=4
).map(lambda pairs: "".join(f'"{key}":{value},' for key, value in pairs))


@given(st.lists(subscribers() | objects(ANYTHING) | ANYTHING, max_size=4), HEADS)
@example([r'{"Id":1,"Email":"\ud800"}'], "")
@example(['{"Id":1,"Id":2}'], "")
@example(['{"Id":1,"Tags":["a",null]}'], "")
@example(['{"Id":1},null'], "")
def test_any_page_has_the_rows_of_a_reading_value_by_value(rows: list[str], head: str) -> None:
    assert_same(page_of(*rows, head=head))


@given(st.binary(max_size=4), st.sampled_from(["before", "after", "within"]), st.integers(0, 200))
def test_stray_bytes_are_refused_in_both_ways(stray: bytes, where: str, place: int) -> None:
    body = page_of(FULL)
    cut = {"before": 0, "after": len(body), "within": min(place, len(body))}[where]
    assert_same(body[:cut] + stray + body[cut:])


def test_only_a_page_as_in_the_document_is_decoded_at_once() -> None:
    cases: list[tuple[bytes, bool | None]] = [
        (page_of(), True),
        (page_of(FULL, BARE), True),
        (page_of({}, {"Id": None, "Base": None, "Address": {}}), True),
        (page_of(r'{"Id":1,"FirstName":"\ud83d\ude00 \u00e9"}'), True),
        (page_of('{"Id":1,"Birthday":""}', '{"Id":2,"Birthday":"1990-05-04"}'), True),
        (orjson.dumps(orjson.loads(page_of(FULL, BARE)), option=orjson.OPT_INDENT_2), True),
        (page_of(FULL) + b"\n", True),
        (page_of('{"Id":1,"Other":' + "[" * 800 + "]" * 800 + "}"), True),
        (page_of(*({"Id": place, "CustomField1": r'{"a": "\\", "b": [[[{"'} for place in range(400)), FULL), True),
        (page_of('{"Id":1,"FirstName":"NaN","LastName":"Information of NaN"}'), True),
        *((page_of(f'{{"Id":{number},"Other":NaN}}'), False) for number in (1, 12)),  # at even places and at odd ones
        *((page_of(f'{{"Id":{number},"Other":[1, -Infinity]}}'), False) for number in (1, 12)),
        (page_of(FULL, BROKEN), False),
        (page_of('{"Id":1,"Id":2}'), False),
        (page_of('{"Id":12.0}'), False),
        (page_of('{"Id":1,"Tags":["a",null]}'), False),
        (page_of('{"Id":1,"Tags":[]}', '{"Id":2,"Tags":null}'), True),
        (page_of('{"Id":-9223372036854775809}'), False),
        (page_of('{"Id":1,"Address":{"Zip":12345}}'), False),
        (page_of('{"Id":1,"Base":"News"}'), False),
        (page_of('{"Id":1,"Address":[]}'), False),
        (page_of('{"Id":1,"Birthday":"0000-00-00"}'), False),
        (page_of('{"Id":1,"Birthday":"0000-01-01"}'), False),
        (page_of(r'{"Id":1,"FirstName":"\ud800"}'), False),
        (page_of(r'{"Id":1,"FirstName":"\udc00"}'), False),
        (page_of('{"Id":1,"FirstName":"\ud800"}'), False),
        (page_of(FULL).replace(b"true", b"1", 1), False),
        (page_of(FULL).replace(b"true", b"false", 1), False),
        (page_of(FULL)[:-1], False),
        (page_of(FULL) + b"{}", False),
        (page_of(FULL) + b"\n" + page_of(FULL), False),
        (page_of(FULL) + b"\0", False),
        (b"\xef\xbb\xbf" + page_of(FULL), None),
        (page_of(FULL).decode().encode("utf-16"), False),
        (b"", False),
        (b"null", False),
        (b"null" + page_of(FULL), False),
        (b" \n null", False),
        (page_of(FULL) + b"null", False),
        (page_of(FULL) + b"\nnull\n", False),
        (b" \r\n" + page_of(FULL), True),
        (b"[]", False),
        (b'{"success":true}', False),
        (b'{"success":true,"SubscribersList":null}', False),
        (b'{"success":true,"SubscribersList":{"Subscribers":null}}', False),
        (b'{"success":true,"SubscribersList":{"Subscribers":[null]}}', False),
        (b'{"success":true,"SubscribersList":{"Subscribers":[]},"success":true}', False),
    ]
    for body, is_fast in cases:
        assert_same(body, is_fast=is_fast)


ASKED: dict[str, list[object]] = {
    "id": [1, -1, 2**70],
    "base_id": [7, 1, 2**70],
    "client_user_id": ["7", " 7 ", ""],
    "email": ["Ann@Example.com", "zoë@bücher.example", "x"],
    "is_active": [True, False],
    "first_name": ["Ann", "", "\U0001f600"],
    "last_name": ["Lee"],
    "gender": ["male", "female", ""],
}
MATCHABLE = st.sampled_from(
    (
        '"Ann"', '"Lee"', '"male"', '""', '"7"', '" 7"', "7", "1", "true", "false", "null",
        '"ann@example.com"', "2e400",
        '"ZOË@xn--bcher-kva.example"', r'"\ud83d\ude00"', r'"\ud800"', str(2**70), "7.0", "[]", "{}",
    )
)  # fmt: skip
ROW = st.dictionaries(
    st.sampled_from(["Id", "ClientUserId", "Email", "IsActive", "FirstName", "LastName", "Gender"]), MATCHABLE
).map(lambda row: ",".join(f'"{key}":{value}' for key, value in row.items()))
BASE = st.sampled_from(['"Base":{"Id":7}', '"Base":{"Id":1}', '"Base":7', '"Base":null', '"Base":{"Id":"7"}'])
QUERY = st.dictionaries(st.sampled_from(sorted(ASKED)), st.integers(0, 2), min_size=1, max_size=3)


@given(st.lists(st.tuples(BASE, ROW), max_size=4), QUERY)
@example([('"Base":null', '"Gender":5')], {"gender": 2})
@example([('"Base":null', '"Gender":2e400')], {"gender": 2})
def test_a_filter_matches_the_same_rows_in_both_forms(rows: list[tuple[str, str]], query: dict[str, int]) -> None:
    match = build_match({name: ASKED[name][place % len(ASKED[name])] for name, place in query.items()})
    body = page_of(*(write_object(*filter(None, row)) for row in rows))
    wires, columns = parse_listed(200, {}, body, NOW), parse_columns(200, {}, body, NOW)
    assert isinstance(wires, ListPage)
    assert isinstance(columns, ListPage)
    assert match is not None
    by_wires = match(lambda name: WIRE.read_values(wires.subscribers, name))
    assert match(lambda name: COLUMNS.read_values(columns.subscribers, name)).tolist() == by_wires.tolist()


def test_ids_are_usable_in_both_forms_or_in_none() -> None:
    cases: list[list[str]] = [
        ["1", "2"],
        ["1", "null"],
        ["1", '"2"'],
        ["1", str(2**63 - 1)],
        [str(-(2**63))],
        [str(-(2**63) + 1)],
        [],
    ]
    for ids in cases:
        body = page_of(*(f'{{"Id":{number}}}' for number in ids))
        wires, columns = parse_listed(200, {}, body, NOW), parse_columns(200, {}, body, NOW)
        assert isinstance(wires, ListPage)
        assert isinstance(columns, ListPage)
        expected, found = WIRE.read_ids(wires.subscribers), COLUMNS.read_ids(columns.subscribers)
        assert (None if found is None else found.tolist()) == (None if expected is None else expected.tolist())


def test_a_page_is_decoded_in_a_thread_that_does_not_stay() -> None:
    threads = set(threading.enumerate())

    async def read() -> tuple[object, set[threading.Thread]]:
        with open_columns() as columns:
            page = await columns.parse(200, {}, page_of(FULL), NOW, mask=str)
            return page, set(threading.enumerate()) - threads

    page, during = asyncio.run(read())
    assert page == read_slowly(page_of(FULL))
    assert len(during) == 1
    assert set(threading.enumerate()) == threads
