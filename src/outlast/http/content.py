"""Content over HTTP: what handlers stored, for whoever may see its task."""

from __future__ import annotations

import re
from typing import Final

from fastapi import APIRouter, Request
from starlette.responses import Response, StreamingResponse

from outlast.content import TYPES, Content
from outlast.core.errors import NotFound
from outlast.http.doc import doc
from outlast.http.door import Guarded, visible
from outlast.http.problems import Refused
from outlast.http.state import outlast_of

router = APIRouter(prefix="/api/v1/content", tags=["content"], route_class=Guarded)

_RANGE: Final = re.compile(r"bytes=(\d{0,15})-(\d{0,15})")
# It never changes under its id; shared caches must not keep what is somebody's.
_HEADERS: Final = {
    "accept-ranges": "bytes",
    "cache-control": "private, max-age=31536000, immutable",
    "content-disposition": "inline",
    "content-security-policy": "default-src 'none'; sandbox",
}


@router.get(
    "/{content_id}",
    **doc("Content that a task has stored", binary=TYPES, right="look", errors=(416,),
          headers={"Range": "bytes=0-999 answers with a part"}),
)  # fmt: skip
async def get_content(request: Request, content_id: str) -> Response:
    """A picture, film or sound, by its id in a result; seen by whoever sees the task."""
    store = outlast_of(request).content
    content = None if store is None else await store.find(content_id)
    if store is None or content is None:
        raise NotFound(f"There is no content {content_id[:60]!r}.")
    try:
        await visible(request, content.task_id)
    except NotFound:
        raise NotFound(f"There is no content {content_id[:60]!r}.") from None
    headers = {**_HEADERS, "etag": f'"{content.sha256}"'}
    if request.headers.get("if-none-match") == headers["etag"]:
        return Response(status_code=304, headers=headers)
    start, end = _part(request, content)
    if start is None:
        told = {"content-range": f"bytes */{content.size}"}
        raise Refused(416, f"It has {content.size:,} bytes.", headers=told)
    headers["content-length"] = str(end - start)
    whole = (start, end) == (0, content.size)
    if not whole:
        headers["content-range"] = f"bytes {start}-{end - 1}/{content.size}"
    return StreamingResponse(
        store.read(content, start, end),
        200 if whole else 206,
        headers,
        media_type=content.content_type,
    )


def _part(request: Request, content: Content) -> tuple[int | None, int]:
    """What part is asked for: one range of bytes, or all of it."""
    asked = _RANGE.fullmatch(request.headers.get("range", "").strip())
    if asked is None or not any(asked.groups()):
        return 0, content.size
    first, last = asked.groups()
    if not first:
        return max(content.size - int(last), 0), content.size
    start = int(first)
    end = min(int(last) + 1 if last else content.size, content.size)
    return (start, end) if start < end else (None, 0)
