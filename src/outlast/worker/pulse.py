"""A worker's pulse: a thread that keeps its lease while user code holds the event loop, and that
says, with the stack, which code does so.

It has an engine of its own, opened in an event loop of its own. Code that holds the GIL in C stops
this thread too; only a supervisor, which is another process, beats through that.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import traceback
from collections.abc import Callable
from time import monotonic
from typing import Final

from outlast.core.ids import new_fence
from outlast.core.model import Turn
from outlast.engine import Engine, connect

logger: Final = logging.getLogger("outlast.worker")

LOOK_S: Final = 0.25
HELD_S: Final = 1.0
WARN_AGAIN_S: Final = 30.0
CLOSE_S: Final = 2.0


class Pulse:
    """`beat()` makes the next beat, None while there is nothing to keep alive; `beaten(at)` hears
    when one was made that the engine acknowledged. Without a URL it only watches the loop."""

    def __init__(
        self,
        url: str | None,
        beat_s: float,
        beat: Callable[[], tuple[Turn, int] | None],
        beaten: Callable[[float], None],
    ) -> None:
        self._url = url
        self._beat_s = beat_s
        self._beat = beat
        self._beaten = beaten
        self._loop = asyncio.get_running_loop()
        self._watched = threading.get_ident()
        self._stop = threading.Event()
        self._turned_at = monotonic()
        self._warned_at = 0.0
        self._timer = self._loop.call_later(LOOK_S, self._turned)
        self._thread = threading.Thread(target=self._run, name="outlast-pulse", daemon=True)
        self._thread.start()

    async def close(self) -> None:
        self._timer.cancel()
        self._stop.set()
        await asyncio.to_thread(self._thread.join, CLOSE_S)  # its engine may not answer

    def _turned(self) -> None:
        self._turned_at = monotonic()
        self._timer = self._loop.call_later(LOOK_S, self._turned)

    def _run(self) -> None:
        asyncio.run(self._watch())

    async def _watch(self) -> None:
        engine: Engine | None = None
        beat_at = monotonic() + self._beat_s
        try:
            while not self._stop.wait(LOOK_S):
                self._look()
                if self._url is not None and monotonic() >= beat_at:
                    beat_at = monotonic() + self._beat_s
                    engine = await self._beat_once(engine)
        finally:
            if engine is not None:
                await engine.close()

    async def _beat_once(self, engine: Engine | None) -> Engine | None:
        next_beat = self._beat()
        if next_beat is None or self._url is None:
            return engine
        turn, skew_ms = next_beat
        at = monotonic()
        try:
            if engine is None:
                engine = connect(self._url)
            await engine.open()  # idempotent; the last time the store may have been away
            engine.skew_ms = skew_ms
            deal = await engine.exchange(turn)
        except Exception as error:
            logger.warning("The worker's beat failed: %s", error)
            return engine
        if not deal.evicted:
            self._beaten(at)
        return engine

    def _look(self) -> None:
        now = monotonic()
        held_s = now - self._turned_at
        if held_s < HELD_S or now - self._warned_at < WARN_AGAIN_S:
            return
        self._warned_at = now
        frame = sys._current_frames().get(self._watched)
        stack = "".join(traceback.format_stack(frame)) if frame is not None else "(no stack)"
        logger.warning(
            "The event loop has been held for %.1f s: no other task of this worker moves. Await"
            " what takes long, or make the handler a plain `def` (a thread) or isolate=True.\n%s",
            held_s,
            stack,
        )


def beat_of(worker: str, lease_ms: int) -> Turn:
    """A turn that only keeps a worker's lease."""
    return Turn(token=new_fence(), worker=worker, lease_ms=lease_ms)
