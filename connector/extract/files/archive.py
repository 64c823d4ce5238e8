"""The one file that a zip archive is there for; a workbook is a zip archive too, and is left whole."""

import stat
import zipfile
from pathlib import PurePosixPath
from typing import BinaryIO

from connector.errors import SourceError

_NAMES_SHOWN = 5


def choose_member(file: BinaryIO, name: str) -> zipfile.ZipInfo | None:
    """The only file of the archive, or None if the archive is a workbook or another program's document.

    Folders and what macOS adds of its own (`__MACOSX/`, names that begin with a dot) do not count. Raises SourceError
    for a damaged archive, for none or several files in it, and for one that a password protects.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
    except (zipfile.BadZipFile, OSError, NotImplementedError, ValueError) as error:
        raise SourceError(f"{name}: is a ZIP archive that is cut off or damaged ({error}); fetch it anew") from None
    if {"[Content_Types].xml", "content.xml"} & {member.filename for member in members}:
        return None
    files = [member for member in members if _is_somebodys(member)]
    if len(files) != 1:
        names = ", ".join(member.filename for member in files[:_NAMES_SHOWN])
        more = " …" if len(files) > _NAMES_SHOWN else ""
        held = f"{len(files)} files ({names}{more})" if files else "no file"
        raise SourceError(f"{name}: the ZIP archive holds {held}; it must hold exactly one: unpack it")
    if files[0].flag_bits & 1:
        raise SourceError(f"{name}: {files[0].filename} in it is protected by a password; unpack it first")
    return files[0]


def _is_somebodys(member: zipfile.ZipInfo) -> bool:
    path = PurePosixPath(member.filename)
    is_link = stat.S_ISLNK(member.external_attr >> 16)
    return not (member.is_dir() or is_link or path.parts[:1] == ("__MACOSX",) or path.name.startswith("."))
