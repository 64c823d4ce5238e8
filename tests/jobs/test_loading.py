"""Job files: the values of a valid file, and the messages about a faulty file."""

from pathlib import Path
from typing import Any

import pytest

from connector.errors import ConfigurationError
from connector.jobs.arguments import build_import_job, format_option, override_load
from connector.jobs.models import Job, Load
from connector.jobs.reader import load_job

ENVIRON = {"CRM_URL": "postgresql://reader:hunter2@db/crm", "CONNECTOR_BASE_URL": "https://esp.example.com"}

CRM_JOB = """\
job: crm-nightly
service: {base_url: "${CONNECTOR_BASE_URL}", account: main, authorization: "Bearer {token}", timeout: 10s}
source:
  sql: {url: "${CRM_URL}", query: "select * from customers"}
subscriber:
  base: {id: 7}
  identity: email
  fields:
    email: email_address
    first_name: fname
    is_active: {value: true}
    gender: {column: sex, values: {M: male, F: female, "": ""}}
    tags: {column: segments, split: "|"}
    birthday: {column: dob, format: "%d/%m/%Y"}
  required: [email, first_name]
  zip: custom_field1
load: {max_concurrency: 8, on_unknown: hold, quiet_period: 500ms, fresh: 2h, look: none}
"""

SMALL_JOB = "job: x\nsource: {file: {path: people.csv}}\nsubscriber: {base: {name: News}}\n"
EXPORT_JOB = "job: x\nexport: {to: out/people.parquet}\n"


def read_job(folder: Path, text: str, environ: dict[str, str] | None = None) -> Job:
    path = folder / "job.yaml"
    path.write_text(text, encoding="utf-8")
    return load_job(path, ENVIRON if environ is None else environ)


def read_faulty_job(folder: Path, text: str) -> str:
    with pytest.raises(ConfigurationError) as error_info:
        read_job(folder, text)
    assert "hunter2" not in str(error_info.value)
    assert error_info.value.__cause__ is None  # the error of pydantic would show values of the file
    return str(error_info.value)


def test_every_key_of_a_job_has_the_type_of_its_model(tmp_path: Path) -> None:
    job = read_job(tmp_path, CRM_JOB)
    assert job.name == "crm-nightly"
    assert not job.is_export
    assert job.service.base_url == "https://esp.example.com"
    assert (job.service.account, job.service.authorization, job.service.timeout_s) == ("main", "Bearer {token}", 10.0)
    assert job.source is not None
    assert job.source.sql is not None
    assert (job.source.sql.url, job.source.sql.query) == (ENVIRON["CRM_URL"], "select * from customers")
    assert job.subscriber is not None
    assert (job.subscriber.base.id, job.subscriber.identity, job.subscriber.zip) == (7, "email", "custom_field1")
    assert job.subscriber.required == ("email", "first_name")
    assert job.load == Load.model_validate(
        {"max_concurrency": 8, "on_unknown": "hold", "quiet_period": 0.5, "fresh": 7200, "look": "none"}
    )


def test_a_missing_key_has_its_default(tmp_path: Path) -> None:
    job = read_job(tmp_path, SMALL_JOB)
    assert job.source is not None
    assert job.source.file is not None
    assert job.source.file.path == tmp_path / "people.csv"
    assert (job.source.file.format, job.source.file.encoding, job.source.file.delimiter) == ("auto", "auto", "auto")
    assert job.subscriber is not None
    assert job.subscriber.fields_ is None
    assert (job.subscriber.identity, job.subscriber.zip, job.subscriber.required) == ("email", "omit", ())
    assert (job.load.max_concurrency, job.load.on_unknown, job.load.look) == (512, "resend", "auto")
    assert (job.load.quiet_period_s, job.load.fresh_s) == (30.0, 900.0)
    assert job.service.base_url is None


