"""Entry point of a GPU process; torch is imported only once it runs."""

from __future__ import annotations

import signal
from multiprocessing.connection import Connection
from typing import Any


def serve(connection: Connection, device_index: int, trying: Any, command: str) -> None:
    """Answers with `Ready`, or with the reason why not, and then works through jobs until told to stop."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to stop
    try:
        from diode.collection.gpu import worker
    except ImportError as error:
        connection.send(f"{error}")
        return
    worker.serve(connection, device_index, trying, command)
