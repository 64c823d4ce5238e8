"""Objects of an object store as sources. They are read like local files, and errors show the object and no
credentials."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import fsspec
import pytest

from connector.errors import ConfigurationError, SourceError
from connector.rows import Source
from connector.sources.files import open_file, open_files
from tests.sources.files.people import pack_gzip, pack_zip
from tests.sources.files.reading import write_file
from tests.stores import SECRET_KEY, Bucket, set_environ

ROOT = Path(__file__).parents[3]
ANN_CSV, BOB_CSV = "email,name\nann@x.org,Ann\n", "email,name\nbob@x.org,Bob\n"

PutObject = Callable[[str, bytes | str], str]


def open_pattern(url: str) -> Source:
    return open_files(url, open_file)


def read_rows(url: str) -> list[tuple[str, list[str]]]:
    with open_pattern(url) as source:
        return [(chunk.name, row) for chunk in source.read_chunks() for row in chunk.frame.to_numpy().tolist()]


def put_in_memory(key: str, content: bytes | str) -> str:
    url = f"memory://trial/{key}"
    fsspec.filesystem("memory").pipe_file(url, content if isinstance(content, bytes) else content.encode())
    return url


@pytest.fixture(params=["s3", "memory"])
def put_object(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> PutObject:
    if request.param == "memory":
        fsspec.filesystem("memory").store.clear()
        return put_in_memory
    bucket: Bucket = request.getfixturevalue("bucket")
    set_environ(monkeypatch, bucket.environ)
    return bucket.put


def test_compressed_objects_and_archives_and_patterns_of_a_store_are_read(put_object: PutObject) -> None:
    ann_url, bob_url = put_object("inbox/a.csv.gz", pack_gzip(ANN_CSV.encode())), put_object("inbox/b.csv", BOB_CSV)
    archive = pack_zip(ANN_CSV.encode(), "ann.csv", {"bob.csv": BOB_CSV.encode()})
    zip_url = put_object("inbox/both.zip", archive)
    put_object("inbox/.c.csv", "email\nhidden@x.org\n")
    put_object("inbox/below/d.csv", "email\nbelow@x.org\n")
    url_with_brackets = put_object("inbox/odd[1].csv", ANN_CSV)
    if ann_url.startswith("s3"):
        put_object("inbox/folder.csv/", "")  # the web consoles of object stores create a folder in this way
    folder = ann_url.removesuffix("a.csv.gz")
    ann_row, bob_row = ["ann@x.org", "Ann"], ["bob@x.org", "Bob"]
    assert read_rows(ann_url) == [(ann_url, ann_row)]
    assert read_rows(f"{folder}[ab].csv*") == [(ann_url, ann_row), (bob_url, bob_row)], (
        "the objects were not read in the order of their names"
    )
    assert read_rows(f"{folder}*.csv") == [(bob_url, bob_row), (url_with_brackets, ann_row)], (
        "hidden objects or objects in folders were read"
    )
    assert read_rows(f"{zip_url}#bob.csv") == [(zip_url, bob_row)]
    assert read_rows(url_with_brackets) == [(url_with_brackets, ann_row)], (
        "the name of an existing object was used as a pattern"
    )


def test_an_object_that_is_overwritten_while_it_is_read_is_refused(put_object: PutObject) -> None:
    with open_file(put_object("people.csv", ANN_CSV)) as source:
        assert sum(len(chunk.frame) for chunk in source.read_chunks()) == 1
        put_object("people.csv", ANN_CSV + "eve@example.co")
        with pytest.raises(SourceError, match="has changed since it was opened"):
            list(source.read_chunks())


def test_the_error_of_an_object_name_that_looks_like_an_option_shows_the_name(put_object: PutObject) -> None:
    folder = put_object("inbox/a.csv", ANN_CSV).removesuffix("a.csv")
    put_object("inbox/?x=1.csv", BOB_CSV)
    with pytest.raises(SourceError, match=r"\?x=1.csv' looks like a URL with an option; rename the object"):
        open_pattern(f"{folder}*.csv")


@pytest.mark.parametrize(
    ("name", "expected_text"),
    [("none.csv", "there is no such object"), ("*.tsv", "no file matches"), ("a.csv#b.csv", "is not a ZIP archive")],
)
def test_the_error_of_an_object_that_does_not_exist_shows_the_url(
    put_object: PutObject, name: str, expected_text: str
) -> None:
    url = put_object("inbox/a.csv", ANN_CSV).replace("a.csv", name)
    with pytest.raises(SourceError, match=expected_text) as error_info:
        open_pattern(url)
    assert url.partition("#")[0] in str(error_info.value)


def test_the_error_of_a_url_that_cannot_be_used_shows_no_password() -> None:
    urls_and_errors: list[tuple[str, str]] = [
        ("s3://me:pass-word@bucket/a.csv", r"s3://\*\*\*@bucket/a.csv: a URL cannot contain credentials"),
        ("s3://me:pass/word@bucket/a.csv", r"s3://\*\*\*@bucket/a.csv: a URL cannot contain"),
        ("az://box/a.csv?sv=2024&sig=pass-word", "az://box/a.csv: a URL cannot contain credentials"),
        ("s3://box/a.csv?X-Amz-Signature=pass-word", "s3://box/a.csv: a URL cannot contain credentials"),
        ("https://me:pass-word@example.com/a.csv", r"https://\*\*\*@example.com/a.csv: only objects at s3://"),
        ("postgresql://me:pass-word@host/db", r"postgresql://\*\*\*@host/db: only objects at s3://"),
        ("s3://bucket", "names no object"),
        ("s3://buck*/a.csv", "names no object"),
    ]
    for url, expected_text in urls_and_errors:
        with pytest.raises(ConfigurationError, match=expected_text) as error_info:
            open_pattern(url)
        assert "pass-word" not in str(error_info.value)


def test_an_unreachable_store_and_missing_credentials_raise_errors_without_secrets(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_environ(monkeypatch, bucket.environ | {"AWS_ENDPOINT_URL": "http://127.0.0.1:1", "AWS_MAX_ATTEMPTS": "1"})
    fsspec.filesystem("s3").clear_instance_cache()
    with pytest.raises(SourceError, match="cannot be read: Could not connect to the endpoint") as error_info:
        open_pattern(bucket.url("a.csv"))
    assert SECRET_KEY not in str(error_info.value)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    fsspec.filesystem("s3").clear_instance_cache()
    with pytest.raises(SourceError, match="Unable to locate credentials; check the credentials"):
        open_pattern(bucket.url("*.csv"))
    fsspec.filesystem("s3").clear_instance_cache()


def test_a_missing_library_of_a_store_is_an_error_with_the_extra_to_install(tmp_path: Path) -> None:
    write_file(tmp_path, "people.csv", ANN_CSV)
    script = (
        "import sys; from connector.sources.files import open_file\n"
        "open_file('people.csv').close(); assert not {'fsspec', 's3fs'} & set(sys.modules)\n"
        "sys.modules['s3fs'] = None\n"
        "try: open_file('s3://bucket/a.csv')\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", script]
    output = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=True).stdout
    assert output.startswith("ConfigurationError s3://bucket/a.csv: the library for s3:// is not installed"), output
    assert "pip install 'subscriber-connector[s3]'" in output
