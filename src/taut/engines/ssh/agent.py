"""The program that taut sends to a host: it says what the host is like, and runs the host's workers.

It comes over ssh's standard input, so it needs nothing but Python's own library until ``start``, and no file of taut
need be there to say that taut is missing. Messages are lines of JSON, one in each direction: ``look`` is answered by
``facts``; ``start`` by what becomes of the workers; ``end`` and ``close`` end them. An empty line is a sign of
life. When the input closes, or nothing comes for ``SILENCE_S``, the agent ends the workers, removes its folder and goes.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import json
import os
import pathlib
import queue
import select
import shutil
import signal
import socket
import sys
import tempfile
import threading
from importlib import metadata
from typing import Any, NoReturn

READY = "taut-agent-ready"
SILENCE_S = 30.0  # without a word from the other side
LOOK_S = 0.05  # how often logs and processes are looked at
PIECE = 1 << 16  # of a log, in one message


class Gone(Exception):
    """The other side is."""


def digest(path: str) -> str:
    """Return the SHA-256 of a file; an empty text where there is none, or it cannot be read."""
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""


class Agent:
    """One host's side of a run. ``output``: the descriptor of the messages to the other side."""

    def __init__(self, output: int) -> None:
        os.set_blocking(output, False)  # a connection that is cut must not keep the workers from being ended
        self.output = output
        self.gone = threading.Event()
        self.words: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self.folder, self.engine, self.script = "", None, ""  # type: str, Any, str
        self.zygote: Any = None
        self.offsets: list[int] = []
        self.told: set[int] = set()
        self.compiling: Any = None

    # ------------------------------------------------------------------------------------------------ messages

    def listen(self) -> None:
        """Read words until the other side is gone."""
        rest = b""
        while True:
            data = os.read(0, PIECE) if select.select([0], [], [], SILENCE_S)[0] else b""
            if not data:
                break
            *lines, rest = (rest + data).split(b"\n")
            for line in filter(None, lines):
                self.words.put(line.decode())
        self.gone.set()
        self.words.put(None)

    def tell(self, **what: object) -> None:
        data = memoryview(json.dumps(what).encode() + b"\n")
        while data:
            if self.gone.is_set():
                raise Gone
            if select.select([], [self.output], [], 1.0)[1]:
                try:
                    data = data[os.write(self.output, data) :]
                except BlockingIOError:
                    continue

    def serve(self) -> None:
        """Do as the other side says, until it is gone or says ``close``."""
        while True:
            try:
                word = self.words.get(timeout=LOOK_S) if self.engine is not None else self.words.get()
            except queue.Empty:
                word = ""
            if word is None:
                return
            if word:
                told = json.loads(word)
                if "close" in told:
                    return
                self.obey(told)
            if self.engine is not None:
                self.watch()

    def obey(self, told: dict[str, Any]) -> None:
        if "look" in told:
            self.look(told["look"])
        elif "start" in told:
            self.start(told["start"])
        elif "end" in told:
            self.end(told["end"])

    # ------------------------------------------------------------------------------------------------ look

    def look(self, task: dict[str, Any]) -> None:
        """Say what this host is like, and put the script into a folder that only this user can read."""
        facts: dict[str, Any] = {"hostname": socket.gethostname(), "user_id": os.getuid(), "cores": cores()}
        directory = os.path.expanduser(task["directory"] or "~")
        facts["directory"] = os.path.isdir(directory)
        if facts["directory"]:
            os.chdir(directory)
        facts |= versions()
        facts["sources"] = self.placed(task["sources"], task["directory"])
        facts["files"] = [digest(os.path.expanduser(name)) for name in task["files"]]
        if task["module"]:
            sys.path.insert(0, os.getcwd())
            facts["module"] = found(task["module"])
            sys.path.pop(0)
            self.script = "-m " + task["module"]
        if facts["taut"]:
            facts["devices"] = self.unfit(task["workers"], task["devices"])
        self.tell(facts=facts)
        if facts["torch"] and not facts["wrong"] and not facts.get("devices"):
            self.warm_up(task)

    def placed(self, sources: list[list[str]], directory: str) -> list[str]:
        """Write the script's files, unless ``directory`` has them. Return the digest of each as it is here."""
        self.folder = tempfile.mkdtemp(prefix="taut-ssh-")
        os.mkdir(os.path.join(self.folder, "logs"))
        where = os.getcwd() if directory else os.path.join(self.folder, "script")
        for name, text in sources if not directory else ():
            path = os.path.join(where, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(base64.b64decode(text))
        if sources:
            self.script = os.path.join(where, sources[0][0])
        return [digest(os.path.join(where, name)) for name, _ in sources]

    def warm_up(self, task: dict[str, Any]) -> None:
        """Begin the imports of the workers, while the other side compares all hosts."""
        from taut.engines.local import begun_zygote

        log = pathlib.Path(self.folder, "logs", "zygote.log")
        self.zygote = begun_zygote(self.threads(task), task["preload"], log)

    def threads(self, task: dict[str, Any]) -> int:
        return int(task["threads"]) if task["threads"] else max(1, cores() // int(task["workers"]))

    def unfit(self, workers: int, devices: str | None) -> str:
        """Return why the workers cannot have these devices; an empty text where they can."""
        from taut.engines.local import LocalEngine

        try:
            LocalEngine.check(workers, devices)
        except ValueError as error:
            return str(error)
        return ""

    # ------------------------------------------------------------------------------------------------ workers

    def start(self, task: dict[str, Any]) -> None:
        from taut.engines.local import LocalEngine

        token = os.path.join(self.folder, "token")
        with open(os.open(token, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(task["token"])
        environment = task["environment"] | {"TAUT_TOKEN_FILE": token, "TAUT_BIND": own_address(*task["towards"])}
        workers = task["workers"]
        settings = {name: task[name] for name in ("start", "preload", "kernels", "devices")}
        if task["start"] != "spawn":
            settings["zygote"], self.zygote = self.zygote, None
        self.offsets = [0] * workers
        self.engine = LocalEngine(
            self.script,
            task["args"],
            workers,
            environment,
            log_dir=os.path.join(self.folder, "logs"),
            threads=self.threads(task),
            **settings,
        )
        self.engine.start()

    def watch(self) -> None:
        """Tell what became of the workers since the last time: those that started, their output, those that ended."""
        exits = self.engine.poll()
        for pid, index in self.engine.started.items():
            if pid not in self.told:
                self.told.add(pid)
                self.tell(started=pid, index=index)
        if self.engine.compiling != self.compiling:
            self.compiling = self.engine.compiling
            self.tell(compiling=self.compiling)
        for index, log in enumerate(self.engine.logs):
            self.offsets[index] = self.send(str(log), self.offsets[index], index)
        if any(not each.pid for each in exits):
            self.send(str(self.engine.own_log), 0, -1)
        for each in exits:
            self.tell(exited=each.pid, index=each.index, code=each.code, reason=each.reason)

    def send(self, path: str, offset: int, index: int) -> int:
        """Tell what the file has from ``offset`` on, and return where it ends."""
        if not os.path.exists(path) or os.path.getsize(path) <= offset:
            return offset
        with open(path, "rb") as file:
            file.seek(offset)
            while data := file.read(PIECE):
                self.tell(output=base64.b64encode(data).decode(), index=index)
                offset += len(data)
        return offset

    def end(self, how: str) -> None:
        if self.engine is not None:
            self.engine.kill() if how == "kill" else self.engine.terminate()

    def close(self) -> None:
        """End the workers, and leave nothing behind."""
        try:
            if self.zygote is not None:  # a run that was refused
                self.zygote.kill()
                self.zygote.wait()
            if self.engine is not None:
                self.engine.close()
        finally:
            if self.folder:
                shutil.rmtree(self.folder, ignore_errors=True)


def versions() -> dict[str, Any]:
    """Return the versions of taut, its protocol and torch; ``wrong``: why taut cannot be imported."""
    facts: dict[str, Any] = {"taut": "", "protocol": 0, "torch": "", "wrong": ""}
    if found("torch"):
        try:
            facts["torch"] = metadata.version("torch")
        except metadata.PackageNotFoundError:
            facts["torch"] = "unknown"
    try:
        import taut
        from taut.core.messages import PROTOCOL_VERSION

        facts |= {"taut": taut.__version__, "protocol": PROTOCOL_VERSION}
    except Exception as error:
        facts["wrong"] = f"{type(error).__name__}: {error}"
    return facts


def found(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def own_address(host: str, port: int) -> str:
    """Return the address that this host uses to reach another. Nothing is sent."""
    family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as probe:
        probe.connect(address)
        return str(probe.getsockname()[0])


def main() -> NoReturn:
    """Be the agent: standard input and output belong to the other side."""
    sys.path[:] = [folder for folder in sys.path if folder]  # a file in the home folder must not come before a module
    output = os.dup(1)
    os.dup2(2, 1)  # what an import prints must not get between the messages
    agent = Agent(output)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))
    code = 0
    try:
        os.write(output, f"{READY}\n".encode())
        threading.Thread(target=agent.listen, daemon=True).start()
        agent.serve()
    except Gone:
        pass
    except Exception as error:
        code = 1
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
    finally:
        agent.close()
    os._exit(code)  # the listener may still hold the input


if __name__ == "__main__":
    main()
