"""Passes the rows of pages to a sink, if the rows match the filters of the query. The sink gets each subscriber
once."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Generic

import numpy as np

from connector.listing.findings import GROUP_FIELDS
from connector.listing.pages import PageSink, ReceivedPage, RowForm
from connector.listing.trials import RowMatcher, build_row_matcher
from connector.paging.overlap import IdSet, Mask
from connector.service.wire import Rows


@dataclass(frozen=True, slots=True)
class ListProgress:
    """The progress of a reading. `sweep_number` is the number of the sweep (1 = first). `row_count` is the number of
    rows that the sweep has read until now. `total_count` is the latest TotalCount."""

    sweep_number: int
    row_count: int
    total_count: int | None


@dataclass(slots=True)
class PageDispatcher(Generic[Rows]):
    """Passes the rows that match the filters to `sink`, in the form `row_form`."""

    sink: PageSink[Rows]
    row_form: RowForm[Rows]
    row_matcher: RowMatcher | None
    on_progress: Callable[[ListProgress], None] | None
    expected_ids: frozenset[int]
    missing_ids: frozenset[int] = frozenset()  # expected ids that no row of this sweep has
    sweep_number: int = 0
    row_count: int = 0
    dropped_row_count: int = 0
    group_counts: dict[str, Counter[object]] = field(default_factory=dict)
    """The number of rows of each group of subscribers, by field name and value. Rows that the filters leave out also
    count."""

    def dispatch(self, page: ReceivedPage[Rows]) -> None:
        """Pass the page's rows to the sink. The first page of another sweep resets the counts."""
        if page.sweep_number != self.sweep_number:
            self.sweep_number, self.missing_ids = page.sweep_number, self.expected_ids
            self.row_count = self.dropped_row_count = 0
            self.group_counts.clear()
            self.sink.start_sweep(page.sweep_number)
        if self.missing_ids:
            self.missing_ids = self.missing_ids.difference(page.ids.tolist())
        new_row_count, matching_row_count = _dispatch_new_rows(
            page.rows, page.new_row_mask, self.sink, self.row_form, self.row_matcher, self.group_counts
        )
        self.dropped_row_count += new_row_count - matching_row_count
        self.row_count += matching_row_count
        if self.on_progress is not None:
            self.on_progress(ListProgress(page.sweep_number, self.row_count, page.total_count))


def _dispatch_new_rows(
    rows: Rows,
    new_row_mask: Mask,
    sink: PageSink[Rows],
    row_form: RowForm[Rows],
    row_matcher: RowMatcher | None,
    group_counts: dict[str, Counter[object]],
) -> tuple[int, int]:
    """Count the new rows by group (by the values of `GROUP_FIELDS`), and pass the new rows that match the filters to
    the sink. Return the number of new rows, and the number of rows that match."""
    new_row_count = int(np.count_nonzero(new_row_mask))
    if not new_row_count:
        return 0, 0
    rows = rows if new_row_mask.all() else row_form.select_rows(rows, new_row_mask)
    _count_groups(rows, row_form, group_counts)
    matching_row_count = new_row_count
    if row_matcher is not None:
        match_mask = row_matcher(partial(row_form.read_values, rows))
        matching_row_count = int(np.count_nonzero(match_mask))
        rows = rows if match_mask.all() else row_form.select_rows(rows, match_mask)
    if matching_row_count:
        sink.receive_rows(rows)
    return new_row_count, matching_row_count


def _count_groups(rows: Rows, row_form: RowForm[Rows], group_counts: dict[str, Counter[object]]) -> None:
    for field_name in GROUP_FIELDS:
        count_by_value = group_counts.setdefault(field_name, Counter())
        for value, row_count in row_form.count_values(rows, field_name).items():
            count_by_value["" if field_name == "gender" and value is None else value] += row_count


@dataclass(slots=True)
class GroupDispatcher(Generic[Rows]):
    """Passes the matching rows of a reading of hidden groups of subscribers to `sink`, each subscriber once."""

    sink: PageSink[Rows]
    row_form: RowForm[Rows]
    row_matcher: RowMatcher | None
    filters: Mapping[str, object]  # the filters that show the hidden groups
    earlier_ids: IdSet  # ids of subscribers that the run has read before this reading
    group_counts: dict[str, Counter[object]]  # the number of rows of each group in all readings together
    # The number of rows of each group in this reading.
    group_counts_of_this_reading: dict[str, Counter[object]] = field(default_factory=dict)
    has_other_groups: bool = False  # whether a page has a subscriber of another group
    sweep_number: int = 0

    def dispatch(self, page: ReceivedPage[Rows]) -> None:
        """Pass the page's new rows to the sink. A second sweep adds the rows that the first sweep lacks."""
        if page.sweep_number != self.sweep_number:
            self.sweep_number = page.sweep_number
            self.group_counts_of_this_reading.clear()
        group_row_matcher = build_row_matcher(self.filters)
        if group_row_matcher is not None and not group_row_matcher(partial(self.row_form.read_values, page.rows)).all():
            self.has_other_groups = True
            return
        if page.new_row_mask.any():
            _count_groups(
                self.row_form.select_rows(page.rows, page.new_row_mask),
                self.row_form,
                self.group_counts_of_this_reading,
            )
        new_row_mask = page.new_row_mask & ~self.earlier_ids.mark_contained_ids(page.ids)
        self.earlier_ids.add(page.ids[new_row_mask])
        _dispatch_new_rows(page.rows, new_row_mask, self.sink, self.row_form, self.row_matcher, self.group_counts)
