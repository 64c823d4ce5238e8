"""Objects of a store, such as Amazon S3, by fsspec: found, read and put by their URLs.

The store's library finds its address and credentials as it always does: in the environment, a profile or the instance.
A URL with credentials in it is refused and never shown. What a library raises is translated here, once, to
FileNotFoundError and StoreError. fsspec is imported where a URL is used, and nowhere else.
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
"""The extra that brings the library of a scheme; memory, for trials within one process, needs fsspec alone."""

_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.\-]*)://(?P<rest>.*)", re.DOTALL)
_OPTIONS = re.compile(r"\?(?=[\w.-]+=)")  # of a signed URL; a lone ? belongs to a pattern
_USER = re.compile(r"(?<=://)\S*@")  # greedy: a secret may hold a slash or an @ of its own
_MAGIC = re.compile(r"[*?\[]")

_VERSION_KEYS = ("ETag", "etag", "generation", "VersionId", "LastModified", "last_modified", "updated", "created")
"""What s3fs, gcsfs, adlfs and fsspec's memory say of an object's version; `created` is of the memory alone."""

_READ_BYTES = 8 << 20  # at a time: a request for each
_PUT_OPTIONS: Mapping[str, Mapping[str, int]] = {"s3": {"chunksize": 16 << 20, "max_concurrency": 4}}
"""An object of more than 32 MB leaves in parts. s3fs would hold ten of 50 MB in memory."""

_ERRORS = (
    ("botocore.exceptions", "BotoCoreError"),
    ("botocore.exceptions", "ClientError"),
    ("aiohttp", "ClientError"),
    ("gcsfs.retry", "HttpError"),
    ("google.auth.exceptions", "GoogleAuthError"),
    ("azure.core.exceptions", "AzureError"),
)
"""What the libraries raise beside OSError. One that is not imported has raised nothing."""

_SECRETS = re.compile(r"SECRET|TOKEN|PASSWORD|_KEY$|CONNECTION_STRING|CREDENTIAL", re.IGNORECASE)
_LEAST_MASKED = 8  # characters of a secret in the environment; a shorter one would be masked within words


class StoreError(OSError):
    """A store refused or failed, in words fit to show. `is_passing`: the same may succeed later, by itself."""

    def __init__(self, said: str, *, is_passing: bool) -> None:
        super().__init__(said)
        self.is_passing = is_passing


def is_url(place: str | PathLike[str]) -> bool:
    """Return whether this is written as a URL, of a store or of anything else."""
    return _URL.match(fspath(place)) is not None


def is_store_url(place: str | PathLike[str]) -> bool:
    """Return whether this is the URL of an object in a store."""
    found = _URL.match(fspath(place))
    return found is not None and found["scheme"].lower() in _EXTRAS


def is_pattern(url: str) -> bool:
    """Return whether the URL may stand for several objects (`*`, `?`, `[…]`)."""
    return _MAGIC.search(url) is not None


def mask_url(text: str) -> str:
    """Return a URL fit to show: without user and password, and without options."""
    return _USER.sub("***@", _OPTIONS.split(text, maxsplit=1)[0])


def parse_store_url(text: str) -> str:
    """Return the URL of an object or a pattern, its scheme in small letters. Raises ConfigurationError, without showing
    a credential, for another scheme, a URL that holds credentials or names no object."""
    found = _URL.match(text)
    scheme = found["scheme"].lower() if found else ""
    if found is None or scheme not in _EXTRAS:
        raise ConfigurationError(f"{mask_url(text)}: only objects at s3://, gs:// and az:// can be used by a URL")
    if {"@", ":"} & set(found["rest"].partition("/")[0]) or _OPTIONS.search(found["rest"]):
        raise ConfigurationError(
            f"{mask_url(text)}: a URL may hold no credentials and no options; put them where the store's library looks "
            "for them, such as its environment variables or a profile"
        )
    bucket, _, key = found["rest"].lstrip("/").partition("/")
    if not bucket or not key.strip("/") or _MAGIC.search(bucket):
        raise ConfigurationError(f"{text}: names no object; write {scheme}://bucket/folder/name")
    return f"{scheme}://{bucket}/{key}"


class StoreObject(io.RawIOBase):
    """An object that is being read, with `seek`; `size` is its bytes. Its methods raise StoreError, which stays as
    `failure` should a reader of some format take it for a damaged file."""

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
        """Fill the buffer as far as the object goes."""
        try:
            with _reach(self._url):
                piece = self._file.read(len(buffer))
        except StoreError as error:
            self.failure = error
            raise
        buffer[: len(piece)] = piece
        return len(piece)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to this byte."""
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        """Return the byte that is read next."""
        return self._file.tell()

    def read_pieces(self, size: int) -> Iterator[bytes]:
        """Yield all of it in pieces of at most `size` bytes. Raises StoreError, also where it ends too early."""
        given = 0
        while piece := self.read(size):
            given += len(piece)
            yield piece
        if given < self.size:
            raise StoreError(f"it ended after {given:,} of {self.size:,} bytes", is_passing=True)

    def close(self) -> None:
        """Release it."""
        if not self.closed:
            self._file.close()
        super().close()


def open_object(url: str) -> StoreObject:
    """Open an object for reading as the store has it now. Raises FileNotFoundError and StoreError."""
    with _reach(url) as filesystem:
        return StoreObject(url, filesystem.open(url, "rb", block_size=_READ_BYTES))


