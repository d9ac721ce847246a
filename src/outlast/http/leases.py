"""Workers in any language over HTTP: take leases, keep them, tell how far they are, end them.

A lease is a ticket (`outlast.worker.remote`) that the server has signed, so that no server needs to
remember it. It is good for the key that took it, and for nobody else.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any, Final

import msgspec
from fastapi import APIRouter, Request
from msgspec import Raw
from msgspec.structs import asdict, replace
from starlette.responses import Response

from outlast.context import chunk_of, progress_of
from outlast.core.codec import check_size, dumps, loads
from outlast.core.durations import to_ms
from outlast.core.errors import BadInput, NotFound, Permanent
from outlast.core.failures import from_wire
from outlast.core.model import Json, Lease, NewEvent, Outcome, Task, TaskQuery
from outlast.core.redact import mask_of
from outlast.core.retry import Retry
from outlast.core.secret import Mask
from outlast.core.usage import usage_of
from outlast.dataflow import Skipped, ends, filled, flow_of
from outlast.http import schemas
from outlast.http.body import MAX_WAIT_S, read_as
from outlast.http.doc import doc
from outlast.http.door import Guarded, door_of, has_to_go, principal_of
from outlast.http.problems import Refused
from outlast.http.state import answer, live_of, outlast_of
from outlast.options import name_of
from outlast.steps import given
from outlast.stream import fetch
from outlast.views import View, iso, task_view
from outlast.worker import outcomes
from outlast.worker.ledger import merge
from outlast.worker.remote import MAX_CLAIM, Ask, Claim, Remote, Ticket, draw

router = APIRouter(prefix="/api/v1/leases", tags=["leases"], route_class=Guarded)

PURPOSE: Final = b"lease:"
OWNERLESS: Final = "anybody"
"""Owner of the workers of a server that has no keys."""

MAX_QUEUES: Final = 50
MAX_TYPES: Final = 200

_ticket = msgspec.msgpack.Decoder(Ticket)


class _Claim(msgspec.Struct, forbid_unknown_fields=True):
    worker: str
    queues: list[str] = []
    types: list[str] = []
    max: int = 1
    wait: float = 0
    token: str | None = None


class _Usage(msgspec.Struct, forbid_unknown_fields=True):
    tokens: int | None = None
    cost: float | str | None = None
    model: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    more: dict[str, float] | None = None


class _Progress(msgspec.Struct, forbid_unknown_fields=True):
    percent: float
    message: str = ""
    data: dict[str, Any] = {}
    usage: _Usage | None = None


class _Chunk(msgspec.Struct, forbid_unknown_fields=True):
    chunk: Raw


class _Result(msgspec.Struct, forbid_unknown_fields=True):
    result: Raw = Raw(b"null")
    usage: _Usage | None = None


class _Failure(msgspec.Struct, forbid_unknown_fields=True):
    error: dict[str, Any] | None = None
    retry: bool | float | str | None = None
    usage: _Usage | None = None


@router.post(
    "",
    **doc("Take tasks to work on", schemas.Claimed, right="work", scoped=True,
          body=schemas.NewClaim),
)  # fmt: skip
async def claim(request: Request) -> Response:
    """With `wait` the answer comes as soon as there is a task. The same `token` again gives the
    same leases again, should a reply get lost."""
    told = await read_as(request, _Claim)
    ask, remote = _ask(request, told), remote_of(request)
    if not 0 <= told.wait <= MAX_WAIT_S:
        raise BadInput(f"wait: 0 to {MAX_WAIT_S} seconds, not {told.wait:g}.", field="wait")
    if told.wait:
        work = remote.claim(ask, told.wait)
        who = principal_of(request)
        live, over = live_of(request), partial(has_to_go, request)
        claimed = await live.wait(work, request.receive, who, over) or Claim()
    else:
        claimed = await remote.claim(ask)
    try:
        items = await _items(request, claimed)
        gone = await request.is_disconnected()
    except BaseException:
        await remote.give_back(claimed)
        raise
    if gone:
        await remote.give_back(claimed)
    return answer({"items": items})


@router.post(
    "/{lease}/heartbeat",
    **doc(
        "Keep a lease, and those taken with it",
        schemas.Kept,
        right="work",
        errors=(409,),
        scoped=True,
    ),
)
async def heartbeat(request: Request, lease: str) -> Response:
    """Every 3 s: a lease holds for 10 s. Stop when `cancel` is set, and on 409."""
    ticket = await _open(request, lease)
    return await _tell(request, ticket, Outcome(id=ticket.id, fence=ticket.fence))


@router.post(
    "/{lease}/progress",
    **doc(
        "Tell how far it is",
        schemas.Kept,
        right="work",
        errors=(409,),
        scoped=True,
        body=schemas.NewProgress,
    ),
)
async def progress(request: Request, lease: str) -> Response:
    """Shown in the record and sent to whoever follows; a heartbeat, too."""
    ticket, told = await _open(request, lease), await read_as(request, _Progress)
    now = await outlast_of(request).engine.now()
    elapsed_ms = now - ticket.started_at
    data = progress_of(told.percent, told.message, elapsed_ms, now, told.data)
    if (mask := await _mask(request, ticket)) is not None:
        data = mask.data(data)
    news = Outcome(id=ticket.id, fence=ticket.fence, progress=data)
    return await _tell(request, ticket, await _with(request, told.usage, ticket, news))


@router.post(
    "/{lease}/usage",
    **doc("Tell what was used", schemas.Kept, right="work", errors=(409,), scoped=True,
          body=schemas.NewUsage),
)  # fmt: skip
async def usage(request: Request, lease: str) -> Response:
    """Tokens, money and what else is counted, since it was last told; a heartbeat, too. What is
    told with the end instead is counted once, however often that is repeated."""
    ticket, told = await _open(request, lease), await read_as(request, _Usage)
    return await _tell(request, ticket, await _used(request, told, ticket))


@router.post(
    "/{lease}/emit",
    **doc("Put out a chunk of output for whoever follows", schemas.Kept, right="work",
          errors=(409,), scoped=True,
          body=schemas.NewChunk),
)  # fmt: skip
async def emit(request: Request, lease: str) -> Response:
    """Sent to whoever follows; a heartbeat, too. If the attempt fails, they are told that its
    chunks do not count."""
    ticket, told = await _open(request, lease), await read_as(request, _Chunk)
    data = chunk_of(loads(bytes(told.chunk), "chunk"))
    if (mask := await _mask(request, ticket)) is not None:
        data = mask.data(data)
    event = NewEvent(kind="chunk", data=data, task_id=ticket.id)
    return await _tell(request, ticket, Outcome(id=ticket.id, fence=ticket.fence, events=(event,)))


@router.post(
    "/{lease}/complete",
    **doc("It is done: here is the result", schemas.Ended, right="work", errors=(409,), scoped=True,
          body=schemas.NewResult),
)  # fmt: skip
async def complete(request: Request, lease: str) -> Response:
    """May be repeated when the reply was lost. 409: the task is another's now, or over."""
    ticket, told = await _open(request, lease), await read_as(request, _Result)
    outcome = outcomes.completed(ticket, _checked(told.result))
    return await _end(request, ticket, await _with(request, told.usage, ticket, outcome))


