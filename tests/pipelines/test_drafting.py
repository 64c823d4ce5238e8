"""A drafted job says what was guessed, in YAML that reads back as it was meant."""

from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd
from hypothesis import example, given, strategies as st

from connector.subscribers.rules import ColumnRule, FieldMapping
from pipelines.jobs.build import build_mapping
from pipelines.jobs.draft import GuessedField, draft_job, guess_fields
from pipelines.jobs.reader import load_job

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)
WORD = TEXT.map(str.strip).filter(bool)  # blanks at their ends apart, each must be another
RULES = (
    st.builds(ColumnRule, column=TEXT, is_apostrophe_dropped=st.booleans())
    | st.builds(ColumnRule, column=TEXT, values=st.none() | st.dictionaries(WORD, TEXT, min_size=1, max_size=3))
    | st.builds(ColumnRule, template=TEXT.filter(lambda text: not set(text) & set("{}#%")))
)


def draft(guesses: list[GuessedField], unmapped: list[str], name: str = "x") -> str:
    source = [("file", ""), ("path", "a.csv")]
    return draft_job(name, "job.yaml", source, ("id", "7"), "email", guesses, unmapped)


def load(text: str) -> FieldMapping:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "job.yaml"
        path.write_text(text, encoding="utf-8")
        subscriber = load_job(path, {}).subscriber
    assert subscriber is not None
    mapping = build_mapping(subscriber)
    assert mapping is not None
    return mapping


@example("${A}", ColumnRule(template="{{ row['a\\\\'] }}"), '"', ["#", "a: b", "\x85\u2028\x7f"])
@given(TEXT, RULES, TEXT, st.lists(TEXT, max_size=2))
def test_whatever_headers_hold_the_job_reads_back(email: str, rule: ColumnRule, tag: str, unmapped: list[str]) -> None:
    rules = {
        "email": ColumnRule(column=email),
        "first_name": rule,
        "tags": ColumnRule(column=tag, split="|"),
        "birthday": ColumnRule(column=tag, format=("%d.%m.%Y",)),
    }
    guesses = [GuessedField(name, each, "likely", "by its header", ("secret",)) for name, each in rules.items()]
    text = draft(guesses, unmapped)
    assert load(text) == FieldMapping(rules)
    assert "secret" not in text


def test_what_is_unsure_is_a_comment_and_no_cell_is_in_it() -> None:
    frame = pd.DataFrame({"email": ["ann@x.org"], "Birthday": ["02/03/1990"], "Phone": ["+49 30 1234567"]}, dtype="str")
    text = draft(list(guess_fields(frame, date(2026, 11, 21))), ["Birthday"])
    assert list(load(text).rules) == ["email", "phone"]
    assert '# birthday: {column: Birthday, format: "%d/%m/%Y"}  # unsure: by its header; 1 of 1 cells fit; ' in text
    assert '"%d/%m/%Y"' in text
    assert not any(cell in text for cell in ("ann@", "02/03", "1234567"))
