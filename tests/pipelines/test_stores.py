"""Commands that read from a bucket or write to a bucket: no duplicates, and no credential in any file."""

import gzip
import json
from pathlib import Path

import pytest

from tests.export.readers import read_parquet
from tests.pipelines.conftest import Connector, count_stored_emails, write_addresses
from tests.pipelines.test_faults import FAULTS
from tests.stores import SECRET_KEY, Bucket


@pytest.fixture
def bucket_connector(connector: Connector, bucket: Bucket) -> Connector:
    connector.environ |= bucket.environ
    return connector


def test_an_import_from_a_bucket_under_lost_answers_creates_each_row_once(
    bucket_connector: Connector, bucket: Bucket, tmp_path: Path
) -> None:
    first_content, second_content = (
        write_addresses(tmp_path / "x.csv", *count_and_first_index).read_bytes()
        for count_and_first_index in ((250,), (150, 250))
    )
    bucket.put("inbox/a.csv.gz", gzip.compress(first_content))
    bucket.put("inbox/b.csv", second_content + b"no-address,Eve,Lee,true\n")
    bucket.put("gone.csv", "email\nperson3@example.com\nperson300@example.com\n")
    job = tmp_path / "job.yaml"
    job.write_text(
        f"job: inbox\nsource: {{file: {{path: '{bucket.url('inbox/*.csv*')}'}}}}\n"
        "subscriber: {base: {name: News}}\n"
        f"suppress: {{file: {{path: '{bucket.url('gone.csv')}', column: email}}}}\nload: {{quiet_period: 200ms}}\n"
    )
    bucket_connector.sandbox.switch(**FAULTS)
    result = bucket_connector.run_json("sync", job, "--report", tmp_path / "report.json", "-vv")
    create_counts = count_stored_emails(bucket_connector.sandbox)
    assert (len(create_counts), set(create_counts.values())) == (398, {1})
    assert result.rows == {"read": 401, "created": 398, "suppressed": 2, "invalid": 1}, result.stderr
    assert result.report["settled"]["found"] > 0
    rejects_text = Path(result.report["rejects_file"]).read_text()
    assert bucket.url("inbox/b.csv") in rejects_text
    assert bucket.url("inbox/*.csv*") == result.report["source"]
    texts = [
        result.stdout,
        result.stderr,
        *(path.read_bytes().decode("latin-1") for path in tmp_path.rglob("*") if path.is_file()),
    ]
    assert not any(SECRET_KEY in text for text in texts)

    second_result = bucket_connector.run_json(
        "import", bucket.url("inbox/*.csv*"), "--base-name", "News", "--quiet-period", "200ms"
    )
    assert second_result.rows == {"read": 401, "exists": 398, "created": 2, "invalid": 1}
    assert second_result.report["job"] == "inbox"
    assert bucket_connector.run_json("validate", bucket.url("gone.csv")).rows["valid"] == 2
    init_result = bucket_connector.run("init", bucket.url("inbox/b.csv"), "--base-name", "News", "-o", "drafted.yaml")
    assert init_result.exit_code == 0
    assert bucket_connector.run_json("plan", "drafted.yaml").rows == {"read": 151, "exists": 150, "invalid": 1}


def test_an_export_is_the_same_in_a_bucket_and_through_a_pipe(
    bucket_connector: Connector, bucket: Bucket, tmp_path: Path
) -> None:
    bucket_connector.sandbox.seed(1200, base_name="News")
    for target in ("people.parquet", bucket.url("people.parquet")):
        assert bucket_connector.run_json("export", target).rows == {"read": 1200, "written": 1200}
    piped_result = bucket_connector.run("export", "-", "--format", "jsonl", "--quiet")
    bucket.download(tmp_path / "bucket")
    run_columns = ["_run_id", "_exported_at"]
    file_table = read_parquet(tmp_path / "people.parquet").drop_columns(run_columns)
    assert read_parquet(tmp_path / "bucket" / "people.parquet").drop_columns(run_columns).equals(file_table)
    assert [json.loads(line)["id"] for line in piped_result.stdout.splitlines()] == file_table["id"].to_pylist()
    assert bucket.list_uploads() == []


@pytest.mark.parametrize(
    ("arguments", "expected_text"),
    [
        ("import s3://{bucket}/none.csv --base-id 7 --active", "there is no such object"),
        ("export s3://no-such-bucket/people.csv", "there is no bucket no-such-bucket"),
        ("export s3://me:pass-word@{bucket}/a.csv", "cannot contain credentials"),
        ("export s3://{bucket}/people.csv --group-readable", "does not take --group-readable"),
        ("export - --format xml", "is not one of"),
    ],
)
def test_a_wrong_url_of_a_store_is_refused_before_the_first_request(
    bucket_connector: Connector, bucket: Bucket, arguments: str, expected_text: str
) -> None:
    result = bucket_connector.run_json(*arguments.format(bucket=bucket.name).split())
    assert (result.is_refused, expected_text in result.stderr) == (True, True), result.stderr
    assert "pass-word" not in result.stdout + result.stderr
    assert bucket_connector.sandbox.stats()["requests"] == {}
    assert bucket.read() == {}
