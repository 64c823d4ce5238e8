"""Trials of the list's filters. A trial sends a filter with a made-up value, or with the value of a listed subscriber.

The connector compares each row of a filtered reading, so a filter that lists too many subscribers does no harm. A
filter that leaves out matching subscribers does harm, and only a trial shows this (architecture 7, rule 6). A filter
may find plain texts and not texts with capitals. So the value of a trial has the same unusual characters as the
requested value. The interface does not say how filters combine (service-api.md 4.3). So a reading uses at most one
filter, and only a filter that has found the subscriber of a trial. Look-ups, exports and the evidence for a certificate
all use these trials.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from connector.errors import ConfigurationError
from connector.fields import normalise_email
from connector.paging.overlap import Mask
from connector.service.wire import ListPage, ListQuery, read_field
from connector.subscribers.spellings import find_non_email_traits, spellings_differ_only_in_case

RequestPage = Callable[[ListQuery], Awaitable[ListPage | None]]
"""A function that requests a page of the list. It returns the page, or None if the service returns no page."""
DrawBytes = Callable[[int], bytes]
"""A function that returns random bytes. Its argument is the number of bytes."""

ReadValues = Callable[[str], Sequence[Any]]
"""A function that returns the value of a field in each row of a page: as received, or None for an absent or null
value."""

RowMatcher = Callable[[ReadValues], Mask]
"""A function that returns a mask of the rows that match filters."""

IdAndValue = tuple[int, object]
"""A listed subscriber: its Id, and its value in the field of the filter."""

PARTITIONS: Mapping[str, Sequence[object]] = {"gender": ("male", "female", ""), "is_active": (True, False)}
"""The filters whose values are all known, with these values (service-api.md 4.3). So the counts of the values of a
filter add up to the whole list. The filter whose values change least often is the first."""

SAMPLE_ROW_COUNT = 50
"""The `limit` of a request that needs only a sample of the rows, for example to see whether the service applies the
filter."""

_SAMPLE_COUNT = 2  # a filter is tried with this many listed subscribers, because the first subscriber may have vanished
_FIRST_ROW_COUNT = 200  # number of first rows of the list, from which the trials choose subscribers
_SELECTIVITY_ORDER = ("id", "client_user_id", "email", "last_name", "first_name", "base_id", "gender", "is_active")


class TrialResult(StrEnum):
    """The result of the trial of one filter."""

    EXACT = "exact"  # the filter lists the subscriber of the trial, and only subscribers with the requested value
    PARTIAL = "partial"  # the filter finds the subscriber of the trial, and also lists subscribers with other values
    IGNORED = "ignored"  # the filter lists subscribers that do not have the requested value
    CASE_SENSITIVE = "by_case"  # the filter distinguishes capitals, so the filter leaves out other spellings
    BROKEN = "broken"  # the filter does not find a listed subscriber by the subscriber's value
    INCONCLUSIVE = "untold"  # the list shows no subscriber for the trial, or the service did not answer


@dataclass(frozen=True, slots=True)
class SampleTrial:
    """The result of a trial with listed subscribers. With `is_proof`, the answer had the subscriber of the trial, and
    was whole. So a later answer of this filter that lacks a subscriber can prove the subscriber absent."""

    result: TrialResult = TrialResult.INCONCLUSIVE
    is_proof: bool = False


async def try_made_up_value(request_page: RequestPage, field_name: str, draw_bytes: DrawBytes) -> TrialResult:
    """Send the filter with a value that no subscriber has. Return EXACT if the answer is empty, or if every possible
    value of the field is in use."""
    made_up_value = make_up_value(field_name, draw_bytes)
    if made_up_value is None:
        return TrialResult.EXACT
    page = await request_page(ListQuery(limit=1, **{field_name: made_up_value}))
    if page is None:
        return TrialResult.INCONCLUSIVE
    return TrialResult.IGNORED if page.subscribers else TrialResult.EXACT


async def try_samples(request_page: RequestPage, field_name: str, samples: Iterable[IdAndValue]) -> SampleTrial:
    """Send the filter with the value of each of these listed subscribers, until the filter finds a subscriber. One
    subscriber is not enough, because this subscriber may have vanished."""
    trial = SampleTrial()
    for sample in samples:
        trial = await try_sample(request_page, field_name, sample)
        if trial.result is not TrialResult.BROKEN:
            return trial
    return trial


async def try_sample(request_page: RequestPage, field_name: str, sample: IdAndValue) -> SampleTrial:
    """Send the filter with the value of this listed subscriber, and return the result of the trial."""
    subscriber_id, value = sample
    try:
        query = ListQuery(**{field_name: value})  # type: ignore[arg-type] # a listed value may have any type
    except ConfigurationError:  # the value has a lone surrogate, which no request can contain
        return SampleTrial()
    page = await request_page(query)
    if page is None:
        return SampleTrial()
    is_found = any(row.get("Id") == subscriber_id for row in page.subscribers)
    return SampleTrial(_classify_answer(field_name, value, page, is_found=is_found), is_found and has_all_matches(page))


def _classify_answer(field_name: str, value: object, page: ListPage, *, is_found: bool) -> TrialResult:
    """Return the result of a trial with the value of a listed subscriber. With `is_found`, the answer has the
    subscriber."""
    has_only_matches = page.total_count is not None and page.total_count <= len(page.subscribers)
    if not is_found and (has_only_matches or not page.subscribers):
        return TrialResult.BROKEN
    # An answer that shows only some of the matches may lack the subscriber of the trial.
    if have_requested_values({field_name: value}, page.subscribers):
        return TrialResult.EXACT
    # A field of PARTITIONS has only two or three values. If its filter also lists another value, the service ignores
    # the filter.
    return TrialResult.PARTIAL if is_found and field_name not in PARTITIONS else TrialResult.IGNORED


def has_all_matches(page: ListPage) -> bool:
    """Return whether the answer has all matching subscribers. The number of its rows must be TotalCount and less than
    its limit, and no two rows may have the same Id."""
    if page.total_count is None or page.limit is None:
        return False
    id_count = len({row.get("Id") for row in page.subscribers})
    return id_count == len(page.subscribers) == page.total_count < page.limit


def change_case(text: str) -> str:
    """Return the address in lower case, or in upper case if it is in lower case already."""
    lower_text = text.lower()
    return lower_text if lower_text != text else text.upper()


@dataclass(frozen=True, slots=True)
class FilterTrials:
    """The results of the trials of a reading's filters."""

    trial_result_by_field: dict[str, TrialResult]
    sent_filter_name: str | None  # the filter to send; None: no filter
    expected_ids: frozenset[int]
    """Subscribers in the first rows of the list that match all filters. The filtered list must show each of these
    subscribers, unless a subscriber has vanished."""


