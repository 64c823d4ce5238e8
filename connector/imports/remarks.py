"""Messages of a load about its file, about values that were not sent, and about columns with numbers instead of texts.

In a column with numbers, phone numbers have lost their plus sign, and zip codes have lost their leading zeros.
"""

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from connector.subscribers.consent import explain_consent
from connector.subscribers.headers import find_name_column, find_useful_columns
from connector.subscribers.mapping import Reinterpretation
from connector.subscribers.preparation import PreparedChunk
from connector.subscribers.rules import FieldMapping
from connector.tally import Tally
from connector.texts import choose_form, count

MISSING_ACTIVITY_MESSAGE = (
    "no column fills is_active, so the service would create inactive subscribers, which cannot be changed later; map "
    "a column to is_active, or use --active or --inactive (in a job: `is_active: {value: true}`; in Python: "
    "active=True)"
)

_MAX_SHOWN_TEXTS = 6
"""The largest number of pairs in a message about missing values. A pair is a field and a word, such as N/A."""

_NUMBER_LIKE_TEXT_FIELDS = ("phone", "client_user_id", "address_zip")
"""Text fields whose values look like numbers."""


@dataclass(slots=True)
class Remarks:
    """The messages of the source, and counts for messages. `add_chunk` adds the messages and counts of a chunk."""

    messages: list[str] = field(default_factory=list)  # messages of the source
    omitted_zip_count: int = 0
    yearless_birthday_count: int = 0  # birthdays without a year
    reinterpreted_cell_counts: Counter[Reinterpretation] = field(default_factory=Counter)  # number of cells by reason
    number_cell_counts: Counter[str] = field(default_factory=Counter)  # cells of a workbook with a number, by column
    consent_columns: list[str] = field(default_factory=list)  # unmapped consent columns (connector.subscribers.consent)

    def add_chunk(self, prepared_chunk: PreparedChunk) -> None:
        """Add the messages and counts of a chunk."""
        self.messages += prepared_chunk.chunk.messages
        self.omitted_zip_count += len(prepared_chunk.omitted_zip_positions)
        self.yearless_birthday_count += len(prepared_chunk.yearless_positions)
        self.reinterpreted_cell_counts.update(
            {
                reinterpretation: len(positions)
                for reinterpretation, positions in prepared_chunk.reinterpreted_cells.items()
            }
        )
        self.number_cell_counts.update(prepared_chunk.chunk.number_cell_counts)
        self.consent_columns += [
            column for column in prepared_chunk.consent_columns if column not in self.consent_columns
        ]

    def describe_import_obstacles(self, *, has_is_active_rule: bool) -> Iterator[str]:
        """Yield a message for each reason why a load of these rows is refused."""
        reasons = [] if has_is_active_rule else [MISSING_ACTIVITY_MESSAGE]
        for reason in [*reasons, *explain_consent(self.consent_columns)]:
            yield f"an import of these rows is refused: {reason}"

    def describe_cells(self, mapping: FieldMapping) -> Iterator[str]:
        """Yield a message for each kind of cell whose value is changed, left out or probably damaged."""
        if self.omitted_zip_count:
            yield (
                f"{count(self.omitted_zip_count, 'zip code')} "
                f"{choose_form(self.omitted_zip_count, 'is not a plain number', 'are not plain numbers')} "
                f'(for example "SW1A 1AA", "02134" or "12345-6789") and '
                f"{choose_form(self.omitted_zip_count, 'is', 'are')} left out (`zip: omit`)"
            )
        if self.yearless_birthday_count:
            yield (
                f"{count(self.yearless_birthday_count, 'birthday')} without a year (--05-12) "
                f"{choose_form(self.yearless_birthday_count, 'is', 'are')} left out; the subscribers are sent without "
                "a birthday"
            )
        yield from self._describe_reinterpreted_cells()
        yield from describe_number_cells(mapping, self.number_cell_counts)

    def _describe_reinterpreted_cells(self) -> Iterator[str]:
        emptied_cell_counts = Counter(
            {
                reinterpretation: cell_count
                for reinterpretation, cell_count in self.reinterpreted_cell_counts.items()
                if cell_count and reinterpretation.null_text
            }
        )
        if emptied_cell_counts:
            shown_texts = [
                f"{reinterpretation.field} {reinterpretation.null_text} ({cell_count})"
                for reinterpretation, cell_count in emptied_cell_counts.most_common(_MAX_SHOWN_TEXTS)
            ]
            ellipsis = " …" if len(emptied_cell_counts) > _MAX_SHOWN_TEXTS else ""
            cell_count = emptied_cell_counts.total()
            example_text = emptied_cell_counts.most_common(1)[0][0].null_text
            yield (
                f"{count(cell_count, 'cell')} {choose_form(cell_count, 'is', 'are')} read as empty, because programs "
                f"write these words for a missing value: {', '.join(shown_texts)}{ellipsis}. "
                "If a word is a real value, add the word to the key `values` of its field in the job: "
                f'{{"{example_text}": "{example_text}"}}'
            )
        decoded_cell_counts = {
            reinterpretation.field: cell_count
            for reinterpretation, cell_count in self.reinterpreted_cell_counts.items()
            if cell_count and not reinterpretation.null_text
        }
        if decoded_cell_counts:
            cell_count = sum(decoded_cell_counts.values())
            fields = [f"{name} ({cell_count})" for name, cell_count in decoded_cell_counts.items()]
            yield (
                f"{count(cell_count, 'cell')} with HTML codes (&amp;) or backslashes before quotes "
                f"{choose_form(cell_count, 'is', 'are')} sent with the characters that they stand for: "
                f"{', '.join(fields)}"
            )


