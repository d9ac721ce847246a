"""Health at the root: is the process alive, is it ready, and how is everything."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from outlast import ops
from outlast.http import schemas
from outlast.http.doc import doc
from outlast.http.door import Guarded
from outlast.http.problems import problem
from outlast.http.state import answer, live_of, outlast_of

router = APIRouter(tags=["health"], route_class=Guarded)


@router.get("/health", **doc("Engine, workers and circuits", schemas.Health, right="nothing"))
@router.get(
    "/api/v1/health",
    name="api_health",
    **doc("The same under the API's prefix", schemas.Health, right="nothing"),
)
async def health(request: Request) -> Response:
    """Unhealthy (503) when the engine is down; degraded (200) without a worker or with an open
    circuit."""
    view = await ops.health(outlast_of(request))
    return answer(view, 503 if view["status"] == "unhealthy" else 200)


@router.get("/livez", **doc("The process answers", schemas.Alive, right="nothing"))
async def livez() -> Response:
    """Never asks the engine: restarting this process would not bring it back."""
    return answer({"status": "alive"})


@router.get("/readyz", **doc("Requests can be served", schemas.Alive, right="nothing"))
async def readyz(request: Request) -> Response:
    """503 while the engine is down or the server is shutting down."""
    if live_of(request).closing.is_set():
        return problem(503, "The server is shutting down.")
    view = await ops.health(outlast_of(request))
    if view["status"] == "unhealthy":
        return problem(503, "The engine does not answer.", code="engine_down")
    return answer({"status": "ready"})
