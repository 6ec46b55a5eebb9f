"""A real Chromium without a window, told what to do over two pipes: the DevTools protocol without driver or port."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_PATIENCE_SECONDS = 60.0
_END = b"\0"


class Page:
    """One tab. `requests` and `complaints` grow while pages load."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands, self._answers = commands, answers
        self._rest = b""
        self._number = 0
        self._session: str | None = None
        self._events: list[str] = []
        self.requests: list[str] = []
        self.complaints: list[str] = []
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")

    def open(self, path: Path, width: int, height: int = 1000, scheme: str = "light") -> None:
        """The page, laid out for a screen that is so wide."""
        self._call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        self._call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.requests.clear()
        self.complaints.clear()
        self._events.clear()
        self._call("Page.navigate", url=path.resolve().as_uri())
        while "Page.loadEventFired" not in self._events:
            self._receive()

    def evaluate(self, expression: str) -> Any:
        """What a JavaScript expression gives."""
        answer = self._call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise ValueError(answer["exceptionDetails"])
        return answer["result"].get("value")

    def screenshot(self) -> bytes:
        """The whole page, as PNG."""
        return base64.b64decode(self._call("Page.captureScreenshot", captureBeyondViewport=True)["data"])

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + _END)
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def _receive(self) -> dict[str, Any]:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while _END not in self._rest:
            ready, _, _ = select.select([self._answers], [], [], max(deadline - time.monotonic(), 0.0))
            part = os.read(self._answers, 1 << 20) if ready else b""
            if not part:
                raise RuntimeError("Chromium " + ("is gone" if ready else f"gave no answer in {_PATIENCE_SECONDS} s"))
            self._rest += part
        line, self._rest = self._rest.split(_END, 1)
        message: dict[str, Any] = json.loads(line)
        self._note(message.get("method", ""), message.get("params", {}))
        return message

    def _note(self, event: str, said: dict[str, Any]) -> None:
        self._events.append(event)
        if event == "Network.requestWillBeSent":
            self.requests.append(said["request"]["url"])
        elif event == "Log.entryAdded":
            self.complaints.append(said["entry"]["text"])
        elif event == "Runtime.consoleAPICalled":
            self.complaints.append(f"console.{said['type']}: {said['args']}")
        elif event == "Runtime.exceptionThrown":
            self.complaints.append(said["exceptionDetails"]["text"])


@contextmanager
def opened_browser(program: str, profile: Path) -> Iterator[Page]:
    commands_end, commands = os.pipe()
    answers, answers_end = os.pipe()
    # Chromium reads commands from its descriptor 3 and answers on 4, which may be taken here.
    to_browser, from_browser = (fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (commands_end, answers_end))
    # Root has no sandbox; the page is our own.
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]
    options += [f"--user-data-dir={profile}", "--remote-debugging-pipe", "--no-first-run"]
    start = f'exec "$@" 3<&{to_browser} 4>&{from_browser} {to_browser}<&- {from_browser}>&-'
    log = profile.with_name(profile.name + ".log")
    with log.open("wb") as said:
        process = subprocess.Popen(
            ["bash", "-c", start, "bash", program, *options, "about:blank"],
            pass_fds=(to_browser, from_browser),
            stdout=said,
            stderr=said,
        )
    for end in (commands_end, answers_end, to_browser, from_browser):
        os.close(end)
    try:
        yield Page(commands, answers)
    finally:
        os.close(commands)
        os.close(answers)
        try:
            process.wait(10.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
