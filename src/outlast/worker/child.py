"""The process of one isolated attempt: reads its request, runs the handler, tells what happens.

Started by `isolate.run_child`, which calls `main()` with the number of a pipe. The request comes on
standard input, a line; news and the end go to the pipe <fd>, a line each, told apart by its first
byte: `p` progress, `c` chunk, then one of `r` result, `a` again (with milliseconds), `w` wait, `f`
failure. Four are answered by a line on standard input: `s` (steps to store), `u` (usage to store),
`l` (a limit to close) and `t` (look at this task).
"""

from __future__ import annotations

import asyncio
import inspect
import os
import resource
import signal
import sys
import threading
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import BinaryIO, NoReturn, TypeVar

import msgspec
from msgspec import Struct

from outlast.context import DONE, Again, Context, Done, SyncContext
from outlast.core.failures import classify
from outlast.core.model import Json, Lease, NewTask, Step, Task, TaskId
from outlast.core.states import Ms
from outlast.loading import load_app
from outlast.steps import Suspended, Wait
from outlast.worker.ledger import lost
from outlast.worker.parent import die_with

T = TypeVar("T")
LOST = b"lost"


class Request(Struct, frozen=True, kw_only=True):
    """All that the child needs to know."""

    target: str
    lease: Lease
    now: Ms
    parent: int
    path: tuple[str, ...]
    memory_mb: int | None = None


class Pipe:
    """The line of the child's context."""

    def __init__(self, fd: int, answers: BinaryIO, task_id: TaskId, now: Ms) -> None:
        self._fd = fd
        self._answers = answers
        self._task_id = task_id
        self._begun = monotonic()
        self._now = now
        self._lock = threading.Lock()
        self.cancelled = False
        self.home: asyncio.Task[object] | None = None

    @property
    def elapsed_ms(self) -> int:
        return round((monotonic() - self._begun) * 1_000)

    @property
    def now(self) -> Ms:
        return self._now + self.elapsed_ms

    def tell(self, *, progress: Json | None = None, chunk: Json | None = None) -> Awaitable[None]:
        if progress is not None:
            self.write(b"p", progress)
        if chunk is not None:
            self.write(b"c", chunk)
        return DONE

    def record(self, steps: tuple[Step, ...], spawn: tuple[NewTask, ...] = ()) -> Awaitable[None]:
        self._ask(b"s", msgspec.json.encode(Wait(steps=steps, spawn=spawn)))
        return DONE

    def used(self, usage: Json) -> Awaitable[None]:
        self._ask(b"u", usage)
        return DONE

    def paused(self, key: str, pause_ms: Ms) -> Awaitable[None]:
        self._ask(b"l", msgspec.json.encode((key, pause_ms)))
        return DONE

    def look(self, task_id: TaskId) -> Awaitable[Task | None]:
        return Done(msgspec.json.decode(self._ask(b"t", task_id.encode()), type=Task | None))

    def aside(self, fn: Callable[[], T]) -> Awaitable[T]:
        return Done(fn())  # there is nobody here to block

    def _ask(self, kind: bytes, data: bytes) -> bytes:
        with self._lock:
            self._write(kind, data)
            answer = self._answers.readline()[:-1]
        if answer == LOST:
            raise lost(self._task_id)
        return answer

    def write(self, kind: bytes, data: bytes) -> None:
        with self._lock:
            self._write(kind, data)

    def _write(self, kind: bytes, data: bytes) -> None:
        line = memoryview(kind + data + b"\n")
        while line:
            line = line[os.write(self._fd, line) :]


def run(request: Request, pipe: Pipe) -> None:
    """Everything that can go wrong in here ends as a failure of the attempt."""
    try:
        handler = load_app(request.target).handlers[request.lease.type]
        args, kwargs = handler.signature.call_args(request.lease.payload)
        is_async = inspect.iscoroutinefunction(handler.fn)
        if handler.signature.takes_context:
            args = ((Context if is_async else SyncContext)(request.lease, pipe), *args)
        if is_async:
            result = asyncio.run(_cancellable(handler.fn(*args, **kwargs), pipe))
        else:
            result = handler.fn(*args, **kwargs)
        if isinstance(result, Again):
            pipe.write(b"a", str(result.delay_ms(pipe.now)).encode())
        else:
            pipe.write(b"r", handler.signature.encode_result(result))
    except Suspended as suspended:
        pipe.write(b"w", msgspec.json.encode(suspended.wait))
    except BaseException as error:
        if not pipe.cancelled:
            pipe.write(b"f", msgspec.json.encode(classify(error, now_ms=pipe.now)))


async def _cancellable(work: Awaitable[object], pipe: Pipe) -> object:
    task = pipe.home = asyncio.ensure_future(work)

    def stop() -> None:
        pipe.cancelled = True
        task.cancel()

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop)
    return await task


def main() -> NoReturn:
    fd = int(sys.argv[1])
    os.set_inheritable(fd, False)  # a grandchild that holds the pipe would keep it from ending
    answers = os.fdopen(os.dup(0), "rb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)  # what a handler or its children read is not meant for us
    os.close(nothing)
    request = msgspec.json.decode(answers.readline(), type=Request)
    die_with(request.parent)
    pipe = Pipe(fd, answers, request.lease.id, request.now)

    def stop(_signal: int, _frame: object) -> NoReturn:
        # Plain code has no cancellation; this lets its `finally` blocks run.
        pipe.cancelled = True
        raise SystemExit(128 + signal.SIGTERM)

    signal.signal(signal.SIGTERM, stop)
    if request.memory_mb is not None:
        most = request.memory_mb * 1_048_576
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    sys.path[:] = request.path
    run(request, pipe)
    sys.stdout.flush()
    sys.stderr.flush()
    # Not sys.exit: a thread that the handler left behind must not keep the process alive.
    os._exit(128 + signal.SIGTERM if pipe.cancelled else 0)
