"""An S3 server for tests: the server of moto as a process, and buckets on it."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest

ACCESS_KEY, SECRET_KEY = "AKIDEXAMPLE000000000", "s3cr3t-of-the-store-0123456789"
SERVER_SCRIPT = (
    "import sys; from moto.server import ThreadedMotoServer; "
    "server = ThreadedMotoServer('127.0.0.1', 0, verbose=False); server.start(); "
    "print(server.get_host_and_port()[1], flush=True); sys.stdin.read(); server.stop()"
)
BUCKET_NUMBERS = count()


@dataclass(frozen=True)
class Bucket:
    """A bucket of S3, and the environment variables to reach it."""

    name: str
    endpoint: str

    @property
    def environ(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        }

    @property
    def client(self) -> Any:
        import boto3  # boto3 is slow to import, and most runs of the tests do not need it

        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id=ACCESS_KEY,
            aws_secret_access_key=SECRET_KEY,
            region_name="us-east-1",
        )

    def url(self, key: str) -> str:
        return f"s3://{self.name}/{key}"

    def put(self, key: str, content: bytes | str) -> str:
        body = content if isinstance(content, bytes) else content.encode()
        self.client.put_object(Bucket=self.name, Key=key, Body=body)
        return self.url(key)

    def read(self) -> dict[str, bytes]:
        """Return the content of every object, by its key."""
        client = self.client
        entries = client.list_objects_v2(Bucket=self.name).get("Contents", [])
        return {entry["Key"]: client.get_object(Bucket=self.name, Key=entry["Key"])["Body"].read() for entry in entries}

    def download(self, folder: Path) -> Path:
        """Write every object as a file into the folder."""
        for key, content in self.read().items():
            path = folder / key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return folder

    def list_uploads(self) -> list[Any]:
        """Return unfinished uploads. Readers do not see them, but S3 charges for them."""
        uploads: list[Any] = self.client.list_multipart_uploads(Bucket=self.name).get("Uploads", [])
        return uploads


@contextmanager
def open_s3() -> Iterator[str]:
    """Start a server, yield its URL, and stop the server."""
    command = [sys.executable, "-c", SERVER_SCRIPT]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        process.stdin.close()


def make_bucket(endpoint: str) -> Bucket:
    """Create a new bucket."""
    bucket = Bucket(f"bucket-{os.getpid()}-{next(BUCKET_NUMBERS)}", endpoint)
    bucket.client.create_bucket(Bucket=bucket.name)
    return bucket


def set_environ(monkeypatch: pytest.MonkeyPatch, environ: Mapping[str, str]) -> None:
    """Set these environment variables for the test."""
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
