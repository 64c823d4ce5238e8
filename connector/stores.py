"""Finds, reads and writes objects of a store, such as Amazon S3, by their URLs and fsspec.

The library of the store finds the address and the credentials in the environment, a profile or the instance. A URL with
credentials is refused and never shown. Errors of the libraries become FileNotFoundError or StoreError here. fsspec is
imported only when a URL is used.
"""

import io
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike, fspath
from typing import Any, BinaryIO

from connector.driver_errors import describe_error
from connector.errors import ConfigurationError

_EXTRAS: Mapping[str, str] = {
    "s3": "s3", "s3a": "s3", "gs": "gs", "gcs": "gs", "az": "az", "abfs": "az", "abfss": "az", "memory": "s3"
}  # fmt: skip
"""The extra of the connector with the library of each scheme. `memory` is for tests, and needs only fsspec."""

_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.\-]*)://(?P<rest>.*)", re.DOTALL)
_OPTIONS = re.compile(r"\?(?=[\w.-]+=)")  # the options of a signed URL; a ? without = belongs to a pattern
_USER = re.compile(r"(?<=://)\S*@")  # greedy: a secret may contain a slash or an @
_MAGIC = re.compile(r"[*?\[]")

_VERSION_KEYS = ("ETag", "etag", "generation", "VersionId", "LastModified", "last_modified", "updated", "created")
"""The keys of s3fs, gcsfs, adlfs and fsspec's memory for the version of an object (`created`: memory only)."""

_READ_BYTES = 8 << 20  # for each request
_PUT_OPTIONS: Mapping[str, Mapping[str, int]] = {"s3": {"chunksize": 16 << 20, "max_concurrency": 4}}
"""An object of more than 32 MB is sent in parts. The default of s3fs keeps ten parts of 50 MB in memory."""

_ERRORS = (
    ("botocore.exceptions", "BotoCoreError"),
    ("botocore.exceptions", "ClientError"),
    ("aiohttp", "ClientError"),
    ("gcsfs.retry", "HttpError"),
    ("google.auth.exceptions", "GoogleAuthError"),
    ("azure.core.exceptions", "AzureError"),
)
"""The errors of the libraries that are not an OSError, by module. A module that is not imported raises no error."""

_SECRETS = re.compile(r"SECRET|TOKEN|PASSWORD|_KEY$|CONNECTION_STRING|CREDENTIAL", re.IGNORECASE)
_MIN_MASKED = 8  # characters of a secret in the environment; masking a shorter one would change other words


class StoreError(OSError):
    """A request to a store has failed. The message has no secret. `is_passing`: a later request may succeed."""

    def __init__(self, message: str, *, is_passing: bool) -> None:
        super().__init__(message)
        self.is_passing = is_passing


def is_url(location: str | PathLike[str]) -> bool:
    """Return whether a location is a URL and not a path."""
    return _URL.match(fspath(location)) is not None


def is_store_url(location: str | PathLike[str]) -> bool:
    """Return whether a location is the URL of an object in a store."""
    parts = _URL.match(fspath(location))
    return parts is not None and parts["scheme"].lower() in _EXTRAS


def is_pattern(url: str) -> bool:
    """Return whether a URL is a pattern for several objects (`*`, `?`, `[…]`)."""
    return _MAGIC.search(url) is not None


def parse_store_url(text: str) -> str:
    """Return the URL of an object or a pattern with its scheme in lower case.

    Raises ConfigurationError for another scheme, a URL with credentials or options, and a URL without an object. The
    message contains no credentials.
    """
    shown = _USER.sub("***@", _OPTIONS.split(text, maxsplit=1)[0])
    parts = _URL.match(text)
    scheme = parts["scheme"].lower() if parts else ""
    if parts is None or scheme not in _EXTRAS:
        raise ConfigurationError(f"{shown}: only objects at s3://, gs:// and az:// can be used by a URL")
    if {"@", ":"} & set(parts["rest"].partition("/")[0]) or _OPTIONS.search(parts["rest"]):
        raise ConfigurationError(
            f"{shown}: a URL may hold no credentials and no options; put them where the store's library looks for "
            "them, such as its environment variables or a profile"
        )
    bucket, _, key = parts["rest"].lstrip("/").partition("/")
    if not bucket or not key.strip("/") or _MAGIC.search(bucket):
        raise ConfigurationError(f"{text}: names no object; write {scheme}://bucket/folder/name")
    return f"{scheme}://{bucket}/{key}"


class StoreObject(io.RawIOBase):
    """An open object of `size` bytes, with `seek`. Its methods raise StoreError.

    `failure` is the last StoreError: a reader of a format may catch the error and report a damaged file.
    """

    def __init__(self, url: str, file: BinaryIO) -> None:
        self._url, self._file = url, file
        self.failure: StoreError | None = None
        self.size = int(getattr(file, "size", None) or 0)

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read into the buffer, and return the number of bytes."""
        try:
            with _reach(self._url):
                piece = self._file.read(len(buffer))
        except StoreError as error:
            self.failure = error
            raise
        buffer[: len(piece)] = piece
        return len(piece)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Set the position, and return it."""
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        """Return the position."""
        return self._file.tell()

    def read_pieces(self, size: int) -> Iterator[bytes]:
        """Yield the object in pieces of at most `size` bytes. Raises StoreError, also if the object ends too early."""
        read_bytes = 0
        while piece := self.read(size):
            read_bytes += len(piece)
            yield piece
        if read_bytes < self.size:
            raise StoreError(f"it ended after {read_bytes:,} of {self.size:,} bytes", is_passing=True)

    def close(self) -> None:
        """Close the object. May be called more than once."""
        if not self.closed:
            self._file.close()
        super().close()


