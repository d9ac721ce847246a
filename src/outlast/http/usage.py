"""What was used, and what may be: usage and budgets over HTTP."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, Request
from starlette.responses import Response

from outlast import budgets
from outlast import usage as used
from outlast.core.codec import loads
from outlast.core.errors import BadInput
from outlast.http import schemas
from outlast.http.body import read_object
from outlast.http.doc import doc
from outlast.http.door import Guarded
from outlast.http.state import answer, outlast_of

router = APIRouter(prefix="/api/v1", tags=["usage"], route_class=Guarded)

QUERY: Final = {
    "by": f"what to sum up by: {', '.join(used.BYS)}; else day",
    "from": "the first day, as in 2026-11-01; else 30 days",
    "to": "the last day; else today",
    **{name: f"only what was used for this {told}" for name, told in used.WHERE.items()},
}


@router.get("/usage", **doc("What was used", schemas.UsagePage, right="inspect", query=QUERY))
async def usage(request: Request) -> Response:
    """Exact sums of what attempts have reported, those that failed included; days are in UTC.
    Sums that know users and sessions are kept for 92 days, the others for 400."""
    told = dict(request.query_params)
    for name in told.keys() - QUERY.keys():
        raise BadInput(f"{name[:60]}: there is no such parameter: {', '.join(QUERY)}.", field=name)
    return answer(
        await used.usage(
            outlast_of(request).engine,
            told.get("by", "day"),
            since=told.get("from"),
            until=told.get("to"),
            where=used.picked(told),
        )
    )


@router.get("/budgets", **doc("List budgets and their use", schemas.BudgetPage, right="inspect"))
async def list_budgets(request: Request) -> Response:
    """Each with what was used of it in the hour, day or month that runs."""
    return answer({"items": await budgets.budgets(outlast_of(request)), "next": None})


@router.put(
    "/budgets/{key:path}",
    **doc("Define a budget", schemas.Budget, right="operate", body=schemas.BudgetSpec),
)
async def set_budget(request: Request, key: str) -> Response:
    """It counts for tasks that are enqueued from then on; raising one lets those pass that wait
    for it. What was used stays used."""
    fields = await read_object(request)
    body = {name: loads(bytes(value), name) for name, value in fields.items()}
    return answer(await budgets.set_budget(outlast_of(request), key, body))


@router.delete("/budgets/{key:path}", **doc("Delete a budget", right="operate", status=204))
async def delete_budget(request: Request, key: str) -> Response:
    """Nobody waits for it any more; one that code gives comes back as code gives it."""
    await budgets.delete_budget(outlast_of(request), key)
    return Response(status_code=204)
