"""Messages about a load that add to its counts: how a file was read, which values were not sent, and columns with
numbers instead of texts (a phone number without its plus, a zip code without its leading zero)."""

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from connector.load.session import Tally
from connector.subscribers.headers import find_name_column, find_useful_columns
from connector.subscribers.mapping import Reading
from connector.subscribers.preparation import PreparedChunk
from connector.subscribers.rules import FieldMapping
from connector.texts import agree, count

SILENT_ACTIVITY = (
    "nothing says is_active, so the service would create inactive subscribers, which cannot be changed "
    "later; map a column to is_active, or use --active or --inactive (in a job: is_active: {value: true}; in Python: "
    "active=True)"
)

_MAX_WORDS = 6
"""The largest number of pairs of a field and a word in a message."""

_TEXT_FIELDS = ("phone", "client_user_id", "address_zip")
"""Fields whose values look like numbers and are texts."""


@dataclass(slots=True)
class Remarks:
    """Counts for messages, added chunk by chunk. `messages` are the messages of the source, `number_cells` counts
    numbers of a workbook by column, and `consent` has unmapped columns that say who wants no email."""

    messages: list[str] = field(default_factory=list)
    omitted_zips: int = 0
    yearless: int = 0  # birthdays without a year
    readings: Counter[Reading] = field(default_factory=Counter)
    number_cells: Counter[str] = field(default_factory=Counter)
    consent: list[str] = field(default_factory=list)

    def add(self, prepared: PreparedChunk) -> None:
        """Add the messages and counts of a chunk."""
        self.messages += prepared.chunk.messages
        self.omitted_zips += len(prepared.omitted_zips)
        self.yearless += len(prepared.yearless)
        self.readings.update({reading: len(positions) for reading, positions in prepared.readings.items()})
        self.number_cells.update(prepared.chunk.number_cells)
        self.consent += [column for column in prepared.consent if column not in self.consent]

    def describe_cells(self, mapping: FieldMapping) -> Iterator[str]:
        """Yield a message for each kind of cell that is not sent unchanged."""
        if self.omitted_zips:
            yield (
                f"{count(self.omitted_zips, 'zip code')} "
                f"{agree(self.omitted_zips, 'is not a plain number', 'are not plain numbers')} "
                f'(for example "SW1A 1AA", "02134" or "12345-6789") and {agree(self.omitted_zips, "is", "are")} left '
                "out (zip: omit)"
            )
        if self.yearless:
            yield (
                f"{count(self.yearless, 'birthday')} without a year (--05-12) {agree(self.yearless, 'is', 'are')} left "
                "out; the subscribers are sent without a birthday"
            )
        yield from self._describe_readings()
        yield from describe_numbers(mapping, self.number_cells)

    def _describe_readings(self) -> Iterator[str]:
        words = Counter({reading: cells for reading, cells in self.readings.items() if cells and reading.word})
        if words:
            listed = [f"{reading.field} {reading.word} ({cells})" for reading, cells in words.most_common(_MAX_WORDS)]
            more = " …" if len(words) > _MAX_WORDS else ""
            word = words.most_common(1)[0][0].word
            yield (
                f"{count(words.total(), 'cell')} {agree(words.total(), 'is', 'are')} read as empty, because programs "
                f"write these words for a missing value: {', '.join(listed)}{more}. "
                f'If a word is a name, keep it by the field\'s values: {{"{word}": "{word}"}} in a job'
            )
        decoded = {reading.field: cells for reading, cells in self.readings.items() if cells and not reading.word}
        if decoded:
            cell_count, listed = sum(decoded.values()), [f"{name} ({cells})" for name, cells in decoded.items()]
            yield (
                f"{count(cell_count, 'cell')} with HTML codes (&amp;) or backslashes before quotes "
                f"{agree(cell_count, 'is', 'are')} sent with the letters that are meant: {', '.join(listed)}"
            )


