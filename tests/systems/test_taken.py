"""Functions of a Celery application, taken over with one import: called as before, run by workers.

Time passes when told to; the sync facade is driven from another thread, as in a web server.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import warnings
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import pytest

from outlast import BadInput, Outlast, TaskDead, WaitTimeout
from outlast.celery import AsyncResult, MaxRetriesExceededError, shared_task, sharing
from outlast.celery.taken import Sharing
from outlast.core.model import Task
from outlast.testing import testing

T = TypeVar("T")


@pytest.fixture
async def t() -> AsyncIterator[testing]:
    async with testing(Outlast("memory://")) as t:
        yield t


@pytest.fixture
def shared(t: testing) -> Sharing:
    return sharing(t.app)


async def aside(call: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """As plain code calls it: from a thread that has no loop."""
    return await asyncio.to_thread(call, *args, **kwargs)


async def record(t: testing, result: AsyncResult) -> Task:
    return await t.task(result)


async def test_delay_and_get(t: testing, shared: Sharing) -> None:
    @shared
    def add(x: int, y: int = 1) -> int:
        "Adds."
        return x + y

    result = await aside(add.delay, 2, y=3)
    assert await aside(lambda: (result.state, result.ready(), result.result)) == (
        "PENDING", False, None,
    )  # fmt: skip
    with pytest.raises(WaitTimeout):
        await aside(result.get, timeout=0)
    await t.run()
    assert await aside(result.get, timeout=1) == 5
    assert await aside(lambda: (result.state, result.successful(), result.result)) == (
        "SUCCESS", True, 5,
    )  # fmt: skip
    assert add(1, 1) == 2
    assert (add.name, add.__doc__) == (f"{__name__}.add", "Adds.")
    assert (await record(t, result)).type == add.name
    assert await aside(add.AsyncResult(result.id).get) == 5


async def test_what_apply_async_may_say(t: testing, shared: Sharing) -> None:
    @shared(name="mail", queue="mails", expires=60, time_limit=5, priority=3)
    def mail(to: str) -> str:
        return to

    eta = datetime.now(UTC) + timedelta(hours=2)
    plain = await record(t, await aside(mail.apply_async, ("ada",)))
    assert (plain.queue, plain.max_age_ms, plain.priority) == ("mails", 60_000, 3)
    assert mail.handler.timeout_ms == 5_000
    later = await record(
        t,
        await aside(mail.apply_async, kwargs={"to": "bob"}, countdown=30, queue="slow", priority=0),
    )
    assert (later.status, later.queue, later.priority) == ("scheduled", "slow", 0)
    assert later.run_at - later.created_at == 30_000
    dated = await record(
        t, await aside(mail.apply_async, ("eve",), eta=eta, expires=timedelta(hours=1))
    )
    assert (dated.run_at, dated.max_age_ms) == (int(eta.timestamp() * 1_000), 3_600_000)


async def test_an_error_kills_unless_it_is_one_to_retry(t: testing, shared: Sharing) -> None:
    @shared(autoretry_for=(OSError,), dont_autoretry_for=(FileNotFoundError,),
            retry_kwargs={"max_retries": 2, "countdown": 10})  # fmt: skip
    def reads(what: str) -> None:
        raise {"net": ConnectionError, "file": FileNotFoundError, "bug": KeyError}[what](what)

    net, file, bug = [await aside(reads.delay, what) for what in ("net", "file", "bug")]
    await t.run()
    for dead, name in ((file, "FileNotFoundError"), (bug, "KeyError")):
        task = await record(t, dead)
        assert (task.status, task.reason, task.attempt) == ("dead", "permanent", 1)
        with pytest.raises(TaskDead, match=name):
            await aside(dead.get)
        error = await aside(dead.get, propagate=False)
        assert isinstance(error, TaskDead)
    waits = []
    for _ in range(2):
        task = await record(t, net)
        assert await aside(lambda: net.state) == "RETRY"
        waits.append((task.run_at - (task.updated_at or 0)) // 1_000)
        await t.advance("10s")
        await t.run()
    task = await record(t, net)
    assert (task.status, task.reason, task.attempt) == ("dead", "attempts", 3)
    assert waits == [10, 10]
    assert await aside(net.failed)


def test_backing_off_doubles_up_to_a_bound(shared: Sharing) -> None:
    def fn() -> None: ...

    plain = shared(retry_backoff=2, retry_backoff_max=30, retry_jitter=False)(fn)
    assert [plain._after(n) for n in range(6)] == [2, 4, 8, 16, 30, 30]
    chance = sharing(Outlast("memory://"))(retry_backoff=True)(fn)
    assert all(0 <= chance._after(n) <= 2**n for n in range(9) for _ in range(20))


async def test_self_retry(t: testing, shared: Sharing) -> None:
    seen: list[tuple[int, Any]] = []

    @shared(bind=True, max_retries=2, default_retry_delay=7)
    def polls(self: Any, url: str) -> str:
        seen.append((self.request.retries, self.request.id))
        self.update_state("PROGRESS", meta={"current": 1, "total": 4})
        if self.request.retries < 2:
            self.retry(countdown=None if self.request.retries else 3)
        return url

    result = await aside(polls.delay, "a")
    for span in ("3s", "7s"):
        await t.run()
        assert await t.status(result) == "retrying"
        await t.advance(span)
    await t.run()
    assert await aside(result.get, timeout=0) == "a"
    assert seen == [(n, result.id) for n in range(3)]
    assert b'"percent":25' in ((await record(t, result)).progress or b"")


@pytest.mark.parametrize(
    ("given", "type"), [(True, "ValueError"), (False, "MaxRetriesExceededError")]
)
async def test_self_retry_once_too_often(
    t: testing, shared: Sharing, given: bool, type: str
) -> None:
    @shared(bind=True, max_retries=1)
    def never(self: Any) -> None:
        try:
            raise ValueError("no good")
        except ValueError as error:
            self.retry(exc=error if given else None, countdown=0)

    result = await aside(never.delay)
    await t.run()
    await t.advance("1s")
    await t.run()
    task = await record(t, result)
    assert (task.status, task.attempt) == ("dead", 2)
    with pytest.raises(TaskDead, match=type):
        await aside(result.get)
    with pytest.raises(ValueError if given else MaxRetriesExceededError):
        never()


async def test_a_time_limit_is_a_failure_and_not_retried(
    t: testing, shared: Sharing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outlast.worker.runner.PATIENCE_S", 0.1)  # with code that goes on
    over = threading.Event()

    @shared(time_limit=0.05, max_retries=3)
    def hangs() -> None:
        over.wait(30)

    result = await aside(hangs.delay)
    running = asyncio.create_task(t.run())
    with pytest.raises(TaskDead, match="TimeoutError"):
        await aside(result.get, timeout=30)
    over.set()
    await running
    task = await record(t, result)
    assert (task.reason, task.attempt) == ("never", 1)


async def test_revoke_and_a_rate_for_the_fleet(t: testing, shared: Sharing) -> None:
    @shared(rate_limit="2/m")
    def paced() -> None: ...

    results = [await aside(paced.delay) for _ in range(3)]
    await t.app.publish()
    await aside(results[0].revoke)
    assert await aside(lambda: results[0].state) == "REVOKED"
    more = await aside(paced.delay)
    await t.run()
    assert [await t.status(r) for r in (*results[1:], more)] == [
        "completed", "completed", "throttled",
    ]  # fmt: skip


async def test_one_task_enqueues_another(t: testing, shared: Sharing) -> None:
    @shared
    def second(n: int) -> int:
        return n + 1

    @shared
    def first(n: int) -> str:
        return second.delay(n).id

    result = await aside(first.delay, 1)
    await t.run()
    assert await aside(second.AsyncResult(await aside(result.get, timeout=0)).get, timeout=0) == 2


def test_what_cannot_be_taken_over_is_told(shared: Sharing) -> None:
    with pytest.warns(UserWarning, match="base, compression of @shared_task mean nothing"):
        shared(name="odd", base=object, compression="gzip")(lambda: None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        shared(name="quiet", acks_late=True, ignore_result=True, serializer="json")(lambda: None)

    async def runs() -> None: ...

    for options, fn, says in (
        ({"name": "a", "serializer": "pickle"}, lambda: None, "JSON"),
        ({"name": "b", "rate_limit": "1.5/d"}, lambda: None, "10/m"),
        ({"name": "c"}, lambda *args: None, "take a list"),
        ({"name": "d"}, runs, "@app.task"),
    ):
        with pytest.raises(BadInput, match=says):
            shared(**options)(fn)  # type: ignore[arg-type]
    plain = shared(name="plain")(lambda: None)
    for missing in ("s", "apply", "chunks"):
        with pytest.raises(AttributeError, match=f"plain has no '{missing}'.* workflows"):
            getattr(plain, missing)
    assert not hasattr(plain, "request")


SCRIPT = """
from outlast.celery import app, shared_task

@shared_task
def add(x: int, y: int) -> int:
    return x + y

if __name__ == "__main__":
    import os, subprocess, sys
    results = [add.delay(n, n) for n in range(3)]
    worker = subprocess.Popen([sys.executable, "-m", "outlast", "worker", "taken:app"])
    try:
        print([result.get(timeout=30) for result in results])
    finally:
        worker.terminate()
        worker.wait()
    if os.fork() == 0:
        try:
            add.delay(1, 1)
        except Exception as refused:
            print(type(refused).__name__, flush=True)
        os._exit(0)
    os.wait()
"""


def test_one_import_a_worker_and_a_script(tmp_path: Path) -> None:
    assert shared_task is not None
    (tmp_path / "taken.py").write_text(SCRIPT)
    done = subprocess.run(  # ours
        [sys.executable, "-W", "error", "taken.py"],
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.stdout.splitlines() == ["[0, 2, 4]", "Conflict"], done.stderr
