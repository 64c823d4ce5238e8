"""Job files: the values of a valid file."""

import re
import textwrap
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from connector.jobs.arguments import format_option, override_load
from connector.jobs.load_planner import RunRequest, build_mapping, plan_sync
from connector.jobs.models import Job, Load
from connector.jobs.reader import load_job
from connector.service.settings import Service, Token
from connector.settings import Settings
from connector.shards import Shard
from connector.sources.cursor import CursorKind

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
CURSOR_JOB = """\
job: crm
source:
  sql: {url: "sqlite:///crm.db", query: "select * from t where updated_at >= :cursor",
        cursor: {column: updated_at, start: 1970-01-01T00:00:00, lookback: 10m}}
subscriber: {base: {id: 7}}
"""
FIELDS_JOB = """\
job: x
source: {file: {path: people.csv}}
subscriber:
  base: {id: 7}
  fields:
    email: mail
"""


def read_job(folder: Path, text: str, environ: dict[str, str] | None = None) -> Job:
    path = folder / "job.yaml"
    path.write_text(text, encoding="utf-8")
    return load_job(path, ENVIRON if environ is None else environ)


def test_every_key_of_a_job_has_the_type_of_its_model(tmp_path: Path) -> None:
    job = read_job(tmp_path, CRM_JOB)
    assert job.name == "crm-nightly"
    assert job.export is None
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
    assert (job.load.quiet_period_s, job.load.max_lookup_age_s) == (30.0, 900.0)
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


def test_the_keys_of_an_export_are_read(tmp_path: Path) -> None:
    job = read_job(
        tmp_path, EXPORT_JOB.replace("parquet}", "parquet, table: people, schema: esp, filters: {is_active: no}}")
    )
    assert job.export is not None
    assert job.export.to == str(tmp_path / "out/people.parquet")
    assert (job.export.table, job.export.schema_, job.export.mode) == ("people", "esp", "replace")
    assert job.export.filters.is_active is False
    assert job.export.filters.base_id is None


def test_a_relative_path_in_a_job_becomes_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "job.yaml").write_bytes(b"\xef\xbb\xbf" + SMALL_JOB.encode())  # with a byte order mark
    monkeypatch.chdir(tmp_path)
    job = load_job(Path("job.yaml"), {})
    assert job.name == "x"
    assert job.source is not None
    assert job.source.file is not None
    assert job.source.file.path == tmp_path / "people.csv"


@pytest.mark.parametrize(
    ("text", "delimiter"), [("tab", "\t"), ("semicolon", ";"), ('"\\t"', "\t"), ('";"', ";"), ('"|"', "|")]
)
def test_a_delimiter_is_a_character_or_its_name(tmp_path: Path, text: str, delimiter: str) -> None:
    job = read_job(tmp_path, SMALL_JOB.replace("people.csv", f"people.csv, delimiter: {text}"))
    assert job.source is not None
    assert job.source.file is not None
    assert job.source.file.delimiter == delimiter


def test_the_limits_in_the_section_guard_of_a_job_are_read(tmp_path: Path) -> None:
    guard = read_job(tmp_path, SMALL_JOB + "guard: {max_invalid: 5%, max_rejected: 2.5%, max_creates: 100000}\n").guard
    assert guard is not None
    assert (guard.max_invalid, guard.max_rejected, guard.max_creates, guard.max_shrink) == (0.05, 0.025, 100_000, 0.5)
    assert read_job(tmp_path, SMALL_JOB).guard is None


def test_the_limits_of_a_job_are_divided_by_the_number_of_shards(tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text("email,is_active\nann@example.com,yes\n", encoding="utf-8")
    limits_yaml = "load: {max_rate: 20, max_concurrency: 5}\nguard: {max_creates: 41}\n"
    settings = Settings(Service("http://127.0.0.1:1", Token("token")), "main", tmp_path, "sqlite://")
    plan = plan_sync(read_job(tmp_path, SMALL_JOB + limits_yaml), settings, RunRequest(shard=Shard(2, 2)))
    plan.rows.source.close()
    assert plan.guard is not None
    assert (plan.policy.max_rate, plan.policy.max_concurrency, plan.guard.max_creates) == (10.0, 2, 20)


def test_options_override_the_keys_of_a_load(tmp_path: Path) -> None:
    job = read_job(tmp_path, SMALL_JOB + "load: {max_concurrency: 8, quiet_period: 2m}\n")
    arguments: dict[str, Any] = {"quiet_period_s": "1s", "on_unknown": "hold", "max_concurrency": None}
    load = override_load(job, arguments, format_argument=format_option).load
    assert (load.max_concurrency, load.quiet_period_s, load.on_unknown) == (8, 1.0, "hold")


def test_the_key_start_decides_the_kind_of_the_cursor(tmp_path: Path) -> None:
    source = read_job(tmp_path, CURSOR_JOB).source
    assert source is not None
    assert source.sql is not None
    cursor = source.sql.cursor
    assert cursor is not None
    assert (cursor.column, cursor.kind, cursor.lookback_s) == ("updated_at", CursorKind.TIMESTAMP, 600.0)
    assert cursor.first_value == datetime(1970, 1, 1)  # noqa: DTZ001 - the start in the job has no time zone


def test_the_documented_rules_can_be_loaded(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "sources.md").read_text(encoding="utf-8")
    (fields,) = re.findall(r"```yaml\n(fields:.*?)```", page, re.DOTALL)
    subscriber = read_job(tmp_path, FIELDS_JOB.partition("  fields:")[0] + textwrap.indent(fields, "  ")).subscriber
    assert subscriber is not None
    mapping = build_mapping(subscriber)
    assert mapping is not None
    assert {"name", "street", "first", "Last Name"} <= set(mapping.columns)
