"""A bell that wakes one sleeper: cheap to ring by the thousand, and no ring is lost."""

from __future__ import annotations

import asyncio
from time import monotonic


class Bell:
    """Rung and waited for in one event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._rung = False
        self._sleeper: asyncio.Future[None] | None = None

    def ring(self) -> None:
        self._rung = True
        if self._sleeper is not None and not self._sleeper.done():
            self._sleeper.set_result(None)

    def hush(self) -> None:
        """What it was rung for until now is being seen to."""
        self._rung = False

    async def wait(self, until: float) -> None:
        """Until it was rung since the last wait, or until that moment of monotonic time."""
        if not self._rung:
            self._sleeper = self._loop.create_future()
            timer = self._loop.call_later(until - monotonic(), self.ring)
            try:
                await self._sleeper
            finally:
                timer.cancel()
                self._sleeper = None
        self._rung = False
