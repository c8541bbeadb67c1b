"""Run ``python -I -S forked_command.py PROGRAM WORDS...``: a command as a fork of the tests' server (``forked_zygotes``).

The server has imported torch; a process that does it again needs four seconds of a core. This small one hands over its
standard streams, folder, variables and network namespace, passes signals on, and ends as the fork does. When it is gone,
so is the fork. SIGUSR1 stands for SIGKILL: it ends after the fork, not before it.
"""

import contextlib
import json
import os
import signal
import socket
import sys
import types

PASSED_ON = {each: each for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)} | {signal.SIGUSR1: signal.SIGKILL}


def main() -> None:
    early: list[int] = []
    fork = -1

    def pass_on(number: int, frame: types.FrameType | None) -> None:
        if fork < 0:
            early.append(number)
            return
        with contextlib.suppress(ProcessLookupError):  # it has ended, and the server is about to say so
            signal.pidfd_send_signal(fork, PASSED_ON[signal.Signals(number)])

    for number in PASSED_ON:
        signal.signal(number, pass_on)
    request = {"program": sys.argv[1], "words": sys.argv[2:], "environment": dict(os.environ), "folder": os.getcwd()}
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(os.environ["FORKED_ZYGOTES"])
        network = os.open("/proc/self/ns/net", os.O_RDONLY)
        socket.send_fds(server, [b"$"], [0, 1, 2, network])
        server.sendall(json.dumps(request).encode() + b"\n")
        _, (fork,), _, _ = socket.recv_fds(server, 1, 1)
        for number in early:
            pass_on(number, None)
        code = json.loads(server.recv(16))
    if code < 0:
        if -code in PASSED_ON:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


main()
