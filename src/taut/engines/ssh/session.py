"""One host's ssh process: starts the agent there, sends it words, and gives its messages to one queue for all hosts.

There is one connection for each host, and it carries everything: the agent's program, the script and the token on the
way there, the workers' output on the way back. Nothing that the host says is trusted further than its type and length.
"""

from __future__ import annotations

import base64
import contextlib
import json
import queue
import shlex
import subprocess
import threading
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from taut.config.hosts import Host
from taut.engines.ssh import agent

CONNECT_S, ALIVE_S, ALIVE_TIMES = 10, 10, 3  # ssh gives a silent connection up after the product of the last two
BEAT_S = 5.0  # between two signs of life to the agent: several in agent.SILENCE_S
MAX_LINE = 1 << 20  # of the agent's messages; it sends pieces of agent.PIECE
MAX_NOISE = 4096  # of what a login prints, and of ssh's own words
CLOSE_S = 15.0  # for the agent to end its workers and to go
VERSION = "taut-python "

# No single quote inside, so that every shell takes it. The version comes first: an old Python cannot read the agent.
_LOADER = (
    f'import sys; sys.stdout.write("{VERSION}%d.%d.%d\\n" % sys.version_info[:3]); sys.stdout.flush(); '
    "exec(sys.stdin.buffer.read(int(sys.stdin.buffer.readline())))"
)

Text = Annotated[str, Meta(max_length=4096)]
Digest = Annotated[str, Meta(max_length=64)]


class Facts(Struct, frozen=True):
    """A host as its agent found it. ``wrong``: why taut cannot be imported; ``devices``: why the workers cannot have
    theirs. Digests are in the order of the question; an empty one: there is no such file."""

    hostname: Text
    cores: int
    directory: bool
    taut: Text
    protocol: int
    torch: Text
    wrong: Text
    sources: Annotated[list[Digest], Meta(max_length=10_000)]
    files: Annotated[list[Digest], Meta(max_length=10_000)]
    user_id: int = 0
    module: bool = True
    devices: Text = ""
    python: Text = ""


class Told(Struct, frozen=True):
    """A message of the agent; one of ``facts``, ``started``, ``exited``, ``output`` and ``compiling`` is there. ``lost``
    is this side's own: the connection ended."""

    facts: Facts | None = None
    started: int | None = None
    exited: int | None = None
    output: Annotated[str, Meta(max_length=MAX_LINE)] | None = None
    compiling: tuple[int, int] | None = None
    index: int = 0
    code: int = 0
    reason: Text = ""
    lost: bool = False


TOLD = msgspec.json.Decoder(Told)  # made once, by one thread: threads that made it side by side have crashed


def command(host: Host, ssh: Sequence[str], python: str) -> list[str]:
    """Return the command line that starts Python on the host. It has no secrets: anybody can read it.

    >>> command(Host("b", user="ada", port=2222), ["ssh"], "python3")[-4:-1]
    ['2222', '--', 'ada@b']
    """
    options = {
        "BatchMode": "yes",  # nobody is there to be asked
        "ControlMaster": "no",  # an open connection of the user's is used, and none is left behind
        "ConnectTimeout": CONNECT_S,
        "ServerAliveInterval": ALIVE_S,
        "ServerAliveCountMax": ALIVE_TIMES,
    }
    words = [word for key, value in options.items() for word in ("-o", f"{key}={value}")]
    port = ["-p", str(host.port)] if host.port is not None else []
    loader = f"exec {shlex.quote(host.python or python)} -c '{_LOADER}'"
    return [*ssh, "-T", *words, *port, "--", host.destination, loader]


