"""A producer: hands over its share of the load, batch by batch, and cancels some of it.

Run as `python -m outlast.torture.producer '<json>'`. A batch that was not answered goes again under
the same ids until it is. `quota` in the folder says up to which task the load may be handed over
by now: it is raised with every fault, so that each meets fresh work; with `enough` that is all.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from outlast.core.errors import OutlastError
from outlast.core.model import Cancel, TaskId
from outlast.engine import Engine
from outlast.torture.load import BATCH, Spec, is_late_cancel, spec
from outlast.torture.record import Line, read, recorded
from outlast.worker.parent import die_with

QUOTA: Final = "quota"
ENOUGH: Final = "enough"
BACKOFF_S: Final = 0.1
CANCEL_BEHIND: Final = 2
LATE_BEHIND: Final = 6
"""So many batches later tasks are cancelled that wait or run, and those that should be over."""


class Share(Struct, frozen=True, kw_only=True):
    """What one producer is to do: every `of`-th batch, from batch `number` on."""

    url: str
    folder: str
    seed: int
    tasks: int
    number: int
    of: int
    per_second: float
    parent: int


def quota(folder: Path) -> int:
    try:
        return int((folder / QUOTA).read_text() or 0)
    except FileNotFoundError:
        return 0


def set_quota(folder: Path, tasks: int) -> None:
    fresh = folder / f"{QUOTA}.new"
    fresh.write_text(str(tasks))
    fresh.replace(folder / QUOTA)


class Producer:
    def __init__(self, share: Share) -> None:
        self._share = share
        self._folder = Path(share.folder)
        self._name = f"producer{share.number}"
        self._done = self._handed_over()
        self._engine: Engine = recorded(share.url, self._folder, self._name)

    def _handed_over(self) -> set[TaskId]:
        """What was acknowledged to those who had this place before."""
        done: set[TaskId] = set()
        for path in self._folder.glob(f"history-{self._name}-*"):
            asked: dict[int, Line] = {}
            for line in read(path, Line):
                if line.phase == "invoke":
                    asked[line.call] = line
                elif line.phase == "ok" and line.verb == "enqueue":
                    done.update(asked[line.call].ids)
        return done

    async def run(self) -> None:
        share = self._share
        await self._insist(self._engine.open)
        behind: list[list[tuple[int, Spec]]] = []
        for first in range(share.number * BATCH, share.tasks, share.of * BATCH):
            last = min(first + BATCH, share.tasks)
            batch = [(n, spec(share.seed, n)) for n in range(first, last)]
            behind.append(batch)
            if batch[0][1].task.id in self._done:
                continue
            if not await self._may(first):
                break
            tasks = [one.task for _, one in batch]
            await self._insist(partial(self._engine.enqueue, tasks))
            await self._cancel(behind)
            if not self._enough:
                await asyncio.sleep(len(batch) * share.of / share.per_second)
        for _ in range(LATE_BEHIND):
            behind.append([])
            await self._cancel(behind)
        await self._engine.close()

    @property
    def _enough(self) -> bool:
        return (self._folder / ENOUGH).exists()

    async def _may(self, first: int) -> bool:
        while quota(self._folder) <= first:
            if self._enough:
                return False
            await asyncio.sleep(0.05)
        return True

    async def _cancel(self, behind: list[list[tuple[int, Spec]]]) -> None:
        doomed = [s.task.id for _, s in _from(behind, CANCEL_BEHIND) if s.kind == "doomed"]
        late = [s.task.id for n, s in _from(behind, LATE_BEHIND) if is_late_cancel(n, s.kind)]
        ids = [*doomed, *late]
        if ids:
            await self._insist(partial(self._engine.alter, ids, Cancel("torture")))

    async def _insist(self, call: Callable[[], Awaitable[object]]) -> None:
        while True:
            try:
                await call()
                return
            except OutlastError:
                await asyncio.sleep(BACKOFF_S)


def _from(behind: list[list[tuple[int, Spec]]], back: int) -> list[tuple[int, Spec]]:
    return behind[-1 - back] if len(behind) > back else []


def main() -> None:
    share = msgspec.json.decode(sys.argv[1], type=Share)
    die_with(share.parent)
    asyncio.run(Producer(share).run())


if __name__ == "__main__":
    main()
