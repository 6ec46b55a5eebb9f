"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from diode.errors import FileAccessError

TEMPORARY_SUFFIX = ".part"


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A binary file that takes the place of `path` when the block ends well, and leaves no trace when it does not.

    A reader sees the old content or the new, never a part, even when the machine stops: the content is on the disk
    before the name points to it. A link is followed, so that its target is what is replaced.
    """
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{target.name[:200]}.{secrets.token_hex(8)}{TEMPORARY_SUFFIX}")
    try:
        # Created as open() would: the user's umask decides who may read it, unlike with tempfile.
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
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


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
