"""A real S3 for tests: the server of moto as a process, read with boto3; and the memory of this process."""

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

KEY, SECRET = "AKIDEXAMPLE000000000", "s3cr3t-of-the-store-0123456789"
_SERVE = (
    "import sys; from moto.server import ThreadedMotoServer; "
    "server = ThreadedMotoServer('127.0.0.1', 0, verbose=False); server.start(); "
    "print(server.get_host_and_port()[1], flush=True); sys.stdin.read(); server.stop()"
)
_NUMBERS = count()


@dataclass(frozen=True)
class Bucket:
    """An empty bucket of S3, and what the environment must say to reach it."""

    name: str
    endpoint: str

    @property
    def environ(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        }

    @property
    def client(self) -> Any:
        import boto3  # not every run of the tests needs it

        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id=KEY,
            aws_secret_access_key=SECRET,
            region_name="us-east-1",
        )

    def url(self, key: str) -> str:
        return f"s3://{self.name}/{key}"

    def put(self, key: str, content: bytes | str) -> str:
        body = content if isinstance(content, bytes) else content.encode()
        self.client.put_object(Bucket=self.name, Key=key, Body=body)
        return self.url(key)

    def read(self) -> dict[str, bytes]:
        """Every object, by its key."""
        client = self.client
        found = client.list_objects_v2(Bucket=self.name).get("Contents", [])
        return {entry["Key"]: client.get_object(Bucket=self.name, Key=entry["Key"])["Body"].read() for entry in found}

    def download(self, folder: Path) -> Path:
        """Every object as a file of the folder."""
        for key, content in self.read().items():
            path = folder / key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return folder

    def list_uploads(self) -> list[Any]:
        """Uploads in parts that were begun and not ended: no reader sees them, and they are paid for."""
        uploads: list[Any] = self.client.list_multipart_uploads(Bucket=self.name).get("Uploads", [])
        return uploads


@contextmanager
def open_s3() -> Iterator[str]:
    """The address of a server, which ends with this."""
    command = [sys.executable, "-c", _SERVE]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        process.stdin.close()


def make_bucket(endpoint: str) -> Bucket:
    """A new bucket."""
    bucket = Bucket(f"bucket-{os.getpid()}-{next(_NUMBERS)}", endpoint)
    bucket.client.create_bucket(Bucket=bucket.name)
    return bucket


def set_environ(monkeypatch: pytest.MonkeyPatch, environ: Mapping[str, str]) -> None:
    """Reach a store from this process."""
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
