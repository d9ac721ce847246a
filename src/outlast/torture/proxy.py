"""A TCP proxy between the tortured processes and a server, which can be made to fail."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from random import Random
from typing import Final, Literal

Way = Literal["request", "reply"]
CHUNK: Final = 65_536


class Proxy:
    """Listens on a free port of this machine. What it does to bytes can be changed at any time.

    `held`: ways on which bytes wait until the way is let go, as behind a partition that TCP
    survives. `lost`: ways on which bytes vanish; a connection that lost some is cut afterwards.
    Replies vanish where somebody asked meanwhile: who only listens hears what wakes him, and asks.
    `delay_s`: each piece comes that much later, more or less by half.
    """

    def __init__(self, host: str, port: int, seed: int) -> None:
        self._server = (host, port)
        self._draw = Random(seed)  # noqa: S311  # no secret
        self._listener: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._spoilt: set[asyncio.StreamWriter] = set()
        self._asked: set[asyncio.StreamWriter] = set()
        self._flow = {way: asyncio.Event() for way in ("request", "reply")}
        for event in self._flow.values():
            event.set()
        self.lost: frozenset[Way] = frozenset()
        self.delay_s = 0.0
        self.port = 0

    async def start(self) -> None:
        self._listener = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._listener.sockets[0].getsockname()[1]

    async def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
        self.heal()
        self.cut()

    def hold(self, *ways: Way) -> None:
        for way in ways:
            self._flow[way].clear()

    def cut(self) -> None:
        """Every connection is reset."""
        for writer in tuple(self._open):
            writer.transport.abort()

    def heal(self) -> None:
        self.lost, self.delay_s = frozenset(), 0.0
        self._asked.clear()
        for event in self._flow.values():
            event.set()
        for writer in tuple(self._spoilt):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection(*self._server)
        except OSError:
            writer.transport.abort()
            return
        self._open |= {writer, back}
        ways = (
            self._pump("request", reader, back, asks=writer),
            self._pump("reply", there, writer),
        )
        pumps = [asyncio.ensure_future(way) for way in ways]
        try:
            # A half that is closed closes the other: none of our drivers uses half connections.
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            for end in (writer, back):
                self._open.discard(end)
                self._spoilt.discard(end)
                end.transport.abort()

    async def _pump(
        self,
        way: Way,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        asks: asyncio.StreamWriter | None = None,
    ) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            while data := await reader.read(CHUNK):
                if self.delay_s:
                    await asyncio.sleep(self.delay_s * self._draw.uniform(0.5, 1.5))
                await self._flow[way].wait()
                if asks is not None and "reply" in self.lost:
                    self._asked.add(asks)
                if way in self.lost and (asks is not None or writer in self._asked):
                    self._spoilt.add(writer)
                elif writer not in self._spoilt:
                    writer.write(data)
                    await writer.drain()
