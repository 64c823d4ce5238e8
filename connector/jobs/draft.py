"""Drafts a job from a source: guesses the field of each column by its header and first cells, and writes the job.

Each guess is tested: its rule is applied to the cells, and the share of valid cells decides how sure the guess is.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date

import numpy as np
import pandas as pd

from connector.subscribers.headers import build_consent_rule, find_consent_columns, guess_mapping
from connector.subscribers.mapping import apply_mapping
from connector.subscribers.rules import ColumnRule, FieldMapping, ValidationRules, normalise_header
from connector.subscribers.validation import validate_rows

_SURE, _LIKELY, _UNSURE = 0.95, 0.8, 0.5  # shares of valid cells; below 1, because a real file has a few wrong cells
_SAMPLES = 3

_DATE_FORMS = (
    "%Y-%m-%d", "%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y", "%d-%m-%Y", "%m-%d-%Y", "%Y/%m/%d", "%Y%m%d",
    "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S", "%d %b %Y", "%d %B %Y", "%b %d, %Y", "%B %d, %Y",
)  # fmt: skip
_BIRTH_HEADERS = frozenset(
    {"dob", "birth", "bday", "born", "geburtsdatum", "geburtstag", "geboortedatum", "geboren", "naissance"}
)
_GENDER_HEADERS = frozenset({"sex", "gender", "geschlecht", "geslacht", "sexe", "sexo"})
_COUNTRY_HEADERS = frozenset({"country", "countryname", "land", "pays", "pais", "nation"})
_GENDERS = {
    **dict.fromkeys(("m", "male", "man", "mann", "männlich", "homme", "hombre"), "male"),
    **dict.fromkeys(("f", "female", "w", "woman", "frau", "weiblich", "v", "vrouw", "femme", "mujer"), "female"),
}
_SPANISH = "h"  # hombre: in such a column m means mujer
_PHONE = r"^[+0(][0-9 ()./-]{6,24}$"
_PHONE_HEADER = re.compile(r"phone|^tel|telef|mobil|handy|gsm|cell")
_DATED = r"^(?=(?:\D*\d){5})[\w ,./:T-]{8,25}$"
_LISTS = r"^\[.*\]$"  # sources return a database's text[] and a Parquet list as JSON

_CURSOR_HEADERS = (
    "updatedat", "modifiedat", "lastmodified", "lastmodifieddate", "lastupdated", "lastupdate", "updatedon",
    "modifiedon", "changedat", "datemodified", "dateupdated", "updated", "modified", "modificationdate",
    "systemmodstamp",
)  # fmt: skip
_MOMENT = r"^\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}"
_ZONE = r"(?:Z|[+-]\d{2}(?::?\d{2})?)$"

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NULLS = ("null", "none", "~")
_HEAD = "# Drafted by `connector init`. Check the guesses below, then run: connector validate {path}"


@dataclass(frozen=True, slots=True)
class GuessedField:
    """The guess for a field: its rule, its `sureness` (sure, likely, unsure) with the reason, and sample cells."""

    name: str
    rule: ColumnRule
    sureness: str
    reason: str
    samples: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FittingShare:
    """The number of cells that are not empty (`filled`), and how many of them are valid (`fitting`)."""

    fitting: int
    filled: int

    @property
    def part(self) -> float:
        """The share of valid cells, from 0 to 1; 1 if all cells are empty."""
        return self.fitting / self.filled if self.filled else 1.0


def guess_fields(frame: pd.DataFrame, today: date) -> tuple[GuessedField, ...]:
    """Return the guesses for the text columns of a chunk, including unsure ones."""
    columns = [str(column) for column in frame.columns]
    mapping = guess_mapping(columns)
    by_header = {**mapping.rules, **_guess_consent(frame, mapping)}
    guesses = {name: _rate_guess(frame, name, rule, "its header", today) for name, rule in by_header.items()}
    for guess in list(_guess_by_contents(frame, columns, guesses, today)):
        if guess.name not in guesses or guesses[guess.name].sureness == "unsure":
            guesses[guess.name] = guess
    ordered = [guesses[name] for name in FieldMapping({name: guess.rule for name, guess in guesses.items()}).rules]
    if mapping.whole_name_column is None:
        return tuple(ordered)
    return tuple(
        alternative for guess in ordered for alternative in _offer_split(frame, guess, mapping.whole_name_column, today)
    )


def _offer_split(
    frame: pd.DataFrame, guess: GuessedField, whole_name_column: str, today: date
) -> Iterator[GuessedField]:
    """Yield the guess. If its column has whole names, also yield two templates that split such names, for a person to
    choose."""
    if guess.name not in ("first_name", "last_name") or guess.rule.columns != (whole_name_column,):
        yield guess
        return
    yield replace(_as_likely(guess), reason=f"{guess.reason}; whole names are not split unless you say so")
    name = (
        whole_name_column
        if _PLAIN.fullmatch(whole_name_column)
        else f"row[{json.dumps(whole_name_column, ensure_ascii=False)}]"
    )
    for field, part in (("first_name", "given_name"), ("last_name", "family_name")):
        rule = ColumnRule(template=f"{{{{ {name} | {part} }}}}")
        split = _rate_guess(frame, field, rule, "its cells", today)
        reason = f"to split clear names, in place of the line `{guess.name}: {write_rule(guess.rule)}`"
        yield replace(split, sureness="unsure", reason=reason)


def _guess_consent(frame: pd.DataFrame, mapping: FieldMapping) -> dict[str, ColumnRule]:
    """Return the rule of is_active if a column shows who wants no email and the `mapping` does not use that column."""
    column = next(iter(find_consent_columns(frame, mapping, ())), None)
    return {} if column is None else {"is_active": build_consent_rule(column)}


def propose_cursor(frame: pd.DataFrame) -> tuple[str, str] | None:
    """Return the column of the time at which a row last changed, and a start before all its values, or None."""
    by_header = {normalise_header(str(column)): str(column) for column in frame.columns}
    for column in (by_header[header] for header in _CURSOR_HEADERS if header in by_header):
        cells = frame[column].dropna().str.strip()
        if len(cells) and _are_mostly(cells, _MOMENT):
            return column, "1970-01-01T00:00:00" + ("+00:00" if _are_mostly(cells, _ZONE) else "")
    return None


def measure(frame: pd.DataFrame, name: str, rule: ColumnRule, today: date) -> FittingShare:
    """Return how many of the values that a rule makes are valid in the field `name`."""
    identity: dict[str, ColumnRule] = {} if name == "email" else {"email": ColumnRule(value="nobody@example.com")}
    mapped = apply_mapping(frame, FieldMapping({**identity, name: rule}), today=today)
    faults = validate_rows(mapped.frame, ValidationRules(), today=today, known_faults=mapped.faults).faults
    invalid = {fault.position for fault in faults if fault.field == name and fault.code != "required"}
    filled = invalid.union(np.flatnonzero(mapped.frame[name].notna()).tolist())
    return FittingShare(len(filled) - len(invalid), len(filled))


def _rate_guess(frame: pd.DataFrame, name: str, rule: ColumnRule, evidence: str, today: date) -> GuessedField:
    """Return the guess with its rule refined by the cells, and its sureness by the share of valid cells."""
    rule, doubt = _refine(frame, name, rule, today)
    share = measure(frame, name, rule, today)
    reason = f"{share.fitting} of {share.filled} cells fit" if share.filled else "all cells are empty"
    sureness = "sure" if share.part >= _SURE else "likely" if share.part >= _UNSURE else "unsure"
    if doubt:
        sureness, reason = "unsure", f"{reason}; {doubt}"
    return GuessedField(name, rule, sureness, f"by {evidence}; {reason}", _pick_samples(frame, name, rule))


def _refine(frame: pd.DataFrame, name: str, rule: ColumnRule, today: date) -> tuple[ColumnRule, str]:
    """Return the rule with the values, separator or date format of the cells, and a doubt about the rule ("": none)."""
    if rule.column is None:
        return rule, ""
    cells = frame[rule.column].dropna().str.strip()
    if name == "gender":
        words = sorted(set(cells))
        values = {word: _GENDERS[word.lower()] for word in words if word.lower() in _GENDERS}
        foreign = {word: meaning for word, meaning in values.items() if word.lower() != meaning}
        doubt = "m may mean mujer or male: choose one" if _SPANISH in {word.lower() for word in words} else ""
        return (replace(rule, values=foreign) if foreign else rule), doubt
    if name == "tags" and rule.split is None:
        plain = cells[~cells.str.startswith(("[", "{"))]
        counts = {separator: int(plain.str.contains(separator, regex=False).sum()) for separator in (",", "|", ";")}
        separator = max(counts, key=lambda separator: counts[separator])
        return (replace(rule, split=separator) if separator != "," else rule), ""
    if name == "birthday":
        return _refine_dates(frame, rule, today)
    return rule, ""


def _refine_dates(frame: pd.DataFrame, rule: ColumnRule, today: date) -> tuple[ColumnRule, str]:
    rules = [rule if form == "%Y-%m-%d" else replace(rule, format=(form,)) for form in _DATE_FORMS]
    valid_counts = [measure(frame, "birthday", rule, today).fitting for rule in rules]
    best_count = max(valid_counts)
    best_rules = [rule for rule, count in zip(rules, valid_counts, strict=True) if count == best_count]
    birthdays = [
        apply_mapping(frame, FieldMapping({"birthday": rule}), today=today).frame["birthday"].fillna("")
        for rule in best_rules
    ]
    if best_count and len(set(map(tuple, birthdays))) > 1:
        formats = " and ".join(rule.format[0] if rule.format else _DATE_FORMS[0] for rule in best_rules)
        return best_rules[0], f"{formats} are equally good: choose one"
    return best_rules[0], ""


def _guess_by_contents(
    frame: pd.DataFrame, columns: Sequence[str], guesses: Mapping[str, GuessedField], today: date
) -> Iterator[GuessedField]:
    """Yield guesses for the columns that no header explained."""
    used = {column for guess in guesses.values() for column in guess.rule.columns}
    for column in (column for column in columns if column not in used):
        header, rule = normalise_header(column), ColumnRule(column=column)
        cells = frame[column].dropna().str.strip()
        cells = cells[cells != ""]
        if not len(cells):
            continue
        if _are_mostly(cells, "@") and measure(frame, "email", rule, today).part >= _LIKELY:
            yield _as_likely(_rate_guess(frame, "email", rule, "its cells", today))
        elif "tags" not in guesses and _are_mostly(cells, _LISTS):
            yield _as_likely(_rate_guess(frame, "tags", rule, "its cells", today))
        elif header in _GENDER_HEADERS or set(cells.str.lower()) in ({"m", "f"}, {"male", "female"}):
            yield _as_likely(_rate_guess(frame, "gender", rule, "its cells", today))
        elif header in _BIRTH_HEADERS and _are_mostly(cells, _DATED):
            guess = _as_likely(_rate_guess(frame, "birthday", rule, "its cells", today))
            if measure(frame, "birthday", guess.rule, today).part >= _LIKELY:
                yield guess
        elif _are_mostly(cells, _PHONE):  # without a header or a +, the cells may be customer numbers or zip codes
            if _PHONE_HEADER.search(header) or cells.str.startswith("+").mean() >= _UNSURE:
                yield _as_likely(_rate_guess(frame, "phone", rule, "its cells", today))
        elif header in _COUNTRY_HEADERS and measure(frame, "address_country", rule, today).part >= _UNSURE:
            yield _as_likely(_rate_guess(frame, "address_country", rule, "its cells", today))


def _are_mostly(cells: "pd.Series[str]", pattern: str) -> bool:
    """Return whether most cells match the pattern: a cheap test before a validation, which takes 30 ms."""
    return bool(cells.str.contains(pattern, regex=True).mean() >= _LIKELY)


def _as_likely(guess: GuessedField) -> GuessedField:
    """Return the guess with at most the sureness `likely`: cells without a header never make a guess sure."""
    return replace(guess, sureness="likely") if guess.sureness == "sure" else guess


def _pick_samples(frame: pd.DataFrame, name: str, rule: ColumnRule) -> tuple[str, ...]:
    """Return a few different cells as the source has them, for a template with the text that it makes of each cell."""
    (column,) = rule.columns
    cells = frame[column].dropna()
    samples = cells[cells.str.strip() != ""].drop_duplicates().head(_SAMPLES)
    if rule.template is None:
        return tuple(str(cell) for cell in samples)
    texts = apply_mapping(samples.to_frame(), FieldMapping({name: rule})).frame[name]
    return tuple(f"{cell} → {'' if pd.isna(text) else text}" for cell, text in zip(samples, texts, strict=True))


def draft_job(
    name: str,
    path: str,
    source: Sequence[tuple[str, str]],
    base: tuple[str, str],
    identity: str,
    guesses: Sequence[GuessedField],
    unmapped: Sequence[str],
    cursor: tuple[str, str] | None = None,
) -> str:
    """Return the text of a job file. The first pair of `source` is `file` or `sql`, and the other pairs are its keys.
    `base` is a key and its value, and `cursor` a column and its start.

    Unsure guesses are comments, and so is the source with the cursor.
    """
    (kind, _), *keys = source
    rows = f"{kind}: {_write_group(keys)}"
    increment = []
    if cursor is not None:
        column, start = cursor
        marked = f"{{column: {quote(column)}, start: {quote(start)}, lookback: 10m}}"
        increment = [
            f"  # To read only changed rows, if every change of a row raises {column}, replace the line above by:",
            f"  # {rows[:-1]}, cursor: {marked}}}",
        ]
    lines = [
        _HEAD.format(path=path),
        "",
        f"job: {quote(name)}",
        "",
        "source:",
        f"  {rows}",
        *increment,
        "",
        "subscriber:",
        f"  base: {_write_group([base])}",
        f"  identity: {identity}",
        "  fields:",
        *_write_fields(guesses),
    ]
    if not any(guess.name == "is_active" and guess.sureness != "unsure" for guess in guesses):
        lines.append(
            "    # is_active: {value: true}  # or a column. sync needs this line: the service's default is inactive"
        )
    if unmapped:
        lines.append(f"  # columns not used: {', '.join(quote(column) for column in unmapped)}")
    return "\n".join(lines) + "\n"


def quote(text: str) -> str:
    """Return a text for YAML: a plain word as it is, any other text in quotes, with `${` escaped."""
    if _PLAIN.fullmatch(text) and text.lower() not in _NULLS:
        return text
    escaped = json.dumps(text.replace("${", "$${"), ensure_ascii=False)
    return "".join(char if char.isprintable() else f"\\U{ord(char):08x}" for char in escaped)


def write_rule(rule: ColumnRule) -> str:
    """Return a rule for a job file, in the short form if the rule has only a column."""
    pairs = [("column", rule.column), ("template", rule.template), ("split", rule.split)]
    keys = [(key, quote(value)) for key, value in pairs if value is not None]
    if rule.values:
        keys.append(("values", "{" + ", ".join(f"{quote(k)}: {quote(v)}" for k, v in rule.values.items()) + "}"))
    if rule.format:
        keys.append(("format", quote(rule.format[0])))
    if rule.column is not None and len(keys) == 1:
        return keys[0][1]
    return "{" + ", ".join(f"{key}: {value}" for key, value in keys) + "}"


def _write_fields(guesses: Sequence[GuessedField]) -> Iterator[str]:
    for guess in guesses:
        mark = "# " if guess.sureness == "unsure" else ""
        comment = "" if guess.sureness == "sure" else f"  # {guess.sureness}: {guess.reason}"
        yield f"    {mark}{guess.name}: {write_rule(guess.rule)}{comment}"


def _write_group(pairs: Sequence[tuple[str, str]]) -> str:
    """Return keys and values in braces. `${NAME}` and numbers are not changed."""
    written = []
    for key, value in pairs:
        shown = f'"{value}"' if re.fullmatch(r"\$\{\w+\}", value) else value if value.isdigit() else quote(value)
        written.append(f"{quote(key)}: {shown}")
    return "{" + ", ".join(written) + "}"
