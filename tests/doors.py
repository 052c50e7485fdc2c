"""Doors before servers: ports that lead to them, behave as a network or a sick server does, and are mended at once."""

import asyncio
import struct
import threading
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Final, Literal, TypeVar

Manner = Literal["open", "refuse", "cut", "hang", "slow", "errors"]
"""open: everything passes. refuse: connections end as soon as they are made. cut: they end in the middle of an answer.
hang: they are accepted, and nothing passes. slow: each piece takes `SLOW_S`. errors: each call of Thrift is answered
with an error, as by a gateway that has lost its cluster.
"""

SLOW_S: Final = 0.3
CUT_BYTES: Final = 2_000
"""So much of the answers passes on a connection before it is cut."""
SAID: Final = "this gateway has lost its cluster"
_PIECE: Final = 65_536
_DEADLINE_S: Final = 60.0
_CALL: Final = struct.Struct(">II")
"""The version and the type of a Thrift message, then the length of its name."""
_IS_CALL, _IS_REPLY = 0x80010001, 0x80010002
_STRUCT, _STRING = 12, 11

_Done = TypeVar("_Done")


class Door:
    """A port of the loopback, and what leads through it. Thread-safe."""

    def __init__(self, host: str, port: int) -> None:
        self._to = (host, port)
        self._loop = asyncio.new_event_loop()
        self._connections: set[asyncio.StreamWriter] = set()
        self._manner: Manner = "open"
        self._changed = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._server = self._run(asyncio.start_server(self._through, "127.0.0.1", 0))
        self.port: int = self._server.sockets[0].getsockname()[1]

    def becomes(self, manner: Manner) -> None:
        """Returns once it behaves so, open connections as well."""
        self._run(self._become(manner))

    def end(self) -> None:
        self._run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, _Done]) -> _Done:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_DEADLINE_S)

    async def _become(self, manner: Manner) -> None:
        # Half of a call that was answered with an error is no call, and no half of a call can be answered.
        if manner == "refuse" or "errors" in {manner, self._manner}:
            for each in self._connections:
                each.close()
        self._manner = manner
        self._changed.set()
        self._changed = asyncio.Event()

    async def _end(self) -> None:
        await self._become("refuse")
        self._server.close()
        passing = asyncio.all_tasks() - {asyncio.current_task()}
        for each in passing:
            each.cancel()
        await asyncio.gather(*passing, return_exceptions=True)

    async def _through(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._manner == "refuse":
            writer.close()
            return
        try:
            there, back = await asyncio.open_connection(*self._to)
        except OSError:
            writer.close()
            return
        both = {writer, back}
        self._connections |= both
        await asyncio.gather(self._calls(reader, back, writer), self._answers(there, writer))
        self._connections -= both

    async def _calls(self, reader: asyncio.StreamReader, to: asyncio.StreamWriter, back: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while some := await reader.read(_PIECE):
                if self._manner == "errors":
                    back.write(_refusal(some))
                    continue
                await self._as_it_is()
                to.write(some)
        to.close()

    async def _answers(self, reader: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
        passed = 0
        with suppress(OSError):
            while some := await reader.read(_PIECE):
                await self._as_it_is()
                if self._manner == "cut":
                    some = some[: CUT_BYTES - passed]
                    passed += len(some)
                to.write(some)
                if passed >= CUT_BYTES:
                    break
        to.close()

    async def _as_it_is(self) -> None:
        """Waits as long as a piece takes now."""
        if self._manner == "slow":
            await asyncio.sleep(SLOW_S)
        while self._manner == "hang":
            await self._changed.wait()


def _refusal(call: bytes) -> bytes:
    """The answer to a call of Thrift: an IOError, which a gateway's calls declare first. Nothing for what is not
    the beginning of a call.
    """
    if len(call) < _CALL.size or _CALL.unpack_from(call)[0] != _IS_CALL:
        return b""
    end = _CALL.size + _CALL.unpack_from(call)[1] + 4  # the number of the call follows its name
    named = call[4:end]
    message = struct.pack(">BHI", _STRING, 1, len(SAID)) + SAID.encode() + b"\0"
    return struct.pack(">I", _IS_REPLY) + named + struct.pack(">BH", _STRUCT, 1) + message + b"\0"