async def try_filters(request_page: RequestPage, filters: Mapping[str, object], draw_bytes: DrawBytes) -> FilterTrials:
    """Try each of these filters alone (service-api.md 4.3). The trials need one request for the first rows of the list,
    and at most five requests for each filter."""
    first_rows = await _request_first_rows(request_page)
    if not first_rows and "base_id" in filters:  # the list may show the base only to a request with its Id
        first_rows = await _request_first_rows(request_page, filters["base_id"])
    trial_result_by_field = {
        field_name: await _try_filter(request_page, field_name, value, first_rows, draw_bytes)
        for field_name, value in filters.items()
    }
    working_filters = [
        field_name
        for field_name, result in trial_result_by_field.items()
        if result in (TrialResult.EXACT, TrialResult.PARTIAL)
    ]
    sent_filter_name = min(working_filters, key=_SELECTIVITY_ORDER.index, default=None)
    return FilterTrials(trial_result_by_field, sent_filter_name, _find_matching_ids(filters, first_rows))


async def find_still_listed_ids(
    request_page: RequestPage, filters: Mapping[str, object], missing_ids: frozenset[int]
) -> frozenset[int]:
    """Request the first rows of the list without a filter. Return the `missing_ids` among the rows that match the
    filters. `missing_ids` are ids that a filtered reading should have shown."""
    if not missing_ids:
        return missing_ids
    return missing_ids & _find_matching_ids(filters, await _request_first_rows(request_page))


async def _request_first_rows(request_page: RequestPage, base_id: Any = None) -> Sequence[dict[str, Any]]:
    page = await request_page(ListQuery(limit=_FIRST_ROW_COUNT, base_id=base_id))
    return page.subscribers if page is not None else []


def _find_matching_ids(filters: Mapping[str, object], rows: Sequence[dict[str, Any]]) -> frozenset[int]:
    match_mask = _build_match_mask(filters, rows).tolist()
    return frozenset(
        row["Id"] for row, is_match in zip(rows, match_mask, strict=True) if is_match and type(row.get("Id")) is int
    )


async def _try_filter(
    request_page: RequestPage,
    field_name: str,
    requested_value: object,
    rows: Sequence[dict[str, Any]],
    draw_bytes: DrawBytes,
) -> TrialResult:
    made_up_value_result = await try_made_up_value(request_page, field_name, draw_bytes)
    if made_up_value_result is not TrialResult.EXACT:
        return made_up_value_result
    trial_result = TrialResult.INCONCLUSIVE
    for subscriber_id, value in _choose_samples(field_name, requested_value, rows):
        if field_name == "email":  # addresses are compared without case (docs/glossary.md)
            value_in_other_case = change_case(str(value))
            trial_result = (await try_sample(request_page, field_name, (subscriber_id, value_in_other_case))).result
            if trial_result is not TrialResult.BROKEN:
                return trial_result
        trial_result = (await try_sample(request_page, field_name, (subscriber_id, value))).result
        if field_name == "email" and trial_result in (TrialResult.EXACT, TrialResult.PARTIAL):
            return TrialResult.CASE_SENSITIVE
        if trial_result is not TrialResult.BROKEN:
            return trial_result
    return trial_result


