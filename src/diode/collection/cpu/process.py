"""Entry point of the CPU process; torch is imported only once it runs."""

from __future__ import annotations

import signal
from multiprocessing.connection import Connection


def serve(connection: Connection, scratch: str, command: str) -> None:
    """Answers with its `Environment`, or with the reason why not, and then works through jobs until told to stop."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to stop
    try:
        from diode.collection.cpu import worker
    except ImportError as error:
        connection.send(f"{error}")
        return
    worker.serve(connection, scratch, command)
