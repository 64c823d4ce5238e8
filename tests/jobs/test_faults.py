"""Messages about faulty job files and options: the key, the line, and the next step. No message shows a password."""

from pathlib import Path

import pytest

from connector.errors import ConfigurationError
from connector.jobs.arguments import build_import_job, format_option
from connector.jobs.reader import load_job
from connector.warehouse.destination import find_format_traits
from tests.export.warehouses import FILE_FORMATS
from tests.jobs.test_loading import CRM_JOB, CURSOR_JOB, EXPORT_JOB, FIELDS_JOB, SMALL_JOB, read_job


def read_faulty_job(folder: Path, text: str) -> str:
    with pytest.raises(ConfigurationError) as error_info:
        read_job(folder, text)
    assert "hunter2" not in str(error_info.value)
    assert error_info.value.__cause__ is None  # the error of pydantic would show values of the file
    return str(error_info.value)


# Each fault of a job: the valid text, the faulty text that replaces it, and a part of the message.
CRM_FAULTS = [
    ("identity: email", "idnetity: email", "there is no such key; did you mean identity? Allowed here: "),
    ("look: none", "lok: none", "load.lok: there is no such key; did you mean look? Allowed here: "),
    ('split: "|"', 'splt: "|"', "line 13: subscriber.fields.tags.splt: there is no such key; did you mean split?"),
    ("email: email_address", "emial: x\n    email: e", "line 9: subscriber.fields.emial: there is no such field; "),
    ("    first_name: fname", "    FirstName: fname", "there is no such field; did you mean first_name?"),
    ("    first_name: fname", "    Address.Zip: plz", "there is no such field; did you mean address_zip?"),
    ("    first_name: fname", "    id: number", "line 10: subscriber.fields.id: the service assigns the field `id`"),
    ("    first_name: fname", "    base_id: b", "line 10: subscriber.fields.base_id: base_id is not a field"),
    ("first_name: fname", "first_name: [a, b]", "subscriber.fields.first_name: must contain keys (column, "),
    ("first_name: fname", "first_name: {column: f, format: '%Y-%m-%d'}",
     "first_name: only the field `birthday` can have `format`"),
    ('"%d/%m/%Y"', '"%d/%m"', "line 14: subscriber.fields.birthday: `format` must contain year, month and day"),
    ("    email: email_address\n", "", "no column is mapped to the field email, which identifies a subscriber"),
    ("identity: email", "identity: client_user_id", "no column is mapped to the field client_user_id"),
    ("identity: email", "identity: phone", "subscriber.identity: must be `email` or `client_user_id`, not 'phone'"),
    ("[email, first_name]", "[email, last_name]", "remove the field from `required`"),
    ("[email, first_name]", "email", "subscriber.required: must be a list in brackets, such as [a, b], not 'email'"),
    ("[email, first_name]", "[mail]", "line 15: subscriber.required[0]: there is no such field; did you mean email?"),
    ("zip: custom_field1", "zip: keep", "line 16: subscriber.zip: must be `omit`, `reject`, "),
    ("first_name: fname", "first_name: f\n    custom_field1: c", "`zip: custom_field1` is not possible"),
    ("base: {id: 7}", "base: {}", "line 6: subscriber.base: needs exactly one of the keys `id`, `name` and `column`"),
    ("base: {id: 7}", "base: {id: 7, values: {a: 7}}", "subscriber.base: `values` maps the cells of a column to bases"),
    ("base: {id: 7}", "base: {column: list, values: {}}", "subscriber.base: `values`: add at least one cell"),
    ("base: {id: 7}", "base: {column: list, values: {a: 0}}", "line 6: subscriber.base.values.a: no base has this id"),
    ("base: {id: 7}", f"base: {{column: list, values: {{a: {2**63}}}}}", "values.a: no base has this id"),
    ("base: {id: 7}", "base: {column: list, values: {a: }}", "values.a: must be text; this key is empty"),
    ("base: {id: 7}", "base: {column: list, values: {'': 7}}", "the empty key cannot have a base"),
    ("base: {id: 7}", "base: {column: list, values: {a: 7, ' a': 9}}", "`values`: two keys are equal"),
    ("base: {id: 7}", "base: {id: seven}", "line 6: subscriber.base.id: must be a whole number, not 'seven'"),
    ("base: {id: 7}", "base: {id: 0}", "subscriber.base.id: must be greater than or equal to 1, not '0'"),
    ("base: {id: 7}", "base: {name: '  '}", "subscriber.base.name: must be a name in printable characters"),
    ("base: {id: 7}", "base: 7", "line 6: subscriber.base: must contain keys (id, name, column, values), not '7'"),
    ("base: {id: 7}", "base:", "line 6: subscriber.base: must contain keys (id, name, column, values); this key is"),
    ("  base: {id: 7}\n", "", "line 5: subscriber.base: is missing"),
    ("quiet_period: 500ms", "quiet_period: 30", "line 17: load.quiet_period: must be a duration with its unit"),
    ("max_concurrency: 8", "max_concurrency: 0", "load.max_concurrency: must be greater than or equal to 1"),
    ("on_unknown: hold", "on_unknown: retry", "load.on_unknown: must be `resend` or `hold`, not 'retry'"),
    ("timeout: 10s", "timeout: 0s", "service.timeout: must be greater than 0, not '0s'"),
    ('"Bearer {token}"', "abc123", "service.authorization: must contain {token} once"),
    ("account: main", "token: abc123", "service.token: there is no such key; do not write the token into a job"),
    (", query:", ", table: customers, query:", "line 4: source.sql: needs either `query` or `table`, and not both"),
    (', query: "select * from customers"', "", "source.sql: needs either `query` or `table`"),
    ('url: "${CRM_URL}"', "url: crm.db", "line 4: source.sql.url: must be a database URL"),
    ('url: "${CRM_URL}"', 'url: "${NO_URL}"', "line 4: source.sql.url: ${NO_URL} is not set in the environment"),
    ("  sql:", "  file: {path: a.csv}\n  sql:", "line 3: source: needs either `file` or `sql`, and not both"),
    ("job: crm-nightly\n", "", "job: is missing"),
    ("job: crm-nightly", "job:", "line 1: job: must be text; this key is empty"),
    ("job: crm-nightly", "job: [a]", "line 1: job: must be text, not a list"),
    ("load:", "suppress: {file: {path: a.csv}}\nload:", "line 17: suppress.file.column: is missing"),
    ("load:", "suppress: {file: {path: a, column: b}, field: phone}\nload:", "suppress.field: must be `email` or "),
    ("load:", "guard: {max_invalid: 5}\nload:", "guard.max_invalid: must be a percentage with a percent sign"),
    ("load:", "guard: {max_create: 5}\nload:", "max_creates"),
    ("load:", "notify: {}\nload:", "notify.webhook: is missing"),
    ("load:", "suppress: {}\nload:", "line 17: suppress: needs `file`, `sql` or `inactive: true`"),
    ("load:", "suppress: {file: {path: a, column: b}, sql: {url: 'sqlite:///a.db', table: t, column: b}}\nload:",
     "suppress: has both `file` and `sql`: remove one of the two keys"),
    ("load:", "suppress: {file: {path: a, colunm: b, column: c}}\nload:", "did you mean column? Allowed here: "),
    ("load:", "export: {to: a.csv}\nload:", "a job cannot both load subscribers and export the list"),
]  # fmt: skip
FILE_FAULTS = [
    ("path: people.csv", "path: ''", "source.file.path: must be a path"),
    ("path: people.csv", "path: [a]", "source.file.path: "),
    ("path: people.csv", "path: 's3://me:hunter2@box/a.csv'", "s3://***@box/a.csv: a URL cannot contain credentials"),
    ("path: people.csv", "path: ftp://me:hunter2@box/a.csv", "ftp://***@box/a.csv: only objects at s3://"),
    ("path: people.csv", "path: a, delimiter: ab",
     "source.file.delimiter: must be `auto`, `comma`, `semicolon`, `tab`, `pipe`"),
    ("path: people.csv", "path: a, encoding: klingon", "source.file.encoding: is not a known encoding"),
    ("path: people.csv", "path: a, encoding: base64", "source.file.encoding: is not a known encoding"),
    ("path: people.csv", "path: a, format: xlsx",
     "source.file.format: must be `auto`, `csv`, `tsv`, `excel`, `parquet` or `jsonl`, not 'xlsx'"),
    ("path: people.csv", "path: a, sheet: ''", "source.file.sheet: "),
    ("{file: {path: people.csv}}", "{}", "source: needs either `file` or `sql`"),
]  # fmt: skip
CURSOR_FAULTS = [
    ("1970-01-01T00:00:00", "1970-13-01", "source.sql.cursor.start: must be a date, such as 2026-11-21"),
    ("1970-01-01T00:00:00", "1970-01-01 noon", "source.sql.cursor.start: must be a timestamp, such as"),
    ("start: 1970-01-01T00:00:00", "start: 0", "`lookback` is for timestamps and dates, and `start` is a whole number"),
    ("start: 1970-01-01T00:00:00", "start: A", "must be a timestamp, a date or a whole number. A query can cast"),
    ("start: 1970-01-01T00:00:00, ", "", "source.sql.cursor.start: is missing"),
    ("column: updated_at, ", "", "source.sql.cursor.column: is missing"),
    ("lookback: 10m", "lookback: 10", "lookback: must be a duration with its unit"),
    ("lookback: 10m", "look_back: 10m", "there is no such key; did you mean lookback?"),
    (" where updated_at >= :cursor", "",
     "source.sql: the query does not use :cursor; add a condition on the cursor's column"),
    ("cursor: {column: updated_at, start: 1970-01-01T00:00:00, lookback: 10m}", "",
     "the query uses :cursor; add source.sql.cursor"),
    ("{id: 7}}", "{id: 7}}\nsuppress: {sql: {url: 'sqlite:///a.db', table: t, column: b, cursor: {column: c}}}",
     "suppress.sql.cursor: there is no such key"),
]  # fmt: skip
RULE_FAULTS = [  # the rule of first_name, and a part of the message
    ("{}", "needs exactly one of the keys `column`, `value` and `template`"),
    ("{column: a, value: b}", "needs exactly one of the keys `column`, `value` and `template`"),
    ("{template: '{{ a }}', column: c}", "needs exactly one of the keys `column`, `value` and `template`"),
    ("{value: a, values: {a: b}}", "a rule with a constant reads no cell: remove the key `values`"),
    ("{value: a, case: upper, default: b}", "reads no cell: remove the key `case` and the key `default`"),
    ("{value: a, trim: false}", "a rule with a constant reads no cell: remove the key `trim`"),
    ("{column: a, trim: perhaps}", "first_name.trim: must be true or false, not 'perhaps'"),
    ("{column: a, case: camel}", "first_name.case: must be `lower`, `upper` or `title`, not 'camel'"),
    ('{value: "\\ud800"}', "one text contains a lone surrogate"),
    ('{column: a, default: "\\ud800"}', "first_name.default: "),
    ("{column: a, case: lower, values: {M: male}}", "no cell can be 'M', because `case: lower` is applied first"),
    ("{column: a, case: upper, values: {m: x}}", "no cell can be 'm', because `case: upper` is applied first"),
    ("{column: a, values: {'': b}, default: c}", "both replace an empty cell; keep one of them"),
    ("{column: a, default: ''}", "first_name.default: must not be empty"),
    ("{column: a, values: {a: \"\\ud800\"}}", "one text contains a lone surrogate"),
    ("{column: a, split: ','}", "only the field `tags` can have `split`; to use a part of a cell, write a `template`"),
    ("{column: a, format: ['%Y-%m-%d', '%d/%m']}", "`format` must contain year, month and day, such as %d/%m/%Y"),
    ("{column: a, e164: DE}", "first_name: `e164` is for the field `phone`"),
    ("{template: '{{ a'}", "the template, line 1, cannot be read: "),
    ("{template: '{{ row[a] }}'}", "the template, line 1: after `row`, write the name of the column in quotes"),
]  # fmt: skip
FIELD_FAULTS = [  # the text of the fields, and a part of the message
    ("email: {column: e, default: a@x.com}", "a fixed `default` would give many rows the same email"),
    ("email: {value: a@x.com}", "a fixed `value` would give many rows the same email"),
    ("email: {column: e, trim: false}", "email: only a text field can have `trim: false`; remove `trim`"),
    ("email: e\n    tags: {column: t, split: ''}", "tags.split: must not be empty"),
    ("email: e\n    tags: {column: t, trim: false}", "tags: only a text field can have `trim: false`"),
    ("email: e\n    phone: {column: t, e164: Germany}", "phone.e164.region: must be two letters, such as DE"),
    ("email: e\n    phone: {column: t, e164: {region: DE, otherwise: drop}}",
     "otherwise: must be `reject` or `keep`, not"),
]  # fmt: skip
EXPORT_FAULTS = [  # the additional key, and a part of the message
    ("mode: merge", "export.mode: must be `replace`, `upsert`, `append` or `history`, not 'merge'"),
    ("max_shrink: 0.5", "export.max_shrink: must be a percentage with a percent sign, such as 5%, and at most 100%"),
    ("filters: {emial: x}", "export.filters.emial: there is no such key; did you mean email?"),
    ("filters: {gender: x}", "export.filters.gender: must be `male`, `female` or `unspecified`, not 'x'"),
    ("filters: {is_active: maybe}", "export.filters.is_active: must be true or false, not 'maybe'"),
    ("filters: {base_id: News}", "export.filters.base_id: must be a whole number, not 'News'"),
    ("table: ''", "export.table: must be a name"),
]
FAULTS = [
    *((CRM_JOB, *fault) for fault in CRM_FAULTS),
    *((SMALL_JOB, *fault) for fault in FILE_FAULTS),
    *((CURSOR_JOB, *fault) for fault in CURSOR_FAULTS),
    *((FIELDS_JOB, "email: mail", f"email: mail\n    first_name: {rule}", text) for rule, text in RULE_FAULTS),
    *((FIELDS_JOB, "email: mail", fields, text) for fields, text in FIELD_FAULTS),
    *((EXPORT_JOB, "}", f", {key}}}", f"line 2: {text}") for key, text in EXPORT_FAULTS),
]


