"""A studio on this machine: answers as Midjourney's proxies and Leonardo do, and misbehaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from outlast.http.serve import Server, listen
from outlast.systems.media.drawing import draw
from tests.http.site import until

PICTURE = draw("a studio", 1, 320, 240)


class Studio:
    def __init__(self) -> None:
        self.address = ""
        self.ordered: list[dict[str, Any]] = []
        self.refusals: list[tuple[int, dict[str, str]]] = []
        """What the next orders are answered with."""
        self.failures: list[str] = []
        """Why the next orders fail."""
        self.answers: dict[str, dict[str, Any]] = {}
        """What is said to `imagine`, and of the `outcome` of orders, instead of what is right."""
        self.picture = PICTURE
        self.elsewhere = ""
        """Where pictures are, if not here."""
        self.gate = asyncio.Event()
        """Downloads wait for it in the middle."""
        self.gate.set()
        self.finished = asyncio.Event()
        """Orders are done when it is set."""
        self.finished.set()
        self.downloads = 0
        self._fails: dict[int, str] = {}

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/mj/submit/imagine", self._imagine, methods=["POST"]),
                Route("/mj/task/{n:int}/fetch", self._mj_task),
                Route("/api/rest/v1/generations", self._generate, methods=["POST"]),
                Route("/api/rest/v1/generations/{n:int}", self._generation),
                Route("/pictures/{n:int}.png", self._picture),
            ]
        )

    async def _order(self, request: Request) -> int | Response:
        if self.refusals:
            status, headers = self.refusals.pop(0)
            return JSONResponse({"error": headers.get("message", "not now")}, status, headers)
        self.ordered.append({**await request.json(), "_headers": dict(request.headers)})
        if self.failures:
            self._fails[len(self.ordered)] = self.failures.pop(0)
        return len(self.ordered)

    def _address(self, n: int) -> str:
        return self.elsewhere or f"{self.address}/pictures/{n}.png"

    async def _imagine(self, request: Request) -> Response:
        if "imagine" in self.answers:
            return JSONResponse(self.answers["imagine"])
        n = await self._order(request)
        return n if isinstance(n, Response) else JSONResponse({"code": 1, "result": n})

    async def _mj_task(self, request: Request) -> Response:
        n = request.path_params["n"]
        if "outcome" in self.answers:
            return JSONResponse(self.answers["outcome"])
        if n in self._fails:
            return JSONResponse({"status": "FAILURE", "failReason": self._fails[n]})
        if not self.finished.is_set():
            return JSONResponse({"status": "IN_PROGRESS", "progress": "45%"})
        return JSONResponse({"status": "SUCCESS", "imageUrl": self._address(n)})

    async def _generate(self, request: Request) -> Response:
        n = await self._order(request)
        if isinstance(n, Response):
            return n
        return JSONResponse({"sdGenerationJob": {"generationId": str(n)}})

    async def _generation(self, request: Request) -> Response:
        n = request.path_params["n"]
        if "outcome" in self.answers:
            return JSONResponse(self.answers["outcome"])
        made = self.ordered[n - 1]["num_images"]
        told: dict[str, Any] = {"status": "PENDING", "generated_images": []}
        if n in self._fails:
            told["status"] = "FAILED"
        elif self.finished.is_set():
            images = [{"url": self._address(10 * n + place)} for place in range(made)]
            told = {"status": "COMPLETE", "generated_images": images}
        return JSONResponse({"generations_by_pk": told})

    async def _picture(self, request: Request) -> Response:
        self.downloads += 1

        async def pieces() -> AsyncIterator[bytes]:
            half = len(self.picture) // 2
            yield self.picture[:half]
            await self.gate.wait()
            yield self.picture[half:]

        return StreamingResponse(pieces(), media_type="text/html")  # it is not believed


@asynccontextmanager
async def studio() -> AsyncIterator[Studio]:
    made = Studio()
    listener = listen("127.0.0.1", 0)
    server = Server(made.app(), on_end=made.gate.set)
    made.address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    running = asyncio.create_task(server.serve([listener]))
    try:
        await until(lambda: server.started, within_s=30)
        yield made
    finally:
        made.gate.set()
        server.should_exit = True
        await asyncio.wait_for(running, 30)
