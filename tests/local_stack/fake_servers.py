"""Servers that are small Python programs: a stack of them starts in a moment."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from deploy.local.errors import NotReadyError
from deploy.local.home import Home
from deploy.local.processes import Command
from deploy.local.servers import Say, Server
from deploy.local.stack import Stack

StackOf = Callable[..., Stack]
"""Makes a stack of the servers that it is given."""

ANSWERS = "print('up', flush=True); open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(600)"
NEVER_ANSWERS = "print('waiting for the moon', flush=True); time.sleep(600)"
ENDS = "print('no such disk', flush=True); sys.exit(3)"
DEAF = f"signal.signal(signal.SIGTERM, signal.SIG_IGN); {ANSWERS}"


@dataclass
class FakeServer:
    """`script` runs with a path in argv[1]; the server is ready when its process id is in that file, and `asks` raises
    nothing.
    """

    home: Home
    name: str
    script: str = ANSWERS
    needs: tuple[str, ...] = ()
    ports: Mapping[str, int] = field(default_factory=dict)
    patience_s: float = 10.0
    asks: Callable[[], None] = lambda: None

    def server(self) -> Server:
        return Server(
            self.name,
            self.ports,
            self.mark,
            self.prepare,
            self.command,
            self.check,
            self.needs,
            self.patience_s,
        )

    @property
    def mark(self) -> str:
        return f"--mark={self.home.root / self.name}"

    @property
    def starts(self) -> int:
        return self.home.log(self.name).read_text(encoding="utf-8").count("started by the stack")

    @property
    def answer(self) -> Path:
        return self.home.root / f"{self.name}.answer"

    def prepare(self, say: Say) -> None:
        say(f"{self.name}: prepared")
        self.answer.unlink(missing_ok=True)

    def command(self) -> Command:
        program = f"import os, signal, sys, time; {self.script}"
        return Command((sys.executable, "-c", program, str(self.answer), self.mark), self.mark)

    def check(self) -> None:
        self.asks()
        if not self.answer.exists():
            raise NotReadyError("it has not answered")
