"""Schedules over HTTP: what is enqueued by the clock: made, paused, run now."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import Response

from outlast import schedules
from outlast.core.errors import BadInput
from outlast.http import schemas
from outlast.http.body import read_as
from outlast.http.doc import doc
from outlast.http.door import Guarded
from outlast.http.state import answer, outlast_of, shown
from outlast.http.wishes import refuse_own
from outlast.options import moment_of

router = APIRouter(prefix="/api/v1/schedules", tags=["schedules"], route_class=Guarded)
SOME_AHEAD: Final = 3
MOST_AHEAD: Final = 100


@router.get(
    "",
    **doc("List schedules, with their next firings", schemas.SchedulePage, right="inspect",
          query={"ahead": f"how many firings of each, 1 to {MOST_AHEAD}; else {SOME_AHEAD}"}),
)  # fmt: skip
async def list_schedules(request: Request) -> Response:
    """By name, each with how far it is and when it fires next."""
    told = request.query_params.get("ahead", str(SOME_AHEAD))
    if re.fullmatch(r"\d{1,3}", told, re.ASCII) is None or not 1 <= int(told) <= MOST_AHEAD:
        raise BadInput(f"ahead is a number from 1 to {MOST_AHEAD}.", field="ahead")
    found = await schedules.views(outlast_of(request), ahead=int(told))
    return answer({"items": found, "next": None})


@router.post(
    "",
    **doc("Make a schedule, or replace the one of that name", schemas.Schedule, right="operate",
          status=201, body=schemas.NewSchedule),
)  # fmt: skip
async def save(request: Request) -> Response:
    """`every` is a cron expression in the zone `tz`, or a span; or give `at`, one moment. It stays,
    whatever code says, until it is deleted."""
    told, app = await read_as(request, _New), outlast_of(request)
    refuse_own(app, told.type)
    made = schedules.schedule_of(
        told.name, told.type, told.payload, every=told.when, tz=told.tz, catch_up=told.catch_up,
        overlap=told.overlap, jitter=told.jitter, options=told.options,
    )  # fmt: skip
    await schedules.save(app, made)
    return answer(await schedules.view(app, made.name), 201)


class _New(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    name: str
    type: str
    payload: dict[str, Any] = {}
    every: str | float | None = None
    at: str | None = None
    tz: str = "UTC"
    catch_up: str = "latest"
    overlap: str = "allow"
    jitter: str | float = 0
    options: dict[str, Any] = {}

    @property
    def when(self) -> str | float | datetime:
        if self.every is not None and self.at is None:
            return self.every
        if self.at is None or self.every is not None:
            told = "Give every, as in '0 3 * * *' or '15m', or at, a moment."
            raise BadInput(told, field="every")
        return datetime.fromtimestamp(moment_of(self.at, "at") / 1_000, UTC)


@router.get(
    "/{schedule:path}",
    **doc("Look at a schedule", schemas.Schedule, right="inspect", errors=(404,)),
)
async def get_schedule(request: Request, schedule: str) -> Response:
    """With its next ten firings."""
    return answer(await schedules.view(outlast_of(request), schedule))


@router.delete("/{schedule:path}", **doc("Delete a schedule", right="operate", status=204))
async def delete(request: Request, schedule: str) -> Response:
    """What it has enqueued stays. One that code gives comes back when a program with it starts."""
    await schedules.delete(outlast_of(request), schedule)
    return Response(status_code=204)


@router.post("/{schedule:path}/pause", **doc("Fire nothing", schemas.Schedule, right="operate"))
async def pause(request: Request, schedule: str) -> Response:
    """What falls into the pause is not made up for."""
    app = outlast_of(request)
    await schedules.pause(app, schedule)
    return answer(await schedules.view(app, schedule))


@router.post("/{schedule:path}/resume", **doc("Fire again", schemas.Schedule, right="operate"))
async def resume(request: Request, schedule: str) -> Response:
    """Undoes a pause; the next firing is the next that is due from now."""
    app = outlast_of(request)
    await schedules.pause(app, schedule, paused=False)
    return answer(await schedules.view(app, schedule))


@router.post(
    "/{schedule:path}/run", **doc("Fire once, now", schemas.Task, right="operate", status=202)
)
async def run(request: Request, schedule: str) -> Response:
    """One firing out of turn; also while it is paused. The answer is its task."""
    handle = await schedules.run_now(outlast_of(request), schedule)
    return answer(shown(request, await handle.refresh()), 202)
