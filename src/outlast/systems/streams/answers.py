"""Answers of services, from the streams to the tasks that wait for them.

An answer is a signal to its task, named by a mark of the fence under which the task was handed
over. So it may come when no bridge runs, and be read by any of them; one that comes twice changes
nothing, and one that comes late finds nobody who waits for it. It is acknowledged when the engine
has it. One that cannot be delivered, unless an engine or a Redis is away, goes to the DLQ stream:
read again, it would hold up all that come behind it.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Mapping
from typing import Any, Final, Literal

from msgspec import Raw, Struct
from redis.exceptions import RedisError, ResponseError

from outlast.agents.words import WITH_SERVICE
from outlast.app import Outlast
from outlast.core.codec import loads
from outlast.core.errors import (
    BadInput,
    Conflict,
    EngineDown,
    EngineFull,
    OutlastError,
    TooLarge,
)
from outlast.core.ids import check_id
from outlast.core.model import Task
from outlast.core.states import FINAL
from outlast.stream import fetch
from outlast.systems.streams.wire import (
    ANSWERS,
    COMPLETED,
    DLQ,
    FAILED,
    Entry,
    Event,
    Streams,
    event,
    read_event,
)

logger: Final = logging.getLogger("outlast.streams")

OURS: Final = "outlast"
"""Who has detected a timeout that we have published ourselves."""
MARK: Final = "service_mark"
"""In a task's progress, which its owner sees: which fence is current, without telling it."""
FENCE: Final = "fence "
"""The steps that draw fences, numbered."""
OVER: Final = "over "
"""The steps, numbered alike, that close the time under a fence: which event said that the task has
failed; None if nobody did, so somebody still may."""
IDLE_MS: Final = 30_000
REST_S: Final = 1.0


class Answer(Struct, frozen=True, kw_only=True):
    """What a service says became of a task."""

    event_id: str
    kind: Literal["completed", "failed", "timeout"]
    task_id: str
    fence: str | None
    told: dict[str, Any]


