"""`outlast mcp`: the tools of agents, over standard input and output or over HTTP."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import signal
import sys
from typing import TYPE_CHECKING, Annotated, Final

import typer
from msgspec import Struct

from outlast.cli.settings import HostFlag, PortFlag, Where, app_for, somewhere
from outlast.core.errors import OutlastError

if TYPE_CHECKING:
    import httpx2
    from starlette.types import Scope

    from outlast.agents.desk import Desk
    from outlast.agents.mcp import DeskOf
    from outlast.app import Outlast
    from outlast.http.mcp import Known

PORT: Final = 5279
HERE: Final = "http://localhost"
"""The API of the app in this very process, where nobody listens."""


@somewhere
def mcp(
    where: Where,
    http: Annotated[
        bool, typer.Option("--http", help="Streamable HTTP at /mcp, not standard input and output.")
    ] = False,
    host: HostFlag = "127.0.0.1",
    port: PortFlag = PORT,
    session: Annotated[
        str,
        typer.Option("--session", help="The session whose tasks they are, and the only ones seen."),
    ] = "mcp",
    wait: Annotated[
        str,
        typer.Option(
            "--wait", metavar="DURATION", help="How long a call waits before it becomes a task."
        ),
    ] = "150ms",
) -> None:
    """Task types as tools for MCP clients; long calls become tasks, which outlive this server.

    Over HTTP with API keys on the engine, or with --server, clients send a key or a session token.
    """
    from outlast.core.durations import to_ms

    try:
        import mcp as _mcp  # noqa: F401
    except ModuleNotFoundError as missing:
        raise OutlastError(
            f"outlast mcp needs {missing.name}: pip install 'outlast[mcp]'"
        ) from missing
    # Standard output speaks the protocol.
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    run = Run(session, to_ms(wait) / 1_000, (host, port) if http else None)
    address = where.address()
    if address is not None:
        asyncio.run(run.on_server(address, where.key))
    else:
        asyncio.run(run.on_engine(app_for(where.engine, where.app)))


class Run(Struct, frozen=True):
    """One run of the command: whose tasks, how patient, and where it listens, if it does."""

    session: str
    wait_s: float
    at: tuple[str, int] | None

    async def on_engine(self, app: Outlast) -> None:
        """Over HTTP a key is asked of the app's own API, so that what holds there holds here."""
        from outlast.agents.desk import AppDesk

        async with app:
            own = AppDesk(app, self.session)
            if self.at is None:
                await self._at_stdio(own)
                return
            import httpx2
            from starlette.requests import HTTPConnection

            from outlast.access import Keyring
            from outlast.http.api import create_api

            api = create_api(app)
            has_keys = await Keyring(app.engine).exist()
            api.state.door.had_keys = has_keys

            async def known(scope: Scope) -> bool:
                return await api.state.door.who(HTTPConnection(scope)) is not None

            async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=api)) as http:
                desks = self._desks(HERE, http, own, anonymous=not has_keys)
                await self._over_http(desks, known, guarded=has_keys)

    async def on_server(self, address: str, key: str | None) -> None:
        """Who sends no key is served with this process's own, but on loopback only."""
        from outlast.client import AsyncClient
        from outlast.client.desk import ServerDesk
        from outlast.http.guard import is_loopback

        async with AsyncClient(address, key) as client:
            own = ServerDesk(client, self.session)
            if self.at is None:
                await self._at_stdio(own)
                return
            import httpx2

            from outlast.http.mcp import BEARER

            is_local = is_loopback(self.at[0])

            async def known(scope: Scope) -> bool:
                return is_local or bool(scope[BEARER])

            async with httpx2.AsyncClient() as http:
                desks = self._desks(address, http, own, anonymous=is_local)
                await self._over_http(desks, known, guarded=not is_local)

    async def _at_stdio(self, desk: Desk) -> None:
        from outlast.agents.mcp import make_server, run_stdio

        async def desk_of(ctx: object) -> Desk:
            return desk

        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            # Ctrl-C ends it, as SIGTERM does: the thread that waits for input does not hear of it.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        await run_stdio(make_server(desk_of, wait_s=self.wait_s))

    def _desks(
        self, address: str, http: httpx2.AsyncClient, own: Desk, *, anonymous: bool
    ) -> DeskOf:
        """A desk for each key and token. The tasks of a key are in a session of its own."""
        from outlast.access import TOKEN
        from outlast.client import AsyncClient
        from outlast.client.desk import ServerDesk
        from outlast.http.mcp import by_bearer

        def desk_for(text: str) -> Desk:
            mark = hashlib.sha256(text.encode()).hexdigest()[:12]
            session = None if text.startswith(TOKEN) else f"{self.session}:{mark}"
            return ServerDesk(AsyncClient(address, text, http=http), session, own.kinds)

        return by_bearer(own if anonymous else None, desk_for)

    async def _over_http(self, desks: DeskOf, known: Known, *, guarded: bool) -> None:
        from outlast.agents.mcp import make_server
        from outlast.http.mcp import PATH, create_mcp
        from outlast.http.serve import Server, listen

        assert self.at is not None  # noqa: S101  # over HTTP
        listener = listen(*self.at, has_keys=guarded)
        server = make_server(desks, wait_s=self.wait_s)
        site = create_mcp(server, known=known, loopback_only=not guarded)
        told = lambda address: typer.echo(f"Serving {address}{PATH}")  # noqa: E731
        try:
            await Server(site, told).serve([listener])
        finally:
            listener.close()
