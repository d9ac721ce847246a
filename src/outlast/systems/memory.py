"""What agents remember: the results of their tasks, each embedded by a job, found by nearness.

A job waits for the task whose result it is to embed, so there is one for each task that completed
and none for others. Its own result holds the vector: there is no second store to keep in step. Who
looks for what is near reads the jobs once, and from then on the log.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Sequence
from operator import mul
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from outlast.app import Outlast
from outlast.context import Context
from outlast.core.codec import loads
from outlast.core.durations import Duration
from outlast.core.ids import id_for
from outlast.core.model import Cursor, EventQuery, NewTask, Task, TaskId, TaskQuery
from outlast.engine import Engine
from outlast.stream import fetch
from outlast.systems.embed import embed
from outlast.systems.llm import Model

QUEUE: Final = "embeddings"
JOB: Final = "memory.embed"
VECTOR: Final = "memory.vector"
MAX_TEXT: Final = 8_000
KEPT: Final = 500
"""Characters of a result that are shown with it."""
_PAGE: Final = 500


class Trace(Struct, frozen=True, kw_only=True):
    """What is remembered of one task: the result of its job."""

    task_id: TaskId
    type: str
    workflow_id: str | None
    text: str
    vector: list[float]


class Recollection(Struct, frozen=True, kw_only=True):
    """A result that is near to what was asked; `score` is 1 for the same, 0 for nothing alike."""

    score: float
    task_id: TaskId
    type: str
    workflow_id: str | None
    text: str


class Memory:
    """Embedded results: by a model, or without one by the words they share."""

    def __init__(self, app: Outlast, model: Model | None = None) -> None:
        self._app = app
        self._model = model
        self._traces: dict[TaskId, Trace] = {}
        self._read_to: Cursor | None = None
        self._read_from: Engine | None = None
        self._lock = asyncio.Lock()
        limits: list[str] = []
        if model is not None:
            app.limits.setdefault(model.limit.key, model.limit)
            limits.append(model.limit.key)

        @app.task(name=JOB, queue=QUEUE, priority="low", limits=limits, followed=False)
        async def embed_result(ctx: Context, task_id: str) -> dict[str, Any]:
            """Embed the result of a task."""
            task = await fetch(app.engine, task_id)
            text = self._text(task)
            [vector] = await self._vectors(ctx, [text])
            told = Trace(
                task_id=task.id,
                type=task.type,
                workflow_id=task.workflow_id,
                text=text[:KEPT],
                vector=vector,
            )
            made: dict[str, Any] = msgspec.to_builtins(told)
            return made

        @app.task(name=VECTOR, queue=QUEUE, priority="high", limits=limits, followed=False)
        async def vector_of(ctx: Context, text: str) -> list[float]:
            """The vector of a text that is looked for."""
            [vector] = await self._vectors(ctx, [text])
            return vector

        self._job, self._vector = embed_result, vector_of

    def job_for(self, ctx: Context) -> NewTask:
        """The job that embeds the result of the task at work, once it has one; the same in every
        attempt."""
        made = self._job.call(ctx.task_id).task
        id = id_for(ctx.created_at, f"{ctx.task_id} embedding")
        return replace(made, id=id, after=(ctx.task_id,), parent_id=ctx.task_id)

    async def nearest(
        self,
        text: str,
        n: int = 5,
        *,
        types: Iterable[str] = (),
        workflow_id: str | None = None,
        timeout: Duration = "30s",  # noqa: ASYNC109  # a Duration
    ) -> list[Recollection]:
        """The results that are nearest to a text, of these types and this workflow if given."""
        wanted = await self._wanted(text, timeout)
        await self._refresh()
        among = set(types)
        found = [
            (_likeness(wanted, trace.vector), trace)
            for trace in self._traces.values()
            if (not among or trace.type in among)
            and workflow_id in (None, trace.workflow_id)
            and len(trace.vector) == len(wanted)  # others are of another model
        ]
        found.sort(key=lambda pair: (-pair[0], pair[1].task_id))
        return [
            Recollection(
                score=round(score, 6),
                task_id=trace.task_id,
                type=trace.type,
                workflow_id=trace.workflow_id,
                text=trace.text,
            )
            for score, trace in found[:n]
        ]

    # in detail -----------------------------------------------------------------------------------

    def _text(self, task: Task) -> str:
        """What is embedded; nothing of it that nobody may see."""
        shown = self._app.redactor
        hidden = shown.hidden(task).result
        result = loads(shown.shown(task.result or b"null", hidden))
        text = result if isinstance(result, str) else msgspec.json.encode(result).decode()
        return text[:MAX_TEXT]

    async def _vectors(self, ctx: Context, texts: Sequence[str]) -> list[list[float]]:
        if self._model is None:
            return [embed(text) for text in texts]
        return await self._model.embed(ctx, texts)

    async def _wanted(self, text: str, timeout: Duration) -> list[float]:  # noqa: ASYNC109  # a Duration
        if self._model is None:
            return embed(text[:MAX_TEXT])
        handle = await self._vector.enqueue(text[:MAX_TEXT])
        return await handle.result(timeout)

    async def _refresh(self) -> None:
        """Take in the jobs that were done since the last time."""
        async with self._lock:
            if self._read_to is None or self._read_from is not self._app.engine:
                await self._read_all()
                return
            query = EventQuery(after=self._read_to, kinds=("done",), limit=_PAGE)
            while True:
                page = await self._app.engine.events(query)
                if page.reset:
                    await self._read_all()
                    return
                ids = tuple(e.task_id for e in page.items if e.type == JOB and e.task_id)
                if ids:
                    await self._take(TaskQuery.of(id=ids, status="completed", limit=_PAGE))
                self._read_to = page.next
                if not page.items:
                    return
                query = replace(query, after=page.next)

    async def _read_all(self) -> None:
        self._read_from, self._read_to = self._app.engine, None
        end = await self._read_from.events(EventQuery(after="$", kinds=("done",)))
        self._traces.clear()
        await self._take(TaskQuery.of(type=JOB, status="completed", limit=_PAGE))
        self._read_to = end.next

    async def _take(self, query: TaskQuery) -> None:
        while True:
            page = await self._app.engine.tasks(query)
            for job in page.items:
                trace = msgspec.json.decode(job.result or b"null", type=Trace)
                self._traces[trace.task_id] = trace
            if page.next is None:
                return
            query = replace(query, cursor=page.next)


def _likeness(a: Sequence[float], b: Sequence[float]) -> float:
    """The cosine of the angle between two vectors."""
    lengths = math.sqrt(sum(map(mul, a, a)) * sum(map(mul, b, b)))
    return sum(map(mul, a, b)) / lengths if lengths else 0.0
