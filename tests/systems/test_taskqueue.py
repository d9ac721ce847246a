"""`TaskQueue`: the methods of the sub-agents' design, in memory and on Redis, several at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from outlast import BadInput, LeaseLost, NotFound, Outlast
from outlast.systems import taskqueue
from outlast.systems.subagents import Agent, SubAgents
from outlast.systems.taskqueue import Task, TaskQueue, TaskStatus
from tests.chaos.fleet import until
from tests.servers import redis


def agents_on(url: str) -> SubAgents:
    app = Outlast(url)
    return SubAgents(app, {"researcher": Agent(), "coder": Agent(max_retries=0)})


@pytest.fixture
async def queue() -> AsyncIterator[TaskQueue]:
    async with TaskQueue(agents_on("memory://")) as queue:
        yield queue


async def test_a_task_from_its_enqueue_to_its_result(queue: TaskQueue) -> None:
    await queue.register_worker("agent-1", capacity=2)
    low = await queue.enqueue(Task(subagent_type="researcher", prompt="later"))
    id = await queue.enqueue(
        Task(subagent_type="researcher", prompt="find", model="large", priority=5,
             tags=["night"], user_id="ada", parent_task=low)
    )  # fmt: skip
    assert await queue.get_status(id) is TaskStatus.PENDING
    task = await queue.dequeue("agent-1", timeout_ms=0)
    assert task is not None
    assert (task.id, task.status, task.agent_id) == (id, TaskStatus.RUNNING, "agent-1")
    assert (task.prompt, task.model, task.tags) == ("find", "large", ["night"])
    assert (task.user_id, task.parent_task, task.max_retries) == ("ada", low, 3)
    await queue.complete(id, {"found": 3, "exit_code": 0})
    done = await queue.get(id)
    assert (done.status, done.result["found"], done.exit_code) == (TaskStatus.COMPLETED, 3, 0)
    assert done.completed_at is not None
    with pytest.raises(LeaseLost, match="not held here"):
        await queue.complete(id, {})
    [line] = await queue.list_by_user("ada")
    assert (line.id, line.status) == (id, TaskStatus.COMPLETED)
    assert await queue.list_by_user("ada", "pending") == []
    with pytest.raises(BadInput, match="pending, running"):
        await queue.list_by_user("ada", "lost")


async def test_a_failure_is_tried_again_unless_it_is_not_retryable(queue: TaskQueue) -> None:
    first = await queue.enqueue(Task(subagent_type="researcher", prompt="a"))
    assert await queue.dequeue("x", timeout_ms=0) is not None
    await queue.fail(first, "crashed")
    task = await queue.get(first)
    assert (task.status, task.retry_count, task.error) == (TaskStatus.PENDING, 1, "crashed")
    await queue.retry(first)  # now, not in two seconds
    assert await queue.dequeue("x", timeout_ms=5_000) is not None
    await queue.fail(first, "cannot be parsed", retryable=False)
    assert await queue.get_status(first) is TaskStatus.FAILED
    await queue.retry(first)
    again = await queue.dequeue("x", timeout_ms=5_000)
    assert again is not None
    assert again.retry_count == 0

    last = await queue.enqueue(Task(subagent_type="coder", prompt="b"))
    assert await queue.dequeue("y", timeout_ms=0) is not None
    await queue.fail(last, "no retries for coders")
    assert await queue.get_status(last) is TaskStatus.FAILED


async def test_nothing_in_the_queue(queue: TaskQueue) -> None:
    assert await queue.dequeue("x", timeout_ms=20) is None
    waiting = asyncio.create_task(queue.dequeue("x", timeout_ms=60_000))
    id = await queue.enqueue(Task(subagent_type="coder", prompt="wakes the one who waits"))
    task = await waiting
    assert task is not None
    assert task.id == id


async def test_a_dequeue_that_is_cancelled_takes_nothing(
    queue: TaskQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = await queue.enqueue(Task(subagent_type="researcher", prompt="a"))
    claimed = asyncio.Event()

    async def never(*_: object) -> None:
        claimed.set()
        await asyncio.Event().wait()

    with monkeypatch.context() as patched:
        patched.setattr(taskqueue, "fetch", never)
        dequeuing = asyncio.create_task(queue.dequeue("impatient"))
        await asyncio.wait_for(claimed.wait(), 30)
        dequeuing.cancel()
        await asyncio.wait({dequeuing})
    assert dequeuing.cancelled()
    task = await queue.dequeue("patient", timeout_ms=0)
    assert task is not None
    assert (task.id, task.retry_count) == (id, 0)


async def test_a_cancelled_task_cannot_be_completed(queue: TaskQueue) -> None:
    waiting = await queue.enqueue(Task(subagent_type="coder", prompt="a"))
    await queue.cancel(waiting)
    assert await queue.get_status(waiting) is TaskStatus.CANCELLED
    id = await queue.enqueue(Task(subagent_type="coder", prompt="b"))
    assert await queue.dequeue("x", timeout_ms=0) is not None
    await queue.cancel(id)
    assert await queue.get_status(id) is TaskStatus.CANCELLED
    with pytest.raises(LeaseLost):
        await queue.complete(id, {})


async def test_a_worker_holds_no_more_than_it_registered_for(queue: TaskQueue) -> None:
    for prompt in "abcd":
        await queue.enqueue(Task(subagent_type="researcher", prompt=prompt))
    await queue.register_worker("small", capacity=2)
    found = await asyncio.gather(*(queue.dequeue("small", timeout_ms=50) for _ in range(4)))
    first, second = [task for task in found if task is not None]
    waiting = asyncio.create_task(queue.dequeue("small", timeout_ms=60_000))
    others = await queue.dequeue("unregistered", timeout_ms=0)
    assert others is not None
    assert not waiting.done()
    assert first.id is not None
    await queue.complete(first.id, {})
    third = await asyncio.wait_for(waiting, 30)
    assert third is not None
    assert len({first.id, second.id, third.id, others.id}) == 4


async def test_what_is_no_agents(queue: TaskQueue) -> None:
    with pytest.raises(BadInput, match="did you mean 'coder'"):
        await queue.enqueue(Task(subagent_type="codr", prompt="a"))
    with pytest.raises(NotFound):
        await queue.get_status("01a1f0c0-0000-7000-8000-000000000000")
    with pytest.raises(NotFound, match="no worker"):
        await queue.unregister_worker("nobody", "test")
    with pytest.raises(BadInput, match="capacity"):
        await queue.register_worker("x", capacity=0)


# On Redis, where several programs share a queue ---------------------------------------------------


@pytest.fixture
async def queues() -> AsyncIterator[tuple[TaskQueue, TaskQueue]]:
    """Two programs on one server."""
    server = redis.Server()
    server.run()
    try:
        async with AsyncExitStack() as stack:
            one = await stack.enter_async_context(TaskQueue(agents_on(server.url)))
            other = await stack.enter_async_context(TaskQueue(agents_on(server.url)))
            yield one, other
    finally:
        server.stop()


async def test_who_did_not_dequeue_a_task_cannot_end_it(
    queues: tuple[TaskQueue, TaskQueue],
) -> None:
    one, other = queues
    id = await one.enqueue(Task(subagent_type="researcher", prompt="a"))
    assert await one.dequeue("agent", timeout_ms=0) is not None
    with pytest.raises(LeaseLost):
        await other.complete(id, {"mine": True})
    with pytest.raises(LeaseLost):
        await other.fail(id, "not mine either")
    assert await other.get_status(id) is TaskStatus.RUNNING
    assert (await other.get(id)).agent_id == "agent"

    # A name says nothing: another program's agent of this name holds what it has dequeued itself.
    await other.register_worker("agent", capacity=1)
    await other.unregister_worker("agent", "test")
    assert await one.get_status(id) is TaskStatus.RUNNING
    await one.complete(id, {})
    assert (await other.get(id)).status is TaskStatus.COMPLETED


@pytest.mark.parametrize("end", ["complete", "fail"])
async def test_what_was_cancelled_elsewhere_cannot_be_ended(
    queues: tuple[TaskQueue, TaskQueue], end: str
) -> None:
    one, other = queues
    id = await one.enqueue(Task(subagent_type="researcher", prompt="a"))
    assert await one.dequeue("agent", timeout_ms=0) is not None
    await other.cancel(id)
    with pytest.raises(LeaseLost, match="cancelled"):
        await getattr(one, end)(id, "too late")
    assert await other.get_status(id) is TaskStatus.CANCELLED


async def test_what_a_silent_agent_holds_goes_to_another(
    queues: tuple[TaskQueue, TaskQueue],
) -> None:
    one, other = queues
    id = await one.enqueue(Task(subagent_type="researcher", prompt="a"))
    assert await one.dequeue("silent", timeout_ms=0) is not None
    assert await one.requeue_stalled(max_age_ms=60_000) == 0
    assert await one.requeue_stalled(max_age_ms=0) == 1
    with pytest.raises(LeaseLost):
        await one.complete(id, {"late": True})
    task = await other.dequeue("lively", timeout_ms=30_000)
    assert task is not None
    assert task.id == id
    await other.complete(id, {"late": False})
    assert (await one.get(id)).result == {"late": False}


async def test_while_the_server_is_away_everything_waits_for_it() -> None:
    server = redis.Server(fsync="always")  # else it may forget what it has acknowledged
    server.run()
    try:
        async with TaskQueue(agents_on(server.url)) as queue:
            id = await queue.enqueue(Task(subagent_type="researcher", prompt="a"))
            other = await queue.enqueue(Task(subagent_type="coder", prompt="b"))
            assert await queue.dequeue("agent", timeout_ms=0) is not None
            assert await queue.dequeue("agent", timeout_ms=0) is not None
            server.kill()
            calls = (
                queue.complete(id, {"done": True}),
                queue.fail(other, "no paper"),
                queue.enqueue(Task(subagent_type="researcher", prompt="c")),
                queue.dequeue("agent", timeout_ms=60_000),
            )
            waiting = [asyncio.create_task(call) for call in calls]
            done, _ = await asyncio.wait(waiting, timeout=1)
            assert not done
            await asyncio.to_thread(server.run)
            _, _, third, task = await asyncio.gather(*waiting)
            assert task is not None
            assert (task.id, task.prompt) == (third, "c")
            assert (await queue.get(id)).result == {"done": True}
            assert (await queue.get(other)).status is TaskStatus.FAILED
    finally:
        server.stop()


async def test_who_leaves_gives_back_what_it_holds(queues: tuple[TaskQueue, TaskQueue]) -> None:
    one, other = queues
    id = await one.enqueue(Task(subagent_type="researcher", prompt="a"))
    assert await one.dequeue("leaver", timeout_ms=0) is not None
    await one.unregister_worker("leaver", "going home")
    task = await other.dequeue("stayer", timeout_ms=30_000)
    assert task is not None
    assert (task.id, task.retry_count) == (id, 0)


async def test_what_is_held_is_kept_while_its_program_lives(
    queues: tuple[TaskQueue, TaskQueue],
) -> None:
    one, other = queues
    id = await one.enqueue(Task(subagent_type="researcher", prompt="a"))
    assert await one.dequeue("busy", timeout_ms=0) is not None
    stored = (await one._app.handle(id).refresh()).lease_until

    async def renewed() -> bool:
        now = (await other._app.handle(id).refresh()).lease_until
        return now is not None and stored is not None and now > stored

    await until(renewed, within_s=30)
    await one.complete(id, {})
