"""What engines share: statements kept in files of their own, and waiting for hints."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection
from contextlib import suppress
from functools import cache
from importlib.resources import files
from typing import Final

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


@cache
def statements(package: str, file: str) -> dict[str, str]:
    """The `-- name: verb` blocks of one script, by name, comments above the first one dropped."""
    parts = _NAME.split(files(package).joinpath(file).read_text())
    return {name: body.strip() for name, body in zip(parts[1::2], parts[2::2], strict=True)}


EVERYTHING: Final = "*"
"""Stands for more topics than fit into a hint."""
ANY_TASK: Final = "task:*"
"""Stands for more tasks than a hint should name; who waits for a queue sleeps on."""


def few(topics: Collection[str], most: int) -> Collection[str]:
    """At most so many topics that say the same, or more."""
    if len(topics) <= most:
        return topics
    others = {topic for topic in topics if not topic.startswith("task:")}
    return others | {ANY_TASK} if len(others) < most else [EVERYTHING]


class Watching:
    """One waiter for some topics, in its own event loop."""

    def __init__(self, watchers: set[Watching], topics: Collection[str]) -> None:
        self._watchers = watchers
        tasks = [ANY_TASK for topic in topics if topic.startswith("task:")]
        self._topics = frozenset([*topics, *tasks])
        self._loop = asyncio.get_running_loop()
        self._rung = asyncio.Event()

    async def __aenter__(self) -> Watching:
        self._watchers.add(self)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._watchers.discard(self)

    async def wait(self, timeout_s: float) -> bool:
        try:
            async with asyncio.timeout(timeout_s):
                await self._rung.wait()
        except TimeoutError:
            return False
        self._rung.clear()
        return True

    def hear(self, topics: Collection[str]) -> None:
        """From any thread."""
        if EVERYTHING in topics or not self._topics.isdisjoint(topics):
            with suppress(RuntimeError):  # its loop is closed
                self._loop.call_soon_threadsafe(self._rung.set)
