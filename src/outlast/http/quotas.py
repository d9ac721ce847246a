"""What a key may ask of a server in all: living tasks, tasks and bytes a day.

The counts of a key are one record, changed by compare-and-set, so that all servers count together.
How many of its tasks live is never read from it: it keeps an upper bound, which grows with every
task and is counted anew when it reaches the quota; so a request seldom waits for a count.
"""

from __future__ import annotations

from typing import Final

import msgspec
from fastapi import Request
from msgspec import Struct
from msgspec.structs import replace

from outlast.access import Quota
from outlast.core.limits import DAY_MS
from outlast.core.model import Put, TaskQuery, Term
from outlast.core.states import FINAL, STATUSES, Ms
from outlast.engine import Engine
from outlast.handler import Call
from outlast.http.door import principal_of
from outlast.http.problems import Refused
from outlast.http.state import outlast_of
from outlast.options import IDEMPOTENT_MS

KIND: Final = "quota"
KEPT_MS: Final = 2 * DAY_MS
ATTR: Final = "outlast.key"
"""By this a task is found again, if the key that enqueued it may have so many living ones."""
RECOUNT_MS: Final = 1_000
LIVING: Final = tuple(status for status in STATUSES if status not in FINAL)


class Count(Struct, frozen=True, kw_only=True):
    """What a key has asked for today, and the most of its tasks that can be alive."""

    day: int = 0
    tasks: int = 0
    bytes: int = 0
    living: int | None = None
    counted_at: Ms = 0


async def within_quota(request: Request, calls: list[Call[object]]) -> list[Call[object]]:
    """The calls, if the key that asks has room for them: then they are counted."""
    principal = principal_of(request)
    quota = principal.quota
    if quota is None or not calls:
        return calls
    engine = outlast_of(request).engine
    new = await _new(engine, calls)
    size = sum(len(call.task.payload) for call in new)
    await take(engine, principal.id, quota, len(new), size)
    if quota.living is None:
        return calls
    mark = (ATTR, principal.id)
    return [replace(c, task=replace(c.task, attrs=(*c.task.attrs, mark))) for c in calls]


async def _new(engine: Engine, calls: list[Call[object]]) -> list[Call[object]]:
    """Those that no earlier request has asked for under the same Idempotency-Key: a repeated one
    costs nothing, and is answered when the quota is used up, too."""
    keys = tuple(c.task.unique_key for c in calls if c.task.digest and c.task.unique_key)
    if not keys:
        return calls
    since = Term("created_at", (await engine.now() - IDEMPOTENT_MS,), ">")
    terms = (Term("unique_key", keys), since)
    page = await engine.tasks(TaskQuery(terms=terms, limit=len(keys)))
    there = {task.unique_key for task in page.items}
    return [call for call in calls if call.task.unique_key not in there or not call.task.digest]


async def take(engine: Engine, key: str, quota: Quota, tasks: int, size: int) -> None:
    """Count so many tasks and bytes for a key, or refuse them."""
    if not tasks or (quota.tasks is None and quota.bytes is None and quota.living is None):
        return
    while True:
        now = await engine.now()
        found = await engine.get(KIND, [key])
        count = msgspec.json.decode(found[0].value, type=Count) if found else Count()
        if count.day != now // DAY_MS:
            count = replace(count, day=now // DAY_MS, tasks=0, bytes=0)
        tomorrow_ms = DAY_MS - now % DAY_MS
        if quota.tasks is not None and count.tasks + tasks > quota.tasks:
            raise _over(f"{quota.tasks:,} tasks a day", f"{count.tasks:,}", tomorrow_ms)
        if quota.bytes is not None and count.bytes + size > quota.bytes:
            raise _over(f"{quota.bytes:,} bytes a day", f"{count.bytes:,}", tomorrow_ms)
        room = True
        if quota.living is not None:
            known = count.living is not None and now - count.counted_at < RECOUNT_MS
            if count.living is None or (count.living + tasks > quota.living and not known):
                alive = await _alive(engine, key)
                count = replace(count, living=alive, counted_at=now)
            room = (count.living or 0) + tasks <= quota.living
        if room:
            count = replace(
                count,
                tasks=count.tasks + tasks,
                bytes=count.bytes + size,
                living=None if quota.living is None else (count.living or 0) + tasks,
            )
        put = Put(
            kind=KIND,
            key=key,
            value=msgspec.json.encode(count),
            expect=found[0].version if found else 0,
            ttl_ms=KEPT_MS,
        )
        [written] = await engine.put([put])
        if written is None:
            continue
        if room:
            return
        raise _over(f"{quota.living:,} tasks that are not over", f"{count.living:,}", RECOUNT_MS)


async def _alive(engine: Engine, key: str) -> int:
    terms = (Term(f"attr.{ATTR}", (key,)), Term("status", LIVING))
    return sum(count.n for count in await engine.count(TaskQuery(terms=terms)))


def _over(quota: str, there: str, after_ms: int) -> Refused:
    after_s = -(-after_ms // 1_000)
    return Refused(
        429,
        f"This key may have {quota}, and has {there}: come back in {after_s} s.",
        code="quota_spent",
        headers={"retry-after": str(after_s)},
    )
