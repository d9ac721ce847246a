"""`outlast doctor`: looks at everything that can be wrong with an engine, and names the cure."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import typer

from outlast.cli.output import emit, table
from outlast.cli.settings import AppFlag, EngineFlag, JsonFlag, url_here
from outlast.core.errors import OutlastError
from outlast.core.text import safe_url

if TYPE_CHECKING:
    from outlast.engine import Engine

LITTLE_DISK: Final = 1 << 30
NO_DISK: Final = 64 << 20
SAFE_SQLITE: Final = 3_051_003  # before it a WAL that several connections write can be corrupted
SKEW_MS: Final = 1_000
BAD_ENGINE: Final = 4


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at. `fix` says what to do, where something is to be done."""

    name: str
    status: Literal["ok", "warn", "fail"]
    message: str
    fix: str | None = None


def doctor(app: AppFlag = None, engine: EngineFlag = None, json: JsonFlag = False) -> None:
    """Check the engine, its file, the workers and the queues; say what is wrong and the fix.

    Exits with 4 when the engine cannot be used.
    """
    from outlast.app import Outlast
    from outlast.engine import connect

    url = Outlast(engine or url_here(app)).url
    checks = asyncio.run(_examine(connect(url)))
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


async def _examine(engine: Engine) -> list[Check]:
    checks = []
    path = getattr(engine, "path", None)  # engines on a server have none
    if path not in (None, ":memory:"):
        checks += _file(Path(path))
    try:
        await engine.open()
        try:
            checks += [check async for check in _opened(engine)]
            if path not in (None, ":memory:"):
                checks.append(_journal(Path(path)))
        finally:
            await engine.close()
    except OutlastError as problem:
        checks.append(Check("engine", "fail", str(problem), "Is it there, and may you use it?"))
    return checks


# A SQLite file -----------------------------------------------------------------------------------


def _file(path: Path) -> list[Check]:
    import apsw

    folder = path.resolve().parent
    checks = []
    if apsw.SQLITE_VERSION_NUMBER < SAFE_SQLITE:
        fix = "pip install -U apsw"
        checks.append(
            Check("sqlite", "fail", f"{apsw.sqlite_lib_version()} can corrupt a WAL.", fix)
        )
    else:
        checks.append(Check("sqlite", "ok", apsw.sqlite_lib_version()))
    if not folder.is_dir():
        fix = f"mkdir -p {folder}"
        return [*checks, Check("file", "fail", f"The folder {folder} does not exist.", fix)]
    if not os.access(folder, os.W_OK) or (path.exists() and not os.access(path, os.W_OK)):
        fix = f"Give this user the right to write to {folder} and {path.name}."
        checks.append(Check("file", "fail", f"{path} is not writable.", fix))
    else:
        checks.append(Check("file", "ok", str(path)))
    free = shutil.disk_usage(folder).free
    told = f"{free / (1 << 30):.1f} GiB free"
    if free < LITTLE_DISK:
        status: Literal["warn", "fail"] = "fail" if free < NO_DISK else "warn"
        checks.append(Check("disk", status, told, "Free some space, or purge: outlast dlq purge"))
    else:
        checks.append(Check("disk", "ok", told))
    return checks


def _journal(path: Path) -> Check:
    import apsw

    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        mode = connection.pragma("journal_mode")
    finally:
        connection.close()
    if mode != "wal":
        fix = "Put the file on a local disk: a network file system cannot share a WAL."
        return Check("journal", "fail", f"The journal is {mode!r}, not 'wal'.", fix)
    return Check("journal", "ok", "WAL")


# Any engine --------------------------------------------------------------------------------------


async def _opened(engine: Engine) -> AsyncIterator[Check]:
    from outlast.core.model import Put

    yield Check("schema", "ok", f"version {await engine.migrate()}")
    await engine.put([Put(kind="doctor", key="probe", value=b"{}")])
    await engine.put([Put(kind="doctor", key="probe", value=None)])
    yield Check("write", "ok", "A record was written and deleted.")
    yield _durability(engine)
    yield await _clock(engine)
    async for check in _work(engine):
        yield check


def _durability(engine: Engine) -> Check:
    told = {
        "memory": "An acknowledged task may be lost by a power cut.",
        "fsync": "An acknowledged task is on the disk.",
        "replicated": "An acknowledged task is on several machines.",
    }[engine.durability]
    if engine.durability == "memory":
        fix = "Leave out ?durability=memory, or use a file instead of memory://."
        return Check("durability", "warn", told, fix)
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


async def _work(engine: Engine) -> AsyncIterator[Check]:
    """Is somebody there for everything that waits?"""
    from outlast.core.model import TaskQuery
    from outlast.ops import is_paused

    alive = [worker for worker in await engine.workers() if worker.alive]
    if alive:
        yield Check("workers", "ok", f"{len(alive)} alive")
    else:
        yield Check("workers", "warn", "No worker is alive.", "outlast worker")
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
