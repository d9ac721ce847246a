"""`outlast doctor`: looks at everything that can be wrong with an engine, and names the cure."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Final

import typer

from outlast.cli.output import emit, table
from outlast.cli.settings import AppFlag, EngineFlag, JsonFlag, bare_for
from outlast.core.checks import Check
from outlast.core.errors import OutlastError
from outlast.core.text import safe_url

if TYPE_CHECKING:
    from outlast.core.seal import Seal
    from outlast.engine import Engine

SKEW_MS: Final = 1_000
BAD_ENGINE: Final = 4
LOOKED_AT: Final = 500


def doctor(app: AppFlag = None, engine: EngineFlag = None, json: JsonFlag = False) -> None:
    """Check the engine, its server or file, workers and queues; say what is wrong and the fix.

    Exits with 4 when the engine cannot be used.
    """
    from outlast.engine import connect

    bare = bare_for(engine, app)
    url = bare.url
    checks = asyncio.run(_examine(connect(url), bare.seal))
    failed = any(check.status == "fail" for check in checks)
    if json:
        emit(
            {
                "ok": not failed,
                "engine": safe_url(url),
                "checks": [asdict(check) for check in checks],
            }
        )
    else:
        rows = ((check.status, check.name, check.message, check.fix) for check in checks)
        table(("", "CHECK", "FOUND", "FIX"), rows, "")
    if failed:
        raise typer.Exit(BAD_ENGINE)


async def _examine(engine: Engine, seal: Seal) -> list[Check]:
    own = _own(engine)
    checks = list(own.before(engine)) if own is not None and hasattr(own, "before") else []
    try:
        await engine.open()
        try:
            if own is not None:
                checks += [check async for check in own.opened(engine)]
            cure = getattr(own, "DURABILITY", "Use an engine that waits for the disk.")
            checks += [check async for check in _opened(engine, cure)]
            checks.append(await _encryption(engine, seal))
        finally:
            await engine.close()
    except OutlastError as problem:
        fix = "Set that right, then run outlast doctor again; docs/engines has every setting."
        checks.append(Check("engine", "fail", str(problem), fix))
    return checks


def _own(engine: Engine) -> ModuleType | None:
    """The `doctor` beside an engine, with what only that engine has (`core/checks.py`)."""
    name = type(engine).__module__.rpartition(".")[0] + ".doctor"
    try:
        return import_module(name)
    except ModuleNotFoundError as missing:
        if missing.name != name:
            raise
        return None


# Any engine --------------------------------------------------------------------------------------


async def _opened(engine: Engine, cure: str) -> AsyncIterator[Check]:
    from outlast.core.model import Put

    yield Check("schema", "ok", f"version {await engine.migrate()}")
    await engine.put([Put(kind="doctor", key="probe", value=b"{}")])
    await engine.put([Put(kind="doctor", key="probe", value=None)])
    yield Check("write", "ok", "A record was written and deleted.")
    yield _durability(engine, cure)
    yield await _clock(engine)
    async for check in _work(engine):
        yield check


def _durability(engine: Engine, cure: str) -> Check:
    told = {
        "memory": "An acknowledged task may be lost by a power cut.",
        "fsync": "An acknowledged task is on the disk.",
        "replicated": "An acknowledged task is on several machines.",
    }[engine.durability]
    if engine.durability == "memory":
        return Check("durability", "warn", told, cure)
    return Check("durability", "ok", told)


async def _clock(engine: Engine) -> Check:
    """The engine's clock decides everything: it should be right, and must not have gone back."""
    from outlast.core.model import TaskQuery

    now = await engine.now()
    skew_ms = now - round(datetime.now(UTC).timestamp() * 1_000)
    newest = (await engine.tasks(TaskQuery(limit=1))).items
    if newest and newest[0].created_at > now + SKEW_MS:
        fix = "Set the clock right (NTP): until then, due times are off."
        return Check(
            "clock", "warn", "The clock went back: the newest task is from the future.", fix
        )
    if abs(skew_ms) > SKEW_MS:
        fix = "Set the clocks right (NTP). Outlast follows the engine's."
        return Check("clock", "warn", f"The engine's clock is {skew_ms:+} ms off this one's.", fix)
    return Check("clock", "ok", f"{skew_ms:+} ms")


async def _encryption(engine: Engine, seal: Seal) -> Check:
    """Can what waits be read with the keys that are here?"""
    from outlast.core.model import TaskQuery
    from outlast.core.seal import SETTING, key_of

    waiting = TaskQuery.of(status=("ready", "throttled", "retrying", "scheduled"), limit=LOOKED_AT)
    used = {key_of(task.payload) for task in (await engine.tasks(waiting)).items}
    missing = sorted({name for name in used if name is not None} - {*seal.names})
    if missing:
        told = f"Tasks wait that are encrypted with {', '.join(missing)}, which is not among the"
        fix = f"Add it to {SETTING} here and for the workers; they give such tasks back."
        return Check("encryption", "warn", f"{told} keys here.", fix)
    if not seal.keys:
        return Check("encryption", "ok", "off: payloads are stored readable")
    return Check("encryption", "ok", f"{seal.names[0]} encrypts, {len(seal.keys)} can be read")


async def _work(engine: Engine) -> AsyncIterator[Check]:
    """Is somebody there for everything that waits?"""
    from outlast.core.model import TaskQuery
    from outlast.moving import PLAN
    from outlast.ops import is_paused

    alive = [worker for worker in await engine.workers() if worker.alive]
    if alive:
        yield Check("workers", "ok", f"{len(alive)} alive")
    else:
        yield Check("workers", "warn", "No worker is alive.", "outlast worker")
    if await engine.get(*PLAN[:1]):
        fix = "outlast engine copy FROM TO goes on with it, and then lets the queues go."
        yield Check("copy", "warn", "Half a copy of another engine lies here.", fix)
    paused = {record.key for record in await engine.get("queue") if is_paused(record)}
    for queue in sorted(paused):
        fix = f"outlast queues resume {queue}"
        yield Check("queue", "warn", f"{queue!r} is paused.", fix)
    waiting = TaskQuery.of(status=("ready", "throttled", "retrying", "scheduled"))
    for count in await engine.count(waiting, by=("type", "queue")):
        type, queue = map(str, count.by)
        serving = [worker for worker in alive if queue in worker.info.queues]
        if not any(type in worker.info.types for worker in serving):
            told = f"{count.n:,} {type!r} wait in queue {queue!r}, and no live worker serves them."
            fix = f"outlast worker -q {queue}, with an app that has {type!r}"
            yield Check("types", "warn", told, fix)
    stalled = sum(count.n for count in await engine.count(TaskQuery.of(status="stalled")))
    if stalled:
        told = f"{stalled:,} tasks belong to workers that are gone."
        yield Check("stalled", "warn", told, "Any live worker recovers them: outlast worker")
    dead = sum(count.n for count in await engine.count(TaskQuery.of(status="dead")))
    if dead:
        yield Check("dead", "warn", f"{dead:,} tasks are dead.", "outlast dlq groups")
    tripped = [gauge.key for gauge in await engine.gauges() if gauge.circuit == "open"]
    for key in tripped:
        yield Check("circuit", "warn", f"The circuit of {key!r} is open.", "outlast limits")