class Session:
    """The connection to one host. ``events``: where its messages go, with its ``number``.

    ``python`` is the version there, once known; ``said``: what ssh, a login or the agent said on the way, for people."""

    def __init__(self, number: int, host: Host, events: queue.SimpleQueue[tuple[int, Told]]) -> None:
        self.number, self.host, self._events = number, host, events
        self.python, self.ready, self.refused = "", False, False
        self._noise, self._errors = b"", b""
        self._words: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._process: subprocess.Popen[bytes] | None = None
        self._threads: list[threading.Thread] = []

    def open(self, ssh: Sequence[str], python: str, **first: Any) -> None:
        """Start ssh, and the agent there, which gets the ``first`` word as soon as it can read."""
        self._first = first
        self._process = subprocess.Popen(
            command(self.host, ssh, python),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C reaches the launcher alone
        )
        targets = (self._read_errors, self._read, self._write)  # the second waits for the first
        self._threads = [threading.Thread(target=each, name="ssh", daemon=True) for each in targets]
        for thread in self._threads:
            thread.start()

    @property
    def said(self) -> str:
        return (self._errors + b"\n" + self._noise).decode("utf-8", "replace").strip()

    @property
    def code(self) -> int | None:
        """Return ssh's exit code once it has ended."""
        return self._process.poll() if self._process is not None else None

    # ------------------------------------------------------------------------------------------------ to the host

    def send(self, **word: Any) -> None:
        """Send the agent a word. Nothing is waited for; a host that is gone does not hear it."""
        self._words.put(json.dumps(word).encode())

    def _write(self) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        with contextlib.suppress(OSError, ValueError):
            while True:
                try:
                    word = self._words.get(timeout=BEAT_S)
                except queue.Empty:
                    word = b""
                if word is None:
                    break
                if word or self.ready:  # before that, every byte is for the loader
                    self._process.stdin.write(word + b"\n")
                    self._process.stdin.flush()
        with contextlib.suppress(OSError):
            self._process.stdin.close()

    # ------------------------------------------------------------------------------------------------ from the host

    def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        try:
            while line := self._process.stdout.readline(MAX_LINE):
                self._take(line)
        except (msgspec.MsgspecError, ValueError) as error:  # not our agent's words
            self._errors += f"it sent what is no message of taut: {error}".encode()
            self._process.kill()
        self._process.wait()
        self._threads[0].join(1.0)  # ssh's own last words
        self._words.put(None)
        self._events.put((self.number, Told(lost=True)))

    def _take(self, line: bytes) -> None:
        if self.ready:
            told = TOLD.decode(line)
            self._events.put((self.number, Told(facts=_with_python(told.facts, self.python)) if told.facts else told))
        elif line.startswith(VERSION.encode()) and not self.python:
            self.python = line.decode("utf-8", "replace").removeprefix(VERSION).strip()[:20]
            if too_old(self.python):
                self.refused = True
                self._words.put(None)
                return
            with open(agent.__file__, "rb") as file:
                program = file.read()
            self._words.put(b"%d\n%b" % (len(program) + 1, program))
        elif self.python and line.startswith(agent.READY.encode()):
            self.ready = True
            self.send(**self._first)
        else:
            self._noise = (self._noise + line)[-MAX_NOISE:]

    def _read_errors(self) -> None:
        assert self._process is not None
        assert self._process.stderr is not None
        while data := self._process.stderr.readline(MAX_NOISE):
            self._errors = (self._errors + data)[-MAX_NOISE:]

    # ------------------------------------------------------------------------------------------------ end

    def ask_to_close(self) -> None:
        """Ask the agent to end everything; `close` waits for it."""
        if self.ready:
            self.send(close=True)
        self._words.put(None)

    def close(self) -> None:
        """Wait until the agent has ended; end ssh where it does not."""
        if self._process is None:
            return
        if not self.ready:
            self._process.terminate()  # it has nothing there to clean up
        try:
            self._process.wait(CLOSE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for thread in self._threads:
            thread.join()
        for stream in (self._process.stdout, self._process.stderr):
            assert stream is not None
            stream.close()


def too_old(version: str) -> bool:
    """Return whether taut cannot run on this version of Python.

    >>> too_old("3.10.2"), too_old("3.11.0"), too_old("nonsense")
    (True, False, True)
    """
    words = version.split(".")
    return not all(word.isdecimal() for word in words) or [int(word) for word in words[:2]] < [3, 11]


def _with_python(facts: Facts, version: str) -> Facts:
    return msgspec.structs.replace(facts, python=version)


def decoded(output: str) -> bytes:
    """Return the bytes of a message's ``output``; nothing where it is none."""
    try:
        return base64.b64decode(output, validate=True)
    except ValueError:
        return b""
