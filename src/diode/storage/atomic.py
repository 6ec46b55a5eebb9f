"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

from diode.errors import FileAccessError

TEMPORARY_SUFFIX = ".part"
_OPEN_FILES: Final = Path("/proc/self/fd")


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A binary file that takes the place of `path` when the block ends well, and leaves no trace when it does not.

    A reader sees the old content or the new, never a part, even when the machine stops: the content is on the disk
    before the name points to it. Where the system can, the file has no name until it is whole: then not even a process
    killed while it writes leaves anything behind. A link is followed, so that its target is what is replaced.
    """
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{target.name[:200]}.{secrets.token_hex(8)}{TEMPORARY_SUFFIX}")
    try:
        nameless = _nameless_file(target.parent)
        with nameless or temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            if nameless:
                # The folder's descriptor means nothing to an absolute path, but without one Python links the link.
                os.link(_OPEN_FILES / str(file.fileno()), temporary, src_dir_fd=file.fileno())
        os.replace(temporary, target)
        _sync_folder(target.parent)
    except BaseException as cause:
        with suppress(OSError):
            temporary.unlink()
        if isinstance(cause, OSError):
            raise FileAccessError(f"{path}: cannot be written: {cause.strerror or cause}") from cause
        raise


def write_atomically(path: Path, content: bytes) -> None:
    with replacing(path) as file:
        file.write(content)


def _nameless_file(folder: Path) -> BinaryIO | None:
    flag = getattr(os, "O_TMPFILE", None)  # Linux alone has it
    if flag is None or not _OPEN_FILES.is_dir():
        return None
    try:
        # Who may read it, the user's umask decides as with open(), unlike with tempfile.
        return os.fdopen(os.open(folder, flag | os.O_WRONLY | os.O_CLOEXEC, 0o666), "wb")
    except OSError:
        return None  # some file systems cannot; and what else is wrong, opening by name says better


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
