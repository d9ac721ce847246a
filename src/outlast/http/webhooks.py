"""Webhooks over HTTP: subscribe, look at deliveries, send one again."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import Response

from outlast import webhooks
from outlast.core.errors import NotFound
from outlast.core.model import Term
from outlast.core.text import scrub
from outlast.http import schemas
from outlast.http.body import read_as
from outlast.http.doc import doc
from outlast.http.door import Guarded
from outlast.http.state import answer, outlast_of, path_id
from outlast.http.tasks import page_of, query_of
from outlast.stream import fetch
from outlast.views import View, iso, task_view
from outlast.webhooks import DELIVERY, HAPPENINGS, Webhook

router = APIRouter(prefix="/api/v1/webhooks", tags=["webhooks"], route_class=Guarded)


class _New(msgspec.Struct, forbid_unknown_fields=True):
    url: str
    events: Sequence[str] = HAPPENINGS
    filter: str = ""


@router.get("", **doc("List webhooks, without their secrets", schemas.WebhookPage, right="admin"))
async def list_webhooks(request: Request) -> Response:
    """With the reason why one is disabled, if it is."""
    found = await webhooks.webhooks(outlast_of(request).engine)
    return answer({"items": [_view(webhook) for webhook in found], "next": None})


@router.post(
    "",
    **doc(
        "Subscribe; the secret is shown this once",
        schemas.MadeWebhook,
        right="admin",
        status=201,
        body=schemas.NewWebhook,
    ),
)
async def create(request: Request) -> Response:
    """Messages are signed as Standard Webhooks says. Addresses inside private networks are
    refused."""
    told = await read_as(request, _New)
    made = await webhooks.create(
        outlast_of(request).engine, told.url, events=told.events, filter=told.filter
    )
    return answer({**_view(made), "secret": made.secrets[0]}, 201)


@router.delete("/{webhook_id}", **doc("Unsubscribe", right="admin", status=204))
async def delete(request: Request, webhook_id: str) -> Response:
    """Deliveries that wait are given up when their turn comes."""
    await webhooks.delete(outlast_of(request).engine, webhook_id)
    return Response(status_code=204)


@router.post(
    "/{webhook_id}/rotate",
    **doc(
        "A new secret; the old one signs beside it until the next rotation",
        schemas.MadeWebhook,
        right="admin",
    ),
)
async def rotate(request: Request, webhook_id: str) -> Response:
    """Both sign until the next rotation, so that receivers can follow in their time."""
    made = await webhooks.rotate(outlast_of(request).engine, webhook_id)
    return answer({**_view(made), "secret": made.secrets[0]})


@router.post("/{webhook_id}/enable", **doc("Send there again", schemas.Webhook, right="admin"))
async def enable(request: Request, webhook_id: str) -> Response:
    """One that answered 410 was disabled."""
    return answer(_view(await webhooks.enable(outlast_of(request).engine, webhook_id)))


@router.get(
    "/{webhook_id}/deliveries",
    **doc("Its deliveries, newest first: each is a task", schemas.TaskPage, right="admin"),
)
async def deliveries(request: Request, webhook_id: str) -> Response:
    """With their attempts and errors, and the filters of `/tasks`."""
    app = outlast_of(request)
    await webhooks.find(app.engine, webhook_id)
    query = await query_of(request)
    mine = (Term("type", (DELIVERY,)), Term("attr.webhook", (webhook_id,)))
    terms = (*mine, *query.terms)
    return answer(await page_of(request, msgspec.structs.replace(query, terms=terms)))


@router.post(
    "/{webhook_id}/deliveries/{task_id}/replay",
    **doc("Send a delivery again, under its id", schemas.Task, right="admin", status=202),
)
async def replay(request: Request, webhook_id: str, task_id: str) -> Response:
    """As a new task; receivers tell by the message's id that they know it."""
    app = outlast_of(request)
    await webhooks.find(app.engine, webhook_id)
    old = await fetch(app.engine, path_id(task_id))
    told = msgspec.json.decode(old.payload)
    if old.type != DELIVERY or told.get("webhook") != webhook_id:
        raise NotFound(f"There is no delivery {task_id}.")
    handle = await app.submit(DELIVERY, old.payload)
    return answer(task_view(await handle.refresh(), app.redactor), 202)


def _view(webhook: Webhook) -> View:
    return {
        "id": webhook.id,
        "url": scrub(webhook.url),
        "events": webhook.events,
        "filter": webhook.filter,
        "disabled": webhook.disabled,
        "created_at": iso(webhook.created_at),
    }
