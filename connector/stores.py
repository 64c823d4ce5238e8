"""Finds, reads and writes objects of a store, such as Amazon S3, by their URLs. The package `fsspec` does the work.

The library of the store finds the address and the credentials in the environment, in a profile, or in the metadata of
the cloud machine. A URL with credentials is refused and never shown. For errors of the libraries, this module raises
FileNotFoundError or StoreError. fsspec is imported only when a URL is used.
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

_EXTRA_BY_SCHEME: Mapping[str, str] = {
    "s3": "s3", "s3a": "s3", "gs": "gs", "gcs": "gs", "az": "az", "abfs": "az", "abfss": "az", "memory": "s3"
}  # fmt: skip
"""The extra of the connector that installs the library of each scheme. `memory` is for tests, and needs only fsspec."""

_URL_PATTERN = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.\-]*)://(?P<rest>.*)", re.DOTALL)
# The beginning of the options of a signed URL. A ? without a later = is a wildcard.
_URL_OPTIONS_PATTERN = re.compile(r"\?(?=[\w.-]+=)")
_CREDENTIALS_PATTERN = re.compile(r"(?<=://)\S*@")  # up to the last @, because a secret may contain a slash or an @
_WILDCARD_PATTERN = re.compile(r"[*?\[]")

_VERSION_KEYS = ("ETag", "etag", "generation", "VersionId", "LastModified", "last_modified", "updated", "created")
"""The keys under which s3fs, gcsfs, adlfs and the memory store of fsspec have the version of an object. Only the memory
store uses `created`."""

_BYTES_PER_REQUEST = 8 << 20  # number of bytes that one request reads
_S3_PUT_OPTIONS: Mapping[str, object] = {"chunksize": 16 << 20, "max_concurrency": 4}
"""Options for objects of more than 32 MB, which are sent in parts. By default, s3fs has ten parts of 50 MB in
memory."""

_LIBRARY_ERRORS = (
    ("botocore.exceptions", "BotoCoreError"),
    ("botocore.exceptions", "ClientError"),
    ("aiohttp", "ClientError"),
    ("gcsfs.retry", "HttpError"),
    ("google.auth.exceptions", "GoogleAuthError"),
    ("azure.core.exceptions", "AzureError"),
)
"""The module and the name of error classes that the libraries raise. The classes are not subclasses of OSError. A class
of a module that is not imported is ignored, because no code of that module can have raised an error."""

_SECRET_NAME_PATTERN = re.compile(r"SECRET|TOKEN|PASSWORD|_KEY$|CONNECTION_STRING|CREDENTIAL", re.IGNORECASE)
_MIN_MASKED_LENGTH = 8  # a shorter secret is not masked, because the same letters may be a part of other words


class StoreError(OSError):
    """The error of a request to a store. The message contains no secret. If `is_transient`, a later request may
    succeed."""

    def __init__(self, message: str, *, is_transient: bool) -> None:
        super().__init__(message)
        self.is_transient = is_transient


def is_url(location: str | PathLike[str]) -> bool:
    """Return whether a location is a URL and not a path."""
    return _URL_PATTERN.match(fspath(location)) is not None


def is_store_url(location: str | PathLike[str]) -> bool:
    """Return whether a location is the URL of an object in a store."""
    url_match = _URL_PATTERN.match(fspath(location))
    return url_match is not None and url_match["scheme"].lower() in _EXTRA_BY_SCHEME


def is_pattern(url: str) -> bool:
    """Return whether a URL is a pattern for several objects (`*`, `?`, `[…]`)."""
    return _WILDCARD_PATTERN.search(url) is not None


def parse_store_url(text: str) -> str:
    """Return the URL of an object or a pattern with its scheme in lower case.

    Raises ConfigurationError for an unknown scheme, a URL with credentials or options, and a URL without an object. The
    message contains no credentials.
    """
    shown_url = _CREDENTIALS_PATTERN.sub("***@", _URL_OPTIONS_PATTERN.split(text, maxsplit=1)[0])
    url_match = _URL_PATTERN.match(text)
    scheme = url_match["scheme"].lower() if url_match else ""
    if url_match is None or scheme not in _EXTRA_BY_SCHEME:
        raise ConfigurationError(f"{shown_url}: only objects at s3://, gs:// and az:// can be used by a URL")
    if {"@", ":"} & set(url_match["rest"].partition("/")[0]) or _URL_OPTIONS_PATTERN.search(url_match["rest"]):
        raise ConfigurationError(
            f"{shown_url}: a URL cannot contain credentials or options; put them where the store's library looks for "
            "them, such as its environment variables or a profile"
        )
    bucket, _, key = url_match["rest"].lstrip("/").partition("/")
    if not bucket or not key.strip("/") or _WILDCARD_PATTERN.search(bucket):
        raise ConfigurationError(f"{text}: names no object; write {scheme}://bucket/folder/name")
    return f"{scheme}://{bucket}/{key}"


class StoreObject(io.RawIOBase):
    """An open object of `size` bytes that supports `seek`. The methods raise StoreError.

    `failure` is the last StoreError. The error is stored, because the reader of a file format may catch the error and
    report a damaged file.
    """

    def __init__(self, url: str, file: BinaryIO) -> None:
        self._url, self._file = url, file
        self.failure: StoreError | None = None
        self.size = int(getattr(file, "size", None) or 0)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Read into the buffer, and return the number of bytes."""
        try:
            with _open_filesystem(self._url):
                piece = self._file.read(len(buffer))
        except StoreError as error:
            self.failure = error
            raise
        buffer[: len(piece)] = piece
        return len(piece)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def read_pieces(self, size: int) -> Iterator[bytes]:
        """Yield the object in pieces of at most `size` bytes. Raises StoreError, for example if the object ends too
        early.
        """
        read_byte_count = 0
        while piece := self.read(size):
            read_byte_count += len(piece)
            yield piece
        if read_byte_count < self.size:
            raise StoreError(f"the object ended after {read_byte_count:,} of {self.size:,} bytes", is_transient=True)

    def close(self) -> None:
        """Close the object. A second call does nothing."""
        if not self.closed:
            self._file.close()
        super().close()


