"""A process that has loaded feedctl, from which tests fork the commands and programs that need processes of their own:
to load it takes ten times as long as most of them take to run.

What is forked is a child of the tests' process, as one that they start themselves. It differs from that in one way: it
does not read what an interpreter reads when it starts, so another PYTHONPATH or LD_PRELOAD is refused.
"""

import atexit
import contextlib
import ctypes
import functools
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click

from workers.cli import main

_REQUEST_MAX: Final = 128 * 1024
_PR_SET_CHILD_SUBREAPER: Final = 36
"""Of prctl(2)."""
_STREAMS: Final = 3
_DONE: Final = b"done"
_READ_AT_START: Final = ("LD_PRELOAD", "PYTHONPATH", "PYTHONHASHSEED", "PYTHONMALLOC")


class Forked(subprocess.Popen[Any]):
    """feedctl with these words, or `-c PROGRAM WORD...` as an interpreter takes it. Takes what Popen takes, of which
    streams, text, cwd and env have a meaning.
    """

    def _execute_child(self, *given: Any) -> None:
        """Popen's own, with its arguments since Python 3.11."""
        args, cwd, env, pipes = given[0], given[5], given[6], given[10:16]
        streams = [end if end != -1 else own for own, end in enumerate((pipes[0], pipes[3], pipes[5]))]
        request: dict[str, Any] = {"args": args, "cwd": str(cwd or Path.cwd()), "env": env or dict(os.environ)}
        for name in _READ_AT_START:
            assert request["env"].get(name) == os.environ.get(name), f"{name}: start an interpreter for it"
        template = _template()
        with _adopting():
            socket.send_fds(template, [json.dumps(request).encode()], streams)
            pid = template.recv(_REQUEST_MAX)
            assert pid, "the process that has loaded feedctl ended: its stderr says why"
            assert template.recv(_REQUEST_MAX) == _DONE
        self.pid = int(pid)
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]


def run(program: str, *words: object, timeout_s: float = 120, **popen: Any) -> "subprocess.CompletedProcess[str]":
    """What a program printed, and how it ended. words: its arguments."""
    command = ["-c", program, *map(str, words)]
    process = Forked(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **popen)
    try:
        stdout, stderr = process.communicate(timeout=timeout_s)
    finally:
        process.kill()
    return subprocess.CompletedProcess(command, process.returncode, stdout, stderr)


@contextlib.contextmanager
def _adopting() -> Iterator[None]:
    """A process whose parent ends meanwhile becomes a child of this one."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    assert prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0, os.strerror(ctypes.get_errno())
    try:
        yield
    finally:
        prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


@functools.cache
def _template() -> socket.socket:
    """The way to this process's template, which ends with this process."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with its:
        process = subprocess.Popen(
            [sys.executable, "-c", f"from {__name__} import serve; serve({its.fileno()})"],
            pass_fds=[its.fileno()],
            cwd=Path(__file__).parents[2],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
    atexit.register(process.wait)
    atexit.register(ours.close)
    return ours


def _forked(requests: socket.socket) -> list[str] | None:
    """Forks a process for each request. Returns its words in such a process, and None in the template at its end."""
    while True:
        message, streams, _, _ = socket.recv_fds(requests, _REQUEST_MAX, _STREAMS)
        if not message:
            return None
        parent = os.fork()
        if not parent:
            if pid := os.fork():
                requests.send(str(pid).encode())
                os._exit(0)
            requests.close()
            return _become(json.loads(message), streams)
        os.waitpid(parent, 0)  # from here on the process is a child of the one that asked
        requests.send(_DONE)
        for stream in streams:
            os.close(stream)


def _become(request: dict[str, Any], streams: list[int]) -> list[str]:
    for own, given in enumerate(streams):
        os.dup2(given, own)
    sys.stdout = os.fdopen(1, "w", closefd=False)  # the template's knows another kind of file
    os.closerange(_STREAMS, max(streams) + 1)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    return list(request["args"])


def serve(requests: int) -> None:
    """What the template does, and what is forked from it. requests: the descriptor of its socket."""
    context = click.Context(main)
    for command in main.list_commands(context):
        main.get_command(context, command)  # loads its module
    asked = socket.socket(fileno=requests)
    match _forked(asked):
        case ["-c", program, *words]:
            sys.argv = ["-c", *words]
            exec(program, {"__name__": "__main__"})
        case [*words] if words:
            sys.argv = words
            main()
