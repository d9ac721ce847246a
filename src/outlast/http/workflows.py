"""Workflows over HTTP: a graph handed over whole, looked at as one, stopped, taken up again."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import Response

from outlast import flows, graphs
from outlast.access import Principal
from outlast.core.codec import loads
from outlast.core.errors import BadInput, NotFound
from outlast.core.model import TaskId
from outlast.engine import Engine
from outlast.http import schemas
from outlast.http.body import MAX_BATCH_BODY, objects, read_as, read_object, text
from outlast.http.doc import doc
from outlast.http.door import Guarded, principal_of, within_scope
from outlast.http.problems import Refused
from outlast.http.quotas import within_quota
from outlast.http.reads import reads_of
from outlast.http.state import answer, outlast_of, path_id, redactor_of
from outlast.http.tasks import IDEMPOTENCY, params_of
from outlast.http.wishes import check_session, first_of, for_session, key_of, options_of
from outlast.options import name_of

router = APIRouter(prefix="/api/v1/workflows", tags=["workflows"], route_class=Guarded)

FILTERS: Final[dict[str, str]] = {
    "status": f"{', '.join(flows.STATUSES)}; several are separated by commas",
    "session_id": "session",
    "user_id": "user",
    "tag": "tag",
    "q": "a filter, as for tasks: `payload.name:ingest age>1h`",
    "limit": "1 to 500, else 50",
    "cursor": "`next` of the page before",
}


@router.get("", **doc("List workflows, newest first", schemas.WorkflowPage, right="look",
                      query=FILTERS))  # fmt: skip
async def list_workflows(request: Request) -> Response:
    """Each with its status, and how many of its tasks are how far. A page may be short and still
    have a `next`."""
    _whole(principal_of(request))
    app, params = outlast_of(request), params_of(request)
    for name in params.keys() - FILTERS.keys():
        raise BadInput(f"There is no filter {name[:40]!r}: {', '.join(FILTERS)}.", field=name)
    query, wanted = await flows.query_of(app, params)
    query = await within_scope(request, query)
    return answer(await flows.page(app, query, wanted, redactor_of(request)))


@router.post(
    "",
    **doc("Enqueue a workflow: a graph of tasks", schemas.EnqueuedWorkflow, right="enqueue",
          status=202, body=schemas.NewWorkflow, headers=IDEMPOTENCY, errors=(409,)),
)  # fmt: skip
async def enqueue(request: Request) -> Response:
    """All of it or nothing. `{"$from": "node", "path": "words.0"}` stands for the result of another
    node, or a part of it, wherever a value may stand; it makes an edge, as `after` does without
    data. Options beside `nodes` are those of all tasks. With an `Idempotency-Key` the request may
    be repeated safely."""
    principal, app = principal_of(request), outlast_of(request)
    _whole(principal)
    fields = await read_object(request, MAX_BATCH_BODY)
    name = name_of(text(fields, "name", '{"name": "ingest", "nodes": […]}'), "name")
    if "nodes" not in fields:
        raise BadInput('nodes: missing, as in [{"name": "page", "type": "fetch"}].', field="nodes")
    entries = objects(fields.pop("nodes"), "nodes")
    nodes = [{name: loads(bytes(raw), name) for name, raw in one.items()} for one in entries]
    options = options_of(fields)
    for_session(principal, options)
    _check_nodes(principal, nodes)
    flow = await graphs.workflow_of(app, name, nodes, options)
    if (key := key_of(request)) is not None:
        if "id" in options:
            raise BadInput("Give an id or an Idempotency-Key, not both.", field="id")
        options["id"] = await _id_for(app.engine, key, (name, nodes, options))
        flow = await graphs.workflow_of(app, name, nodes, options)
    calls = flow.calls()
    if key is None or await reads_of(request).find(flow.id) is None:  # a repeated one costs nothing
        calls = await within_quota(request, calls)
    handle = await flow.enqueue(calls)
    told = {"existing": handle.existing, "durability": app.engine.durability}
    location = f"{request.scope.get('root_path', '')}/api/v1/workflows/{flow.id}"
    view = await flows.view(app, flow.id, redactor_of(request))
    return answer({**view, **told}, 202, {"location": location})


@router.get(
    "/{workflow_id}", **doc("Look at a workflow and its graph", schemas.Workflow, right="look")
)
async def get_workflow(request: Request, workflow_id: str) -> Response:
    """With its nodes, their edges and states, as a graph is drawn; children of a node have it as
    their `parent_id`. `undo` are the tasks that undo it, in their order. Of more than 2,000 nodes
    the newest are there, and `truncated` is true; `/tasks?workflow_id=…` lists all."""
    id = await _visible(request, workflow_id)
    return answer(await flows.drawn(outlast_of(request), id, redactor_of(request)))


@router.post(
    "/{workflow_id}/cancel",
    **doc("Cancel a workflow", schemas.WorkflowItem, right="act", errors=(409,),
          body=schemas.CancelWorkflow),
)  # fmt: skip
async def cancel(request: Request, workflow_id: str) -> Response:
    """What waits or runs is stopped, what was done is undone. With `from` only that node is, and
    what comes after it."""
    id, told = await _visible(request, workflow_id), await read_as(request, _Cancel)
    app = outlast_of(request)
    await flows.cancel(app, id, name_of(told.reason, "reason"), told.origin)
    return answer(await flows.view(app, id, redactor_of(request)))


class _Cancel(msgspec.Struct, forbid_unknown_fields=True):
    reason: str = "cancelled"
    origin: str | None = msgspec.field(default=None, name="from")


@router.post(
    "/{workflow_id}/retry",
    **doc("Take a workflow up again", schemas.WorkflowItem, right="operate", errors=(409,),
          scoped=True, body=schemas.RetryWorkflow),
)  # fmt: skip
async def retry(request: Request, workflow_id: str) -> Response:
    """It goes on from where it died: what has completed stays. With `from` a new workflow is made,
    which the answer is: that node and all that come after it run again, with the results that the
    others have."""
    id, told = await _visible(request, workflow_id), await read_as(request, _Retry)
    app = outlast_of(request)
    return answer(await flows.view(app, await flows.retry(app, id, told.origin)))


class _Retry(msgspec.Struct, forbid_unknown_fields=True):
    origin: str | None = msgspec.field(default=None, name="from")


async def _visible(request: Request, text: str) -> TaskId:
    """The id in a path, of a workflow that the caller may see; another one does not exist."""
    id, principal = path_id(text, "workflow"), principal_of(request)
    _whole(principal)
    task = await reads_of(request).find(id)
    if task is None or not principal.owns(task.session_id, task.user_id):
        raise NotFound(f"There is no workflow {id}.")
    return id


def _check_nodes(principal: Principal, nodes: object) -> None:
    """What an end user says about nodes, and those in nodes, is what they may say about tasks."""
    for node in nodes if isinstance(nodes, list) else ():
        if isinstance(node, dict):
            own = node.get("options")
            check_session(principal, own if isinstance(own, dict) else {})
            _check_nodes(principal, node.get("nodes"))


def _whole(principal: Principal) -> None:
    """A workflow is seen whole or not at all."""
    if principal.queues or principal.types:
        raise Refused(403, f"{principal.name!r} may deal with some tasks only, not with workflows.")


async def _id_for(engine: Engine, key: str, asked: Any) -> TaskId:
    """The id of the workflow that was asked for under this key, or of a new one."""
    return (await first_of(engine, key, asked))["id"]