@router.post(
    "/{lease}/fail",
    **doc("It failed: again by the policy of its type, or dead", schemas.Ended, right="work",
          errors=(409,),
          scoped=True, body=schemas.NewFailure),
)  # fmt: skip
async def fail(request: Request, lease: str) -> Response:
    """May be repeated when the reply was lost. 409: the task is another's now, or over."""
    ticket, told = await _open(request, lease), await read_as(request, _Failure)
    if told.error is not None and (mask := await _mask(request, ticket)) is not None:
        told.error = loads(mask.data(dumps(told.error, "error")))
    outcome = _failed(remote_of(request), ticket, told)
    return await _end(request, ticket, await _with(request, told.usage, ticket, outcome))


@router.post(
    "/{lease}/release",
    **doc("Give it back, at no cost", schemas.Ended, right="work", errors=(409,), scoped=True),
)
async def release(request: Request, lease: str) -> Response:
    """It costs no attempt. One that was asked to stop ends as cancelled."""
    ticket = await _open(request, lease)
    return await _end(request, ticket, outcomes.released(ticket))


def remote_of(request: Request) -> Remote:
    remote: Remote = request.app.state.remote
    return remote


# Asking ------------------------------------------------------------------------------------------


def _ask(request: Request, told: _Claim) -> Ask:
    """What is asked for, if the caller may have it."""
    principal, app = principal_of(request), outlast_of(request)
    if not 1 <= told.max <= MAX_CLAIM:
        raise BadInput(f"max: 1 to {MAX_CLAIM} tasks, not {told.max}.", field="max")
    types = _names(told.types, "types", MAX_TYPES) or principal.types
    queues = _names(told.queues, "queues", MAX_QUEUES) or principal.queues
    if not queues:
        if not types:
            raise BadInput("Say which queues or which types you serve.", field="queues")
        found = [app.find(type) for type in types]
        queues = tuple("default" if handler is None else handler.queue for handler in found)
    for name, asked, allowed in (
        ("queues", queues, principal.queues),
        ("types", types, principal.types),
    ):
        for one in asked:
            if allowed and one not in allowed:
                raise Refused(403, f"{name}: {principal.name!r} may not take from {one[:60]!r}.")
    return Ask(
        owner=_owner(request),
        worker=name_of(told.worker, "worker"),
        queues=tuple(sorted(set(queues))),
        types=tuple(sorted(set(types))),
        most=told.max,
        token=None if told.token is None else name_of(told.token, "token"),
    )