def open_object(url: str) -> StoreObject:
    """Open the current version of an object for reading. Raises FileNotFoundError and StoreError."""
    with _reach(url) as filesystem:
        return StoreObject(url, filesystem.open(url, "rb", block_size=_READ_BYTES))


def read_size(url: str) -> int | None:
    """Return the number of bytes of an object, or None if the object does not exist. Raises StoreError."""
    details = _read_details(url)
    return None if details is None or details["type"] == "directory" else int(details["size"])


def read_version(url: str) -> tuple[int, object] | None:
    """Return the number of bytes of an object, and a value that differs after each change of the object. Return None if
    the object does not exist. Raises StoreError."""
    details = _read_details(url)
    if details is None:
        return None
    return int(details["size"] or 0), tuple(str(details.get(key)) for key in _VERSION_KEYS)


def _read_details(url: str) -> Mapping[str, Any] | None:
    try:
        with _reach(url) as filesystem:
            details: Mapping[str, Any] = filesystem.info(url)
            return details
    except FileNotFoundError:
        return None


def find_objects(pattern: str) -> Sequence[str]:
    """Return the URLs that match a pattern, in the order of their names. A name that begins with a dot matches only a
    pattern that begins with a dot. Raises StoreError."""
    scheme = pattern.partition("://")[0]
    has_hidden = pattern.rpartition("/")[2].startswith(".")
    with _reach(pattern) as filesystem:
        details_by_name: Mapping[str, Any] = filesystem.glob(pattern, detail=True)
    names = sorted(name.lstrip("/") for name, details in details_by_name.items() if details["type"] == "file")
    shown = [name for name in names if has_hidden or not name.rpartition("/")[2].startswith(".")]
    urls = [f"{scheme}://{name}" for name in shown if not name.endswith("/")]  # a name with a slash is a folder
    if unusable := next((url for url in urls if _OPTIONS.search(url)), None):
        raise StoreError(
            f"the name of {unusable!r} reads like the option of a URL; rename it, or narrow the pattern",
            is_passing=False,
        )
    return urls


def check_writable(url: str) -> None:
    """Raise StoreError if no object can be written at this URL. Nothing is written.

    On S3, an upload in parts is begun and cancelled, which no reader sees. Other stores are only asked for the bucket.
    """
    scheme, _, path = url.partition("://")
    bucket, _, key = path.partition("/")
    try:
        with _reach(url) as filesystem:
            if url.startswith("s3"):
                upload = filesystem.call_s3("create_multipart_upload", Bucket=bucket, Key=key)
                filesystem.call_s3("abort_multipart_upload", Bucket=bucket, Key=key, UploadId=upload["UploadId"])
            elif scheme != "memory":
                filesystem.info(f"{scheme}://{bucket}")
    except FileNotFoundError:
        raise StoreError(f"there is no bucket {bucket}", is_passing=False) from None


def put_file(file: BinaryIO, url: str, *, is_new: bool = False) -> None:
    """Replace the object by the content of a local file in one step.

    Raises FileExistsError if `is_new` and the object exists, FileNotFoundError for a missing bucket, and StoreError. S3
    itself refuses an existing object; in other stores the object is looked up before.
    """
    file.flush()
    file.seek(0)
    options = _PUT_OPTIONS.get(url[:2], {})
    if is_new and not url.startswith("s3") and read_size(url) is not None:
        raise FileExistsError(url)
    mode = {"mode": "create"} if is_new and url.startswith("s3") else {}
    with _reach(url) as filesystem:
        filesystem.put_file(f"/dev/fd/{file.fileno()}", url, **options, **mode)


@contextmanager
def _reach(url: str) -> Iterator[Any]:
    """Yield the file system of a URL. Errors of its library in the body of `with` become StoreError without secrets."""
    scheme = url.partition("://")[0]
    try:
        import fsspec

        filesystem = fsspec.filesystem(scheme, use_listings_cache=False)
    except ImportError:
        advice = f"pip install 'subscriber-connector[{_EXTRAS[scheme]}]'"
        raise ConfigurationError(f"{url}: the library for {scheme}:// is not installed; {advice}") from None
    except ValueError as error:  # settings that the library cannot use: adlfs without an account
        raise StoreError(_mask(str(error)), is_passing=False) from None
    try:
        yield filesystem
    except (FileNotFoundError, FileExistsError):
        raise
    except Exception as error:
        kinds = (getattr(sys.modules.get(module), name, None) for module, name in _ERRORS)
        if not isinstance(error, (OSError, ValueError, *filter(None, kinds))):
            raise
        answer = getattr(error.__cause__, "response", None) or {}  # the answer of S3, which s3fs keeps as the cause
        if answer.get("Error", {}).get("Code") == "PreconditionFailed":  # the object was created meanwhile
            raise FileExistsError(url) from None
        kind = type(error).__name__
        is_final = isinstance(error, PermissionError | ValueError) or "Credential" in kind or "Auth" in kind
        message = error.strerror if isinstance(error, OSError) and error.strerror else describe_error(error)
        advice = "; check the credentials, and the rights that they have" if is_final else ""
        raise StoreError(_mask(message.rstrip(".")) + advice, is_passing=not is_final) from None


def _mask(message: str) -> str:
    """Return a message of a library without users and passwords in URLs, and without secrets of the environment."""
    secrets = {value for name, value in os.environ.items() if _SECRETS.search(name) and len(value) >= _MIN_MASKED}
    for secret in sorted(secrets, key=len, reverse=True):
        message = message.replace(secret, "***")
    return _USER.sub("***@", message)
