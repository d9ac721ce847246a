"""Operating over HTTP: queues, the dead, workers, limits, types."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, Request
from msgspec.structs import replace
from starlette.responses import Response

from outlast import ops
from outlast.core.codec import loads
from outlast.core.errors import BadInput
from outlast.core.model import TaskQuery, Term
from outlast.http import schemas
from outlast.http.body import read_object
from outlast.http.doc import doc
from outlast.http.door import Guarded, principal_of, within_scope
from outlast.http.problems import Refused
from outlast.http.state import answer, outlast_of
from outlast.http.tasks import FILTERS, page_of, query_of

router = APIRouter(prefix="/api/v1", tags=["operating"], route_class=Guarded)

GROUPED: Final = "fingerprint"


@router.get(
    "/queues/status",
    **doc("Depths, counts and pressure of the queues", schemas.Queues, right="inspect"),
)
async def queues_status(request: Request) -> Response:
    """By lane and by status, for all queues together and for each; with the share of the
    retry lane, the age of the oldest task and what was completed in the last minute."""
    return answer(await ops.queues_status(outlast_of(request)))


@router.get(
    "/queues/dlq",
    **doc(
        "List dead tasks, or the errors they died of",
        (schemas.TaskPage, schemas.DeadGroupPage),
        right="inspect",
        scoped=True,
        query={
            **{name: told for name, told in FILTERS.items() if name != "status"},
            "group_by": f"{GROUPED}: dead tasks counted by error",
        },
    ),
)
async def dead(request: Request) -> Response:
    """Dead tasks, newest first, with the filters of `/tasks`; or with `group_by=fingerprint` their
    errors, the most frequent first."""
    app, params = outlast_of(request), request.query_params
    if "group_by" in params:
        if params.multi_items() != [("group_by", GROUPED)]:
            raise BadInput(
                f"group_by takes {GROUPED}, and no other filter beside it.", field="group_by"
            )
        groups = await ops.dead_groups(app, await within_scope(request, TaskQuery()))
        return answer({"items": groups, "next": None})
    if "status" in params:
        raise BadInput("status: here all tasks are dead; use /tasks?status=…", field="status")
    query = await query_of(request)
    query = replace(query, terms=(Term("status", ("dead",)), *query.terms))
    return answer(await page_of(request, query))


@router.post(
    "/queues/{name:path}/pause",
    **doc("Take nothing more from a queue", schemas.Paused, right="operate", scoped=True),
)
async def pause(request: Request, name: str) -> Response:
    """What runs goes on. The queue need not exist yet."""
    _check_queue(request, name)
    await ops.pause(outlast_of(request), name)
    return answer({"queue": name, "paused": True})


@router.post(
    "/queues/{name:path}/resume",
    **doc("Take from a queue again", schemas.Paused, right="operate", scoped=True),
)
async def resume(request: Request, name: str) -> Response:
    """Undoes a pause; an open queue stays open."""
    _check_queue(request, name)
    await ops.resume(outlast_of(request), name)
    return answer({"queue": name, "paused": False})


def _check_queue(request: Request, name: str) -> None:
    """A key for some types may not stop the others that wait in the same queue."""
    principal = principal_of(request)
    if principal.types or (principal.queues and name not in principal.queues):
        raise Refused(403, f"{principal.name!r} may not pause or resume {name[:100]!r}.")


@router.get("/workers", **doc("List workers", schemas.WorkerPage, right="inspect"))
async def workers(request: Request) -> Response:
    """What they serve, how much they run, and whether they are alive."""
    return answer({"items": await ops.workers(outlast_of(request)), "next": None})


@router.post(
    "/workers/{worker_id:path}/drain",
    **doc(
        "Let a worker end what it runs, and stop", schemas.Worker, right="operate", errors=(409,)
    ),
)
async def drain(request: Request, worker_id: str) -> Response:
    """It takes nothing more, lets attempts end for its grace period, gives back the rest, and
    ends. What started it decides whether another one comes in its place."""
    return answer(await ops.drain(outlast_of(request), worker_id))


@router.get("/limits", **doc("List limits and the keys in use", schemas.LimitPage, right="inspect"))
async def limits(request: Request) -> Response:
    """Definitions by key or family, and the gauges of the keys in use: who holds them, how many
    wait, whether the circuit is open."""
    return answer({**await ops.limits(outlast_of(request)), "next": None})


@router.put(
    "/limits/{key:path}",
    **doc(
        "Define a limit, by key or family", schemas.Limit, right="operate", body=schemas.LimitSpec
    ),
)
async def set_limit(request: Request, key: str) -> Response:
    """All workers follow within about a second. It stays when a program with another definition
    starts, until it is deleted."""
    fields = await read_object(request)
    body = {name: loads(bytes(value), name) for name, value in fields.items()}
    return answer(await ops.set_limit(outlast_of(request), key, body))


@router.post(
    "/limits/{key:path}/reset",
    **doc("Close a circuit, and begin a rate afresh", schemas.Limit, right="operate"),
)
async def reset_limit(request: Request, key: str) -> Response:
    """For a key in use, or a family. Slots stay with who holds them; a pause that a service asked
    for (429) is kept."""
    return answer(await ops.reset_limit(outlast_of(request), key))


@router.delete("/limits/{key:path}", **doc("Delete a limit", right="operate", status=204))
async def delete_limit(request: Request, key: str) -> Response:
    """One that code gives comes back as code gives it."""
    await ops.delete_limit(outlast_of(request), key)
    return Response(status_code=204)


@router.get(
    "/types", **doc("List task types with their JSON Schemas", schemas.TypePage, right="inspect")
)
async def types(request: Request) -> Response:
    """Those that the app has, that it declares external, and that live workers announce."""
    return answer({"items": await ops.types(outlast_of(request)), "next": None})
