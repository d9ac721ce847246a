"""What can be wrong with a SQLite file, and the cure."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import apsw

from outlast.core.checks import Check
from outlast.engines.sqlite.db import SAFE_SQLITE

if TYPE_CHECKING:
    from outlast.engines.sqlite.engine import SqliteEngine

LITTLE_DISK: Final = 1 << 30
NO_DISK: Final = 64 << 20
DURABILITY: Final = "Leave out ?durability=memory, or use a file instead of memory://."


def before(engine: SqliteEngine) -> Iterator[Check]:
    if engine.path == ":memory:":
        return
    path = Path(engine.path)
    folder = path.resolve().parent
    if apsw.SQLITE_VERSION_NUMBER < SAFE_SQLITE:
        told = f"{apsw.sqlite_lib_version()} can corrupt a WAL."
        yield Check("sqlite", "fail", told, "pip install -U apsw")
    else:
        yield Check("sqlite", "ok", apsw.sqlite_lib_version())
    if not folder.is_dir():
        fix = f"mkdir -p {folder}"
        yield Check("file", "fail", f"The folder {folder} does not exist.", fix)
        return
    if not os.access(folder, os.W_OK) or (path.exists() and not os.access(path, os.W_OK)):
        fix = f"Give this user the right to write to {folder} and {path.name}."
        yield Check("file", "fail", f"{path} is not writable.", fix)
    else:
        yield Check("file", "ok", str(path))
    free = shutil.disk_usage(folder).free
    told = f"{free / (1 << 30):.1f} GiB free"
    if free < LITTLE_DISK:
        status: Literal["warn", "fail"] = "fail" if free < NO_DISK else "warn"
        yield Check("disk", status, told, "Free some space, or purge: outlast dlq purge")
    else:
        yield Check("disk", "ok", told)


async def opened(engine: SqliteEngine) -> AsyncIterator[Check]:
    if engine.path == ":memory:":
        return
    connection = apsw.Connection(engine.path, flags=apsw.SQLITE_OPEN_READONLY)
    try:
        mode = connection.pragma("journal_mode")
    finally:
        connection.close()
    if mode != "wal":
        fix = "Put the file on a local disk: a network file system cannot share a WAL."
        yield Check("journal", "fail", f"The journal is {mode!r}, not 'wal'.", fix)
    else:
        yield Check("journal", "ok", "WAL")
