"""Commands that read from or write to a bucket create no duplicates and write no credential to a file."""

import gzip
from pathlib import Path

import pytest

from tests.pipelines.conftest import Connector
from tests.stores import SECRET_KEY, Bucket

FAULTS = {
    **dict.fromkeys(("drop_before", "drop_after", "error_before", "error_after", "cut_answer"), 0.01),
    **dict.fromkeys(("garbage_after", "refuse"), 0.01),
    "refuse_retry_after_s": 0,
}


@pytest.fixture
def bucket_connector(connector: Connector, bucket: Bucket) -> Connector:
    connector.environ |= bucket.environ
    return connector


def test_an_import_from_a_bucket_creates_each_row_once(bucket_connector: Connector, bucket: Bucket) -> None:
    first_content = bucket_connector.write_addresses(250, name="a.csv").read_bytes()
    second_content = bucket_connector.write_addresses(150, first_index=250, name="b.csv").read_bytes()
    bucket.put("inbox/a.csv.gz", gzip.compress(first_content))
    bucket.put("inbox/b.csv", second_content + b"no-address,Eve,Lee,true\n")
    bucket.put("gone.csv", "email\nperson3@example.com\nperson300@example.com\n")
    suppress_line = f"suppress: {{file: {{path: '{bucket.url('gone.csv')}', column: email}}}}"
    source = f"file: {{path: '{bucket.url('inbox/*.csv*')}'}}"
    bucket_connector.write_job(suppress_line, source=source, fields="")
    bucket_connector.sandbox.switch(**FAULTS)
    result = bucket_connector.sync("job.yaml", "--report", bucket_connector.folder / "report.json", "-vv")
    create_counts = bucket_connector.count_creates_by_email()
    assert (len(create_counts), set(create_counts.values())) == (398, {1})
    assert result.rows == {"read": 401, "created": 398, "suppressed": 2, "invalid": 1}, result.stderr
    assert result.report["settled"]["found"] > 0
    assert result.report["settled"]["absent"] > 0
    rejects = Path(result.report["rejects_file"]).read_text()
    assert bucket.url("inbox/b.csv") in rejects
    assert bucket.url("inbox/*.csv*") == result.report["source"]
    file_texts = [path.read_text("latin-1") for path in bucket_connector.folder.rglob("*") if path.is_file()]
    assert not any(SECRET_KEY in text for text in (result.stdout, result.stderr, *file_texts))
    options = ("--base-name", "News", "--quiet-period", "200ms")
    second_result = bucket_connector.run_json("import", bucket.url("inbox/*.csv*"), *options)
    assert second_result.rows == {"read": 401, "exists": 398, "created": 2, "invalid": 1}
    assert second_result.report["job"] == "inbox"
