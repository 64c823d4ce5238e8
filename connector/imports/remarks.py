"""What a person should know of the cells that were read, beyond what is wrong with rows: how a file was read, what is
not sent of a row that is, and numbers where a text belongs (a phone that has lost its plus, a zip its zero)."""

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from connector.load.session import Tally
from connector.plurals import agree, count
from connector.subscribers.headers import find_unused_name, find_useful
from connector.subscribers.mapping import Reading
from connector.subscribers.preparation import PreparedChunk
from connector.subscribers.rules import FieldMapping

SILENT_ACTIVITY = (
    "nothing says is_active, so the service would create inactive subscribers, which cannot be changed "
    "later; map a column to is_active, or use --active or --inactive (in a job: is_active: {value: true}; in Python: "
    "active=True)"
)

_MOST_WORDS = 6
"""Pairs of a field and a word that a message lists."""

_TEXT_FIELDS = ("phone", "client_user_id", "address_zip")
"""Fields whose values look like numbers, and are none."""


@dataclass(slots=True)
class Remarks:
    """Gathered chunk by chunk; `messages` are the source's own, `number_cells` a workbook's numbers by column, and
    `consent` has the columns that say who wants no email and that is_active is not made of."""

    messages: list[str] = field(default_factory=list)
    omitted_zips: int = 0
    yearless: int = 0
    readings: Counter[Reading] = field(default_factory=Counter)
    number_cells: Counter[str] = field(default_factory=Counter)
    consent: list[str] = field(default_factory=list)

    def take(self, prepared: PreparedChunk) -> None:
        """Add what there is to say of a chunk."""
        self.messages += prepared.chunk.messages
        self.omitted_zips += len(prepared.omitted_zips)
        self.yearless += len(prepared.yearless)
        self.readings.update({reading: len(found) for reading, found in prepared.readings.items()})
        self.number_cells.update(prepared.chunk.number_cells)
        self.consent += [column for column in prepared.consent if column not in self.consent]

    def describe_cells(self, mapping: FieldMapping) -> Iterator[str]:
        """Yield what is not sent as it came, a line a kind."""
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
                "out; the subscribers are sent without one"
            )
        yield from self._describe_readings()
        yield from describe_numbers(mapping, self.number_cells)

    def _describe_readings(self) -> Iterator[str]:
        words = Counter({reading: number for reading, number in self.readings.items() if number and reading.word})
        if words:
            listed = [
                f"{reading.field} {reading.word} ({number})" for reading, number in words.most_common(_MOST_WORDS)
            ]
            more = " …" if len(words) > _MOST_WORDS else ""
            word = words.most_common(1)[0][0].word
            yield (
                f"{count(words.total(), 'cell')} {agree(words.total(), 'is', 'are')} read as empty, because programs "
                f"write these words for a missing value: {', '.join(listed)}{more}. "
                f'If a word is a name, keep it by the field\'s values: {{"{word}": "{word}"}} in a job'
            )
        decoded = {reading.field: number for reading, number in self.readings.items() if number and not reading.word}
        if decoded:
            number, listed = sum(decoded.values()), [f"{name} ({number})" for name, number in decoded.items()]
            yield (
                f"{count(number, 'cell')} with HTML codes (&amp;) or backslashes before quotes "
                f"{agree(number, 'is', 'are')} sent with the letters that are meant: {', '.join(listed)}"
            )


def describe_unmapped(mapping: FieldMapping, unmapped: Sequence[str]) -> Iterator[str]:
    """Name the columns that no field is made of, and a column of names that may need a person's decision."""
    if unmapped:
        yield f"columns not used: {', '.join(unmapped)}"
    useful = find_useful(mapping, unmapped)
    if useful:
        named = ", ".join(f"{column} ({field})" for column, field in useful.items())
        first = next(iter(useful))
        yield (
            f"columns not used that look like fields: {named}. Nothing fills these fields. To send a column, use "
            f"--map {useful[first]}={shlex.quote(first)} (in a job `fields`)"
        )
    fields = sorted({"first_name", "last_name"} & mapping.rules.keys())
    if mapping.whole_name is not None:
        yield (
            f"the column {mapping.whole_name} seems to hold whole names, which are sent whole as {fields[0]}. To split "
            f"them, draft a job with `connector init` and use its templates; to leave them out, use --map {fields[0]}="
        )
    elif (column := find_unused_name(unmapped)) is not None and len(fields) < 2:
        yield (
            f"the column {column} seems to hold names, which are not sent: use --map first_name=COLUMN or "
            "--map last_name=COLUMN (in a job `fields`) to send it"
        )


def describe_numbers(mapping: FieldMapping, number_cells: Mapping[str, int]) -> Iterator[str]:
    """Yield what a person should know of such cells (how many, by column) in the columns that these fields are made
    of."""
    for name in _TEXT_FIELDS:
        rule = mapping.rules.get(name)
        for column in rule.columns if rule is not None else ():
            if number := number_cells.get(column, 0):
                yield (
                    f"{count(number, 'cell')} of the column {column} ({name}) "
                    f"{agree(number, 'is a number', 'are numbers')} in the workbook, not text: "
                    "leading zeros, a plus sign and digits beyond the fifteenth are lost there; if it matters, format "
                    "the column as text and enter them again"
                )


def describe_opt_outs(tally: Tally, drift_file: str | None) -> Iterator[str]:
    """Yield what a person must do about opt-outs: the service has no update, so only a person can end them there.
    `drift_file` lists them (None: a plan has none)."""
    number = tally.opt_outs - tally.unseen_opt_outs.total()
    listed = "" if drift_file is None else f": {agree(number, 'it is', 'they are')} listed in {drift_file}"
    if number:
        yield (
            f"{count(number, 'subscriber')} opted out in the source and {agree(number, 'is', 'are')} still active in "
            f"the service. Deactivate {agree(number, 'the subscriber', 'them')} there{listed}"
        )
    for reason, unseen in sorted(tally.unseen_opt_outs.items()):
        yield (
            f"{count(unseen, 'subscriber')} opted out in the source, as an earlier run has reported. This run could "
            f"not see whether the service still shows {agree(unseen, 'the subscriber', 'them')} as active: {reason}"
        )


def describe_reactivated(tally: Tally, *, is_planned: bool = False) -> Iterator[str]:
    """Yield what a person should know of rows created as active whose identities the list shows as inactive."""
    if number := tally.reactivated:
        rows = f"{count(number, 'row')} {'would be' if is_planned else agree(number, 'was', 'were')} created as active"
        yield (
            f"{rows}, though the list shows {agree(number, 'its identity', 'their identities')} as inactive in a base "
            "of the account; to keep such rows back, set suppress: {inactive: true} in the job"
        )


def describe_leftovers(tally: Tally) -> Iterator[str]:
    """Yield messages on entries that the run settled besides its rows."""
    for state, number in sorted(tally.leftovers.items()):
        creates = count(number, "unresolved create")
        yield f"{creates} from earlier runs, with no row in this one, {agree(number, 'is', 'are')} {state} now"
