"""Following the log: `tail` turns cursor and watch into an iterator, `wait_final` waits for an end.

A watch is only a hint that may be lost, so both look again now and then. `tail` reads from the
cursor it is given, so whoever comes back with the cursor of the last event misses nothing.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Callable
from typing import Final

from msgspec.structs import replace

from outlast.core.durations import show_ms
from outlast.core.errors import NotFound, WaitTimeout
from outlast.core.model import Event, EventQuery, Task, TaskId, TaskQuery
from outlast.core.states import FINAL
from outlast.engine import Engine

POLL_S: Final = 1.0


async def find(engine: Engine, task_id: TaskId) -> Task | None:
    """The record of one task, if there is one."""
    page = await engine.tasks(TaskQuery.of(id=task_id, limit=1))
    return page.items[0] if page.items else None


async def fetch(engine: Engine, task_id: TaskId) -> Task:
    """The record of one task, which must be there."""
    task = await find(engine, task_id)
    if task is None:
        raise NotFound(f"There is no task {task_id}.")
    return task


async def so_far(engine: Engine, query: EventQuery) -> list[Event]:
    """The events after `query.after` that are there now."""
    found: list[Event] = []
    while (page := await engine.events(query)).items:
        found += page.items
        query = replace(query, after=page.next)
    return found


async def tail(
    engine: Engine,
    query: EventQuery,
    *,
    until_done: bool = False,
    poll_s: float = POLL_S,
    linger_s: float | None = None,
    wanted: Callable[[Event], bool] | None = None,
    rest_s: Callable[[], float] | None = None,
) -> AsyncGenerator[Event, None]:
    """Events after `query.after` as they come, for ever or until the task is over.

    With `until_done` (and a `task_id`) it ends behind the `done` event that ends the task; an
    earlier one, before a redrive, is an event like others. A `reset` event tells that what lay
    between the cursor and the next event was pruned. With `linger_s` it ends when there is nothing
    more to read, but waits that long for a first event. Only what is `wanted` is told, and counts.
    After each hint it rests for `rest_s`, so that many who read the same log do not read it all
    the time.
    """
    clock = asyncio.get_running_loop().time
    until = math.inf if linger_s is None else clock() + linger_s
    topic = f"task:{query.task_id}" if query.task_id else "log"
    async with engine.watch([topic]) as watch:
        over = False  # the task was seen to be over, before the page that is read next
        while True:
            page = await engine.events(query)
            if page.reset:
                # It carries the old cursor: a reader that stops here is told again next time.
                yield Event(cursor=query.after or "", kind="reset", at=0, data=b"{}",
                            task_id=query.task_id)  # fmt: skip
            for event in page.items:
                if wanted is None or wanted(event):
                    until = until if linger_s is None else 0  # there is something: no more waiting
                    yield event
            query = replace(query, after=page.next)
            if page.items:
                over = until_done and page.items[-1].kind == "done"
                continue
            if over:
                return
            if until_done and query.task_id and await _is_over(engine, query.task_id):
                over = True  # its last events were written in the same step: read once more
                continue
            if clock() >= until:
                return
            if await watch.wait(min(poll_s, until - clock())) and rest_s is not None:
                await asyncio.sleep(min(rest_s(), max(until - clock(), 0)))


async def wait_final(engine: Engine, task_id: TaskId, timeout_ms: int | None = None) -> Task:
    """The task once it is over; `WaitTimeout` when that takes longer."""
    clock = asyncio.get_running_loop().time
    deadline = None if timeout_ms is None else clock() + timeout_ms / 1000
    async with engine.watch([f"task:{task_id}"]) as watch:
        while True:
            task = await fetch(engine, task_id)
            if task.state in FINAL:
                return task
            left = POLL_S if deadline is None else min(POLL_S, deadline - clock())
            if left <= 0:
                raise WaitTimeout(
                    f"Task {task_id} is {task.status} after {show_ms(timeout_ms or 0)}; it goes on"
                    " and can be waited for again."
                )
            await watch.wait(left)


async def _is_over(engine: Engine, task_id: TaskId) -> bool:
    task = await find(engine, task_id)
    return task is None or task.state in FINAL
