"""The SQLite file itself: group commit, checkpoints, wake-ups, and what a path can have wrong."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import apsw
import pytest

from outlast.core.errors import BadInput, EngineDown, EngineFull, UnknownEngine
from outlast.core.ids import new_fence, new_id
from outlast.core.model import (
    EventQuery,
    NewTask,
    Outcome,
    Put,
    TaskQuery,
    Turn,
    Want,
    WorkerInfo,
)
from outlast.engine import connect
from outlast.engines.sqlite import db, records
from outlast.engines.sqlite.engine import SqliteEngine
from outlast.engines.sqlite.tx import Tx

INFO = WorkerInfo(host="here", pid=os.getpid())


def task(**fields: object) -> NewTask:
    return NewTask(id=new_id(), type="work", **fields)  # type: ignore[arg-type]


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[SqliteEngine]:
    engine = SqliteEngine(str(tmp_path / "jobs.db"), "fsync")
    await engine.open()
    yield engine
    await engine.close()


@pytest.fixture
def commits(engine: SqliteEngine) -> Iterator[list[int]]:
    """Grows by one with every commit that wrote something."""
    assert engine._writer is not None
    seen: list[int] = []
    engine._writer.conn.set_wal_hook(lambda _conn, _name, pages: seen.append(pages) or 0)
    yield seen


async def test_concurrent_enqueues_share_commits(engine: SqliteEngine, commits: list[int]) -> None:
    await asyncio.gather(*(engine.enqueue([task()]) for _ in range(200)))
    assert 1 <= len(commits) <= 20
    assert len((await engine.tasks(TaskQuery(limit=500))).items) == 200


async def test_a_bad_enqueue_takes_nobody_along(engine: SqliteEngine) -> None:
    held = threading.Event()
    assert engine._writer is not None
    gate = engine._writer.submit(lambda _tx: held.wait())  # so that the next three share a batch
    good, bad, also = task(), task(after=(new_id(),)), task()
    answers = asyncio.gather(
        *(engine.enqueue([one]) for one in (good, bad, also)), return_exceptions=True
    )
    await asyncio.sleep(0)
    held.set()
    await gate
    first, second, third = await answers
    assert isinstance(second, BadInput)
    assert not isinstance(first, BaseException) and not isinstance(third, BaseException)
    assert {t.id for t in (await engine.tasks(TaskQuery())).items} == {good.id, also.id}


async def test_a_lock_that_another_process_keeps_is_waited_for_once(
    engine: SqliteEngine, tmp_path: Path
) -> None:
    """Whoever shares a transaction has waited with it: not each of them again, 30 s long."""
    asked = threading.Event()
    waits: list[int] = []

    def gives_up(tries: int) -> bool:
        waits.append(tries)
        asked.wait()
        return False

    assert engine._writer is not None
    engine._writer.conn.set_busy_handler(gives_up)
    other = apsw.Connection(str(tmp_path / "jobs.db"))
    other.execute("begin immediate")
    answers = asyncio.gather(
        *(engine.put([Put(kind="note", key=str(n), value=b"1")]) for n in range(9)),
        return_exceptions=True,
    )
    await asyncio.sleep(0)
    asked.set()
    told = await answers
    other.execute("rollback")
    assert len(waits) <= 2, "those that were there at first, and the rest"
    assert all(isinstance(one, EngineDown) and "write lock" in str(one) for one in told)
    assert await engine.get("note") == []


async def test_what_would_wait_for_its_own_transaction_is_refused(engine: SqliteEngine) -> None:
    stored = task()
    async with engine.transaction() as connection:
        for forgotten in (
            engine.enqueue([task()]),
            engine.put([Put(kind="note", key="n", value=b"1")]),
            engine.transaction().__aenter__(),
        ):
            with pytest.raises(BadInput, match="within="):
                async with asyncio.timeout(10):
                    await forgotten
        waits = asyncio.ensure_future(engine.enqueue([other := task()]))  # for its turn: no harm
        await engine.enqueue([stored], within=connection)
    await waits
    assert {t.id for t in (await engine.tasks(TaskQuery())).items} == {stored.id, other.id}


async def test_a_limit_that_was_not_written_limits_nobody(engine: SqliteEngine) -> None:
    limited = (("k", 1),)
    await engine.put([Put(kind="limit", key="k", value=b'{"key":"k","slots":1}')])
    await engine.enqueue([task(limits=limited) for _ in range(4)])
    wants = (Want("default", "primary", 9),)
    turn = Turn(token=new_fence(), worker="w", room=9, wants=wants, info=INFO)
    assert len((await engine.exchange(turn)).leases) == 1
    assert engine._writer is not None

    def fails(tx: Tx) -> None:
        records.put(tx, Put(kind="limit", key="k", value=b'{"key":"k","slots":2}'))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await engine._writer.submit(fails)
    await engine.put([Put(kind="limit", key="k", value=b'{"key":"k","slots":4}')])
    turn = Turn(token=new_fence(), worker="w", room=9, wants=wants)
    assert len((await engine.exchange(turn)).leases) == 3


async def test_the_wal_stays_bounded(
    engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(db, "CHECKPOINT_PAGES", 50)
    monkeypatch.setattr(db, "RESTART_PAGES", 100)
    body = b'"' + b"x" * 100_000 + b'"'
    for _ in range(600):  # 60 MB of payloads
        await engine.enqueue([task(payload=body)])
    assert (tmp_path / "jobs.db-wal").stat().st_size < 20_000_000
    assert (tmp_path / "jobs.db").stat().st_size > 40_000_000


async def test_only_one_process_checkpoints_at_a_time(engine: SqliteEngine, tmp_path: Path) -> None:
    import fcntl

    await engine.enqueue([task(payload=b"1" * 500_000)])
    size = (tmp_path / "jobs.db").stat().st_size
    lock = os.open(tmp_path / "jobs.db-checkpoint", os.O_CREAT | os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    db.checkpoint(engine.path, db.RESTART_PAGES)
    assert (tmp_path / "jobs.db").stat().st_size == size  # somebody else was at it
    os.close(lock)
    db.checkpoint(engine.path, db.RESTART_PAGES)
    assert (tmp_path / "jobs.db").stat().st_size > size


async def test_another_engine_on_the_file_is_woken(engine: SqliteEngine, tmp_path: Path) -> None:
    other = SqliteEngine(engine.path, "fsync")
    await other.open()
    async with other.watch({"queue:default"}) as watch:
        assert not await watch.wait(0.01)
        await engine.enqueue([task()])
        assert await watch.wait(30)
    await other.close()
    assert len(os.listdir(tmp_path / "jobs.db-wake")) == 1  # its socket is gone


async def test_the_socket_of_a_killed_process_is_cleared_away(
    engine: SqliteEngine, tmp_path: Path
) -> None:
    import socket

    dead = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    dead.bind(str(tmp_path / "jobs.db-wake" / "1-dead"))
    dead.close()
    await engine.enqueue([task()])
    assert "1-dead" not in os.listdir(tmp_path / "jobs.db-wake")


async def test_a_reboot_ends_every_lease(engine: SqliteEngine) -> None:
    await engine.enqueue([task()])
    turn = Turn(
        token=new_fence(),
        worker="w",
        room=1,
        wants=(Want("default", "primary", 1),),
        info=INFO,
    )
    assert len((await engine.exchange(turn)).leases) == 1
    assert (await engine.sweep()).rescued == 0
    engine._boot = "another boot"
    assert (await engine.sweep()).rescued == 1


async def test_everything_is_there_after_a_crash(engine: SqliteEngine, tmp_path: Path) -> None:
    """Acknowledged is on disk: a copy of the files as they are now holds it."""
    one = task(payload=b'{"a": 1}')
    await engine.enqueue([one])
    for name in ("jobs.db", "jobs.db-wal"):
        (tmp_path / f"copy-{name}").write_bytes((tmp_path / name).read_bytes())
    copy = SqliteEngine(str(tmp_path / "copy-jobs.db"), "fsync")
    await copy.open()
    [found] = (await copy.tasks(TaskQuery())).items
    assert (found.id, found.payload) == (one.id, b'{"a": 1}')
    assert len((await copy.events(EventQuery())).items) == 1
    await copy.close()


async def test_every_commit_waits_for_the_disk(engine: SqliteEngine) -> None:
    assert engine._writer is not None
    seen: list[object] = []
    begin = engine._writer._begin

    def spy(connection: apsw.Connection) -> object:
        seen.append(connection.pragma("synchronous"))
        return begin(connection)

    engine._writer._begin = spy
    full = 2
    await engine.enqueue([task()])
    wants = (Want("default", "primary", 1),)
    turn = Turn(token=new_fence(), worker="w", room=1, wants=wants, info=INFO)
    [lease] = (await engine.exchange(turn)).leases
    end = Outcome(id=lease.id, fence=lease.fence, state="completed")
    await engine.exchange(Turn(token=new_fence(), worker="w", outcomes=(end,)))
    await engine.sweep()
    assert seen == [full] * 4  # a claim, too: others read its events


async def test_a_full_disk_is_told_and_harms_nothing(
    engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert engine._writer is not None
    tried: list[int] = []
    monkeypatch.setattr(db, "checkpoint", lambda _path, pages: tried.append(pages))
    await engine.enqueue([task()])
    engine._writer.conn.pragma("max_page_count", engine._writer.conn.pragma("page_count") + 1)
    with pytest.raises(EngineFull, match="free some space"):
        await engine.enqueue([task(payload=b"1" * 500_000)])
    assert tried  # the space that the WAL takes was looked for
    engine._writer.conn.pragma("max_page_count", 1_000_000)
    await engine.enqueue([task(payload=b"1" * 500_000)])
    assert len((await engine.tasks(TaskQuery())).items) == 2


async def test_a_full_disk_fails_a_transaction_as_a_whole(
    engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a checkpoint finds the space: what the block wrote cannot be written again."""
    flush = Tx.flush

    def full(tx: Tx) -> None:
        monkeypatch.setattr(Tx, "flush", flush)
        raise apsw.FullError("database or disk is full")

    with pytest.raises(EngineFull):
        async with engine.transaction() as within:
            await engine.enqueue([task()], within=within)
            monkeypatch.setattr(Tx, "flush", full)
    assert not (await engine.tasks(TaskQuery())).items


