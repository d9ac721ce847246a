"""The counts of the whole fleet: what every process counted, added up in the engine.

A process writes its counts into a record of its own (kind `metrics`) when the work calms down, and
every ten seconds while it does not. The fleet's counts are the sum of these records. They never
fall: when a process leaves, or is not heard of for an hour, its record is *folded* into the one
called `retired`, which remembers whom it has folded, so that nobody is counted twice. A process
that was folded though it lives finds its record gone, and goes on under a new name with what it
has counted since. `kill -9` loses what was not written yet: the tasks themselves are the truth.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from time import monotonic
from typing import Final

import msgspec
from msgspec import Struct

from outlast import usage
from outlast.core.errors import OutlastError
from outlast.core.ids import new_id
from outlast.core.model import Put, Record
from outlast.core.totals import Totals
from outlast.engine import Engine
from outlast.meter import Meter
from outlast.rollup import roll_up

logger: Final = logging.getLogger("outlast.metrics")

KIND: Final = "metrics"
RETIRED: Final = "retired"
LOOK_S: Final = 1.0
PUBLISH_S: Final = 10.0
TIDY_S: Final = 60.0
CLOSE_S: Final = 5.0
REFRESH_S: Final = 1_200.0
GONE_MS: Final = 3_600_000
KEPT_MS: Final = 7 * 86_400_000
MAX_FOLDED: Final = 200


class Retired(Struct, frozen=True):
    """The counts of processes that are gone, and the names of the last of them."""

    totals: Totals
    folded: tuple[str, ...] = ()


class Publisher:
    """Writes the counts of this process, while an app is open."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._before = Totals()
        """What was counted under names that are folded."""
        self._told = Totals()
        self._rename()

    def _rename(self) -> None:
        self._name = new_id()[-12:]
        self._version = 0

    @property
    def totals(self) -> Totals:
        """What was counted under the present name."""
        return self._meter.totals().since(self._before)

    async def run(self, engine: Engine) -> None:
        """For ever: publish, and now and then tidy up and add up."""
        waiting, published_at, tidied_at = False, monotonic(), monotonic()
        while True:
            await asyncio.sleep(LOOK_S)
            now = monotonic()
            busy, self._meter.changed = self._meter.changed, False
            waiting = waiting or busy or (self._version > 0 and now - published_at > REFRESH_S)
            try:
                if waiting and (not busy or now - published_at >= PUBLISH_S):
                    await self.publish(engine)
                    waiting, published_at = False, now
                if now - tidied_at >= TIDY_S:
                    tidied_at = now
                    await self._tidy(engine)
            except (OutlastError, OSError) as problem:
                logger.debug("Counts wait: %s", problem)

    async def publish(self, engine: Engine) -> None:
        told = self.totals
        if not await self._put(engine, told):
            mine = {record.key: record for record in await engine.get(KIND, [self._name, RETIRED])}
            if self._name in mine and self._name not in _retired(mine.get(RETIRED)).folded:
                self._version = mine[self._name].version  # we wrote it, and the reply was lost
            else:
                self._before.add(self._told)
                self._rename()
                told = self.totals
            await self._put(engine, told)

    async def _put(self, engine: Engine, told: Totals) -> bool:
        put = Put(
            kind=KIND,
            key=self._name,
            value=msgspec.json.encode(told),
            expect=self._version,
            ttl_ms=KEPT_MS,
        )
        [written] = await engine.put([put])
        if written is not None:
            self._version, self._told = written.version, told
        return written is not None

    async def close(self, engine: Engine) -> None:
        """This process leaves, or at least its app: what it has counted is folded at once.

        And rolled up: there may be no process that lives long enough to do it.
        """
        told = self.totals
        name, self._told = self._name, Totals()
        self._before.add(told)
        self._rename()
        if told.counts or told.spreads:
            with suppress(OutlastError, OSError, TimeoutError):
                async with asyncio.timeout(CLOSE_S):
                    await fold(engine, name, told)
                    await roll_up(engine, lambda: self.fleet(engine), await engine.now())

    async def fleet(self, engine: Engine) -> Totals:
        """The counts of all processes; those of this one as they are now."""
        records = {record.key: record for record in await engine.get(KIND)}
        retired = _retired(records.pop(RETIRED, None))
        total = Totals()
        total.add(retired.totals)
        own = self.totals
        total.add(own.since(self._told) if self._name in retired.folded else own)
        for name, record in records.items():
            if name != self._name and name not in retired.folded:
                total.add(_totals(record))
        return total

    async def _tidy(self, engine: Engine) -> None:
        now = await engine.now()
        for record in await engine.get(KIND):
            at = None if record.expires_at is None else record.expires_at - KEPT_MS
            if at is not None and record.key != self._name and now - at > GONE_MS:
                await fold(engine, record.key, _totals(record))
        await roll_up(engine, lambda: self.fleet(engine), now)
        await usage.roll_up(engine)  # before retention takes the log that it is in


async def fold(engine: Engine, name: str, told: Totals) -> None:
    """Once, whoever else does the same: the name is remembered in the same step."""
    while True:
        found = await engine.get(KIND, [RETIRED])
        retired = _retired(found[0] if found else None)
        if name in retired.folded:
            break
        total = Totals()
        total.add(retired.totals)
        total.add(told)
        value = msgspec.json.encode(Retired(total, (*retired.folded, name)[-MAX_FOLDED:]))
        expect = found[0].version if found else 0
        [written] = await engine.put([Put(kind=KIND, key=RETIRED, value=value, expect=expect)])
        if written is not None:
            break
    await engine.put([Put(kind=KIND, key=name, value=None)])


def _totals(record: Record) -> Totals:
    return msgspec.json.decode(record.value, type=Totals)


def _retired(record: Record | None) -> Retired:
    if record is None:
        return Retired(Totals())
    return msgspec.json.decode(record.value, type=Retired)
