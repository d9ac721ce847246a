"""Metrics over HTTP: `/metrics` for Prometheus, the history of the counts, and this server's own.

A scrape asks the engine at most once a second, and so seldom that it costs the engine at most a
twentieth of its time, however many scrape and however long a count takes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from time import monotonic
from typing import Any, Final

from fastapi import APIRouter, Request
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from outlast import __version__, metrics, tracing
from outlast.app import Outlast
from outlast.core.errors import BadInput, OutlastError
from outlast.core.totals import Spread, new_spread, observe
from outlast.http import schemas
from outlast.http.doc import doc
from outlast.http.door import ROUTE, Guarded
from outlast.http.live import Live
from outlast.http.state import answer, outlast_of
from outlast.meter import OTHER
from outlast.metrics import CONTENT_TYPE, Samples, Values
from outlast.rollup import history

logger: Final = logging.getLogger("outlast.http")

FRESH_S: Final = 1.0
SHARE: Final = 20  # a scrape that took 1 s of the engine's time is good for 20 s
PATIENCE_S: Final = 5.0
METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class Traffic:
    """The requests that this server has answered."""

    def __init__(self) -> None:
        self._requests: Values = {}
        self._durations: dict[tuple[str, ...], Spread] = {}

    def answered(self, route: str, method: str, status: int, took_s: float) -> None:
        method = method if method in METHODS else OTHER
        metrics.add(self._requests, (route, method, str(status)), 1)
        spread = self._durations.get((route, method))
        if spread is None:
            spread = self._durations[route, method] = new_spread()
        observe(spread, int(took_s * 1_000))

    def samples(self) -> Samples:
        durations: Values = {key: list(spread) for key, spread in self._durations.items()}
        return {
            "outlast_http_requests_total": dict(self._requests),
            "outlast_http_request_duration_seconds": durations,
        }


class Counted:
    """ASGI middleware: counts what is answered, and takes the trace context of a request along."""

    def __init__(self, app: ASGIApp, *, traffic: Traffic) -> None:
        self._app = app
        self._traffic = traffic

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = monotonic()
        route = scope[ROUTE] = [OTHER]  # the route that answers writes its template into it

        async def send_counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                took_s = monotonic() - began
                self._traffic.answered(route[0], scope["method"], message["status"], took_s)
            await send(message)

        if any(name == b"traceparent" for name, _ in scope["headers"]):
            headers = Headers(scope=scope)
            tracing.accept(headers["traceparent"], headers.get("tracestate"))
        await self._app(scope, receive, send_counted)


class Scraper:
    """Answers scrapes."""

    def __init__(self, app: Outlast, live: Live, traffic: Traffic) -> None:
        self._app = app
        self._live = live
        self._traffic = traffic
        self._fleet: Samples = {}
        self._until = float("-inf")
        self._lock = asyncio.Lock()

    async def page(self) -> str:
        async with self._lock:
            up = monotonic() < self._until or await self._look()
        return metrics.text({**(self._fleet if up else {}), **self._own(up)})

    async def _look(self) -> bool:
        """Ask the engine; did it answer?"""
        began = monotonic()
        try:
            async with asyncio.timeout(PATIENCE_S):
                self._fleet = await metrics.fleet(self._app)
        except (OutlastError, OSError, TimeoutError) as problem:
            logger.warning("No metrics from the engine: %s", problem or "no answer in time")
            return False
        now = monotonic()
        self._until = now + max(FRESH_S, SHARE * (now - began))
        return True

    def _own(self, up: bool) -> Samples:
        return {
            "outlast_build_info": {(__version__,): 1},
            "outlast_engine_up": {(): int(up)},
            "outlast_http_streams": {(): self._live.open},
            **self._traffic.samples(),
        }


class Scraped(Guarded):
    """A route that tells that the engine is down, instead of failing with it."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def scraped(request: Request) -> Response:
            try:
                return await handle(request)
            except OutlastError:
                # Who asks is not known, so nothing else is told.
                return _page(metrics.text({"outlast_engine_up": {(): 0}}))

        return scraped


scraping = APIRouter(tags=["health"], route_class=Scraped)
router = APIRouter(prefix="/api/v1/metrics", tags=["operating"], route_class=Guarded)

_TOLD: Final = doc("Metrics for Prometheus", right="inspect")
_TOLD["responses"][200]["content"] = {
    "text/plain": {"schema": {"type": "string"}, "example": "outlast_engine_up 1\n"}
}


@scraping.get("/metrics", **_TOLD)
async def scrape(request: Request) -> Response:
    """Counts, queues, workers, limits, notifications, webhooks and requests, in the text format.

    When the engine is down it still answers, with `outlast_engine_up 0`.
    """
    scraper: Scraper = request.app.state.scraper
    return _page(await scraper.page())


@router.get(
    "/tasks",
    **doc(
        "What happened per hour or day, by type and queue",
        schemas.TaskMetrics,
        right="inspect",
        query={
            "by": "hour or day (which is the default)",
            "from": "from this moment on, as in 2026-11-16T00:00:00Z; else a day of hours, or"
            " thirty days",
            "to": "until this moment; else until now",
        },
    ),
)
async def task_metrics(request: Request) -> Response:
    """Counts, error rates and times, oldest first; what nothing happened to is left out."""
    params, app = request.query_params, outlast_of(request)
    for name in params:
        if name not in ("by", "from", "to"):
            raise BadInput(f"There is no parameter {name[:40]!r}: by, from and to.", field=name)
    totals = await app.publisher.fleet(app.engine)
    by, since, until = params.get("by", "day"), params.get("from"), params.get("to")
    return answer({"items": await history(app.engine, totals, by, since, until), "next": None})


def _page(text: str) -> Response:
    return Response(text, headers={"content-type": CONTENT_TYPE})