def open_object(url: str) -> StoreObject:
    """Open the current version of an object for reading. Raises FileNotFoundError and StoreError."""
    with _open_filesystem(url) as filesystem:
        return StoreObject(url, filesystem.open(url, "rb", block_size=_BYTES_PER_REQUEST))


def read_size(url: str) -> int | None:
    """Return the number of bytes of an object, or None if the object does not exist. Raises StoreError."""
    details = _read_object_details(url)
    return None if details is None or details["type"] == "directory" else int(details["size"])


def read_version(url: str) -> tuple[int, object] | None:
    """Return the number of bytes of an object, and a value that is different after each change of the object. Return
    None if the object does not exist. Raises StoreError."""
    details = _read_object_details(url)
    if details is None:
        return None
    return int(details["size"] or 0), tuple(str(details.get(key)) for key in _VERSION_KEYS)


def _read_object_details(url: str) -> Mapping[str, Any] | None:
    try:
        with _open_filesystem(url) as filesystem:
            details: Mapping[str, Any] = filesystem.info(url)
            return details
    except FileNotFoundError:
        return None


def find_objects(pattern: str) -> Sequence[str]:
    """Return the URLs that match a pattern, in the order of their names. A name that begins with a dot matches only a
    pattern that begins with a dot. Raises StoreError."""
    scheme = pattern.partition("://")[0]
    includes_hidden = pattern.rpartition("/")[2].startswith(".")
    with _open_filesystem(pattern) as filesystem:
        details_by_name: Mapping[str, Any] = filesystem.glob(pattern, detail=True)
    names = sorted(name.lstrip("/") for name, details in details_by_name.items() if details["type"] == "file")
    visible_names = [name for name in names if includes_hidden or not name.rpartition("/")[2].startswith(".")]
    # A name with a slash at its end is a folder and not an object.
    urls = [f"{scheme}://{name}" for name in visible_names if not name.endswith("/")]
    if unusable_url := next((url for url in urls if _URL_OPTIONS_PATTERN.search(url)), None):
        raise StoreError(
            f"the name of {unusable_url!r} looks like a URL with an option; rename the object, or narrow the pattern",
            is_transient=False,
        )
    return urls