async def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "jobs.db").write_bytes(b"this is no database, it is a letter" * 100)
    with pytest.raises(EngineDown, match=r"jobs\.db.*no SQLite database"):
        await connect(f"sqlite:///{tmp_path}/jobs.db").open()


async def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(EngineDown, match="does not exist"):
        await connect(f"sqlite:///{tmp_path}/nowhere/jobs.db").open()


async def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    first = connect(f"sqlite:///{path}")
    await first.open()
    assert await first.migrate() == db.SCHEMA_VERSION
    await first.close()
    conn = apsw.Connection(str(path))
    conn.execute("update meta set value = 99 where name = 'schema'")
    conn.close()
    with pytest.raises(EngineDown, match="upgrade outlast"):
        await connect(f"sqlite:///{path}").open()


@pytest.mark.parametrize(
    "url", ["sqlite://", "sqlite:///", "sqlite:///x.db?durability=maybe", "sqlite:///x.db?a=b"]
)
def test_a_bad_url_teaches(url: str) -> None:
    with pytest.raises(UnknownEngine):
        connect(url)


async def test_a_closed_engine_says_so(engine: SqliteEngine) -> None:
    await engine.close()
    with pytest.raises(EngineDown, match="not open"):
        await engine.enqueue([task()])


async def test_durability_is_what_the_file_does(engine: SqliteEngine, tmp_path: Path) -> None:
    assert engine.durability == "fsync"
    assert engine._writer is not None and engine._writer.conn.pragma("synchronous") == 2
    loose = connect(f"sqlite:///{tmp_path}/loose.db?durability=memory")
    assert loose.durability == "memory"
    assert connect("memory://").durability == "memory"