def read_size(url: str) -> int | None:
    """Return the bytes of an object; None if there is no such object. Raises StoreError."""
    try:
        with _reach(url) as filesystem:
            found: Mapping[str, Any] = filesystem.info(url)
    except FileNotFoundError:
        return None
    return None if found["type"] == "directory" else int(found["size"])


def read_version(url: str) -> tuple[int, object] | None:
    """Return the bytes of an object, and all that its store says of its version: equal as long as the object stays as
    it is. None if there is no such object. Raises StoreError."""
    try:
        with _reach(url) as filesystem:
            found: Mapping[str, Any] = filesystem.info(url)
    except FileNotFoundError:
        return None
    return int(found["size"] or 0), tuple(str(found.get(key)) for key in _VERSION_KEYS)


def find_objects(pattern: str) -> Sequence[str]:
    """Return the URLs that match a pattern, in the order of their names; names that begin with a dot match only a
    pattern that does. Raises StoreError."""
    scheme = pattern.partition("://")[0]
    is_hidden_meant = pattern.rpartition("/")[2].startswith(".")
    with _reach(pattern) as filesystem:
        found: Mapping[str, Any] = filesystem.glob(pattern, detail=True)
    names = sorted(name.lstrip("/") for name, details in found.items() if details["type"] == "file")
    shown = [name for name in names if is_hidden_meant or not name.rpartition("/")[2].startswith(".")]
    urls = [f"{scheme}://{name}" for name in shown if not name.endswith("/")]  # one with a slash marks a folder
    if odd := next((url for url in urls if _OPTIONS.search(url)), None):
        raise StoreError(
            f"the name of {odd!r} reads like the option of a URL; rename it, or narrow the pattern", is_passing=False
        )
    return urls


def check_writable(url: str) -> None:
    """See whether an object may be put there, and leave nothing behind: on S3 an upload in parts is begun and given up,
    which no reader sees; elsewhere only the bucket is looked at. Raises StoreError."""
    bucket, _, key = url.partition("://")[2].partition("/")
    try:
        with _reach(url) as filesystem:
            if url.startswith("s3"):
                begun = filesystem.call_s3("create_multipart_upload", Bucket=bucket, Key=key)
                filesystem.call_s3("abort_multipart_upload", Bucket=bucket, Key=key, UploadId=begun["UploadId"])
            elif not url.startswith("memory"):
                filesystem.info(f"{url.partition('://')[0]}://{bucket}")
    except FileNotFoundError:
        raise StoreError(f"there is no bucket {bucket}", is_passing=False) from None


def put_file(file: BinaryIO, url: str, *, is_new: bool = False) -> None:
    """Let the contents of a file of this machine be the object, whole and in one step; `is_new`: no object is there
    yet.

    Raises FileExistsError for one that is there against `is_new` (on S3 judged by the store itself, elsewhere just
    before), FileNotFoundError for a bucket that is gone, and StoreError.
    """
    file.flush()
    file.seek(0)
    options = _PUT_OPTIONS.get(url[:2], {})
    if is_new and not url.startswith("s3") and read_size(url) is not None:
        raise FileExistsError(url)
    mode = {"mode": "create"} if is_new and url.startswith("s3") else {}
    with _reach(url) as filesystem:
        filesystem.put_file(f"/dev/fd/{file.fileno()}", url, **options, **mode)


def _open_filesystem(url: str) -> Any:
    scheme = url.partition("://")[0]
    try:
        import fsspec

        return fsspec.filesystem(scheme, use_listings_cache=False)
    except ImportError:
        advice = f"pip install 'subscriber-connector[{_EXTRAS[scheme]}]'"
        raise ConfigurationError(f"{url}: the library for {scheme}:// is not installed; {advice}") from None
    except ValueError as error:  # settings that the library cannot use, as adlfs says without an account
        raise StoreError(_mask(str(error)), is_passing=False) from None


@contextmanager
def _reach(url: str) -> Iterator[Any]:
    """The file system of a URL; what its library raises meanwhile becomes a StoreError, fit to show."""
    filesystem = _open_filesystem(url)
    try:
        yield filesystem
    except (FileNotFoundError, FileExistsError):
        raise
    except Exception as error:
        kinds = (getattr(sys.modules.get(module), name, None) for module, name in _ERRORS)
        if not isinstance(error, (OSError, ValueError, *filter(None, kinds))):
            raise
        answer = getattr(error.__cause__, "response", None) or {}  # of S3: s3fs keeps it as the cause of what it raises
        if answer.get("Error", {}).get("Code") == "PreconditionFailed":  # another object came meanwhile
            raise FileExistsError(url) from None
        kind = type(error).__name__
        is_final = isinstance(error, PermissionError | ValueError) or "Credential" in kind or "Auth" in kind
        said = error.strerror if isinstance(error, OSError) and error.strerror else describe_error(error)
        advice = "; check the credentials, and the rights that they have" if is_final else ""
        raise StoreError(_mask(said.rstrip(".")) + advice, is_passing=not is_final) from None


def _mask(said: str) -> str:
    """What a library says, without a user in a URL, and without a secret of the environment should it quote one."""
    secrets = {value for name, value in os.environ.items() if _SECRETS.search(name) and len(value) >= _LEAST_MASKED}
    for secret in sorted(secrets, key=len, reverse=True):
        said = said.replace(secret, "***")
    return _USER.sub("***@", said)
