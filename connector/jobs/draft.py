"""A job drafted from a source: what its columns seem to mean, by their headers and first cells, and the job's text.

A guess is tried: its rule is applied and validated, and what share of the cells passes says how sure it is.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date

import numpy as np
import pandas as pd

from connector.subscribers.consent import build_consent_rule, find_consent
from connector.subscribers.headers import guess_mapping
from connector.subscribers.mapping import apply_mapping
from connector.subscribers.rules import ColumnRule, FieldMapping, ValidationRules, normalise_header
from connector.subscribers.validation import validate_rows

_SURE, _LIKELY, _UNSURE = 0.95, 0.8, 0.5  # shares of cells that fit: a real file has a few wrong ones
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
_SPANISH = "h"  # hombre, beside which m is mujer
_PHONE = r"^[+0(][0-9 ()./-]{6,24}$"
_PHONE_HEADER = re.compile(r"phone|^tel|telef|mobil|handy|gsm|cell")
_DATED = r"^(?=(?:\D*\d){5})[\w ,./:T-]{8,25}$"
_LISTS = r"^\[.*\]$"  # a database's text[] and a Parquet list come as JSON

_CURSOR_HEADERS = (
    "updatedat", "modifiedat", "lastmodified", "lastmodifieddate", "lastupdated", "lastupdate", "updatedon",
    "modifiedon", "changedat", "datemodified", "dateupdated", "updated", "modified", "modificationdate",
    "systemmodstamp",
)  # fmt: skip
_MOMENT = r"^\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}"
_ZONE = r"(?:Z|[+-]\d{2}(?::?\d{2})?)$"

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NULLS = ("null", "none", "~")
_HEAD = "# Drafted by `connector init`; look at what it guessed, and try it: connector validate {path}"


@dataclass(frozen=True, slots=True)
class GuessedField:
    """One field: its rule, `sureness` (sure, likely, unsure) and why, and some cells that it was judged by."""

    name: str
    rule: ColumnRule
    sureness: str
    reason: str
    samples: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FittingShare:
    """Of the cells that hold something (`filled`), how many fit."""

    fitting: int
    filled: int

    @property
    def part(self) -> float:
        """From 0 to 1; 1 where no cell holds anything."""
        return self.fitting / self.filled if self.filled else 1.0


def guess_fields(frame: pd.DataFrame, today: date) -> tuple[GuessedField, ...]:
    """Guess from a chunk's frame (text columns); what is unsure is among the guesses, and says so."""
    columns = [str(column) for column in frame.columns]
    mapping = guess_mapping(columns)
    by_header = {**mapping.rules, **_guess_consent(frame, mapping)}
    guesses = {name: _judge(frame, name, rule, "its header", today) for name, rule in by_header.items()}
    for guess in list(_guess_by_contents(frame, columns, guesses, today)):
        if guess.name not in guesses or guesses[guess.name].sureness == "unsure":
            guesses[guess.name] = guess
    ordered = [guesses[name] for name in FieldMapping({each.name: each.rule for each in guesses.values()}).rules]
    if mapping.whole_name is None:
        return tuple(ordered)
    return tuple(
        alternative for guess in ordered for alternative in _offer_split(frame, guess, mapping.whole_name, today)
    )


def _offer_split(frame: pd.DataFrame, guess: GuessedField, whole_name: str, today: date) -> Iterator[GuessedField]:
    """Yield a guess. After the guess for a column of whole names, also yield the two templates that split such names: a
    person decides on them."""
    if guess.name not in ("first_name", "last_name") or guess.rule.columns != (whole_name,):
        yield guess
        return
    yield replace(_as_likely(guess), reason=f"{guess.reason}; whole names are not split unless you say so")
    name = whole_name if _PLAIN.fullmatch(whole_name) else f"row[{json.dumps(whole_name, ensure_ascii=False)}]"
    for field, part in (("first_name", "given_name"), ("last_name", "family_name")):
        rule = ColumnRule(template=f"{{{{ {name} | {part} }}}}")
        split = _judge(frame, field, rule, "its cells", today)
        reason = f"to split clear names, in place of the line `{guess.name}: {write_rule(guess.rule)}`"
        yield replace(split, sureness="unsure", reason=reason)


def _guess_consent(frame: pd.DataFrame, mapping: FieldMapping) -> dict[str, ColumnRule]:
    """Return the rule of is_active if a column says who wants no email, and the `mapping` does not read that column."""
    column = next(iter(find_consent(frame, mapping, ())), None)
    return {} if column is None else {"is_active": build_consent_rule(column)}