def test_the_section_suppress_accepts_the_keys_of_a_source_and_the_key_column(tmp_path: Path) -> None:
    suppress_yaml = "suppress: {file: {path: gone.csv, column: mail, delimiter: tab}, field: client_user_id}\n"
    suppression = read_job(tmp_path, SMALL_JOB + suppress_yaml).suppress
    assert suppression is not None
    assert suppression.file is not None
    assert (suppression.file.path, suppression.file.delimiter) == (tmp_path / "gone.csv", "\t")
    assert (suppression.file.column, suppression.field) == ("mail", "client_user_id")
    suppression_with_sql = read_job(
        tmp_path, SMALL_JOB + 'suppress: {sql: {url: "${CRM_URL}", table: gone, column: mail}}\n'
    ).suppress
    assert suppression_with_sql is not None
    assert suppression_with_sql.sql is not None
    assert (suppression_with_sql.sql.url, suppression_with_sql.sql.table, suppression_with_sql.sql.column) == (
        ENVIRON["CRM_URL"],
        "gone",
        "mail",
    )
    assert suppression_with_sql.field is None
    assert "hunter2" not in repr(suppression_with_sql)


def test_an_export_has_a_destination_a_table_and_filters(tmp_path: Path) -> None:
    job = read_job(
        tmp_path, EXPORT_JOB.replace("parquet}", "parquet, table: people, schema: esp, filters: {is_active: no}}")
    )
    assert job.is_export
    assert job.export is not None
    assert job.export.to == str(tmp_path / "out/people.parquet")
    assert (job.export.table, job.export.schema_, job.export.mode) == ("people", "esp", "replace")
    assert job.export.filters.is_active is False
    assert job.export.filters.base_id is None


def test_a_job_file_with_a_relative_path_and_a_byte_order_mark_is_loaded_with_absolute_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "job.yaml").write_bytes(b"\xef\xbb\xbf" + SMALL_JOB.encode())
    monkeypatch.chdir(tmp_path)
    job = load_job(Path("job.yaml"), {})
    assert job.name == "x"
    assert job.source is not None
    assert job.source.file is not None
    assert job.source.file.path == tmp_path / "people.csv"