def have_requested_values(requested_values: Mapping[str, object], rows: Sequence[dict[str, Any]]) -> bool:
    """Return whether all rows have these values. `requested_values` has the values by field name."""
    return bool(_build_match_mask(requested_values, rows).all())


def make_up_value(field_name: str, draw_bytes: DrawBytes) -> Any:
    """Return a value that no subscriber has, or None if every value of the field is in use."""
    if field_name in PARTITIONS:
        return None
    random_hex = draw_bytes(16).hex()
    if field_name in ("id", "base_id"):
        return (1 << 30) + int(random_hex[:7], 16)  # below 2**31, so that every service can read the number
    # RFC 2606 reserves the domain `.invalid`.
    return f"{random_hex}@{random_hex}.invalid" if field_name == "email" else f"unknown-{random_hex}"


def _build_match_mask(requested_values: Mapping[str, object], rows: Sequence[dict[str, Any]]) -> Mask:
    match_rows = build_row_matcher(requested_values)

    def read_values(field_name: str) -> Sequence[Any]:
        return [read_field(row, field_name) for row in rows]

    return np.ones(len(rows), dtype=np.bool_) if match_rows is None else match_rows(read_values)


def _choose_samples(field_name: str, requested_value: object, rows: Sequence[dict[str, Any]]) -> list[IdAndValue]:
    """Return listed subscribers for the trial of a filter. Choose only values of the same kind as the requested value,
    because a trial proves nothing about other kinds. Subscribers with the requested value come first."""
    requested_kind = _find_value_kind(field_name, requested_value)
    if requested_kind is None:
        return []
    samples = list[IdAndValue]()
    for row in rows:
        subscriber_id, value = row.get("Id"), read_field(row, field_name)
        if field_name == "gender" and value is None:
            value = ""
        has_usable_value = _is_usable(field_name, value) and _find_value_kind(field_name, value) == requested_kind
        if type(subscriber_id) is int and has_usable_value:
            samples.append((subscriber_id, value))
    return sorted(samples, key=lambda sample: sample[1] != requested_value)[:_SAMPLE_COUNT]


def _find_value_kind(field_name: str, value: object) -> object:
    """Return the kind of a value, such as a text with capitals. Return None if no trial can show how the filter treats
    the value. Assumed: a filter treats all values of one kind alike."""
    if field_name in PARTITIONS:
        return (value,)
    if not isinstance(value, str):
        return (type(value),)
    if field_name != "email":
        return find_non_email_traits(value)
    # A filter that finds an address in lower case and in upper case finds the address in every mixture of cases.
    # The exception is an address with a letter that has more than two forms.
    return find_non_email_traits(value.lower()) if spellings_differ_only_in_case("email", value) else None


def _is_usable(field_name: str, value: object) -> bool:
    if field_name == "gender":
        return value in PARTITIONS["gender"]
    if field_name == "is_active":
        return type(value) is bool
    return type(value) is int if field_name in ("id", "base_id") else isinstance(value, str) and bool(value.strip())


def build_row_matcher(requested_values: Mapping[str, object]) -> RowMatcher | None:
    """Return a function that compares the rows of a page with these values. `requested_values` has the values by field
    name. Return None if no value is requested.

    Emails are compared as identities. None (null or absent) equals the service's default: gender "", is_active False.
    All other values are compared exactly. An email with blanks around it equals only the same text, because no trial
    shows whether the service's filter ignores the blanks.
    """
    normalised_values = {
        field_name: _normalise_value(field_name, value) for field_name, value in requested_values.items()
    }
    if not normalised_values:
        return None

    def match_rows(read_values: ReadValues) -> Mask:
        field_masks = [
            [_normalise_value(field_name, value) == normalised_value for value in read_values(field_name)]
            for field_name, normalised_value in normalised_values.items()
        ]
        match_mask: Mask = np.logical_and.reduce(np.array(field_masks, dtype=np.bool_))
        return match_mask

    return match_rows


def _normalise_value(field_name: str, value: object) -> object:
    """Return an object that represents the value in a comparison. Two values of the field count as equal if their
    objects are equal. Values of different types are not equal: True is not 1."""
    if value is None:  # replace a missing value by the service's default (service-api.md 2.1)
        value = {"gender": "", "is_active": False}.get(field_name)
    if isinstance(value, str):
        return normalise_email(value) if field_name == "email" and value == value.strip() else value
    return (type(value), value)