def propose_cursor(frame: pd.DataFrame) -> tuple[str, str] | None:
    """Return the column that says when a row last changed, and a start before all of its values; None without one."""
    by_header = {normalise_header(str(column)): str(column) for column in frame.columns}
    for column in (by_header[header] for header in _CURSOR_HEADERS if header in by_header):
        cells = frame[column].dropna().str.strip()
        if len(cells) and _are_mostly(cells, _MOMENT):
            return column, "1970-01-01T00:00:00" + ("+00:00" if _are_mostly(cells, _ZONE) else "")
    return None


def measure(frame: pd.DataFrame, name: str, rule: ColumnRule, today: date) -> FittingShare:
    """Return how many of the cells that a rule makes would be valid in the field `name`."""
    alone: dict[str, ColumnRule] = {} if name == "email" else {"email": ColumnRule(value="nobody@example.com")}
    mapped = apply_mapping(frame, FieldMapping({**alone, name: rule}), today=today)
    faults = validate_rows(mapped.frame, ValidationRules(), today=today, known=mapped.faults).faults
    wrong = {fault.position for fault in faults if fault.field == name and fault.code != "required"}
    filled = wrong.union(np.flatnonzero(mapped.frame[name].notna()).tolist())
    return FittingShare(len(filled) - len(wrong), len(filled))


def _judge(frame: pd.DataFrame, name: str, rule: ColumnRule, by: str, today: date) -> GuessedField:
    """A guess with its rule made to fit the cells, as sure as they let it be."""
    rule, doubt = _refine(frame, name, rule, today)
    share = measure(frame, name, rule, today)
    reason = f"{share.fitting} of {share.filled} cells fit" if share.filled else "no cell holds anything"
    sureness = "sure" if share.part >= _SURE else "likely" if share.part >= _UNSURE else "unsure"
    if doubt:
        sureness, reason = "unsure", f"{reason}; {doubt}"
    return GuessedField(name, rule, sureness, f"by {by}; {reason}", _pick_samples(frame, name, rule))


def _refine(frame: pd.DataFrame, name: str, rule: ColumnRule, today: date) -> tuple[ColumnRule, str]:
    """The rule with what the cells tell of how they are written, and a doubt about it ("" for none)."""
    if rule.column is None:
        return rule, ""
    cells = frame[rule.column].dropna().str.strip()
    if name == "gender":
        words = sorted(set(cells))
        values = {word: _GENDERS[word.lower()] for word in words if word.lower() in _GENDERS}
        foreign = {word: meaning for word, meaning in values.items() if word.lower() != meaning}
        doubt = "m may be mujer or male: say which" if _SPANISH in {word.lower() for word in words} else ""
        return (replace(rule, values=foreign) if foreign else rule), doubt
    if name == "tags" and rule.split is None:
        plain = cells[~cells.str.startswith(("[", "{"))]
        counts = {sign: int(plain.str.contains(sign, regex=False).sum()) for sign in (",", "|", ";")}
        best = max(counts, key=lambda sign: counts[sign])
        return (replace(rule, split=best) if best != "," else rule), ""
    if name == "birthday":
        return _refine_dates(frame, rule, today)
    return rule, ""


def _refine_dates(frame: pd.DataFrame, rule: ColumnRule, today: date) -> tuple[ColumnRule, str]:
    rules = [rule if form == "%Y-%m-%d" else replace(rule, format=(form,)) for form in _DATE_FORMS]
    shares = [measure(frame, "birthday", each, today).fitting for each in rules]
    best = max(shares)
    fitting = [each for each, share in zip(rules, shares, strict=True) if share == best]
    read = [
        apply_mapping(frame, FieldMapping({"birthday": each}), today=today).frame["birthday"].fillna("")
        for each in fitting
    ]
    if best and len(set(map(tuple, read))) > 1:
        ways = " and ".join(each.format[0] if each.format else _DATE_FORMS[0] for each in fitting)
        return fitting[0], f"{ways} fit alike: say which"
    return fitting[0], ""


