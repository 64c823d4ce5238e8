"""The job files in `configs/`: they can be loaded, and fit the demo's data. The reference lists the keys of a job."""

from datetime import date
from pathlib import Path

import pytest

from connector.fields import normalise_email
from connector.jobs.build import build_rules, open_source
from connector.jobs.load_planner import build_mapping
from connector.jobs.reader import load_job
from connector.jobs.schema import list_keys
from connector.rows import Source
from connector.sources.files import open_file
from connector.subscribers.headers import guess_mapping
from connector.subscribers.mapping import apply_mapping
from connector.subscribers.preparation import check_mapping
from connector.subscribers.rules import FieldMapping, ValidationRules
from connector.subscribers.validation import validate_rows
from pipelines.demo import draw_data, write_crm, write_people

CONFIGS_FOLDER = Path(__file__).parents[2] / "configs"


@pytest.mark.parametrize("path", sorted(CONFIGS_FOLDER.glob("*.yaml")), ids=lambda path: path.name)
def test_every_job_file_can_be_loaded(path: Path) -> None:
    environ = {"CRM_URL": "sqlite:////srv/crm.db", "WAREHOUSE_URL": "duckdb:////srv/w.duckdb"}
    assert load_job(path, environ).name == path.stem


def read_rows(source: Source, mapping: FieldMapping, rules: ValidationRules) -> dict[str, dict[str, object]]:
    """Return the first valid row of each identity as an import sends the row."""
    row_by_email: dict[str, dict[str, object]] = {}
    with source:
        for chunk in source.read_chunks():
            validated_rows = validate_rows(apply_mapping(chunk.frame, mapping).frame, rules, today=date(2026, 11, 21))
            for row in (
                validated_rows.subscribers.astype(object)
                .where(validated_rows.subscribers.notna(), None)
                .to_dict("records")
            ):
                plain_row = {
                    str(key): list(cell) if key == "tags" and cell is not None else cell for key, cell in row.items()
                }
                row_by_email.setdefault(normalise_email(str(row["email"])), plain_row)
    return row_by_email


def test_the_demo_crm_differs_from_the_demo_file_only_by_added_people_and_new_addresses(tmp_path: Path) -> None:
    demo_data = draw_data(row_count=1000, seed=5)
    write_people(tmp_path / "people.csv", demo_data)
    write_crm(tmp_path / "crm.db", demo_data.crm_people)
    job = load_job(CONFIGS_FOLDER / "crm.yaml", {"CRM_URL": f"sqlite:///{tmp_path}/crm.db"})
    assert job.source is not None
    assert job.subscriber is not None
    mapping, rules = build_mapping(job.subscriber), build_rules(job.subscriber)
    assert mapping is not None
    file_source = open_file(tmp_path / "people.csv")
    rows_of_file = read_rows(file_source, guess_mapping(file_source.columns), ValidationRules())
    crm_source = open_source(job.source)
    check_mapping(mapping, rules, crm_source.columns, source_name="crm")
    rows_of_crm = read_rows(crm_source, mapping, rules)
    assert len(rows_of_file) == len(demo_data.file_people)
    assert len(rows_of_crm) == len(demo_data.crm_people)
    assert set(rows_of_crm) - set(rows_of_file) == {normalise_email(person.email) for person in demo_data.added_people}
    rows_of_active_file = {email: row | {"is_active": True} for email, row in rows_of_file.items()}
    emails_of_different_rows = {email for email, row in rows_of_active_file.items() if row != rows_of_crm[email]}
    assert emails_of_different_rows == {normalise_email(person.email) for person in demo_data.changed_people}


def test_the_reference_lists_every_key_of_the_job_file_once() -> None:
    keys = [key.key for key in list_keys()]
    assert len(keys) == len(set(keys))
    assert {"job", "service.timeout", "source.sql.url", "subscriber.fields.<field>.format", "load.quiet_period"} <= set(
        keys
    )
    assert {key.key for key in list_keys() if key.is_required} == {
        "job", "source.file.path", "source.sql.url", "subscriber.base", "export.to",
        "source.sql.cursor.column", "source.sql.cursor.start",
        "suppress.file.path", "suppress.file.column", "suppress.sql.url", "suppress.sql.column",
        "subscriber.fields.<field>.e164.region",
        "mail.campaign", "mail.to", "mail.to.email", "mail.from", "mail.subject", "mail.attach.path",
        "mail.inline.path", "notify.webhook", "notify.webhook.url", "receipts.to",
    }  # fmt: skip


def test_the_reference_shows_the_type_and_the_default_of_a_key() -> None:
    keys = {key.key: (key.type, key.default) for key in list_keys()}
    assert keys["load.quiet_period"] == ("duration", "30s")
    assert keys["load.max_concurrency"] == ("whole number, 1 or more, at most 1,000", "512")
    assert keys["load.max_rate"] == ("number, more than 0, at most 100,000", "")
    assert keys["guard.max_shrink"] == ("share", "50%")
    assert keys["export.mode"] == ("`replace`, `upsert`, `append`, `history`", "replace")
    assert keys["skip_inactive"] == ("`true` or `false`", "true")
    assert keys["mail.max_attached"] == ("size", "20MB")
    assert keys["retention"] == ("duration", "90d")
    assert keys["source.file.path"] == ("path or URL", "")
