"""What the engine alone costs: enqueue and exchange without a worker, and where it might grow.

`engine.py [--engine NAME] [--many N]` prints rates and processor time per task: of this process,
the probe's own 3 to 5 µs included, and of the server. The same calls in front of a large backlog,
with limits, and behind 100,000 tasks that wait for a full limit, must cost about the same.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
from stage import cpu_s
from stores import STORES, Store, running

from outlast.core.ids import new_fence, new_id
from outlast.core.limits import Limit
from outlast.core.model import Deal, NewTask, Outcome, Put, Turn, Want, WorkerInfo
from outlast.engine import Engine, connect

FEW = 10_000
BATCH = 1_000
ROOM = 250
CALLERS = 50
HOUR_MS = 3_600_000

Limits = tuple[tuple[str, int], ...]


class Probe:
    """An engine on an empty space of its own, with a worker's identity."""

    def __init__(self, engine: Engine, store: Store) -> None:
        self.engine = engine
        self._store = store
        self._introduced = False

    async def define(self, *limits: Limit) -> None:
        puts = [
            Put(kind="limit", key=limit.key, value=msgspec.json.encode(limit.to_json()))
            for limit in limits
        ]
        await self.engine.put(puts)

    async def fill(self, n: int, limits: Limits = (), *, followed: bool = True) -> int:
        for begin in range(0, n, BATCH):
            tasks = [_new(limits, followed) for _ in range(min(BATCH, n - begin))]
            await self.engine.enqueue(tasks)
        return n

    async def call(self, n: int) -> int:
        async def caller() -> None:
            for _ in range(n // CALLERS):
                await self.engine.enqueue([_new()])

        await asyncio.gather(*(caller() for _ in range(CALLERS)))
        return n

    async def drain(self, n: int, room: int = ROOM) -> int:
        """Take turns as a worker does until `n` tasks are over."""
        done = 0
        outcomes: tuple[Outcome, ...] = ()
        while done < n:
            deal = await self.turn(room, outcomes)
            done += len(outcomes)
            outcomes = tuple(
                Outcome(id=lease.id, fence=lease.fence, state="completed", result=b"1")
                for lease in deal.leases
            )
        return done

    async def park(self, n: int) -> int:
        """Take turns until everything that cannot run has left the way; at least one is left."""
        while (await self.turn(1)).again:
            pass
        return n

    async def turn(self, room: int, outcomes: tuple[Outcome, ...] = ()) -> Deal:
        info = None if self._introduced else WorkerInfo(host="bench", pid=0)
        turn = Turn(
            token=new_fence(),
            worker="bench",
            lease_ms=HOUR_MS,
            wants=(Want("default", "primary", room),),
            room=room,
            outcomes=outcomes,
            info=info,
        )
        deal = await self.engine.exchange(turn)
        self._introduced = True
        return deal

    async def timed(self, name: str, work: Awaitable[int]) -> None:
        server_s, own_s, since = self._server_s(), time.process_time(), time.perf_counter()
        n = await work
        took_s, own_s = time.perf_counter() - since, time.process_time() - own_s
        server_s = self._server_s() - server_s
        cpu = f"{own_s / n * 1e6:.1f} µs | {server_s / n * 1e6:.1f} µs"
        sys.stdout.write(f"| {name} | {n / took_s:,.0f}/s | {cpu} |\n")
        sys.stdout.flush()

    def _server_s(self) -> float:
        return 0.0 if self._store.pid is None else cpu_s(self._store.pid)


def _new(limits: Limits = (), followed: bool = True) -> NewTask:
    return NewTask(id=new_id(), type="noop", payload=b"{}", limits=limits, followed=followed)


async def enqueues(probe: Probe) -> None:
    await probe.timed(f"bulk enqueue, {BATCH} a call, full log", probe.fill(5 * FEW))
    await probe.timed("bulk enqueue, only the end in the log", probe.fill(5 * FEW, followed=False))
    await probe.timed(f"enqueue one at a time, {CALLERS} callers", probe.call(FEW))


async def drains(probe: Probe) -> None:
    for room in (100, 250, 500):
        await probe.fill(FEW)
        await probe.timed(f"exchange, {room} a turn, {FEW:,} waiting", probe.drain(FEW, room))
    await probe.fill(FEW, followed=False)
    await probe.timed("the same, only the end in the log", probe.drain(FEW))


async def limited(probe: Probe) -> None:
    await probe.define(Limit("a", slots=1_000), Limit("b", slots=1_000))
    for keys in ("a", "ab"):
        await probe.fill(FEW, tuple((key, 1) for key in keys))
        await probe.timed(f"exchange, {len(keys)} limit(s) a task, room in them", probe.drain(FEW))


async def blocked(probe: Probe) -> None:
    full = (("full", 1),)
    await probe.define(Limit("full", slots=1))
    await probe.fill(1, full)
    await probe.turn(1)  # it is held from now on
    await probe.fill(5 * FEW, full)
    await probe.timed("parking tasks that meet a full limit", probe.park(5 * FEW))
    await probe.timed("enqueue where tasks wait already", probe.fill(5 * FEW, full))
    await probe.fill(FEW)
    await probe.timed(f"exchange, {10 * FEW:,} behind a full limit", probe.drain(FEW))


def deep(n: int) -> Callable[[Probe], Awaitable[None]]:
    async def scenario(probe: Probe) -> None:
        await probe.timed(f"bulk enqueue of {n:,}", probe.fill(n))
        await probe.timed(f"exchange, {n:,} waiting", probe.drain(FEW))

    return scenario


async def main() -> None:
    parser = argparse.ArgumentParser(description="Rates and CPU per task of the engine alone.")
    parser.add_argument("--engine", choices=STORES, default="sqlite")
    parser.add_argument("--many", type=int, default=1_000_000, help="the size of a deep backlog")
    told = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the server is stopped on the way out
    sys.stdout.write("| | rate | CPU here | CPU of the server |\n|---|---:|---:|---:|\n")
    with running(told.engine) as store:
        for scenario in (enqueues, drains, limited, blocked, deep(told.many)):
            with tempfile.TemporaryDirectory() as folder:
                url = store.take(Path(folder))
                engine = connect(url)
                await engine.open()
                try:
                    await scenario(Probe(engine, store))
                finally:
                    await engine.close()
                    store.drop(url)


if __name__ == "__main__":
    asyncio.run(main())