def check_writable(url: str) -> None:
    """Raise StoreError if no object can be written at this URL. Nothing is written.

    On S3, begin an upload in parts and cancel the upload. Readers do not see the upload. On other stores, only check
    that the bucket exists.
    """
    scheme, _, path = url.partition("://")
    bucket, _, key = path.partition("/")
    try:
        with _open_filesystem(url) as filesystem:
            if url.startswith("s3"):
                upload = filesystem.call_s3("create_multipart_upload", Bucket=bucket, Key=key)
                filesystem.call_s3("abort_multipart_upload", Bucket=bucket, Key=key, UploadId=upload["UploadId"])
            elif scheme != "memory":
                filesystem.info(f"{scheme}://{bucket}")
    except FileNotFoundError:
        raise StoreError(f"there is no bucket {bucket}", is_transient=False) from None


def put_file(file: BinaryIO, url: str, *, must_be_new: bool = False) -> None:
    """Replace the object by the content of a local file in one step.

    Raises FileExistsError if `must_be_new` and the object exists, FileNotFoundError for a missing bucket, and
    StoreError. If `must_be_new`, S3 itself refuses to replace an object. In other stores, this function first looks
    whether the object exists.
    """
    file.flush()
    file.seek(0)
    put_options: Mapping[str, object] = {}
    if url.startswith("s3"):
        put_options = {**_S3_PUT_OPTIONS, "mode": "create"} if must_be_new else _S3_PUT_OPTIONS
    elif must_be_new and read_size(url) is not None:
        raise FileExistsError(url)
    with _open_filesystem(url) as filesystem:
        filesystem.put_file(f"/dev/fd/{file.fileno()}", url, **put_options)


@contextmanager
def _open_filesystem(url: str) -> Iterator[Any]:
    """Yield the file system of a URL. For an error of the library in the body of `with`, raise StoreError without
    secrets."""
    scheme = url.partition("://")[0]
    try:
        import fsspec

        filesystem = fsspec.filesystem(scheme, use_listings_cache=False)
    except ImportError:
        advice = f"pip install 'subscriber-connector[{_EXTRA_BY_SCHEME[scheme]}]'"
        raise ConfigurationError(f"{url}: the library for {scheme}:// is not installed; {advice}") from None
    except ValueError as error:  # the library cannot use its settings, for example adlfs without an account
        raise StoreError(_mask_secrets(str(error)), is_transient=False) from None
    try:
        yield filesystem
    except (FileNotFoundError, FileExistsError):
        raise
    except Exception as error:
        error_classes = (getattr(sys.modules.get(module), name, None) for module, name in _LIBRARY_ERRORS)
        if not isinstance(error, (OSError, ValueError, *filter(None, error_classes))):
            raise
        # s3fs stores the answer of S3 in the cause of the error.
        answer = getattr(error.__cause__, "response", None) or {}
        if answer.get("Error", {}).get("Code") == "PreconditionFailed":
            # Another program has created the object meanwhile.
            raise FileExistsError(url) from None
        error_name = type(error).__name__
        is_permanent = (
            isinstance(error, PermissionError | ValueError) or "Credential" in error_name or "Auth" in error_name
        )
        message = error.strerror if isinstance(error, OSError) and error.strerror else describe_error(error)
        advice = "; check the credentials and their rights" if is_permanent else ""
        raise StoreError(_mask_secrets(message.rstrip(".")) + advice, is_transient=not is_permanent) from None


def _mask_secrets(message: str) -> str:
    """Return a library's message, without users and passwords in URLs, and without secrets of the environment."""
    secrets = {
        value
        for name, value in os.environ.items()
        if _SECRET_NAME_PATTERN.search(name) and len(value) >= _MIN_MASKED_LENGTH
    }
    for secret in sorted(secrets, key=len, reverse=True):
        message = message.replace(secret, "***")
    return _CREDENTIALS_PATTERN.sub("***@", message)
