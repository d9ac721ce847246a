"""The API of an app: `create_api(app)` is a FastAPI application, to be served or mounted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware

from outlast import __version__
from outlast.app import Outlast
from outlast.core.errors import OutlastError
from outlast.http import (
    admin,
    approvals,
    content,
    events,
    health,
    keys,
    leases,
    login,
    metrics,
    pages,
    problems,
    schedules,
    sessions,
    tasks,
    usage,
    webhooks,
    workflows,
)
from outlast.http.door import Door
from outlast.http.guard import Guard, check_origin
from outlast.http.hub import Hub
from outlast.http.live import Live
from outlast.http.openapi import complete, operation_id
from outlast.http.reads import Reads
from outlast.worker.remote import Remote

HEARTBEAT_S: Final = 15.0


class Api(FastAPI):
    """FastAPI with what all routes have in common in its OpenAPI document."""

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            complete(super().openapi())
        return super().openapi()


def create_api(
    app: Outlast,
    *,
    embedded_worker: bool = False,
    loopback_only: bool = False,
    read_only: bool = False,
    cors: Sequence[str] = (),
    heartbeat_s: float = HEARTBEAT_S,
) -> Api:
    """The HTTP API of an app, with its page.

    With `embedded_worker` a worker runs in the same process. With `loopback_only` the API answers
    only to names of this machine: for servers that ask for no key. With `read_only` it changes
    nothing for anybody. `cors` are other origins whose pages may use it, with a key or token in a
    header; cookies are not for them. Streams send a sign of life every `heartbeat_s`. Mounted into
    another application, that one has to open the app.
    """
    live, traffic = Live(heartbeat_s), metrics.Traffic()

    @asynccontextmanager
    async def lifespan(api: FastAPI) -> AsyncGenerator[None, None]:
        async with app:
            if not embedded_worker:
                yield
                live.closing.set()
                return
            from outlast.worker import Worker

            worker = Worker(app)
            running = asyncio.create_task(worker.run())
            ready = asyncio.create_task(worker.ready.wait())
            await asyncio.wait({running, ready}, return_when=asyncio.FIRST_COMPLETED)
            try:
                yield
            finally:
                live.closing.set()
                ready.cancel()
                worker.stop()
                await running

    api = Api(
        title="Outlast",
        version=__version__,
        summary="Durable tasks: work that outlasts the process that asked for it.",
        lifespan=lifespan,
        generate_unique_id_function=operation_id,
        middleware=[
            Middleware(metrics.Counted, traffic=traffic),
            Middleware(Guard, loopback_only=loopback_only, cors=[*map(check_origin, cors)]),
        ],
        redirect_slashes=False,
        docs_url=None,  # these load scripts from other hosts
        redoc_url=None,
        exception_handlers={
            OutlastError: problems.on_problem,
            problems.Refused: problems.on_problem,
            HTTPException: problems.on_http_exception,
            RequestValidationError: problems.on_validation_error,
        },
    )
    api.state.outlast = app
    api.state.live = live
    api.state.hub = Hub(app.engine)
    api.state.reads = Reads(app.engine)
    api.state.door = Door(app, read_only=read_only, loopback_only=loopback_only)
    api.state.remote = Remote(app)
    api.state.scraper = metrics.Scraper(app, live, traffic)
    parts = (
        tasks, workflows, schedules, approvals, events, leases, sessions, webhooks, admin, usage,
        metrics, keys, login, health, content,
    )  # fmt: skip
    routers = [*(part.router for part in parts), metrics.scraping]
    for router in routers:
        api.include_router(router)
    every = [route for router in routers for route in router.routes]
    api.state.routes = [route for route in every if isinstance(route, APIRoute)]
    pages.add(api)
    return api
