"""A browser that a test looks through and clicks in: chromium's own protocol over a pipe, no further package."""

from __future__ import annotations

import json
import os
import select
import subprocess
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

FLAGS = "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-sync"
PATIENCE_S = 15.0


class Browser:
    """One page of ``program`` (chromium), with a profile in ``folder``."""

    def __init__(self, program: str, folder: Path) -> None:
        to_it, self._write = os.pipe()
        self._read, from_it = os.pipe()
        # The protocol is spoken on file descriptors 3 and 4. bash, since sh may know one-digit ones alone.
        place = f'exec "$@" 3<&{to_it} 4>&{from_it}'
        self._process = subprocess.Popen(
            [
                "bash",
                "-c",
                place,
                "bash",
                program,
                *FLAGS.split(),
                "--remote-debugging-pipe",
                f"--user-data-dir={folder}",
            ],
            pass_fds=(to_it, from_it),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_it)
        os.close(from_it)
        self._rest, self._count, self._session = b"", 0, ""
        self.patience_s = PATIENCE_S

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.wait(PATIENCE_S)
        os.close(self._write)
        os.close(self._read)

    def answers(self) -> bool:
        """Whether it is there, with a page to look at."""
        try:
            page = self._call("Target.createTarget", url="about:blank")["targetId"]
            self._session = self._call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        except (OSError, EOFError):
            return False
        return True

    def open(self, url: str) -> None:
        self._call("Page.navigate", url="about:blank")
        self._call("Page.navigate", url=url)

    def value(self, expression: str) -> Any:
        """What this JavaScript is, in the page."""
        return self._evaluate(expression)

    def promise(self, expression: str) -> Any:
        """What this promise comes to."""
        return self._evaluate(expression, awaitPromise=True)

    def _evaluate(self, expression: str, **more: object) -> Any:
        result = self._call("Runtime.evaluate", expression=expression, returnByValue=True, **more)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def until(self, expression: str) -> None:
        """Wait until it is true."""
        deadline = time.monotonic() + self.patience_s
        while self.value(expression) is not True:
            assert time.monotonic() < deadline, (expression, self.value("document.documentElement.outerHTML"))
            threading.Event().wait(0.02)

    def _call(self, method: str, **parameters: object) -> Any:
        self._count += 1
        message = {"id": self._count, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = json.loads(self._message())
            if answer.get("id") == self._count:
                assert "error" not in answer, answer
                return answer["result"]

    def _message(self) -> bytes:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._read], [], [], self.patience_s)
            more = os.read(self._read, 65536) if ready else b""
            if not more:
                raise EOFError("the browser is gone")
            self._rest += more
        message, _, self._rest = self._rest.partition(b"\0")
        return message