def _names(told: list[str], field: str, most: int) -> tuple[str, ...]:
    if len(told) > most:
        raise BadInput(f"{field}: {most} at most, not {len(told)}.", field=field)
    return tuple(name_of(name, field) for name in told)


async def _items(request: Request, claimed: Claim) -> list[View]:
    if not claimed.leases:
        return []
    app = outlast_of(request)
    ids = tuple(lease.id for lease in claimed.leases)
    page = await app.engine.tasks(TaskQuery.of(id=ids, limit=len(ids)))
    tasks = {task.id: task for task in page.items}
    return [
        await _item(request, claimed, lease, tasks[lease.id])
        for lease in claimed.leases
        if lease.id in tasks
    ]


async def _item(request: Request, claimed: Claim, lease: Lease, task: Task) -> View:
    handler = outlast_of(request).find(lease.type)
    ticket = claimed.ticket(
        lease, task.started_at or task.updated_at, handler.timeout_ms if handler else None
    )
    return {
        "lease": await door_of(request).signer.sign(msgspec.msgpack.encode(ticket), PURPOSE),
        # Who runs it gets what is secret, too, and results of others where it refers to them.
        "task": task_view(replace(task, payload=lease.payload), None),
        "until": iso(claimed.until),
        "deadline": iso(ticket.deadline),
        "steps": {step.key: Raw(given(step.value)[0]) for step in lease.steps},
        "signals": [
            {"name": signal.name, "data": Raw(signal.data), "at": iso(signal.at)}
            for signal in lease.inbox
        ],
    }


# Telling -----------------------------------------------------------------------------------------


async def _open(request: Request, text: str) -> Ticket:
    """The ticket behind a lease; what we have not signed, or not for this key, is none."""
    data = await door_of(request).signer.signed(text, PURPOSE)
    ticket = None if data is None else _ticket.decode(data)
    if ticket is None or ticket.owner != _owner(request):
        raise NotFound("There is no such lease.")
    return ticket


def _owner(request: Request) -> str:
    return principal_of(request).id or OWNERLESS


async def _tell(request: Request, ticket: Ticket, news: Outcome) -> Response:
    until, cancel = await remote_of(request).tell(ticket, news)
    return answer({"until": iso(until), "cancel": cancel})


async def _end(request: Request, ticket: Ticket, outcome: Outcome) -> Response:
    verdict = await remote_of(request).end(ticket, outcome)
    return answer({"task_id": ticket.id, "outcome": verdict})


async def _mask(request: Request, ticket: Ticket) -> Mask | None:
    """For what a worker says of a task that has secrets, if the app knows the type."""
    app = outlast_of(request)
    handler = app.find(ticket.type)
    if handler is None or not (handler.hidden.payload or ticket.reads):
        return None
    task = await fetch(app.engine, ticket.id)
    lease: Lease = replace(ticket, payload=task.payload, meta=task.meta)
    if ticket.reads and (flow := flow_of(task.meta)) is not None:
        with suppress(Permanent, Skipped):  # what it was given may have been deleted since
            lease = filled(lease, await ends(app.engine, flow.reads))
    return mask_of(lease.payload, lease.meta, handler.hidden)


async def _with(
    request: Request, usage: _Usage | None, ticket: Ticket, outcome: Outcome
) -> Outcome:
    return outcome if usage is None else merge(await _used(request, usage, ticket), outcome)


async def _used(request: Request, usage: _Usage, ticket: Ticket) -> Outcome:
    mask = None if usage.model is None else await _mask(request, ticket)
    return outcomes.used(ticket, usage_of(**asdict(usage)), mask)


def _checked(result: Raw) -> Json:
    data = bytes(result)
    check_size(data, "result")
    loads(data, "result")
    return data


def _failed(remote: Remote, ticket: Ticket, told: _Failure) -> Outcome:
    """By the policy of the type, unless the worker knows better; attempts end all the same."""
    error, policy = dict(told.error or {}), remote.policy(ticket)
    if told.retry is False:
        # No rule of the policy may find that this error is worth another attempt.
        return outcomes.failed(ticket, from_wire({**error, "permanent": True}), Retry(), draw())
    if told.retry is None or told.retry is True:
        if told.retry:
            error["permanent"] = False
        return outcomes.failed(ticket, from_wire(error), policy, draw())
    after_ms = to_ms(told.retry)
    asked = {**error, "permanent": False, "retry_after": after_ms / 1_000}
    outcome = outcomes.failed(ticket, from_wire(asked), policy, draw())
    return replace(outcome, delay_ms=after_ms) if outcome.lane == "retry" else outcome