def describe_unmapped_columns(mapping: FieldMapping, unmapped_columns: Sequence[str]) -> Iterator[str]:
    """Yield messages about unused columns, and about a column that has the first and the last name together."""
    if unmapped_columns:
        yield f"columns not used: {', '.join(unmapped_columns)}"
    useful_columns = find_useful_columns(mapping, unmapped_columns)
    if useful_columns:
        columns_text = ", ".join(f"{column} ({field})" for column, field in useful_columns.items())
        first_column = next(iter(useful_columns))
        yield (
            f"unused columns that look like fields: {columns_text}. Nothing fills these fields. To send a "
            "column, use "
            f"--map {useful_columns[first_column]}={shlex.quote(first_column)} (in a job: `fields`)"
        )
    fields = sorted({"first_name", "last_name"} & mapping.rules.keys())
    if mapping.whole_name_column is not None:
        yield (
            f"the column {mapping.whole_name_column} seems to have whole names, which are sent unsplit as {fields[0]}. "
            "To split them, draft a job with `connector init` and use its templates. To leave them out, use --map "
            f"{fields[0]}="
        )
    elif (column := find_name_column(unmapped_columns)) is not None and len(fields) < 2:
        yield (
            f"the column {column} seems to have names, and is not sent. To send the names, use --map first_name=COLUMN "
            "or --map last_name=COLUMN (in a job: `fields`)"
        )


def describe_number_cells(mapping: FieldMapping, number_cell_counts: Mapping[str, int]) -> Iterator[str]:
    """Yield a message for each column that has number cells and belongs to a text field. `number_cell_counts` has the
    count of number cells of each column."""
    for name in _NUMBER_LIKE_TEXT_FIELDS:
        rule = mapping.rules.get(name)
        for column in rule.columns if rule is not None else ():
            if cell_count := number_cell_counts.get(column, 0):
                yield (
                    f"{count(cell_count, 'cell')} of the column {column} ({name}) "
                    f"{choose_form(cell_count, 'is a number', 'are numbers')} in the workbook, not text: "
                    "leading zeros, a plus sign and digits beyond the fifteenth are lost. If these digits "
                    "matter, format "
                    "the column as text and enter the values again"
                )


def describe_opt_outs(tally: Tally, drift_file: str | None) -> Iterator[str]:
    """Yield messages about opt-outs. Only a person can deactivate the subscribers, because the service cannot update a
    subscriber. `drift_file` is the file with the opt-outs (None in a plan)."""
    opt_out_count = tally.opt_out_count - tally.unchecked_opt_out_counts.total()
    file_note = (
        "" if drift_file is None else f": {choose_form(opt_out_count, 'it is', 'they are')} listed in {drift_file}"
    )
    if opt_out_count:
        yield (
            f"{count(opt_out_count, 'subscriber')} opted out in the source and "
            f"{choose_form(opt_out_count, 'is', 'are')} still active in the service. Deactivate "
            f"{choose_form(opt_out_count, 'the subscriber', 'them')} there{file_note}"
        )
    for reason, unchecked_count in sorted(tally.unchecked_opt_out_counts.items()):
        yield (
            f"{count(unchecked_count, 'subscriber')} opted out in the source, as an earlier run has reported. This run "
            f"could not see whether the service still shows {choose_form(unchecked_count, 'the subscriber', 'them')} "
            f"as active: {reason}"
        )


def describe_reactivated_rows(tally: Tally, *, is_planned: bool = False) -> Iterator[str]:
    """Yield a message about rows that were created as active although the list shows their identities as inactive."""
    if row_count := tally.reactivated_count:
        verb = "would be" if is_planned else choose_form(row_count, "was", "were")
        yield (
            f"{count(row_count, 'row')} {verb} created as active, though the list shows "
            f"{choose_form(row_count, 'its identity', 'their identities')} as inactive in a base of the account; to "
            "suppress these rows, set `suppress: {inactive: true}` in the job"
        )


def describe_unread_entries(tally: Tally) -> Iterator[str]:
    """Yield messages about unresolved creates of earlier runs whose rows this run did not read. Each message counts the
    creates with one result, such as `held`."""
    for result_text, entry_count in sorted(
        (result.value, entry_count) for result, entry_count in tally.unread_entry_counts.items()
    ):
        unresolved_creates_text = count(entry_count, "unresolved create")
        yield (
            f"{unresolved_creates_text} of earlier runs {choose_form(entry_count, 'is', 'are')} now {result_text}. "
            f"This run did not read {choose_form(entry_count, 'the row of this create', 'the rows of these creates')}"
        )