TEXTS_WITH_ONE_FAULT: list[tuple[str, str, str]] = [
    # the valid text, the faulty text that replaces it, and a part of the message
    ("identity: email", "idnetity: email", "there is no such key; did you mean identity? Allowed here: base,"),
    ("look: none", "lok: none", "load.lok: there is no such key; did you mean look? Allowed here: max_rate, max_conc"),
    ('split: "|"', 'splt: "|"', "line 13: subscriber.fields.tags.splt: there is no such key; did you mean split?"),
    ("email: email_address", "emial: x\n    email: e", "line 9: subscriber.fields.emial: there is no such field; did"),
    ("    first_name: fname", "    FirstName: fname", "there is no such field; did you mean first_name?"),
    ("    first_name: fname", "    Address.Zip: plz", "there is no such field; did you mean address_zip?"),
    ("    first_name: fname", "    id: number", "line 10: subscriber.fields.id: the service assigns id"),
    ("    first_name: fname", "    base_id: b", "line 10: subscriber.fields.base_id: base_id is not a field"),
    ("first_name: fname", "first_name: [a, b]", "must hold keys (column, template, value, trim,"),
    ("first_name: fname", "first_name: {column: f, format: '%Y-%m-%d'}", "first_name: only birthday can have a format"),
    ('"%d/%m/%Y"', '"%d/%m"', "line 14: subscriber.fields.birthday: format must give year, month and day"),
    ("    email: email_address\n", "", "no column is mapped to email, which identifies a subscriber"),
    ("identity: email", "identity: client_user_id", "no column is mapped to client_user_id"),
    ("identity: email", "identity: phone", "subscriber.identity: must be email or client_user_id, not 'phone'"),
    ("[email, first_name]", "[email, last_name]", "no column is mapped to last_name, which required lists"),
    ("[email, first_name]", "email", "line 15: subscriber.required: must be a list, such as [email], not 'email'"),
    ("[email, first_name]", "[mail]", "line 15: subscriber.required[0]: there is no such field; did you mean email?"),
    ("zip: custom_field1", "zip: keep", "line 16: subscriber.zip: must be omit, reject, custom_field1,"),
    ("first_name: fname", "first_name: f\n    custom_field1: c", "zip: custom_field1 would overwrite"),
    ("base: {id: 7}", "base: {}", "line 6: subscriber.base: needs either id or name or column, and only one"),
    ("base: {id: 7}", "base: {id: 7, values: {a: 7}}", "subscriber.base: values maps the cells of a column to bases"),
    ("base: {id: 7}", "base: {column: list, values: {}}", "subscriber.base: values must name a base for at least one"),
    ("base: {id: 7}", "base: {column: list, values: {a: 0}}", "line 6: subscriber.base.values.a: no base has this id"),
    ("base: {id: 7}", f"base: {{column: list, values: {{a: {2**63}}}}}", "values.a: no base has this id"),
    ("base: {id: 7}", "base: {column: list, values: {a: }}", "subscriber.base.values.a: must be text; this key"),
    ("base: {id: 7}", "base: {column: list, values: {'': 7}}", "an empty cell cannot name a base"),
    ("base: {id: 7}", "base: {column: list, values: {a: 7, ' a': 9}}", "values names a cell twice"),
    ("base: {id: 7}", "base: {id: seven}", "line 6: subscriber.base.id: must be a whole number, not 'seven'"),
    ("base: {id: 7}", "base: {id: 0}", "subscriber.base.id: must be greater than or equal to 1, not '0'"),
    ("base: {id: 7}", "base: {name: '  '}", "subscriber.base.name: must be a name in printable characters"),
    ("base: {id: 7}", "base: 7", "line 6: subscriber.base: must hold keys (id, name, column, values), not '7'"),
    ("base: {id: 7}", "base:", "line 6: subscriber.base: must hold keys (id, name, column, values); this key is empty"),
    ("  base: {id: 7}\n", "", "line 5: subscriber.base: is missing"),
    ("quiet_period: 500ms", "quiet_period: 30", "line 17: load.quiet_period: must be a duration with its unit"),
    ("max_concurrency: 8", "max_concurrency: 0", "load.max_concurrency: must be greater than or equal to 1"),
    ("on_unknown: hold", "on_unknown: retry", "load.on_unknown: must be resend or hold, not 'retry'"),
    ("timeout: 10s", "timeout: 0s", "service.timeout: must be greater than 0, not '0s'"),
    ('"Bearer {token}"', "abc123", "service.authorization: must hold {token} once"),
    ("account: main", "token: abc123", "service.token: there is no such key; do not write the token into a job"),
    (", query:", ", table: customers, query:", "line 4: source.sql: needs either query or table, and not both"),
    (', query: "select * from customers"', "", "source.sql: needs either query or table"),
    ('url: "${CRM_URL}"', "url: crm.db", "line 4: source.sql.url: must be a database URL"),
    ('url: "${CRM_URL}"', 'url: "${NO_URL}"', "line 4: source.sql.url: ${NO_URL} is not set in the environment"),
    ("  sql:", "  file: {path: a.csv}\n  sql:", "line 3: source: needs either file or sql, and not both"),
    ("job: crm-nightly\n", "", "job: is missing"),
    ("job: crm-nightly", "job:", "line 1: job: must be text; this key is empty"),
    ("job: crm-nightly", "job: [a]", "line 1: job: must be text, not a list"),
    ("load:", "suppress: {file: {path: a.csv}}\nload:", "line 17: suppress.file.column: is missing"),
    ("load:", "suppress: {file: {path: a, column: b}, field: phone}\nload:", "suppress.field: must be email or client"),
    ("load:", "guard: {max_invalid: 5}\nload:", "guard.max_invalid: must be a share with its sign, such as 5%"),
    ("load:", "guard: {max_create: 5}\nload:", "max_creates"),
    ("load:", "notify: {}\nload:", "notify.webhook: is missing"),
    ("load:", "suppress: {}\nload:", "line 17: suppress: needs either file or sql, and not both"),
    ("load:", "suppress: {file: {path: a, colunm: b, column: c}}\nload:", "did you mean column? Allowed here: path,"),
    ("load:", "export: {to: a.csv}\nload:", "a job has either source and subscriber, or export"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("valid_text", "faulty_text", "expected_text"),
    TEXTS_WITH_ONE_FAULT,
    ids=[faulty_text for _, faulty_text, _ in TEXTS_WITH_ONE_FAULT],
)
def test_the_message_about_a_fault_has_the_key_the_line_and_the_next_step(
    tmp_path: Path, valid_text: str, faulty_text: str, expected_text: str
) -> None:
    assert CRM_JOB.count(valid_text) == 1
    message = read_faulty_job(tmp_path, CRM_JOB.replace(valid_text, faulty_text))
    assert expected_text in message
    assert "faults" not in message  # the message about one fault is not a list
    assert "abc123" not in message


FILE_FAULTS = [
    ("path: people.csv", "path: ''", "source.file.path: must be a path"),
    ("path: people.csv", "path: [a]", "source.file.path: "),
    ("path: people.csv", "path: 's3://me:hunter2@box/a.csv'", "s3://***@box/a.csv: a URL cannot contain credentials"),
    ("path: people.csv", "path: ftp://me:hunter2@box/a.csv", "ftp://***@box/a.csv: only objects at s3://"),
    (
        "path: people.csv",
        "path: a, delimiter: ab",
        "source.file.delimiter: must be auto, comma, semicolon, tab, pipe or one character",
    ),
    ("path: people.csv", "path: a, encoding: klingon", "source.file.encoding: is not a known encoding"),
    ("path: people.csv", "path: a, encoding: base64", "source.file.encoding: is not a known encoding"),
    (
        "path: people.csv",
        "path: a, format: xlsx",
        "source.file.format: must be auto, csv, tsv, excel, parquet or jsonl, not 'xlsx'",
    ),
    ("path: people.csv", "path: a, sheet: ''", "source.file.sheet: "),
    ("{file: {path: people.csv}}", "{}", "source: needs either file or sql"),
]


@pytest.mark.parametrize(("valid_text", "faulty_text", "expected_text"), FILE_FAULTS)
def test_a_faulty_file_source_is_refused(tmp_path: Path, valid_text: str, faulty_text: str, expected_text: str) -> None:
    assert expected_text in read_faulty_job(tmp_path, SMALL_JOB.replace(valid_text, faulty_text))


@pytest.mark.parametrize(
    ("text", "delimiter"), [("tab", "\t"), ("semicolon", ";"), ('"\\t"', "\t"), ('";"', ";"), ('"|"', "|")]
)
def test_a_delimiter_is_a_character_or_its_name(tmp_path: Path, text: str, delimiter: str) -> None:
    job = read_job(tmp_path, SMALL_JOB.replace("people.csv", f"people.csv, delimiter: {text}"))
    assert job.source is not None
    assert job.source.file is not None
    assert job.source.file.delimiter == delimiter


EXPORT_FAULTS = [
    ("mode: merge", "export.mode: must be replace, upsert, append or history, not 'merge'"),
    ("max_shrink: 0.5", "export.max_shrink: must be a share with its sign, such as 5%, and at most 100%"),
    ("filters: {emial: x}", "export.filters.emial: there is no such key; did you mean email?"),
    ("filters: {gender: x}", "export.filters.gender: must be male, female or unspecified, not 'x'"),
    ("filters: {is_active: maybe}", "export.filters.is_active: must be true or false, not 'maybe'"),
    ("filters: {base_id: News}", "export.filters.base_id: must be a whole number, not 'News'"),
    ("table: ''", "export.table: must be a name"),
]


@pytest.mark.parametrize(("additional_key", "expected_text"), EXPORT_FAULTS)
def test_a_faulty_key_of_an_export_is_refused(tmp_path: Path, additional_key: str, expected_text: str) -> None:
    assert f"line 2: {expected_text}" in read_faulty_job(tmp_path, EXPORT_JOB.replace("}", f", {additional_key}}}"))


def test_the_guards_of_a_job_are_read_and_max_shrink_is_half_by_default(tmp_path: Path) -> None:
    guard = read_job(tmp_path, SMALL_JOB + "guard: {max_invalid: 5%, max_rejected: 2.5%, max_creates: 100000}\n").guard
    assert guard is not None
    assert (guard.max_invalid, guard.max_rejected, guard.max_creates, guard.max_shrink) == (0.05, 0.025, 100_000, 0.5)
    assert read_job(tmp_path, SMALL_JOB).guard is None


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


def test_no_repr_and_no_message_shows_a_password_of_the_file(tmp_path: Path) -> None:
    assert "hunter2" not in repr(read_job(tmp_path, CRM_JOB))
    assert "hunter2" not in str(read_job(tmp_path, "job: x\nexport: {to: 'mysql://u:hunter2@h/w'}"))
    read_faulty_job(tmp_path, "job: x\nexport: {to: [mysql://u:hunter2@h/w], mode: mysql://u:hunter2@h/w}")
    read_faulty_job(tmp_path, "job: x\nexport: {to: mysql://u:hunter2@h/w, x: {{}}\n")
    read_faulty_job(
        tmp_path, SMALL_JOB.replace("{file: {path: people.csv}}", "{sql: {url: 'x://u:hunter2@ex\u2100mple.com'}}")
    )


@pytest.mark.parametrize(
    ("name", "content", "expected_text"),
    [
        ("none.yaml", None, "there is no such job file"),
        (".", None, "this is a folder"),
        ("latin.yaml", b"job: caf\xe9\n", "this job file is not UTF-8 text (byte 9)"),
        ("large.yaml", b"#" * ((1 << 20) + 1), "too large for a job"),
        ("people.csv", b"email,name\na@example.com,Ann\n", "did you mean: connector import"),
        ("people", b"email,name\na@example.com,Ann\n", "must hold keys"),
        ("book.xlsx", b"PK\x03\x04\x00\x00", "did you mean: connector import"),
        ("book", b"PK\x03\x04\x00\x00", "this is not YAML"),
    ],
)
def test_a_file_that_is_not_a_job_is_refused_in_one_line(
    tmp_path: Path, name: str, content: bytes | None, expected_text: str
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigurationError) as error_info:
        load_job(path, {})
    assert expected_text in str(error_info.value)
    assert len(str(error_info.value).splitlines()) == 1


def test_options_override_the_keys_of_a_load(tmp_path: Path) -> None:
    job = read_job(tmp_path, SMALL_JOB + "load: {max_concurrency: 8, quiet_period: 2m}\n")
    arguments: dict[str, Any] = {"quiet_period_s": "1s", "on_unknown": "hold", "max_concurrency": None}
    load = override_load(job, arguments, format_argument=format_option).load
    assert (load.max_concurrency, load.quiet_period_s, load.on_unknown) == (8, 1.0, "hold")


@pytest.mark.parametrize(
    ("argument", "value", "expected_text"),
    [
        ("quiet_period_s", "30", "--quiet-period: must be a duration"),
        ("max_concurrency", 0, "--max-concurrency: must be greater than or equal to 1, not 0"),
        ("on_unknown", "x", "--on-unknown: must be resend or hold, not 'x'"),
        ("base_id", 0, "--base-id: must be greater than or equal to 1, not 0"),
        ("mapping", {"mail": "Mail"}, "--map: there is no such field; did you mean email"),
        ("encoding", "klingon", "--encoding: is not a known encoding"),
        ("base_name", "News", "Two bases given. Use either --base-id or --base-name"),
    ],
)
def test_the_message_about_a_wrong_option_names_the_option_as_the_command_line_does(
    argument: str, value: object, expected_text: str
) -> None:
    with pytest.raises(ConfigurationError, match=expected_text):
        build_import_job("people.csv", "people", {"base_id": 7, argument: value}, format_argument=format_option)
