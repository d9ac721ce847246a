"""Approvals over HTTP: what tasks ask people, and the answers."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, Request
from starlette.responses import Response

from outlast import approvals
from outlast.core.errors import BadInput
from outlast.http import schemas
from outlast.http.body import nothing_else, read_object
from outlast.http.doc import doc
from outlast.http.door import Guarded, visible
from outlast.http.state import answer, outlast_of, shown
from outlast.http.tasks import FILTERS, query_of

router = APIRouter(prefix="/api/v1/approvals", tags=["approvals"], route_class=Guarded)

_FILTERS: Final = {name: told for name, told in FILTERS.items() if name != "status"}


@router.get(
    "", **doc("List open questions to people", schemas.ApprovalPage, right="look", query=_FILTERS)
)
async def list_approvals(request: Request) -> Response:
    """What tasks ask, with the action they propose and until when they wait, those of the newest
    tasks first. The filters are those of tasks."""
    if "status" in request.query_params:
        raise BadInput("status: all tasks that ask something are blocked.", field="status")
    page = await approvals.approvals(outlast_of(request), await query_of(request))
    return answer({"items": page.items, "next": page.next})


@router.post(
    "/{task_id}",
    **doc("Answer the question of a task", schemas.Task, right="act", errors=(409,),
          body=schemas.Answer),
)  # fmt: skip
async def respond(request: Request, task_id: str) -> Response:
    """`answer` is any JSON; the task gets it as `ctx.ask` returns. A task that asks nothing, or
    asks no more, is a conflict."""
    id = await visible(request, task_id)
    fields = await read_object(request)
    if "answer" not in fields:
        raise BadInput('answer: missing, as in {"answer": "yes"}.', field="answer")
    said = bytes(fields.pop("answer"))
    nothing_else(fields, "answer")
    return answer(shown(request, await approvals.respond(outlast_of(request), id, said)))
