"""A file as a part of an email: read whole, bounded, its type told by its name alone and the same on every machine."""

import stat
from mimetypes import MimeTypes
from pathlib import Path, PurePath
from typing import Literal

from connector.protocol.email import Attachment
from connector.protocol.email_rules import MessageError

FIELD = "Email.Attachments"
UNKNOWN_TYPE = "application/octet-stream"

# Packed as a whole: what is inside is not what a mail program would open.
_PACKED = {
    ".gz": "application/gzip",
    ".tgz": "application/gzip",
    ".svgz": "application/gzip",
    ".bz2": "application/x-bzip2",
    ".xz": "application/x-xz",
    ".zst": "application/zstd",
}
_OFFICE = "application/vnd.openxmlformats-officedocument"
_OPEN = "application/vnd.oasis.opendocument"
# What people attach and Python's table lacks, or has otherwise in one of its versions.
_OURS = _PACKED | {
    ".7z": "application/x-7z-compressed",
    ".avif": "image/avif",
    ".docx": f"{_OFFICE}.wordprocessingml.document",
    ".epub": "application/epub+zip",
    ".gpx": "application/gpx+xml",
    ".heic": "image/heic",
    ".ics": "text/calendar",
    ".js": "text/javascript",
    ".jsonl": "application/jsonl",
    ".m4a": "audio/mp4",
    ".md": "text/markdown",
    ".odp": f"{_OPEN}.presentation",
    ".ods": f"{_OPEN}.spreadsheet",
    ".odt": f"{_OPEN}.text",
    ".ogg": "audio/ogg",
    ".parquet": "application/vnd.apache.parquet",
    ".pkpass": "application/vnd.apple.pkpass",
    ".pptx": f"{_OFFICE}.presentationml.presentation",
    ".rar": "application/vnd.rar",
    ".rtf": "application/rtf",
    ".vcf": "text/vcard",
    ".wav": "audio/x-wav",
    ".webp": "image/webp",
    ".xlsx": f"{_OFFICE}.spreadsheetml.sheet",
    ".xml": "application/xml",
    ".yaml": "application/yaml",
    ".yml": "application/yaml",
    ".zip": "application/zip",
}


def _build_types() -> dict[str, str]:
    """Python's own table, without what the machine's files add to it, under ours."""
    own = MimeTypes()
    return {**own.types_map[False], **own.types_map[True], **_OURS}


_TYPES = _build_types()


def guess_type(name: str) -> str:
    """The MIME type of a file of this name; UNKNOWN_TYPE for a suffix that says nothing."""
    return _TYPES.get(PurePath(name).suffix.lower(), UNKNOWN_TYPE)


def read_attachment(
    path: Path,
    *,
    most_bytes: int,
    disposition: Literal["attachment", "inline"] = "attachment",
    content_id: str | None = None,
    mime_type: str | None = None,
    field: str = FIELD,
) -> Attachment:
    """The file as a part of an email, under its own name; of a larger one no more than `most_bytes` + 1 are read.

    Raises MessageError with `field` and the path: it is missing, unreadable, no ordinary file, empty or too large.
    """
    content = _read(path, most_bytes, field)
    if not content:
        raise MessageError(field, f"{describe_path(path)} is empty; attach a file that holds something")
    return Attachment(content, path.name, mime_type or guess_type(path.name), disposition, content_id)


def describe_path(path: Path) -> str:
    """The path in quotes, fit for any terminal whatever its name holds."""
    return repr(str(path))


def _read(path: Path, most_bytes: int, field: str) -> bytes:
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise MessageError(field, f"{describe_path(path)} is a folder; name a file, or pack the folder into one")
        if not stat.S_ISREG(mode):  # a pipe or a device: reading it may wait, or never end
            raise MessageError(field, f"{describe_path(path)} is no ordinary file; name one")
        with path.open("rb") as file:
            content = file.read(most_bytes + 1)
    except FileNotFoundError:
        raise MessageError(field, f"{describe_path(path)} does not exist; check the path") from None
    except OSError as error:
        raise MessageError(field, f"{describe_path(path)} cannot be read: {error.strerror}") from None
    except ValueError:
        raise MessageError(field, f"{describe_path(path)} is no path: it holds a NUL") from None
    if len(content) > most_bytes:
        raise MessageError(
            field, f"{describe_path(path)} is larger than the {most_bytes:,} bytes that are allowed; attach less"
        )
    return content
