"""Drafts a job from a source. Guesses the field of each column by its header and its first cells, and writes the job.

Each guess is tested: the rule is applied to the cells, and the share of valid cells decides how sure the guess is.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date

import numpy as np
import pandas as pd

from connector.subscribers.consent import build_consent_rule, find_consent_columns
from connector.subscribers.headers import drop_misread_address_state, guess_mapping
from connector.subscribers.mapping import apply_mapping
from connector.subscribers.rules import ColumnRule, FieldMapping, ValidationRules, normalise_header
from connector.subscribers.validation import validate_rows

# A guess for a column needs at least these shares of cells that are valid, or match the pattern of a field.
# The shares are below 1, because a real file has a few wrong cells.
_MIN_VALID_SHARE_FOR_SURE = 0.95
_MIN_MATCHING_SHARE = 0.8
_MIN_VALID_SHARE_FOR_LIKELY = 0.5
_MAX_SAMPLE_COUNT = 3

_DATE_FORMATS = (
    "%Y-%m-%d", "%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y", "%d-%m-%Y", "%m-%d-%Y", "%Y/%m/%d", "%Y%m%d",
    "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S", "%d %b %Y", "%d %B %Y", "%b %d, %Y", "%B %d, %Y",
)  # fmt: skip
_BIRTH_HEADERS = frozenset(
    {"dob", "birth", "bday", "born", "geburtsdatum", "geburtstag", "geboortedatum", "geboren", "naissance"}
)
_GENDER_HEADERS = frozenset({"sex", "gender", "geschlecht", "geslacht", "sexe", "sexo"})
_COUNTRY_HEADERS = frozenset({"country", "countryname", "land", "pays", "pais", "nation"})
_GENDER_BY_WORD = {
    **dict.fromkeys(("m", "male", "man", "mann", "männlich", "homme", "hombre"), "male"),
    **dict.fromkeys(("f", "female", "w", "woman", "frau", "weiblich", "v", "vrouw", "femme", "mujer"), "female"),
}
_SPANISH_MALE = "h"  # short for hombre; in a column with h, m means mujer
_PHONE_CELL_PATTERN = r"^[+0(][0-9 ()./-]{6,24}$"
_PHONE_HEADER_PATTERN = re.compile(r"phone|^tel|telef|mobil|handy|gsm|cell")
_DATE_CELL_PATTERN = r"^(?=(?:\D*\d){5})[\w ,./:T-]{8,25}$"
_LIST_CELL_PATTERN = r"^\[.*\]$"  # sources return lists of a database or of Parquet as JSON

_CURSOR_HEADERS = (
    "updatedat", "modifiedat", "lastmodified", "lastmodifieddate", "lastupdated", "lastupdate", "updatedon",
    "modifiedon", "changedat", "datemodified", "dateupdated", "updated", "modified", "modificationdate",
    "systemmodstamp",
)  # fmt: skip
_TIMESTAMP_CELL_PATTERN = r"^\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}"
_ZONED_CELL_PATTERN = r"(?:Z|[+-]\d{2}(?::?\d{2})?)$"

_PLAIN_WORD_PATTERN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NULL_WORDS = ("null", "none", "~")
_FIRST_LINE = "# Drafted by `connector init`. Check the guesses below, then run: connector validate {path}"


@dataclass(frozen=True, slots=True)
class GuessedField:
    """The guess for a field: the rule, the `confidence` (sure, likely or unsure) with its reason, and sample cells."""

    name: str
    rule: ColumnRule
    confidence: str
    reason: str
    samples: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ValidCount:
    """The number of valid cells of a column, and the number of its filled cells."""

    valid_cell_count: int
    filled_cell_count: int

    @property
    def valid_share(self) -> float:
        """The share of valid cells, from 0 to 1. The share is 1 if all cells are empty."""
        return self.valid_cell_count / self.filled_cell_count if self.filled_cell_count else 1.0


def guess_fields(frame: pd.DataFrame, today: date) -> tuple[GuessedField, ...]:
    """Return the guesses for the text columns of a chunk. Unsure guesses are included."""
    columns = [str(column) for column in frame.columns]
    mapping = guess_mapping(columns)
    rule_by_field = dict(mapping.rules)
    if consent_columns := find_consent_columns(frame, mapping, ()):
        activity_rule, activity_columns = mapping.rules.get("is_active"), tuple[str, ...]()
        # A column Subscribed may have the dates of the subscriptions.
        if activity_rule and measure_validity(frame, "is_active", activity_rule, today).valid_cell_count:
            activity_columns = activity_rule.columns
        rule_by_field["is_active"] = build_consent_rule(*activity_columns, *consent_columns)
        drop_misread_address_state(rule_by_field)
    guess_by_field = {
        name: _build_guess(frame, name, rule, "its header", today) for name, rule in rule_by_field.items()
    }
    for guess in list(_guess_fields_by_contents(frame, columns, guess_by_field, today)):
        if guess.name not in guess_by_field or guess_by_field[guess.name].confidence == "unsure":
            guess_by_field[guess.name] = guess
    ordered_guesses = [
        guess_by_field[name]
        for name in FieldMapping({name: guess.rule for name, guess in guess_by_field.items()}).rules
    ]
    if mapping.whole_name_column is None:
        return tuple(ordered_guesses)
    return tuple(
        field_guess
        for guess in ordered_guesses
        for field_guess in _add_split_guesses(frame, guess, mapping.whole_name_column, today)
    )


def _add_split_guesses(
    frame: pd.DataFrame, guess: GuessedField, whole_name_column: str, today: date
) -> Iterator[GuessedField]:
    """Yield the guess. If its column has whole names, also yield two unsure guesses with templates that split whole
    names, so that a person can choose."""
    if guess.name not in ("first_name", "last_name") or guess.rule.columns != (whole_name_column,):
        yield guess
        return
    yield replace(_limit_confidence(guess), reason=f"{guess.reason}; whole names are sent unsplit")
    column_expression = (
        whole_name_column
        if _PLAIN_WORD_PATTERN.fullmatch(whole_name_column)
        else f"row[{json.dumps(whole_name_column, ensure_ascii=False)}]"
    )
    for field, filter_name in (("first_name", "given_name"), ("last_name", "family_name")):
        rule = ColumnRule(template=f"{{{{ {column_expression} | {filter_name} }}}}")
        template_guess = _build_guess(frame, field, rule, "its cells", today)
        reason = (
            "this line splits names that have only one possible split; use it instead of "
            f"`{guess.name}: {format_rule(guess.rule)}`"
        )
        yield replace(template_guess, confidence="unsure", reason=reason)


def propose_cursor(frame: pd.DataFrame) -> tuple[str, str] | None:
    """Return the column and the start of a cursor. The column has the time of each row's last change, and the start is
    earlier than all these times. Return None if no column has such times."""
    column_by_header = {normalise_header(str(column)): str(column) for column in frame.columns}
    for column in (column_by_header[header] for header in _CURSOR_HEADERS if header in column_by_header):
        cells = frame[column].dropna().str.strip()
        if len(cells) and _is_common_pattern(cells, _TIMESTAMP_CELL_PATTERN):
            return column, "1970-01-01T00:00:00" + ("+00:00" if _is_common_pattern(cells, _ZONED_CELL_PATTERN) else "")
    return None


def measure_validity(frame: pd.DataFrame, name: str, rule: ColumnRule, today: date) -> ValidCount:
    """Apply a rule, and return the numbers of filled and of valid values for the field `name`."""
    identity_rules: dict[str, ColumnRule] = {} if name == "email" else {"email": ColumnRule(value="nobody@example.com")}
    mapped_chunk = apply_mapping(frame, FieldMapping({**identity_rules, name: rule}), today=today)
    faults = validate_rows(mapped_chunk.frame, ValidationRules(), today=today, known_faults=mapped_chunk.faults).faults
    invalid_positions = {fault.position for fault in faults if fault.field == name and fault.code != "required"}
    filled_positions = invalid_positions.union(np.flatnonzero(mapped_chunk.frame[name].notna()).tolist())
    return ValidCount(len(filled_positions) - len(invalid_positions), len(filled_positions))


def _build_guess(frame: pd.DataFrame, name: str, rule: ColumnRule, evidence: str, today: date) -> GuessedField:
    """Return the guess for a field. The cells refine its rule, and the share of valid cells decides its confidence."""
    rule, doubt_text = _refine_rule(frame, name, rule, today)
    validity = measure_validity(frame, name, rule, today)
    reason = (
        f"{validity.valid_cell_count} of {validity.filled_cell_count} cells fit"
        if validity.filled_cell_count
        else "all cells are empty"
    )
    confidence = (
        "sure"
        if validity.valid_share >= _MIN_VALID_SHARE_FOR_SURE
        else "likely"
        if validity.valid_share >= _MIN_VALID_SHARE_FOR_LIKELY
        else "unsure"
    )
    if doubt_text:
        confidence, reason = "unsure", f"{reason}; {doubt_text}"
    return GuessedField(name, rule, confidence, f"by {evidence}; {reason}", _pick_samples(frame, name, rule))


def _refine_rule(frame: pd.DataFrame, name: str, rule: ColumnRule, today: date) -> tuple[ColumnRule, str]:
    """Return the rule with the values, the separator or the date format that the cells show. Also return a doubt about
    the rule, or ""."""
    if rule.column is None:
        return rule, ""
    cells = frame[rule.column].dropna().str.strip()
    if name == "gender":
        words = sorted(set(cells))
        gender_by_word = {word: _GENDER_BY_WORD[word.lower()] for word in words if word.lower() in _GENDER_BY_WORD}
        replacements = {word: gender for word, gender in gender_by_word.items() if word.lower() != gender}
        doubt_text = (
            "`m` may mean `mujer` or `male`: choose one" if _SPANISH_MALE in {word.lower() for word in words} else ""
        )
        return (replace(rule, values=replacements) if replacements else rule), doubt_text
    if name == "tags" and rule.split is None:
        plain_cells = cells[~cells.str.startswith(("[", "{"))]
        cell_count_by_separator = {
            separator: int(plain_cells.str.contains(separator, regex=False).sum()) for separator in (",", "|", ";")
        }
        separator = max(cell_count_by_separator, key=lambda separator: cell_count_by_separator[separator])
        return (replace(rule, split=separator) if separator != "," else rule), ""
    if name == "birthday":
        return _refine_date_rule(frame, rule, today)
    return rule, ""


def _refine_date_rule(frame: pd.DataFrame, rule: ColumnRule, today: date) -> tuple[ColumnRule, str]:
    rules = [
        rule if date_format == "%Y-%m-%d" else replace(rule, format=(date_format,)) for date_format in _DATE_FORMATS
    ]
    valid_cell_counts = [measure_validity(frame, "birthday", rule, today).valid_cell_count for rule in rules]
    best_valid_cell_count = max(valid_cell_counts)
    best_rules = [
        rule
        for rule, valid_cell_count in zip(rules, valid_cell_counts, strict=True)
        if valid_cell_count == best_valid_cell_count
    ]
    birthday_columns = [
        apply_mapping(frame, FieldMapping({"birthday": rule}), today=today).frame["birthday"].fillna("")
        for rule in best_rules
    ]
    if best_valid_cell_count and len(set(map(tuple, birthday_columns))) > 1:
        formats_text = " and ".join(rule.format[0] if rule.format else _DATE_FORMATS[0] for rule in best_rules)
        return best_rules[0], f"{formats_text} are equally good: choose one"
    return best_rules[0], ""


def _guess_fields_by_contents(
    frame: pd.DataFrame, columns: Sequence[str], guess_by_field: Mapping[str, GuessedField], today: date
) -> Iterator[GuessedField]:
    """Yield guesses for the columns whose header gave no guess."""
    used_columns = {column for guess in guess_by_field.values() for column in guess.rule.columns}
    for column in (column for column in columns if column not in used_columns):
        header, rule = normalise_header(column), ColumnRule(column=column)
        cells = frame[column].dropna().str.strip()
        cells = cells[cells != ""]
        if not len(cells):
            continue
        if (
            _is_common_pattern(cells, "@")
            and measure_validity(frame, "email", rule, today).valid_share >= _MIN_MATCHING_SHARE
        ):
            yield _limit_confidence(_build_guess(frame, "email", rule, "its cells", today))
        elif "tags" not in guess_by_field and _is_common_pattern(cells, _LIST_CELL_PATTERN):
            yield _limit_confidence(_build_guess(frame, "tags", rule, "its cells", today))
        elif header in _GENDER_HEADERS or set(cells.str.lower()) in ({"m", "f"}, {"male", "female"}):
            yield _limit_confidence(_build_guess(frame, "gender", rule, "its cells", today))
        elif header in _BIRTH_HEADERS and _is_common_pattern(cells, _DATE_CELL_PATTERN):
            guess = _limit_confidence(_build_guess(frame, "birthday", rule, "its cells", today))
            if measure_validity(frame, "birthday", guess.rule, today).valid_share >= _MIN_MATCHING_SHARE:
                yield guess
        elif _is_common_pattern(cells, _PHONE_CELL_PATTERN):
            # If the header does not mean a phone, a number without a + may be a customer number or a zip code.
            if _PHONE_HEADER_PATTERN.search(header) or cells.str.startswith("+").mean() >= _MIN_VALID_SHARE_FOR_LIKELY:
                yield _limit_confidence(_build_guess(frame, "phone", rule, "its cells", today))
        elif (
            header in _COUNTRY_HEADERS
            and measure_validity(frame, "address_country", rule, today).valid_share >= _MIN_VALID_SHARE_FOR_LIKELY
        ):
            yield _limit_confidence(_build_guess(frame, "address_country", rule, "its cells", today))


def _is_common_pattern(cells: "pd.Series[str]", pattern: str) -> bool:
    """Return whether most cells match the pattern. This test is fast. A validation would take 30 ms."""
    return bool(cells.str.contains(pattern, regex=True).mean() >= _MIN_MATCHING_SHARE)


def _limit_confidence(guess: GuessedField) -> GuessedField:
    """Return the guess with at most the confidence `likely`, because cells without a known header never make a guess
    sure."""
    return replace(guess, confidence="likely") if guess.confidence == "sure" else guess


def _pick_samples(frame: pd.DataFrame, name: str, rule: ColumnRule) -> tuple[str, ...]:
    """Return a few different cells of the source. For a template, add the text that the template returns for the
    cells."""
    rows = frame[list(rule.columns)].fillna("")
    rows = rows[rows.apply(lambda cells: cells.str.strip()).ne("").any(axis="columns")]
    samples = rows.drop_duplicates().head(_MAX_SAMPLE_COUNT)
    sample_texts = [", ".join(filter(None, map(str, cells))) for cells in samples.itertuples(index=False)]
    if rule.template is None:
        return tuple(sample_texts)
    rendered_texts = apply_mapping(samples, FieldMapping({name: rule})).frame[name]
    return tuple(
        f"{sample_text} → {'' if pd.isna(text) else text}"
        for sample_text, text in zip(sample_texts, rendered_texts, strict=True)
    )


def draft_job(
    name: str,
    path: str,
    source: Sequence[tuple[str, str]],
    base: tuple[str, str],
    identity_field: str,
    guesses: Sequence[GuessedField],
    unmapped_columns: Sequence[str],
    cursor: tuple[str, str] | None = None,
) -> str:
    """Return the text of a job file. The first pair of `source` has the key `file` or `sql`, and the other pairs are
    the keys under it. `base` is a key and its value, and `cursor` a column and its start.

    An unsure guess becomes a comment. With a `cursor`, a comment shows the same source with the cursor.
    """
    (source_kind, _), *source_keys = source
    source_text = f"{source_kind}: {_format_flow_mapping(source_keys)}"
    cursor_lines = []
    if cursor is not None:
        column, start = cursor
        cursor_text = f"{{column: {quote_yaml(column)}, start: {quote_yaml(start)}, lookback: 10m}}"
        cursor_lines = [
            f"  # With a cursor, later runs read only changed rows. Each change of a row must also set {column}.",
            "  # To use the cursor, replace the line above these comments by the next line, without its #.",
            f"  # {source_text[:-1]}, cursor: {cursor_text}}}",
        ]
    job_lines = [
        _FIRST_LINE.format(path=path),
        "",
        f"job: {quote_yaml(name)}",
        "",
        "source:",
        f"  {source_text}",
        *cursor_lines,
        "",
        "subscriber:",
        f"  base: {_format_flow_mapping([base])}",
        f"  identity: {identity_field}",
        "  fields:",
        *_format_fields(guesses),
    ]
    if not any(guess.name == "is_active" and guess.confidence != "unsure" for guess in guesses):
        job_lines.append(
            "    # is_active: {value: true}  # or a column. A sync needs this line: the service's default is inactive"
        )
    if unmapped_columns:
        job_lines.append(f"  # columns not used: {', '.join(quote_yaml(column) for column in unmapped_columns)}")
    return "\n".join(job_lines) + "\n"


def quote_yaml(text: str) -> str:
    """Return a text for YAML. A plain word is not changed. Any other text is in quotes, with `${` escaped."""
    if _PLAIN_WORD_PATTERN.fullmatch(text) and text.lower() not in _NULL_WORDS:
        return text
    escaped_text = json.dumps(text.replace("${", "$${"), ensure_ascii=False)
    return "".join(character if character.isprintable() else f"\\U{ord(character):08x}" for character in escaped_text)


def format_rule(rule: ColumnRule) -> str:
    """Return a rule as the text for a job file. If the rule has only a column, use the short form."""
    text_pairs = [("column", rule.column), ("template", rule.template), ("split", rule.split)]
    keys_and_values = [(key, quote_yaml(value)) for key, value in text_pairs if value is not None]
    if rule.values:
        keys_and_values.append(
            ("values", "{" + ", ".join(f"{quote_yaml(k)}: {quote_yaml(v)}" for k, v in rule.values.items()) + "}")
        )
    if rule.format:
        keys_and_values.append(("format", quote_yaml(rule.format[0])))
    if rule.column is not None and len(keys_and_values) == 1:
        return keys_and_values[0][1]
    return "{" + ", ".join(f"{key}: {value}" for key, value in keys_and_values) + "}"


def _format_fields(guesses: Sequence[GuessedField]) -> Iterator[str]:
    for guess in guesses:
        comment_mark = "# " if guess.confidence == "unsure" else ""
        comment = "" if guess.confidence == "sure" else f"  # {guess.confidence}: {guess.reason}"
        yield f"    {comment_mark}{guess.name}: {format_rule(guess.rule)}{comment}"


def _format_flow_mapping(keys_and_values: Sequence[tuple[str, str]]) -> str:
    """Return keys and values in braces. `${NAME}` and numbers are not changed."""
    item_texts = []
    for key, value in keys_and_values:
        value_text = (
            f'"{value}"' if re.fullmatch(r"\$\{\w+\}", value) else value if value.isdigit() else quote_yaml(value)
        )
        item_texts.append(f"{quote_yaml(key)}: {value_text}")
    return "{" + ", ".join(item_texts) + "}"
