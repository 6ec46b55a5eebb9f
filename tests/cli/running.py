"""Runs the command as a user does: in this process, where that says as much in less time, or as one of its own."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path

import torch

import diode.cli

ONE_THREAD = {"OMP_NUM_THREADS": "1"}
"""As `one_thread` for other processes."""
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str


def diode_here(folder: Path, *words: object) -> Done:
    """The command in `folder`, with its output piped."""
    out, err = io.StringIO(), io.StringIO()
    with _standing_in(folder), one_thread(), redirect_stdout(out), redirect_stderr(err):
        before, sys.argv = sys.argv, ["diode", *map(str, words)]
        try:
            diode.cli.main()
        except SystemExit as end:
            return Done(int(end.code or 0), out.getvalue(), err.getvalue())
        finally:
            sys.argv = before
    raise AssertionError("the command ends with an exit code")


def start_diode(folder: Path, *words: object) -> subprocess.Popen[str]:
    """A process that runs the command in `folder`."""
    return subprocess.Popen(
        [sys.executable, "-m", "diode.cli", *map(str, words)],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a group to which a signal can be sent as a terminal sends it
        env={**os.environ, **ONE_THREAD},
    )


def finished(process: subprocess.Popen[str]) -> Done:
    out, err = process.communicate()
    return Done(process.returncode, out, err)


def refusal(folder: Path, *words: object, code: int = 1) -> str:
    """The one line with which the command refuses, having left everything in `folder` as it was."""
    before = contents(folder)
    done = diode_here(folder, *words)
    assert (done.code, done.out) == (code, ""), done
    assert contents(folder) == before
    assert done.err.startswith("error: "), done.err
    message = done.err.removeprefix("error: ").removesuffix("\n")
    assert "\n" not in message
    return message


def contents(folder: Path) -> dict[Path, bytes | None]:
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


@contextmanager
def _standing_in(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


@contextmanager
def one_thread() -> Iterator[None]:
    """Networks this small are not trained faster by two, and much slower where others use the cores as well."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def in_terminal(folder: Path, *words: object) -> Done:
    """The command on a terminal of 200 columns; what it writes to either stream is in `out`, colours left out."""
    ours, theirs = pty.openpty()
    surroundings = {**os.environ, **ONE_THREAD, "TERM": "xterm"}
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 200, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "diode.cli", *map(str, words)],
        cwd=folder,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={name: value for name, value in surroundings.items() if name not in ("COLUMNS", "LINES")},
        start_new_session=True,
    )
    os.close(theirs)
    written = b""
    with suppress(OSError), open(ours, "rb", buffering=0) as screen:  # noqa: PTH123  # a descriptor; its end is EIO
        while part := screen.read(4096):
            written += part
    text = _CONTROL.sub("", written.decode()).replace("\r\n", "\n").replace("\r", "\n")
    return Done(process.wait(), text, "")
