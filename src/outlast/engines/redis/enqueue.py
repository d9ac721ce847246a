"""enqueue: batches of new tasks. Callers of the same moment travel in one script call."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from secrets import token_hex
from typing import Final

import msgspec

from outlast.core.errors import BadInput
from outlast.core.graph import check_acyclic
from outlast.core.model import NewTask, Receipt
from outlast.engines.redis.link import Link
from outlast.engines.redis.wire import Sorts

TOGETHER: Final = 500
"""Tasks that travel in one call, about 10 ms of the server; a larger batch travels alone."""

_answers: Final = msgspec.msgpack.Decoder(list[str | list[tuple[int, str, str | bool]]]).decode


def missing(task_id: str) -> BadInput:
    return BadInput(f"after= names a task that does not exist: {task_id}", field="after")


async def check(link: Link, tasks: Sequence[NewTask]) -> None:
    """Refuse a circle of edges. Tasks that are there already do not count: theirs are ignored."""
    waiting = [task for task in tasks if task.after]
    try:
        check_acyclic(waiting)
    except BadInput:
        there = await link.pipe([("EXISTS", f"{link.prefix}task:{task.id}") for task in waiting])
        check_acyclic([task for task, known in zip(waiting, there, strict=True) if not known])


class Enqueuing:
    """One call is under way at a time; whoever comes meanwhile shares the next one."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._waiting: list[tuple[Sequence[NewTask], asyncio.Future[list[Receipt]], int]] = []
        self._sending: asyncio.Task[None] | None = None

    async def enqueue(self, tasks: Sequence[NewTask], skew_ms: int) -> list[Receipt]:
        if not tasks:
            return []
        await check(self._link, tasks)
        answer: asyncio.Future[list[Receipt]] = asyncio.get_running_loop().create_future()
        self._waiting.append((tasks, answer, skew_ms))
        if self._sending is None:
            self._sending = asyncio.create_task(self._send_all())
        return await answer

    async def _send_all(self) -> None:
        try:
            while self._waiting:
                await self._send()
        finally:
            self._sending = None

    async def _send(self) -> None:
        together = [self._waiting.pop(0)]
        size = len(together[0][0])
        while self._waiting and size + len(self._waiting[0][0]) <= TOGETHER:
            together.append(self._waiting.pop(0))
            size += len(together[-1][0])
        sorts = Sorts()
        batches, sent = [], []
        for one in together:
            try:
                batches.append(sorts.tasks_in(one[0]))
                sent.append(one)
            except BadInput as error:  # the others have nothing to do with it
                if not one[1].done():
                    one[1].set_exception(error)
        if not sent:
            return
        try:
            token = token_hex(8)
            argument = {"batches": batches, "sorts": sorts.sorts_in(), "token": token}
            reply = await self._link.run("enqueue", sent[-1][2], argument, repeat=True)
        except BaseException as error:
            for _, answer, _ in sent:
                if not answer.done():
                    answer.set_exception(error)
            if not isinstance(error, Exception):
                raise
            return
        for (tasks, answer, _), told in zip(sent, _answers(reply), strict=True):
            if answer.done():
                continue  # its caller was cancelled
            if isinstance(told, str):
                answer.set_exception(missing(told))
            else:
                answer.set_result(_receipts(tasks, told))


def _receipts(tasks: Sequence[NewTask], met: list[tuple[int, str, str | bool]]) -> list[Receipt]:
    receipts = [Receipt(task.id, False, task.digest) for task in tasks]
    for place, task_id, digest in met:
        receipts[place] = Receipt(task_id, True, digest if isinstance(digest, str) else None)
    return receipts