def _guess_by_contents(
    frame: pd.DataFrame, columns: Sequence[str], guesses: Mapping[str, GuessedField], today: date
) -> Iterator[GuessedField]:
    """Fields that no header gave, out of columns that no header explained."""
    used = {column for guess in guesses.values() for column in guess.rule.columns}
    for column in (column for column in columns if column not in used):
        header, rule = normalise_header(column), ColumnRule(column=column)
        cells = frame[column].dropna().str.strip()
        cells = cells[cells != ""]
        if not len(cells):
            continue
        if _are_mostly(cells, "@") and measure(frame, "email", rule, today).part >= _LIKELY:
            yield _as_likely(_judge(frame, "email", rule, "its cells", today))
        elif "tags" not in guesses and _are_mostly(cells, _LISTS):
            yield _as_likely(_judge(frame, "tags", rule, "its cells", today))
        elif header in _GENDER_HEADERS or set(cells.str.lower()) in ({"m", "f"}, {"male", "female"}):
            yield _as_likely(_judge(frame, "gender", rule, "its cells", today))
        elif header in _BIRTH_HEADERS and _are_mostly(cells, _DATED):
            guess = _as_likely(_judge(frame, "birthday", rule, "its cells", today))
            if measure(frame, "birthday", guess.rule, today).part >= _LIKELY:
                yield guess
        elif _are_mostly(cells, _PHONE):  # without a header or a +, it may be a customer's number or a zip
            if _PHONE_HEADER.search(header) or cells.str.startswith("+").mean() >= _UNSURE:
                yield _as_likely(_judge(frame, "phone", rule, "its cells", today))
        elif header in _COUNTRY_HEADERS and measure(frame, "address_country", rule, today).part >= _UNSURE:
            yield _as_likely(_judge(frame, "address_country", rule, "its cells", today))


def _are_mostly(cells: "pd.Series[str]", pattern: str) -> bool:
    """Return whether a column is worth a trial: validating one takes 30 ms."""
    return bool(cells.str.contains(pattern, regex=True).mean() >= _LIKELY)


def _as_likely(guess: GuessedField) -> GuessedField:
    """What cells alone show is never sure."""
    return replace(guess, sureness="likely") if guess.sureness == "sure" else guess


def _pick_samples(frame: pd.DataFrame, name: str, rule: ColumnRule) -> tuple[str, ...]:
    """Return some different cells as they came; for a template the texts that it makes of them, too."""
    (column,) = rule.columns
    cells = frame[column].dropna()
    chosen = cells[cells.str.strip() != ""].drop_duplicates().head(_SAMPLES)
    if rule.template is None:
        return tuple(str(cell) for cell in chosen)
    made = apply_mapping(chosen.to_frame(), FieldMapping({name: rule})).frame[name]
    return tuple(f"{cell} → {'' if pd.isna(text) else text}" for cell, text in zip(chosen, made, strict=True))


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
    """Return a job file's text: `source` are its keys below file or sql (the first pair names which), `base` key and
    value.

    What is unsure is written as a comment, and so is a source that reads only what is new, from a `cursor` (column and
    start) on.
    """
    (kind, _), *keys = source
    rows = f"{kind}: {_write_group(keys)}"
    increment = []
    if cursor is not None:
        column, start = cursor
        marked = f"{{column: {quote(column)}, start: {quote(start)}, lookback: 10m}}"
        increment = [
            f"  # reads only what is new, if every change of a row raises {column}; in place of the line above:",
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
            "    # is_active: {value: true}  # or a column: sync is refused until one says it (the default is inactive)"
        )
    if unmapped:
        lines.append(f"  # columns not used: {', '.join(quote(column) for column in unmapped)}")
    return "\n".join(lines) + "\n"


def quote(text: str) -> str:
    """Return a text as YAML has it, in quotes unless it is a plain word; `${` stays what it is."""
    if _PLAIN.fullmatch(text) and text.lower() not in _NULLS:
        return text
    escaped = json.dumps(text.replace("${", "$${"), ensure_ascii=False)
    return "".join(sign if sign.isprintable() else f"\\U{ord(sign):08x}" for sign in escaped)


def write_rule(rule: ColumnRule) -> str:
    """Return a rule as a job file has it: its column alone where that says all."""
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
    """Return keys and values in braces; a reference to the environment stays a reference, a number a number."""
    written = []
    for key, value in pairs:
        shown = f'"{value}"' if re.fullmatch(r"\$\{\w+\}", value) else value if value.isdigit() else quote(value)
        written.append(f"{quote(key)}: {shown}")
    return "{" + ", ".join(written) + "}"