@pytest.mark.parametrize(
    ("job", "valid_text", "faulty_text", "expected_text"), FAULTS, ids=[faulty_text for _, _, faulty_text, _ in FAULTS]
)
def test_the_message_about_a_fault_names_the_key_and_the_next_step(
    tmp_path: Path, job: str, valid_text: str, faulty_text: str, expected_text: str
) -> None:
    assert job.count(valid_text) == 1
    message = read_faulty_job(tmp_path, job.replace(valid_text, faulty_text))
    assert expected_text in message
    assert "faults" not in message  # the message about one fault is not a list
    assert "abc123" not in message


def test_one_message_lists_all_faults_in_the_order_of_the_file(tmp_path: Path) -> None:
    message = read_faulty_job(
        tmp_path, CRM_JOB.replace("id: 7", "id: x").replace("identity:", "identty:").replace("8,", "-1,")
    )
    heading, *fault_lines = message.splitlines()
    assert heading.endswith("job.yaml: 3 faults")
    assert [line.split(":")[0].strip() for line in fault_lines] == ["line 6", "line 7", "line 17"]


def test_a_message_shows_the_reference_and_not_the_value_of_the_variable(tmp_path: Path) -> None:
    text = SMALL_JOB.replace("base: {name: News}", 'base: {id: "${CRM_URL}"}')
    assert "subscriber.base.id: must be a whole number, not '${CRM_URL}'" in read_faulty_job(tmp_path, text)


