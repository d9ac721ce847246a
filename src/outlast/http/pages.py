"""The pages: the dashboard, the one for end users, and that of the API.

The first two are built from `web/board` into `board/`, which is in the wheel and not in the
repository. Their addresses are relative, so they work under whatever path the API is served.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from fastapi import FastAPI
from starlette.datastructures import Headers
from starlette.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

STATIC: Final = Path(__file__).parent / "static"
BOARD: Final = Path(__file__).parent / "board"
FOR_EVER: Final = "public, max-age=31536000, immutable"
UNBUILT: Final = (
    "The dashboard is not built here: install Node.js 20.19 or later and run `make run` again;"
    " everything else runs."
)


def is_built() -> bool:
    return (BOARD / "index.html").exists()


class Assets(StaticFiles):
    """Files whose names change with their contents; packed ones go to whoever can unpack them."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        packed = "gzip" in Headers(scope=scope).get("accept-encoding", "")
        there = packed and self.lookup_path(f"{path}.gz")[1] is not None
        response = await super().get_response(f"{path}.gz" if there else path, scope)
        if there:
            response.headers["content-encoding"] = "gzip"
            response.headers["content-type"] = TYPES.get(Path(path).suffix, "text/plain")
        response.headers["vary"] = "Accept-Encoding"
        if response.status_code in (200, 304):
            response.headers["cache-control"] = FOR_EVER
        return response


TYPES: Final = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8"}


def add(api: FastAPI) -> None:
    """The pages, to an API."""
    api.mount("/static", StaticFiles(directory=STATIC), name="static")
    api.mount("/assets", Assets(directory=BOARD / "assets", check_dir=False), name="assets")

    @api.get("/", include_in_schema=False)
    async def board() -> Response:
        return _built("index.html")

    @api.get("/ask", include_in_schema=False)
    async def ask() -> Response:
        return _built("ask.html")

    @api.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return FileResponse(STATIC / "docs.html")


def _built(name: str) -> Response:
    page = BOARD / name
    return FileResponse(page if page.exists() else STATIC / "unbuilt.html")
