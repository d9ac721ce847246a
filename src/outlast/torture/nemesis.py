"""The nemesis: one fault after another, each with a beginning, an end and a seed."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from time import monotonic_ns
from typing import Final

from outlast.torture.fleet import GRACE_S, Fleet, Process, Server, lives, send, until
from outlast.torture.proxy import Proxy
from outlast.torture.record import LOSE_REPLIES, Fault, Pages

SWEEP_S: Final = 1.2
"""How often a worker sweeps, at the least: after a lease and this long it was surely missed."""
AGAIN_S: Final = 1.3
"""And after this long more its tasks run elsewhere: what it writes now would spoil them."""
MOST_STALE: Final = "pause group"
ORPHAN_S: Final = 2.0
LENIENCE_S: Final = 8.0
SLOW_S: Final = 0.2


@dataclass(slots=True)
class Done:
    """What a fault tells about itself when it is over."""

    target: str
    end: int = field(default_factory=monotonic_ns)
    killed: tuple[int, ...] = ()
    trouble: str = ""


class Nemesis:
    """Knows its victims, and what can be done to them here."""

    def __init__(
        self,
        fleet: Fleet,
        folder: Path,
        *,
        seed: int,
        lease_ms: int,
        proxy: Proxy | None,
        server: Server | None,
        probe: Callable[[], Awaitable[None]],
        running: Callable[[], Awaitable[Mapping[int, int]]],
    ) -> None:
        self._fleet = fleet
        self._folder = folder
        self._seed = seed
        self._draw = Random(seed)  # noqa: S311  # no secret
        self._lease_s = lease_ms / 1_000
        self._proxy = proxy
        self._server = server
        self._probe = probe
        self._running = running
        self._pages = Pages(folder / "faults")

    @property
    def kinds(self) -> list[str]:
        """The faults that are possible here."""
        missing = (_NETWORK if self._proxy is None else set()) | (
            _SERVER if self._server is None else set()
        )
        return [kind for kind in FAULTS if kind not in missing]

    def plan(self, faults: int, kinds: Sequence[str]) -> list[str]:
        """Every kind once, in an order that the seed decides; from then on every second fault is a
        pause of a group, where that is possible, because most stale writes come of these."""
        planned = self._draw.sample(kinds[:faults], min(faults, len(kinds)))
        others: list[str] = []
        while len(planned) < faults:
            others = others or self._draw.sample(kinds, len(kinds))
            if MOST_STALE in kinds and planned[-1] != MOST_STALE:
                planned.append(MOST_STALE)
            else:
                planned.append(others.pop())
        return planned

    async def strike(self, kind: str) -> Fault:
        """One fault, from its beginning until all is whole again."""
        begin = monotonic_ns()
        done = await FAULTS[kind](self)
        if kind in HEALED:
            await self._probe()  # something to claim, so that it can be told how soon
        trouble = done.trouble or await self._whole_again()
        fault = Fault(
            kind=kind, target=done.target, seed=self._seed, begin=begin, end=done.end,
            killed=done.killed, trouble=trouble,
        )  # fmt: skip
        self._pages.write(fault)
        return fault

    async def _whole_again(self) -> str:
        """Every worker process is there again and known to the engine, without our help."""
        fleet = self._fleet

        async def whole() -> bool:
            known = await self._running()
            return len([pid for pid in fleet.workers if pid in known]) >= fleet.full_size

        if await until(whole, 15):
            return ""
        gone = [group for group in fleet.groups if group.code is not None]
        for group in gone:
            fleet.replace_group(group)
        if gone:
            return f"{gone[0].name} gave up with exit code {gone[0].code}"
        return f"{len(fleet.workers)} of {fleet.full_size} workers were there 15 s later"

    # processes -----------------------------------------------------------------------------------

    def _group(self) -> Process:
        return self._draw.choice(self._fleet.groups)

    async def _worker(self) -> int:
        await until(lambda: bool(self._fleet.workers), 15)
        return self._draw.choice(self._fleet.workers)

    async def _kill_worker(self) -> Done:
        pid = await self._worker()
        send([pid], signal.SIGKILL)
        return Done(f"worker {pid}", killed=(pid,))

    async def _kill_group(self) -> Done:
        group = self._group()
        killed = group.kill()
        self._fleet.replace_group(group)
        return Done(group.name, killed=killed)

    async def _kill_supervisor(self) -> Done:
        """Its workers must not live on: nobody would beat for them, or end them."""
        group = self._group()
        children = group.children
        send([group.pid], signal.SIGKILL)
        gone = await until(lambda: not any(map(lives, children)), ORPHAN_S)
        done = Done(group.name, killed=(group.pid, *children))
        if not gone:
            done.trouble = f"workers of {group.name} lived on without it"
            send(children, signal.SIGKILL)
        group.kill()
        self._fleet.replace_group(group)
        return done

    async def _drain_group(self) -> Done:
        group = self._group()
        children = group.children
        send([group.pid], signal.SIGTERM)
        left = await until(lambda: group.code is not None, GRACE_S + LENIENCE_S + 2)
        done = Done(group.name)
        if not left:
            done.trouble = f"{group.name} did not leave in its grace period"
            done.killed = group.kill()
        elif any(map(lives, children)):
            done.trouble = f"{group.name} left workers behind"
        self._fleet.replace_group(group)
        return done

    async def _pause(self, pids: Sequence[int], seconds: float, target: str) -> Done:
        send(pids, signal.SIGSTOP)
        await asyncio.sleep(seconds)
        send(pids, signal.SIGCONT)
        return Done(f"{target}, {seconds:.1f} s")

    async def _pause_worker(self) -> Done:
        """The one with the most to do: its writes will be stale when it wakes up."""
        running = await self._running()
        pid = max(self._fleet.workers, key=lambda pid: running.get(pid, 0))
        return await self._pause([pid], self._lease_s + SWEEP_S + AGAIN_S, f"worker {pid}")

    async def _pause_worker_briefly(self) -> Done:
        pid = await self._worker()
        return await self._pause([pid], self._lease_s * 0.4, f"worker {pid}")

    async def _pause_group(self) -> Done:
        running = await self._running()
        group = max(
            self._fleet.groups, key=lambda group: sum(running.get(p, 0) for p in group.children)
        )
        return await self._pause(group.family, self._lease_s + SWEEP_S + AGAIN_S, group.name)

    async def _kill_producer(self) -> Done:
        alive = [one for one in self._fleet.producers if one.code is None]
        if not alive:
            return Done("none was left")
        victim = self._draw.choice(alive)
        killed = victim.kill()
        self._fleet.replace_producer(victim)
        return Done(victim.name, killed=killed)

    async def _kill_everything(self) -> Done:
        """A power cut, but for the engine."""
        producers = [one for one in self._fleet.producers if one.code is None]
        killed: tuple[int, ...] = ()
        for process in (*self._fleet.groups, *producers):
            killed += process.kill()
        for group in tuple(self._fleet.groups):
            self._fleet.replace_group(group)
        for producer in producers:
            self._fleet.replace_producer(producer)
        return Done("every process", killed=killed)

    # the way to the engine -----------------------------------------------------------------------

    @property
    def _link(self) -> Proxy:
        assert self._proxy is not None  # noqa: S101  # else these kinds are not possible
        return self._proxy

    async def _lose_replies(self) -> Done:
        """Requests arrive and are carried out; nobody hears of it. First no driver does, which may
        ask again by itself (a commit of MongoDB), then no worker, which repeats its turn."""
        seconds = self._draw.uniform(0.5, 1.5)
        if self._proxy is not None:
            for _ in range(3):
                self._proxy.lost = frozenset({"reply"})
                await asyncio.sleep(seconds / 6)
                self._proxy.heal()
                await asyncio.sleep(seconds / 6)
        (self._folder / LOSE_REPLIES).touch()
        await asyncio.sleep(seconds)
        (self._folder / LOSE_REPLIES).unlink()
        return Done(f"{seconds:.1f} s")

    async def _lose_requests(self) -> Done:
        seconds = self._draw.uniform(0.3, 1.2)
        self._link.lost = frozenset({"request"})
        await asyncio.sleep(seconds)
        self._link.heal()
        return Done(f"{seconds:.1f} s")

    async def _cut(self) -> Done:
        self._link.cut()
        return Done("every connection")

    async def _churn(self) -> Done:
        for _ in range(10):
            self._link.cut()
            await asyncio.sleep(self._draw.uniform(0.02, 0.2))
        return Done("every connection, 10 times")

    async def _black_hole(self) -> Done:
        seconds = self._draw.uniform(1, 2.5 * self._lease_s)
        self._link.hold("request", "reply")
        await asyncio.sleep(seconds)
        self._link.heal()
        return Done(f"{seconds:.1f} s")

    async def _one_way(self) -> Done:
        """Requests arrive; replies wait for the end of the partition."""
        seconds = self._draw.uniform(1, 1.5 * self._lease_s)
        self._link.hold("reply")
        await asyncio.sleep(seconds)
        self._link.heal()
        return Done(f"{seconds:.1f} s")

    async def _slow_link(self) -> Done:
        seconds = self._draw.uniform(1.5, 3)
        self._link.delay_s = SLOW_S
        await asyncio.sleep(seconds)
        self._link.heal()
        return Done(f"{SLOW_S * 1000:.0f} ms each way, {seconds:.1f} s")

    # the server ----------------------------------------------------------------------------------

    async def _kill_server(self) -> Done:
        assert self._server is not None  # noqa: S101  # else these kinds are not possible
        down_s = self._draw.uniform(0, self._lease_s)
        self._server.kill()
        await asyncio.sleep(down_s)
        await self._server.start()
        return Done(f"down for {down_s:.1f} s and its start")

    async def _pause_server(self) -> Done:
        assert self._server is not None  # noqa: S101  # as above
        seconds = self._draw.uniform(1, 1.5 * self._lease_s)
        return await self._pause(self._server.pids(), seconds, "the server")


FAULTS: Final[dict[str, Callable[[Nemesis], Awaitable[Done]]]] = {
    "pause group": Nemesis._pause_group,
    "pause worker": Nemesis._pause_worker,
    "kill worker": Nemesis._kill_worker,
    "kill group": Nemesis._kill_group,
    "kill server": Nemesis._kill_server,
    "lose replies": Nemesis._lose_replies,
    "kill producer": Nemesis._kill_producer,
    "drain group": Nemesis._drain_group,
    "black hole": Nemesis._black_hole,
    "kill everything": Nemesis._kill_everything,
    "cut connections": Nemesis._cut,
    "kill supervisor": Nemesis._kill_supervisor,
    "pause server": Nemesis._pause_server,
    "one-way partition": Nemesis._one_way,
    "lose requests": Nemesis._lose_requests,
    "slow link": Nemesis._slow_link,
    "churn connections": Nemesis._churn,
    "pause worker briefly": Nemesis._pause_worker_briefly,
}
"""Every kind of fault, by the name that people read."""

_SERVER: Final = {"kill server", "pause server"}
_NETWORK: Final = {
    "black hole", "cut connections", "one-way partition", "lose requests", "slow link",
    "churn connections",
}  # fmt: skip
HEALED: Final = _SERVER | _NETWORK
"""Faults of the engine, after whose end the workers must claim again by themselves."""
