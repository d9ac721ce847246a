"""The supervisor: starts worker processes, beats for them, and runs no code of the user's.

So nothing that user code does, not even a C call that holds the GIL for a minute, costs a lease.
A worker process that dies is replaced, and its leases are freed at once; one that is stopped
(SIGSTOP) is not beaten for, since it does not run. SIGTERM or SIGINT drains them, a second one
releases. Orders go over pipes and not by signals, so a service manager that signals the whole group
does not count as the second one. One that an operator has asked to drain is not replaced, and with
the last of them the supervisor ends.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Final

import msgspec

from outlast.core.errors import OutlastError
from outlast.core.ids import new_fence
from outlast.core.model import Turn, WorkerId
from outlast.engine import Engine, connect
from outlast.fleet import Publisher
from outlast.meter import Meter
from outlast.worker.member import FAILED, Orders, Settings
from outlast.worker.pulse import beat_of
from outlast.worker.witness import swept

logger: Final = logging.getLogger("outlast.supervisor")

# A process that dies young again and again comes back after these many seconds.
RESTART_S: Final = (0.0, 0.5, 1.0, 2.0, 5.0, 10.0)
YOUNG_S: Final = 10.0
# How much longer than it was given a worker may take to leave before it is killed.
LENIENCE_S: Final = 8.0
# How long the engine may take to free the leases of a worker that ended.
BURY_S: Final = 5.0


def supervise(settings: Settings, children: int = 1) -> int:
    """Run until told to stop; the exit code."""
    return asyncio.run(Supervisor(settings, children).run())


class Member:
    """One place for a worker process, filled again when it falls vacant."""

    def __init__(self) -> None:
        self.process: asyncio.subprocess.Process | None = None
        self.id: WorkerId | None = None
        self.ready = self.killed = self.drained = False

    def order(self, letter: bytes) -> None:
        if self.process is not None and self.process.stdin is not None:
            with suppress(OSError, RuntimeError):
                self.process.stdin.write(letter)

    @property
    def is_stopped(self) -> bool:
        """By SIGSTOP or a debugger; /proc knows."""
        if self.process is None:
            return True
        with suppress(OSError):
            stat = Path(f"/proc/{self.process.pid}/stat").read_text()
            return stat.rpartition(")")[2].split()[0] in ("T", "t")
        return False


class Supervisor:
    def __init__(self, settings: Settings, children: int) -> None:
        self._settings = settings
        self._members = [Member() for _ in range(children)]
        self._engine: Engine | None = None
        self._opening = asyncio.Lock()
        self._connected = asyncio.Event()
        self._signals = 0
        self._signalled = asyncio.Event()
        self._code = 0

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal)
        async with asyncio.TaskGroup() as beside:
            # Each by itself: a slow answer to one costs no other its lease.
            beating = [beside.create_task(self._beat(member)) for member in self._members]
            ending = beside.create_task(self._end_in_time())
            await asyncio.gather(*(self._keep(member) for member in self._members))
            for task in (*beating, ending):
                task.cancel()
        if self._engine is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(BURY_S):
                    await self._engine.close()
        return self._code

    # one member ----------------------------------------------------------------------------------

    async def _keep(self, member: Member) -> None:
        """A process in this place, one after another, until we are stopped."""
        deaths = 0
        while not self._signals:
            born_at = monotonic()
            code = await self._live(member)
            if member.drained and code == 0:
                logger.info("Worker %s was drained; its place stays empty", member.id)
                member.id, member.process = None, None
                return
            if not self._signals or code:
                await self._bury(member, code)
            if self._signals and code:
                self._code = self._code or FAILED
            # By a signal (a negative code) it was killed, which says nothing of the next one.
            if code > 0 and not member.ready and not deaths and not self._signals:
                self._give_up(code)  # it never worked: starting it again would not help
            deaths = deaths + 1 if monotonic() - born_at < YOUNG_S else 1
            if not self._signals:
                with suppress(TimeoutError):
                    async with asyncio.timeout(RESTART_S[min(deaths, len(RESTART_S)) - 1]):
                        await self._signalled.wait()

    async def _live(self, member: Member) -> int:
        """Start a process and follow its news until it ends; its exit code."""
        ours, theirs = os.pipe()
        news = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(news), os.fdopen(ours, "rb", 0)
        )
        try:
            member.id, member.ready, member.killed = None, False, False
            member.process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "outlast.worker.member", str(theirs),
                stdin=asyncio.subprocess.PIPE,
                pass_fds=(theirs,),
                start_new_session=True,
            )  # fmt: skip
            os.close(theirs)
            orders = Orders(settings=self._settings, parent=os.getpid(), path=tuple(sys.path))
            member.order(msgspec.json.encode(orders) + b"\n" + self._order)
            while line := await news.readline():
                self._heard(member, line.decode().rstrip("\n"))
            return await member.process.wait()
        finally:
            transport.close()

    def _heard(self, member: Member, line: str) -> None:
        word, _, rest = line.partition(" ")
        if word == "url" and self._engine is None:
            with suppress(OutlastError):  # the member meets it as well, and says so
                self._engine = connect(rest)
                self._connected.set()
        elif word == "id":
            member.id = rest
        elif word == "drained":
            member.drained = True
        elif word == "ready":
            member.ready = True
            logger.info("Worker %s is ready", member.id)

    async def _bury(self, member: Member, code: int) -> None:
        """Its attempts are over: free them now and not when the lease runs out."""
        if member.id is not None:  # else it never began, and has said why itself
            logger.error("Worker %s ended with code %d", member.id, code)
        gone, member.id, member.process = member.id, None, None
        while gone is not None and self._engine is not None:
            last_try = bool(self._signals)  # an engine that is away does not keep us from ending
            try:
                async with asyncio.timeout(BURY_S):
                    await self._free(self._engine, gone, given_back=member.killed)
                return
            except Exception as problem:
                told = str(problem) or type(problem).__name__
                logger.warning("The leases of %s are not freed yet: %s", gone, told)
            if last_try:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(1):
                    await self._signalled.wait()

    async def _free(self, engine: Engine, gone: WorkerId, *, given_back: bool) -> None:
        await self._open(engine)
        if given_back:  # on its behalf: we ended it
            await engine.exchange(Turn(token=new_fence(), worker=gone, leaving=True))
            return
        meter, more = Meter(), True
        while more:
            found = await engine.sweep(gone=[gone])
            swept(meter, found)
            more = found.more
        await Publisher(meter).close(engine)

    async def _open(self, engine: Engine) -> None:
        """Idempotent, but not for two at once: beats and burials come together."""
        async with self._opening:
            await engine.open()

    def _give_up(self, code: int) -> None:
        self._code = self._code or (code if code > 0 else FAILED)
        self._stop()

    # all of them ---------------------------------------------------------------------------------

    async def _beat(self, member: Member) -> None:
        await self._connected.wait()
        while True:
            if member.id is not None and self._engine is not None and not member.is_stopped:
                try:
                    await self._open(self._engine)
                    await self._engine.exchange(beat_of(member.id, self._settings.lease_ms))
                except Exception as problem:
                    logger.warning("No beat for %s: %s", member.id, problem)
            await asyncio.sleep(self._settings.beat_ms / 1_000)

    def _on_signal(self) -> None:
        self._stop()
        logger.info("Stopping: %s", "draining" if self._signals == 1 else "releasing")

    def _stop(self) -> None:
        self._signals += 1
        self._signalled.set()
        for member in self._members:
            member.order(self._order)

    @property
    def _order(self) -> bytes:
        """What members are to do: go on, drain or release."""
        return (b"", b"d", b"r")[min(self._signals, 2)]

    async def _end_in_time(self) -> None:
        """Once it is time to go: kill who does not."""
        await self._signalled.wait()
        until = monotonic() + self._settings.grace_ms / 1_000 + LENIENCE_S
        hurried = False
        while monotonic() < until:
            if self._signals > 1 and not hurried:
                hurried, until = True, min(until, monotonic() + LENIENCE_S)
            await asyncio.sleep(0.1)
        for member in self._members:
            if member.process is not None and member.process.returncode is None:
                logger.error("Worker %s does not leave: killed", member.id)
                member.killed = True
                member.process.kill()
