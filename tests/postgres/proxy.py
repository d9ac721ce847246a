"""A TCP proxy that can be cut and healed: what a failover, a pulled cable or a firewall does."""

from __future__ import annotations

import asyncio
from contextlib import suppress


class Proxy:
    """Listens on a free port and passes everything on, while it is healed."""

    def __init__(self, port: int) -> None:
        self.port = 0
        self._target = port
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()

    async def heal(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def cut(self) -> None:
        """Refuse newcomers, and break off what is under way."""
        if self._server is not None:
            self._server.close()
        for writer in tuple(self._open):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, to = await asyncio.open_connection("127.0.0.1", self._target)
        await asyncio.gather(self._pass(reader, to), self._pass(there, writer))

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        with suppress(OSError):
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        self._open.discard(writer)
        writer.transport.abort()