def describe_unmapped(mapping: FieldMapping, unmapped: Sequence[str]) -> Iterator[str]:
    """Yield messages about columns that are not used, and about a column of whole names."""
    if unmapped:
        yield f"columns not used: {', '.join(unmapped)}"
    useful = find_useful_columns(mapping, unmapped)
    if useful:
        named = ", ".join(f"{column} ({field})" for column, field in useful.items())
        first = next(iter(useful))
        yield (
            f"columns not used that look like fields: {named}. Nothing fills these fields. To send a column, use "
            f"--map {useful[first]}={shlex.quote(first)} (in a job `fields`)"
        )
    fields = sorted({"first_name", "last_name"} & mapping.rules.keys())
    if mapping.whole_name_column is not None:
        yield (
            f"the column {mapping.whole_name_column} seems to hold whole names, which are sent whole as {fields[0]}. "
            "To split them, draft a job with `connector init` and use its templates; to leave them out, use --map "
            f"{fields[0]}="
        )
    elif (column := find_name_column(unmapped)) is not None and len(fields) < 2:
        yield (
            f"the column {column} seems to hold names, which are not sent: use --map first_name=COLUMN or "
            "--map last_name=COLUMN (in a job `fields`) to send it"
        )


def describe_numbers(mapping: FieldMapping, number_cells: Mapping[str, int]) -> Iterator[str]:
    """Yield a message for each column of a text field with numbers; `number_cells` counts them by column."""
    for name in _TEXT_FIELDS:
        rule = mapping.rules.get(name)
        for column in rule.columns if rule is not None else ():
            if cell_count := number_cells.get(column, 0):
                yield (
                    f"{count(cell_count, 'cell')} of the column {column} ({name}) "
                    f"{agree(cell_count, 'is a number', 'are numbers')} in the workbook, not text: "
                    "leading zeros, a plus sign and digits beyond the fifteenth are lost there; if it matters, format "
                    "the column as text and enter them again"
                )


def describe_opt_outs(tally: Tally, drift_file: str | None) -> Iterator[str]:
    """Yield messages about opt-outs. Only a person can deactivate the subscribers, because the service has no update.
    `drift_file` lists the opt-outs (None in a plan)."""
    opt_out_count = tally.opt_outs - tally.unseen_opt_outs.total()
    listed = "" if drift_file is None else f": {agree(opt_out_count, 'it is', 'they are')} listed in {drift_file}"
    if opt_out_count:
        yield (
            f"{count(opt_out_count, 'subscriber')} opted out in the source and {agree(opt_out_count, 'is', 'are')} "
            f"still active in the service. Deactivate {agree(opt_out_count, 'the subscriber', 'them')} there{listed}"
        )
    for reason, unseen_count in sorted(tally.unseen_opt_outs.items()):
        yield (
            f"{count(unseen_count, 'subscriber')} opted out in the source, as an earlier run has reported. This run "
            f"could not see whether the service still shows {agree(unseen_count, 'the subscriber', 'them')} as active: "
            f"{reason}"
        )


def describe_reactivated(tally: Tally, *, is_planned: bool = False) -> Iterator[str]:
    """Yield a message about rows that were created as active although the list shows their identities as inactive."""
    if row_count := tally.reactivated:
        verb = "would be" if is_planned else agree(row_count, "was", "were")
        yield (
            f"{count(row_count, 'row')} {verb} created as active, though the list shows "
            f"{agree(row_count, 'its identity', 'their identities')} as inactive in a base of the account; "
            "to keep such rows back, set suppress: {inactive: true} in the job"
        )


def describe_leftovers(tally: Tally) -> Iterator[str]:
    """Yield messages about unresolved creates of earlier runs that the run settled."""
    for state, create_count in sorted(tally.leftovers.items()):
        creates = count(create_count, "unresolved create")
        yield f"{creates} from earlier runs, with no row in this one, {agree(create_count, 'is', 'are')} {state} now"
