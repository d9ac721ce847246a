"""Enqueues of one turn of the event loop travel as one batch, each answered for itself.

A single awaited enqueue costs a commit; fifty callers that come together share one, and those that
come while calls are under way share the next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from outlast.core.errors import BadInput
from outlast.core.model import NewTask, Receipt

AT_ONCE: Final = 4
"""Calls under way; more connections commit no faster."""
MOST: Final = 1_000
"""Tasks of several callers in one call."""

Waiting = tuple[Sequence[NewTask], "asyncio.Future[list[Receipt]]"]


class Together:
    """Collects what is enqueued until the loop turns."""

    def __init__(self, send: Callable[[Sequence[NewTask]], Awaitable[list[Receipt]]]) -> None:
        self._send = send
        self._waiting: list[Waiting] = []
        self._calls: set[asyncio.Future[None]] = set()

    def enqueue(self, tasks: Sequence[NewTask]) -> asyncio.Future[list[Receipt]]:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[list[Receipt]] = loop.create_future()
        self._waiting.append((tasks, answer))
        if len(self._waiting) == 1:
            loop.call_soon(self._start)
        return answer

    async def close(self) -> None:
        """Until everything that was asked for is answered."""
        while self._calls:
            await asyncio.gather(*self._calls, return_exceptions=True)

    def _start(self) -> None:
        while self._waiting and len(self._calls) < AT_ONCE:
            batch = [self._waiting.pop(0)]
            rows = len(batch[0][0])
            while self._waiting and rows + len(self._waiting[0][0]) <= MOST:
                batch.append(self._waiting.pop(0))
                rows += len(batch[-1][0])
            call = asyncio.ensure_future(self._submit(batch))
            self._calls.add(call)
            call.add_done_callback(self._ended)

    def _ended(self, call: asyncio.Future[None]) -> None:
        self._calls.discard(call)
        self._start()

    async def _submit(self, batch: Sequence[Waiting]) -> None:
        try:
            tasks = batch[0][0] if len(batch) == 1 else [task for some, _ in batch for task in some]
            receipts = await self._send(tasks)
        except BadInput as error:
            if len(batch) == 1:
                _fail(batch[0][1], error)
                return
            for one in batch:  # nothing was written: whose fault it is shows when each goes alone
                await self._submit([one])
        except BaseException as error:
            for _, answer in batch:
                _fail(answer, error)
            if not isinstance(error, Exception):
                raise
        else:
            begin = 0
            for some, answer in batch:
                end = begin + len(some)
                if not answer.done():
                    answer.set_result(receipts[begin:end])
                begin = end


def _fail(answer: asyncio.Future[list[Receipt]], error: BaseException) -> None:
    if answer.done():
        return
    if isinstance(error, asyncio.CancelledError):
        answer.cancel()
    else:
        answer.set_exception(error)