class Answers:
    """One consumer of the agent's group."""

    def __init__(
        self, app: Outlast, streams: Streams, consumer: str, idle_ms: int = IDLE_MS
    ) -> None:
        self._app = app
        self._streams = streams
        self._consumer = consumer
        self._idle_ms = idle_ms
        self.ready = asyncio.Event()

    async def run(self) -> None:
        """For ever. What was read and not delivered is read again first."""
        while True:
            try:
                await self._streams.make_group()
                await self._consume()
            except (RedisError, OutlastError, OSError) as problem:
                gone = isinstance(problem, ResponseError) and "NOGROUP" in str(problem)
                if not gone:  # else the streams were deleted: they are made again
                    logger.warning("Answers wait: %s", problem)
                    await asyncio.sleep(REST_S)

    async def _consume(self) -> None:
        clock = asyncio.get_running_loop().time
        while await self._settle(await self._streams.read(self._consumer, new=False)):
            pass
        claimed_at = float("-inf")
        self.ready.set()
        while True:
            if clock() - claimed_at > self._idle_ms / 2_000:
                while await self._settle(await self._streams.claim(self._consumer, self._idle_ms)):
                    pass
                claimed_at = clock()
            await self._settle(await self._streams.read(self._consumer, new=True))

    async def _settle(self, found: list[tuple[str, list[Entry]]]) -> int:
        """How many entries there were. One that cannot be delivered now holds up no other."""
        all_of_them = [(stream, *entry) for stream, entries in found for entry in entries]
        ends = await asyncio.gather(
            *(self._one(*one) for one in all_of_them), return_exceptions=True
        )
        for end in ends:
            if end is not None:
                raise end
        return len(all_of_them)

    async def _one(self, stream: str, id: str, fields: Mapping[bytes, bytes] | None) -> None:
        if fields is not None:  # else it was trimmed since it was read
            await self._deliver(stream, id, fields)
        await self._streams.acknowledge(stream, id)
        logger.debug("Event acknowledged: stream=%s, entry=%s", stream, id)

    async def _deliver(self, stream: str, id: str, fields: Mapping[bytes, bytes]) -> None:
        told = Raw(b"{}")
        try:
            came = read_event(fields)
            told = Raw(fields[b"data"])  # as it came: what was nested deep is not encoded again
            logger.debug(
                "Event consumed: stream=%s, event_id=%s, consumer=%s",
                stream, came.event_id, self._consumer,
            )  # fmt: skip
            if came.data.get("detected_by") != OURS:
                await self._hand_on(answer_of(stream, came))
        except (EngineDown, EngineFull, RedisError, OSError):
            raise
        except Exception as problem:
            await self._refuse(stream, id, told, problem)

    async def _hand_on(self, answer: Answer) -> None:
        task = await fetch(self._app.engine, answer.task_id)
        if task.state in FINAL:
            raise Conflict(f"Late: task {task.id} is {task.state}.")
        fence = answer.fence or await self._only_fence(task, answer.event_id)
        mark = mark_of(fence)
        current = None if task.progress is None else loads(task.progress)["data"].get(MARK)
        if current not in (None, mark):  # None: it is about to be handed over
            raise Conflict(f"Late: the fence of task {task.id} is another now.")
        about = {"event_id": answer.event_id, "fence": fence}
        told = {"kind": answer.kind, **about, **answer.told}
        handle, name = self._app.handle(task.id), f"{WITH_SERVICE}{mark}"
        try:
            await handle.signal(name, told)
        except (BadInput, TooLarge) as problem:  # too large or too deep to be kept, in any attempt
            error = {"code": problem.code, "message": str(problem), "permanent": True}
            await handle.signal(name, {"kind": "failed", **about, "error": error})

    async def _only_fence(self, task: Task, event_id: str) -> str:
        """What an answer without a fence, as the pattern has it, is an answer to: it counts when
        every earlier time that the task was handed over has had its own, so that it can be of no
        other. Should the task be handed over anew meanwhile, its fence is one that wakes nobody."""
        memory = await self._app.engine.memory(task.id)
        steps = {step.key: step.value for step in memory.steps}
        last = sum(key.startswith(FENCE) for key in steps)
        had = [loads(steps.get(f"{OVER}{n}", b"null")) for n in range(1, last)]
        if not last or not all(had):
            raise BadInput(
                f"data.fence is missing: task {task.id} was handed over {last} times, and it cannot"
                " be told which of them this answers. Copy it from data of the task.create event."
            )
        if event_id in had:
            raise Conflict(f"Late: event {event_id} has been heard.")
        fence: str = loads(steps[f"{FENCE}{last}"])
        return fence

    async def _refuse(self, stream: str, id: str, answer: Raw, why: Exception) -> None:
        """Nobody's answer: kept for people to look at."""
        trace = None if isinstance(why, OutlastError) else why  # else a mistake of ours
        logger.warning("Refused: stream=%s, entry=%s: %s", stream, id, why, exc_info=trace)
        self._app.meter.count("refused")
        about = {"message": str(why), "stream": stream, "entry": id, "answer": answer}
        told: dict[str, Any] = {"reason": "refused", **about}
        now = await self._app.engine.now()
        await self._streams.publish(DLQ, event("task.dlq", now, told, of=f"{stream} {id}"))


def mark_of(fence: str) -> str:
    return hashlib.sha256(fence.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def answer_of(stream: str, came: Event) -> Answer:
    """The answer in an event, checked."""
    data = came.data
    fence = data.get("fence")
    if fence is not None and not (isinstance(fence, str) and 0 < len(fence) <= 100):
        raise BadInput("data.fence is none: copy it from data of the task.create event.")
    task_id = check_id(data.get("task_id"))  # type: ignore[arg-type]  # refuses what is no text
    kind = ("completed", "failed", "timeout")[ANSWERS.index(stream)]
    if stream == COMPLETED:
        told = {"result": data.get("result")}
    elif stream == FAILED:
        error = data.get("error")
        if not isinstance(error, dict):
            raise BadInput("data.error is missing: give code, message and details.")
        told = {"error": error}
    else:
        told = {"message": str(data.get("message") or "")[:1_000]}
    about = {"event_id": came.event_id, "task_id": task_id, "fence": fence}
    return Answer(kind=kind, told=told, **about)  # type: ignore[arg-type]  # by place