def test_a_password_of_the_job_file_is_hidden_in_each_repr_and_message(tmp_path: Path) -> None:
    assert "hunter2" not in repr(read_job(tmp_path, CRM_JOB))
    assert "hunter2" not in str(read_job(tmp_path, "job: x\nexport: {to: 'mysql://u:hunter2@h/w'}"))
    read_faulty_job(tmp_path, "job: x\nexport: {to: [mysql://u:hunter2@h/w], mode: mysql://u:hunter2@h/w}")
    read_faulty_job(tmp_path, "job: x\nexport: {to: mysql://u:hunter2@h/w, x: {{}}\n")
    read_faulty_job(
        tmp_path, SMALL_JOB.replace("{file: {path: people.csv}}", "{sql: {url: 'x://u:hunter2@ex\u2100mple.com'}}")
    )


EXPORT_SUFFIXES = [find_format_traits(file_format).suffix for file_format in FILE_FORMATS]


@pytest.mark.parametrize(
    ("name", "content", "expected_text"),
    [
        ("none.yaml", None, "there is no such job file"),
        (".", None, "this is a folder"),
        ("latin.yaml", b"job: caf\xe9\n", "this job file is not UTF-8 text (byte 9)"),
        ("large.yaml", b"#" * ((1 << 20) + 1), "too large for a job"),
        ("people.csv", b"email,name\na@example.com,Ann\n", "did you mean: connector import"),
        ("people", b"email,name\na@example.com,Ann\n", "must contain keys"),
        *((f"people{suffix}", b"PK\x03\x04\x00\x00", "did you mean: connector import") for suffix in EXPORT_SUFFIXES),
        ("book", b"PK\x03\x04\x00\x00", "this is not YAML"),
    ],
)
def test_the_message_about_a_file_that_is_not_a_job_is_one_line(
    tmp_path: Path, name: str, content: bytes | None, expected_text: str
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigurationError) as error_info:
        load_job(path, {})
    assert expected_text in str(error_info.value)
    assert len(str(error_info.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("argument", "value", "expected_text"),
    [
        ("quiet_period_s", "30", "--quiet-period: must be a duration"),
        ("max_concurrency", 0, "--max-concurrency: must be greater than or equal to 1, not 0"),
        ("on_unknown", "x", "--on-unknown: must be `resend` or `hold`, not 'x'"),
        ("base_id", 0, "--base-id: must be greater than or equal to 1, not 0"),
        ("mapping", {"mail": "Mail"}, "--map: there is no such field; did you mean email"),
        ("encoding", "klingon", "--encoding: is not a known encoding"),
        ("base_name", "News", "Two bases given. Use either --base-id or --base-name"),
    ],
)
def test_the_message_about_a_wrong_argument_names_the_command_line_option(
    argument: str, value: object, expected_text: str
) -> None:
    with pytest.raises(ConfigurationError, match=expected_text):
        build_import_job("people.csv", "people", {"base_id": 7, argument: value}, format_argument=format_option)
