"""The one error tree of diode: every message says what was wrong, where, and what to do."""

from __future__ import annotations


class DiodeError(Exception):
    """Base of every error that diode raises on purpose; the command line prints it without a traceback."""


class InvalidRecordError(DiodeError, ValueError):
    """A problem, choice, measurement or hardware record contradicts itself.

    A ValueError too, so that msgspec adds the record's place in a file to it.
    """


class FileFormatError(DiodeError):
    """A file cannot be read as what it should be; names the file, the record and the field."""


class FileAccessError(DiodeError):
    """A file or folder cannot be found, read or written; names it and the system's reason."""


class UnsupportedError(DiodeError):
    """This machine, torch or device lacks something that was asked for."""


class MissingDependencyError(DiodeError):
    """An optional dependency is not installed; names the command that installs it."""

    def __init__(self, package: str, purpose: str, extra: str) -> None:
        super().__init__(f"{purpose} needs {package}, which is not installed: pip install 'torch-diode-lib[{extra}]'")


class CollectionError(DiodeError):
    """A collection cannot start or go on; what was measured before stays on disk."""


class UsageError(DiodeError):
    """The command's words contradict one another or name something that does not exist."""


class SelectionError(DiodeError):
    """The model could not choose for a GEMM; raised into a compile only where falling back was forbidden."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        """The name of the statistic that counts it."""


class IntegrationError(DiodeError):
    """A part of torch that an integration needs is missing, or an integration breaks its contract."""
