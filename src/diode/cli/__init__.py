"""The command line: one module per command, thin; `diode` and `python workflows/matmul_toolkit.py` are the same."""

from __future__ import annotations

import os
import sys

from diode.cli.exit_codes import FAILED, STOPPED, WRONG_WORDS


def main() -> None:
    """Runs the command. An error is one line on stderr; the exit code is 2 for words that are wrong, else 1."""
    try:
        sys.exit(_run())
    except KeyboardInterrupt:
        sys.exit(STOPPED)


def _run() -> int:
    import typer

    from diode.cli.app import app
    from diode.cli.console import fail
    from diode.errors import DiodeError, FileAccessError, UsageError

    # The base of all that is wrong with words; which package it lives in changes with typer's version.
    wrong_words: type[Exception] = typer.BadParameter.__mro__[2]
    try:
        code = app(standalone_mode=False)
        sys.stdout.flush()
    except DiodeError as error:
        fail(error)
        return WRONG_WORDS if isinstance(error, UsageError) else FAILED
    except typer.Abort:
        return STOPPED
    except OSError as error:
        _leave_stdout()
        if not isinstance(error, BrokenPipeError):  # who reads has seen enough, as in `| head`
            place = "the output" if error.filename is None else error.filename
            fail(FileAccessError(f"{place}: cannot be read or written: {error.strerror or error}"))
        return FAILED
    except wrong_words as error:
        message = error.format_message()  # type: ignore[attr-defined]  # all of them have it
        if message and "\n" not in message:
            fail(UsageError(f"{message} {_where_help_is(error)}"))
        elif message:  # older versions hand over the help that the newest has printed already
            sys.stderr.write(f"{message}\n")
        return WRONG_WORDS
    return code if isinstance(code, int) else 0


def _where_help_is(error: Exception) -> str:
    context = getattr(error, "ctx", None)
    return f"({'diode' if context is None else context.command_path} --help explains)"


def _leave_stdout() -> None:
    """What could not be written is not tried again while Python ends, where it would be a traceback."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
